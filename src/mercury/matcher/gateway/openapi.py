"""The gateway's HTTP paths, described in OpenAPI 3.1; served at /openapi.json."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from mercury.matcher.gateway.schemas import (
    ERROR,
    EVENT,
    FOUND,
    PUBLICATION_FIELDS,
    QUERY,
    SUBSCRIPTION,
    Schema,
    either_scope,
    example,
    fields,
    structure,
    text,
)

_SCHEMAS: dict[str, Schema] = {
    "Error": ERROR,
    "Event": structure("event reason subscription publication topic time_us", fields(*EVENT)),
    "Found": structure(" ".join(FOUND), fields(*FOUND)),
    "Publication": structure("topic", PUBLICATION_FIELDS, additionalProperties=False),
    "Query": either_scope(structure("topic", fields(*QUERY, "limit"))),
    "Topics": structure(
        "topics",
        {
            "topics": {
                "type": "array",
                "items": structure(
                    "topic publications subscriptions",
                    {
                        "topic": text(),
                        "publications": {"type": "integer"},
                        "subscriptions": {"type": "integer"},
                    },
                ),
            }
        },
    ),
}


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(
    schema: Schema, examples: dict[str, Any] | None = None, kind: str = "application/json"
) -> dict[str, Any]:
    shown = {name: {"value": value} for name, value in (examples or {}).items()}
    return {kind: {"schema": schema, **({"examples": shown} if shown else {})}}


def _answer(description: str, schema: Schema) -> dict[str, Any]:
    return {"description": description, "content": _content(schema)}


def _operation(
    name: str,
    summary: str,
    *,
    parameters: Iterable[dict[str, Any]] = (),
    body: dict[str, Any] | None = None,
    **answers: dict[str, Any],
) -> dict[str, Any]:
    """An operation; what it answers is given as `_200` and so on."""
    return {
        "operationId": name,
        "summary": summary,
        **({"parameters": list(parameters)} if parameters else {}),
        **({"requestBody": {"required": True, "content": body}} if body else {}),
        "responses": {status[1:]: answer for status, answer in answers.items()},
    }


def _parameters(names: Iterable[str]) -> list[dict[str, Any]]:
    parameters = []
    for name, schema in fields(*names).items():
        how = {"schema": schema, "example": example(name)[name]}
        if name == "area":  # instead of a radius
            how = {"content": _content(schema)}
        parameters.append({"name": name, "in": "query", "required": name == "topic", **how})
    return parameters


_OBJECT: Schema = {"type": "object"}
_DONE = structure("ok", {"ok": {"const": True}})
_WRONG = _answer("What is wrong with it, in a sentence", _named("Error"))
_FOUND = _answer(
    "What was found",
    structure("found", {"found": {"type": "array", "items": _named("Found")}}),
)
_STREAM = {
    "description": "One event each; the data is an object of /asyncapi.json",
    "content": _content(
        text(),
        {"enter": f"event: enter\ndata: {json.dumps(example(*EVENT))}\n\n"},
        "text/event-stream",
    ),
}
_PUBLICATION_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": fields("id")["id"],
    "example": "taxi-1",
}

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Mercury: matching over HTTP",
        "version": "1",
        "description": "What moves, who is near it, and who wants to know. "
        "Websockets are described in /asyncapi.json.",
    },
    "paths": {
        "/v1/near": {
            "get": _operation(
                "askNear",
                "What is near a place now, nearest first",
                parameters=_parameters((*QUERY, "limit")),
                _200=_FOUND,
                _400=_WRONG,
            ),
            "post": _operation(
                "askNearWithBody",
                "The same, with a body; for areas",
                body=_content(
                    _named("Query"),
                    {
                        "circle": example("topic", "lat", "lon", "radius_m"),
                        "polygon": example("topic", "area", "where"),
                    },
                ),
                _200=_FOUND,
                _400=_WRONG,
            ),
        },
        "/v1/near/stream": {
            "get": _operation(
                "streamNear",
                "What comes near a place, stays and goes, as server-sent events",
                parameters=_parameters(SUBSCRIPTION),
                _200=_STREAM,
                _400=_WRONG,
            )
        },
        "/v1/publications/{id}": {
            "put": _operation(
                "publish",
                "Declare something that moves, change it, or say where it is",
                parameters=[_PUBLICATION_ID],
                body=_content(
                    _named("Publication"),
                    {
                        "declared": example("topic", "values", "ttl_s"),
                        "moved": example("topic", "values", "lat", "lon", "accuracy_m"),
                    },
                ),
                _200=_answer("It was known and is changed", _DONE),
                _201=_answer("It is new", _DONE),
                _400=_WRONG,
            ),
            "delete": _operation(
                "withdraw",
                "It is no more",
                parameters=[_PUBLICATION_ID],
                _200=_answer("Withdrawn", _DONE),
                _404=_answer("There is none of that id", _named("Error")),
            ),
        },
        "/v1/topics": {
            "get": _operation(
                "listTopics",
                "Topics, and how many publications and subscriptions each has",
                _200=_answer("In the order of their names", _named("Topics")),
            )
        },
        "/healthz": {
            "get": _operation(
                "health",
                "Whether the matcher works, and how much it holds",
                _200=_answer("It works", _OBJECT),
                _503=_answer("It does not; `reason` says why", _OBJECT),
            )
        },
    }
    | {
        path: {"get": _operation(name, summary, _200=_answer(answer, _OBJECT))}
        for path, name, summary, answer in (
            ("/openapi.json", "describeHttp", "This description", "OpenAPI"),
            (
                "/asyncapi.json",
                "describeWebsockets",
                "The description of the websocket",
                "AsyncAPI",
            ),
        )
    },
    "components": {"schemas": _SCHEMAS},
}
