"""The gateway's websocket, described in AsyncAPI 3.0; served at /asyncapi.json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mercury.matcher.gateway.schemas import (
    ERROR,
    EVENT,
    FIX,
    FOUND,
    PUBLICATION_FIELDS,
    QUERY,
    SQUARE,
    SUBSCRIPTION,
    Schema,
    either_scope,
    example,
    fields,
    structure,
)
from mercury.model.matching import EventReason, EventType
from mercury.wire.gateway_frames import EVENT_ROW, MAX_ROWS, MOVE_ROW, FrameType

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
                fields("id", *SUBSCRIPTION, *FIX, "handle"),
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
            fields("id", "handle", "side", *FIX),
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
_REFUSED = {**fields("id")["id"], "description": "That shared matchers refused after all"}
_TO_CLIENT: dict[str, dict[str, Any]] = {
    "answer": _message(
        "The answer to each op, or to a list of ops a list of answers",
        structure(
            "ok",
            {
                "ok": {"const": True},
                "found": {"type": "array", "items": structure(" ".join(FOUND), fields(*FOUND))},
                **fields("n"),
            },
        ),
        {"ok": True, "n": 1},
    ),
    "refusal": _message(
        "What is wrong with an op, with a binary frame, or with what was declared before",
        structure(
            "error reason",
            {
                **ERROR["properties"],
                **fields("n"),
                "publication": _REFUSED,
                "subscription": _REFUSED,
            },
        ),
        {"error": "radius_m -5 is not more than 0 and at most 200000", "reason": "radius"},
    ),
    "event": _message(
        "What happened, for subscriptions without a handle",
        structure("event reason subscription publication topic time_us", fields(*EVENT)),
        example(*EVENT),
    ),
    "publications": _message(
        "What numbers in binary events stand for",
        structure("publications", {"publications": {"type": "array", "items": {"type": "object"}}}),
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


def _operation(action: str, messages: Iterable[str]) -> dict[str, Any]:
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
        "say": _operation("receive", _FROM_CLIENT),
        "tell": _operation("send", _TO_CLIENT),
    },
    "components": {"messages": _MESSAGES},
}
