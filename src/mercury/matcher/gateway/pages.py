"""What the gateway answers over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mercury.matcher.gateway import requests
from mercury.matcher.gateway.asyncapi import ASYNCAPI
from mercury.matcher.gateway.event_json import found_object, to_text
from mercury.matcher.gateway.openapi import OPENAPI
from mercury.matcher.gateway.register import Register
from mercury.matcher.gateway.stream import Stream, StreamResponse
from mercury.model.errors import MatchingError

Handler = Callable[[Request], Awaitable[Response]]


class Pages:
    """The paths of the gateway, and what each does."""

    def __init__(self, register: Register, health: Callable[[], tuple[str, str]]) -> None:
        self.streams: set[Stream] = set()
        self._register = register
        self._health = health
        self._hub = register.hub

    def application(self) -> Starlette:
        """All of them, as the server wants them."""
        routes = [
            ("GET", "/v1/near", self.near),
            ("POST", "/v1/near", self.near),
            ("GET", "/v1/near/stream", self.stream),
            ("PUT", "/v1/publications/{id:path}", self.publish),
            ("DELETE", "/v1/publications/{id:path}", self.withdraw),
            ("GET", "/v1/topics", self.topics),
            ("GET", "/healthz", self.health),
            ("GET", "/openapi.json", _document(OPENAPI)),
            ("GET", "/asyncapi.json", _document(ASYNCAPI)),
        ]
        by_path: dict[str, dict[str, Handler]] = {}
        for method, path, handler in routes:
            by_path.setdefault(path, {})[method] = handler
        return Starlette(
            routes=[
                Route(path, self._guarded(handlers), methods=list(handlers))
                for path, handlers in by_path.items()
            ],
            exception_handlers={HTTPException: _refused_request},
        )

    async def near(self, request: Request) -> Response:
        """What is there now."""
        wanted = requests.read_ask(await self._fields(request), self._register.settings.max_found)
        found = await self._register.ask(wanted)
        return _json({"found": [found_object(one) for one in found]})

    async def stream(self, request: Request) -> Response:
        """What comes, goes and stays, from now on."""
        fields = await self._fields(request)
        wanted = requests.read_near({**fields, "id": fields.get("id") or "stream"})
        if wanted.fix is None and wanted.subscription.polygon is None:
            raise MatchingError("a stream with a radius needs lat and lon", "lat")
        if self._register.is_full():
            self._register.counts["connections_refused"] += 1
            raise HTTPException(503, "there are too many connections here")
        return StreamResponse(Stream(self._register, wanted), self.streams)

    async def publish(self, request: Request) -> Response:
        """Declare something, or say where it is."""
        name = request.path_params["id"]
        fields = await self._fields(request)
        if fields.get("id", name) != name:
            raise MatchingError("the id in the body is not that of the address", "id")
        publication, fix = requests.read_publication({**fields, "id": name})
        is_new = self._hub.find("publication", name) is None
        self._register.publish(publication, fix, None)
        return _json({"ok": True}, 201 if is_new else 200)

    async def withdraw(self, request: Request) -> Response:
        """It is no more."""
        name = request.path_params["id"]
        ref = self._hub.find("publication", name)
        if ref is None:
            raise HTTPException(404, f"there is no publication {name!r}")
        self._hub.withdraw(ref)
        return _json({"ok": True})

    async def topics(self, request: Request) -> Response:
        """What is spoken of here."""
        return _json({"topics": self._hub.topics()})

    async def health(self, request: Request) -> Response:
        """Whether we do our work, and if not, why."""
        status, reason = self._health()
        gauges = {**self._hub.statistics().gauges, **self._register.statistics().gauges}
        why = {"reason": reason} if reason else {}
        answer = {"status": status, "part": "matcher", **why, **gauges}
        return _json(answer, 200 if status == "ok" else 503)

    def _guarded(self, handlers: dict[str, Handler]) -> Handler:
        async def answer(request: Request) -> Response:
            self._register.counts["requests"] += 1
            method = "GET" if request.method == "HEAD" else request.method
            try:
                return await handlers[method](request)
            except requests.REFUSED as error:
                sentence, reason = requests.refusal(error)
                self._register.dropped[f"refused-{reason}"] += 1
                return _json({"error": sentence, "reason": reason}, 400)

        return answer

    async def _fields(self, request: Request) -> dict[str, Any]:
        """What is asked for: the parameters of the address, or the object in the body."""
        if request.method in ("GET", "HEAD"):
            return requests.fields_of_parameters(request.query_params)
        limit = self._register.settings.max_text_bytes
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > limit:
                raise HTTPException(413, f"a body has at most {limit} bytes")
        said = requests.read_json(bytes(body))
        if not isinstance(said, dict):
            raise MatchingError("the body is a JSON object", "json")
        return said


async def _refused_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reasons = {404: "unknown", 405: "method", 413: "size", 503: "full"}
    reason = reasons.get(error.status_code, "request")
    answer = _json({"error": error.detail, "reason": reason}, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


def _document(document: dict[str, Any]) -> Handler:
    async def answer(_: Request) -> Response:
        return _json(document)

    return answer


def _json(value: Any, status: int = 200) -> Response:
    return Response(to_text(value) + "\n", status, media_type=JSONResponse.media_type)
