"""The gateway described: its HTTP paths in OpenAPI 3.1, its websocket in AsyncAPI 3.0.

Served at /openapi.json and /asyncapi.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from mercury.matcher.gateway.schemas import (
    ERROR,
    EVENT,
    FOUND,
    POSITION_UPDATE,
    PUBLICATION_FIELDS,
    QUERY,
    SQUARE,
    SUBSCRIPTION,
    Schema,
    either_scope,
    example,
    fields,
    structure,
    text,
)
from mercury.model.matching import EventReason, EventType
from mercury.wire.gateway_frames import EVENT_ROW, MAX_ROWS, MOVE_ROW, FrameType


def _list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


_NUMBER: Schema = {"type": "integer"}
_TOPIC = {"topic": text(), "publications": _NUMBER, "subscriptions": _NUMBER}
_NEARBY = structure(" ".join(FOUND), fields(*FOUND))
_SCHEMAS: dict[str, Schema] = {
    "Error": ERROR,
    "Event": structure("event reason subscription publication topic time_us", fields(*EVENT)),
    "NearbyPublication": _NEARBY,
    "Publication": structure("topic", PUBLICATION_FIELDS, additionalProperties=False),
    "Query": either_scope(structure("topic", fields(*QUERY, "limit"))),
    "Topics": structure("topics", {"topics": _list_of(structure(" ".join(_TOPIC), _TOPIC))}),
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


def _get(name: str, summary: str, **how: Any) -> dict[str, Any]:
    """A path that is only read."""
    return {"get": _operation(name, summary, **how)}


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
_LIST = _list_of(_named("NearbyPublication"))
_FOUND = _answer("What was found", structure("found", {"found": _LIST}))
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
        "/v1/near/stream": _get(
            "streamNear",
            "What comes near a place, stays and goes, as server-sent events",
            parameters=_parameters(SUBSCRIPTION),
            _200=_STREAM,
            _400=_WRONG,
        ),
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
        "/v1/topics": _get(
            "listTopics",
            "Topics, and how many publications and subscriptions each has",
            _200=_answer("In the order of their names", _named("Topics")),
        ),
        "/healthz": _get(
            "health",
            "Whether the matcher works, and how much it holds",
            _200=_answer("It works", _OBJECT),
            _503=_answer("It does not; `reason` says why", _OBJECT),
        ),
        "/openapi.json": _get("describeHttp", "This description", _200=_answer("OpenAPI", _OBJECT)),
        "/asyncapi.json": _get(
            "describeWebsockets",
            "The description of the websocket",
            _200=_answer("AsyncAPI", _OBJECT),
        ),
    },
    "components": {"schemas": _SCHEMAS},
}


_BY_EITHER = {"anyOf": [{"required": ["id"]}, {"required": ["handle"]}]}


def _op(name: str, note: str, required: str, properties: dict[str, Schema], **more: Any) -> Schema:
    return structure(
        f"op {required}",
        {"op": {"const": name}, **properties, **fields("n")},
        description=note,
        additionalProperties=False,
        **more,
    )


def _message(summary: str, payload: Schema, *examples: Any) -> dict[str, Any]:
    return {
        "summary": summary,
        "contentType": "application/json",
        "payload": payload,
        "examples": [{"payload": one} for one in examples],
    }


def _frame(summary: str, kind: FrameType, rows: str) -> dict[str, Any]:
    header = "Header of 8 bytes: the letters Mv, version u8 = 1, type u8, count of rows u32"
    return {
        "summary": f"{summary} (mercury.binary.v1 only)",
        "contentType": "application/octet-stream",
        "payload": {
            "type": "string",
            "format": "binary",
            "description": f"{header}; then rows (type {int(kind)}), {rows}",
        },
    }


def _rows(dtype: Any) -> str:
    columns = ", ".join(f"{name} {dtype[name].str}" for name in dtype.names)
    return f"{dtype.itemsize} bytes each: {columns} (NumPy's names of types)"


def _numbers(names: Iterable[EventType | EventReason]) -> str:
    return ", ".join(f"{int(one)} {one.name.lower()}" for one in names)


# From the client. A test says all examples to a gateway, in this order.
_FROM_CLIENT: dict[str, dict[str, Any]] = {
    "hello": _message(
        "Whether binary events are preceded by what their numbers stand for",
        _op("hello", "Optional", "", {"names": {"type": "boolean", "default": True}}),
        {"op": "hello", "names": False},
    ),
    "publish": _message(
        "Declare or change something that moves",
        _op(
            "publish",
            "Withdrawn when the connection closes",
            "id topic",
            {**fields("id"), **PUBLICATION_FIELDS, **fields("handle")},
        ),
        example("id", "topic", "values", "ttl_s", "handle", "lat", "lon", "n", op="publish"),
    ),
    "near": _message(
        "Be notified of what is near, from now on",
        either_scope(
            _op(
                "near",
                "A circle moves with the subscription, an area stays",
                "id topic",
                fields("id", *SUBSCRIPTION, *POSITION_UPDATE, "handle"),
            )
        ),
        example(
            *("topic", "radius_m", "where", "inside", "dwell_s", "hysteresis_m", "lat", "lon"),
            op="near",
            id="me",
            handle=8,
        ),
        {"op": "near", "id": "centre", "topic": "taxi", "area": SQUARE},
    ),
    "move": _message(
        "Say where something is",
        _op(
            "move",
            "side is needed only if both sides have the id",
            "lat lon",
            fields("id", "handle", "side", *POSITION_UPDATE),
            **_BY_EITHER,
        ),
        {"op": "move", "id": "taxi-1", "lat": 60.171, "lon": 24.941, "accuracy_m": 5},
        example("lat", "lon", op="move", handle=8),
    ),
    "ask": _message(
        "What is there now",
        either_scope(_op("ask", "The fields of near, once", "topic", fields(*QUERY, "limit"))),
        example("topic", "radius_m", "lat", "lon", op="ask", limit=100),
    ),
    "withdraw": _message(
        "It is no more",
        _op("withdraw", "Of either side", "", fields("id", "handle", "side"), **_BY_EITHER),
        {"op": "withdraw", "handle": 7},
        {"op": "withdraw", "id": "me"},
    ),
    "moves": _frame(
        "Updates of many things, by handle",
        FrameType.MOVES,
        f"at most {MAX_ROWS}, {_rows(MOVE_ROW)}; accuracy 0 is unknown, time 0 is when it arrives",
    ),
}
_LATE = {**fields("id")["id"], "description": "That shared matchers refused after all"}
_TO_CLIENT: dict[str, dict[str, Any]] = {
    "answer": _message(
        "The answer to each op, or to a list of ops a list of answers",
        structure("ok", {"ok": {"const": True}, "found": _list_of(_NEARBY), **fields("n")}),
        {"ok": True, "n": 1},
    ),
    "refusal": _message(
        "What is wrong with an op, with a binary frame, or with what was declared before",
        structure(
            "error reason",
            {**ERROR["properties"], **fields("n"), "publication": _LATE, "subscription": _LATE},
        ),
        {"error": "radius_m -5 is not more than 0 and at most 200000", "reason": "radius"},
    ),
    "event": _message(
        "What happened, for subscriptions without a handle",
        _SCHEMAS["Event"],
        example(*EVENT),
    ),
    "publications": _message(
        "What numbers in binary events stand for",
        structure("publications", {"publications": _list_of(_OBJECT)}),
        {"publications": [example("id", "topic", "values", number=12)]},
    ),
    "events": _frame(
        "What happened, for subscriptions with a handle",
        FrameType.EVENTS,
        f"{_rows(EVENT_ROW)}; event_type {_numbers(EventType)}; reason {_numbers(EventReason)}",
    ),
    "progress": _frame(
        "How many rows were taken and dropped so far",
        FrameType.PROGRESS,
        "one: taken u64, dropped u64",
    ),
}


def _exchange(action: str, messages: Iterable[str]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": "#/channels/match"},
        "messages": [{"$ref": f"#/channels/match/messages/{name}"} for name in messages],
    }


_MESSAGES = {**_FROM_CLIENT, **_TO_CLIENT}

ASYNCAPI: dict[str, Any] = {
    "asyncapi": "3.0.0",
    "info": {
        "title": "Mercury: matching over websockets",
        "version": "1",
        "description": "Subprotocols mercury.json.v1 (the default) and mercury.binary.v1. A text "
        "frame holds one object or a list of objects. HTTP is described in /openapi.json.",
    },
    "defaultContentType": "application/json",
    "servers": {"gateway": {"host": "127.0.0.1:7480", "protocol": "ws"}},
    "channels": {
        "match": {
            "address": "/v1/match",
            "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _MESSAGES},
        }
    },
    "operations": {
        "say": _exchange("receive", _FROM_CLIENT),
        "tell": _exchange("send", _TO_CLIENT),
    },
    "components": {"messages": _MESSAGES},
}
