"""What the gateway answers over HTTP: pages, and streams of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from mercury.matcher.backend import Participant
from mercury.matcher.gateway import requests
from mercury.matcher.gateway.descriptions import ASYNCAPI, OPENAPI
from mercury.matcher.gateway.event_json import event_objects, found_object, to_text
from mercury.matcher.gateway.register import Register
from mercury.matching import Events
from mercury.model.errors import MatchingError
from mercury.model.matching import MAX_TTL_S
from mercury.wire.declarations import Refusal

SIGN_OF_LIFE_S = 15.0  # so that proxies keep it open, and lost readers are noticed

Handler = Callable[[Request], Awaitable[Response]]


class Stream(Participant):
    """A subscription at a fixed place, read by anything that speaks HTTP.

    Its events are queued for the reader; their number is limited as for a websocket.
    """

    def __init__(self, register: Register, wanted: requests.NearRequest) -> None:
        self._register = register
        self._name = wanted.subscription.id
        self._lines: list[str] = [": subscribed\n\n"]
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._changed.set()
        self._has_ended = False
        # It never moves and so would expire: it is kept as long as its reader.
        subscription = replace(
            wanted.subscription,
            id=register.new_client() + self._name,
            ttl_s=wanted.subscription.ttl_s or MAX_TTL_S,
        )
        ref = register.hub.subscribe(subscription, self)
        register.streams += 1
        if subscription.polygon is None:
            register.move(ref, wanted.update, None)

    def notify(self, events: Events) -> None:
        if self._has_ended:
            return
        if self._waiting_bytes > self._register.settings.high_mark_bytes:
            self._register.counts["connections_too_slow"] += 1
            gone = to_text({"error": "too much waits to be read", "reason": "slow"})
            self._lines = [f"event: error\ndata: {gone}\n\n"]
            self.end()
            return
        events = self._register.thinned(events, self._waiting_bytes)
        self._register.counts["events"] += len(events)
        for one in event_objects(events, self._register.hub, lambda _: self._name):
            line = f"event: {one['event']}\ndata: {to_text(one)}\n\n"
            self._lines.append(line)
            self._waiting_bytes += len(line)
        self._changed.set()

    def refuse(self, ref: int, refusal: Refusal) -> None:
        """The subscription is refused: notify the reader and end the stream."""
        if not self._has_ended:
            said = to_text({"error": refusal.sentence, "reason": refusal.reason})
            self._lines.append(f"event: error\ndata: {said}\n\n")
            self.end()

    def end(self) -> None:
        """End the stream."""
        if not self._has_ended:
            self._has_ended = True
            self._register.streams -= 1
            self._register.hub.forget(self)
            self._changed.set()

    async def texts(self) -> AsyncIterator[str]:
        """The text sent to the reader."""
        while True:
            try:
                async with asyncio.timeout(SIGN_OF_LIFE_S):
                    await self._changed.wait()
            except TimeoutError:
                yield ": alive\n\n"
                continue
            self._changed.clear()
            lines, self._lines, self._waiting_bytes = self._lines, [], 0
            if lines:
                yield "".join(lines)
            if self._has_ended:
                return


class StreamResponse(StreamingResponse):
    """The response of a stream, which ends together with it."""

    def __init__(self, stream: Stream, open_ones: set[Stream]) -> None:
        super().__init__(
            stream.texts(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )
        self._stream = stream
        self._open_ones = open_ones
        open_ones.add(stream)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open_ones.discard(self._stream)
            self._stream.end()


class Pages:
    """The paths of the gateway, and what each does."""

    def __init__(self, register: Register, health: Callable[[], tuple[str, str]]) -> None:
        self.streams: set[Stream] = set()
        self._register = register
        self._health = health
        self._hub = register.hub

    def application(self) -> Starlette:
        """The ASGI application of all paths."""
        by_path: dict[str, dict[str, Handler]] = {
            "/v1/near": {"GET": self.near, "POST": self.near},
            "/v1/near/stream": {"GET": self.stream},
            "/v1/publications/{id:path}": {"PUT": self.publish, "DELETE": self.withdraw},
            "/v1/topics": {"GET": self.topics},
            "/healthz": {"GET": self.health},
            "/openapi.json": {"GET": _document(OPENAPI)},
            "/asyncapi.json": {"GET": _document(ASYNCAPI)},
        }
        return Starlette(
            routes=[
                Route(path, self._guarded(handlers), methods=list(handlers))
                for path, handlers in by_path.items()
            ],
            exception_handlers={HTTPException: _refused_request},
        )

    async def near(self, request: Request) -> Response:
        wanted = requests.read_ask(await self._fields(request), self._register.settings.max_found)
        found = await self._register.ask(wanted)
        return _json({"found": [found_object(one) for one in found]})

    async def stream(self, request: Request) -> Response:
        fields = await self._fields(request)
        wanted = requests.read_near({**fields, "id": fields.get("id") or "stream"})
        if wanted.update is None and wanted.subscription.polygon is None:
            raise MatchingError("a stream with a radius needs lat and lon", "lat")
        if self._register.is_full():
            self._register.counts["connections_refused"] += 1
            raise HTTPException(503, "there are too many connections here")
        return StreamResponse(Stream(self._register, wanted), self.streams)

    async def publish(self, request: Request) -> Response:
        name = request.path_params["id"]
        fields = await self._fields(request)
        if fields.get("id", name) != name:
            raise MatchingError("the id in the body is not that of the address", "id")
        publication, update = requests.read_publication({**fields, "id": name})
        is_new = self._hub.find("publication", name) is None
        self._register.publish(publication, update, None)
        return _json({"ok": True}, 201 if is_new else 200)

    async def withdraw(self, request: Request) -> Response:
        name = request.path_params["id"]
        ref = self._hub.find("publication", name)
        if ref is None:
            raise HTTPException(404, f"there is no publication {name!r}")
        self._hub.withdraw(ref)
        return _json({"ok": True})

    async def topics(self, request: Request) -> Response:
        return _json({"topics": self._hub.topics()})

    async def health(self, request: Request) -> Response:
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
                return _json(self._register.refused(error), 400)

        return answer

    async def _fields(self, request: Request) -> dict[str, Any]:
        """The fields of a request: the parameters of the address, or the object in the body."""
        if request.method in ("GET", "HEAD"):
            return requests.fields_of_parameters(request.query_params)
        limit = self._register.settings.max_text_bytes
        timeout_s = self._register.settings.request_timeout_s
        body = bytearray()
        try:
            async with asyncio.timeout(timeout_s):
                async for part in request.stream():
                    body += part
                    if len(body) > limit:
                        raise HTTPException(413, f"a body has at most {limit} bytes")
        except TimeoutError:
            late = f"the body did not come within {timeout_s:g} s"
            raise HTTPException(408, late, {"Connection": "close"}) from None
        said = requests.read_json(bytes(body))
        if not isinstance(said, dict):
            raise MatchingError("the body is a JSON object", "json")
        return said


async def _refused_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reasons = {404: "unknown", 405: "method", 408: "timeout", 413: "size", 503: "full"}
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
