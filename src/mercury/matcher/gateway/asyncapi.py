"""The gateway's websocket, described in AsyncAPI 3.0; served at /asyncapi.json."""

from __future__ import annotations

from typing import Any

from mercury.matcher.gateway.schemas import (
    ERROR,
    EVENT,
    EVENT_EXAMPLE,
    FIX,
    FOUND,
    ID,
    LIMIT,
    PUBLICATION,
    QUERY,
    SQUARE,
    SUBSCRIPTION,
    Schema,
    either_scope,
)
from mercury.wire.gateway_frames import EVENT_ROW, MAX_ROWS, MOVE_ROW

_N: Schema = {"type": ["number", "string"], "description": "Repeated in the answer"}
_HANDLE: Schema = {
    "type": "integer",
    "minimum": 0,
    "maximum": (1 << 20) - 1,
    "description": "A number for it in binary frames, chosen by the client",
}
_SIDE: Schema = {"enum": ["publication", "subscription"]}


def _op(name: str, summary: str, fields: dict[str, Schema], *required: str) -> Schema:
    return {
        "type": "object",
        "description": summary,
        "required": ["op", *required],
        "properties": {"op": {"const": name}, **fields, "n": _N},
        "additionalProperties": False,
    }


def _message(summary: str, payload: Schema, *examples: Any) -> dict[str, Any]:
    return {
        "summary": summary,
        "contentType": "application/json",
        "payload": payload,
        "examples": [{"payload": example} for example in examples],
    }


def _rows(dtype: Any) -> str:
    fields = ", ".join(f"{name} {dtype[name].str}" for name in dtype.names)
    return f"{dtype.itemsize} bytes each: {fields} (NumPy's names of types)"


_FRAME = "Header of 8 bytes: the letters Mv, version u8 = 1, type u8, count of rows u32; then rows"

# From the client. A test says all examples to a gateway, in this order.
_FROM_CLIENT: dict[str, dict[str, Any]] = {
    "hello": _message(
        "Whether binary events are preceded by what their numbers stand for",
        _op("hello", "Optional", {"names": {"type": "boolean", "default": True}}),
        {"op": "hello", "names": False},
    ),
    "publish": _message(
        "Declare or change something that moves",
        _op(
            "publish",
            "Withdrawn when the connection closes",
            {"id": ID, **PUBLICATION, "handle": _HANDLE},
            "id",
            "topic",
        ),
        {
            "op": "publish",
            "id": "taxi-1",
            "topic": "taxi",
            "values": {"seats": 4},
            "ttl_s": 60,
            "handle": 7,
            "lat": 60.17,
            "lon": 24.94,
            "n": 1,
        },
    ),
    "near": _message(
        "Be told of what is near, from now on",
        either_scope(
            _op(
                "near",
                "A circle moves with the subscription, an area stays",
                {"id": ID, **SUBSCRIPTION, **FIX, "handle": _HANDLE},
                "id",
                "topic",
            )
        ),
        {
            "op": "near",
            "id": "me",
            "topic": "taxi",
            "radius_m": 500,
            "where": "seats >= 2",
            "inside": True,
            "dwell_s": 30,
            "hysteresis_m": 10,
            "handle": 8,
            "lat": 60.17,
            "lon": 24.94,
        },
        {"op": "near", "id": "centre", "topic": "taxi", "area": SQUARE},
    ),
    "move": _message(
        "Say where something is",
        {
            **_op(
                "move",
                "side is needed only if both sides have the id",
                {"id": ID, "handle": _HANDLE, "side": _SIDE, **FIX},
                "lat",
                "lon",
            ),
            "anyOf": [{"required": ["id"]}, {"required": ["handle"]}],
        },
        {"op": "move", "id": "taxi-1", "lat": 60.171, "lon": 24.941, "accuracy_m": 5},
        {"op": "move", "handle": 8, "lat": 60.17, "lon": 24.94},
    ),
    "ask": _message(
        "What is there now",
        either_scope(_op("ask", "The grammar of near, once", {**QUERY, "limit": LIMIT}, "topic")),
        {"op": "ask", "topic": "taxi", "radius_m": 500, "lat": 60.17, "lon": 24.94, "limit": 100},
    ),
    "withdraw": _message(
        "It is no more",
        {
            **_op("withdraw", "Of either side", {"id": ID, "handle": _HANDLE, "side": _SIDE}),
            "anyOf": [{"required": ["id"]}, {"required": ["handle"]}],
        },
        {"op": "withdraw", "handle": 7},
        {"op": "withdraw", "id": "me"},
    ),
    "moves": {
        "summary": "Updates of many things, by handle (mercury.binary.v1 only)",
        "contentType": "application/octet-stream",
        "payload": {
            "type": "string",
            "format": "binary",
            "description": f"{_FRAME} (type 1), at most {MAX_ROWS}, {_rows(MOVE_ROW)}; "
            "accuracy 0 is unknown, time 0 is when it arrives",
        },
    },
}
_TO_CLIENT: dict[str, dict[str, Any]] = {
    "answer": _message(
        "The answer to each op, or to a list of ops a list of answers",
        {
            "type": "object",
            "required": ["ok"],
            "properties": {
                "ok": {"const": True},
                "found": {"type": "array", "items": FOUND},
                "n": _N,
            },
        },
        {"ok": True, "n": 1},
    ),
    "refusal": _message(
        "What is wrong with an op, with a binary frame, or with what was declared before",
        {
            **ERROR,
            "properties": {
                **ERROR["properties"],
                "n": _N,
                "publication": {**ID, "description": "That shared matchers refused after all"},
                "subscription": {**ID, "description": "That shared matchers refused after all"},
            },
        },
        {"error": "radius_m -5 is not more than 0 and at most 200000", "reason": "radius"},
    ),
    "event": _message("What happened, for subscriptions without a handle", EVENT, EVENT_EXAMPLE),
    "publications": _message(
        "What numbers in binary events stand for",
        {
            "type": "object",
            "required": ["publications"],
            "properties": {"publications": {"type": "array", "items": {"type": "object"}}},
        },
        {"publications": [{"number": 12, "id": "taxi-1", "topic": "taxi", "values": {"seats": 4}}]},
    ),
    "events": {
        "summary": "What happened, for subscriptions with a handle (mercury.binary.v1 only)",
        "contentType": "application/octet-stream",
        "payload": {
            "type": "string",
            "format": "binary",
            "description": f"{_FRAME} (type 2), {_rows(EVENT_ROW)}; happening 1 enter, 2 inside, "
            "3 exit, 4 dwell; cause 1 moved, 2 changed, 3 withdrawn, 4 expired, 5 time",
        },
    },
    "progress": {
        "summary": "How many rows were taken and dropped so far (mercury.binary.v1 only)",
        "contentType": "application/octet-stream",
        "payload": {
            "type": "string",
            "format": "binary",
            "description": f"{_FRAME} (type 3), one row: taken u64, dropped u64",
        },
    },
}


def _references(names: Any) -> list[dict[str, str]]:
    return [{"$ref": f"#/channels/match/messages/{name}"} for name in names]


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
            "messages": {
                name: {"$ref": f"#/components/messages/{name}"}
                for name in (*_FROM_CLIENT, *_TO_CLIENT)
            },
        }
    },
    "operations": {
        "say": {
            "action": "receive",
            "channel": {"$ref": "#/channels/match"},
            "messages": _references(_FROM_CLIENT),
        },
        "tell": {
            "action": "send",
            "channel": {"$ref": "#/channels/match"},
            "messages": _references(_TO_CLIENT),
        },
    },
    "components": {"messages": {**_FROM_CLIENT, **_TO_CLIENT}},
}
