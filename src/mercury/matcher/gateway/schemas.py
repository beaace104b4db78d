"""The fields that clients and the gateway exchange, in JSON Schema 2020-12: one table for all.

Requests are read by these names, and both descriptions of the gateway are made from them.
"""

from __future__ import annotations

from typing import Any

from mercury.model.matching import MAX_CORNERS, MAX_ID_BYTES, MAX_RADIUS_M, MAX_TTL_S

Schema = dict[str, Any]

DEFAULT_LIMIT = 100
MAX_HANDLE = 1 << 20  # handles are below
MAX_VALUES = 64  # of a publication
MAX_WHERE_CHARACTERS = 4096

# The fields, in order.
POSITION_UPDATE = ("lat", "lon", "accuracy_m", "time_us")
PUBLICATION = ("topic", "values", "radius_m", "ttl_s", *POSITION_UPDATE)
QUERY = ("topic", "radius_m", "area", "where", "lat", "lon")
SUBSCRIPTION = (*QUERY, "inside", "dwell_s", "hysteresis_m", "ttl_s")
FOUND = ("publication", "topic", "values", "lat", "lon", "distance_m", "time_us")
EVENT = ("event", "reason", "subscription", *FOUND)


def text(**more: Any) -> Schema:
    return {"type": "string", **more}


def number(**more: Any) -> Schema:
    return {"type": "number", **more}


def whole(low: int, **more: Any) -> Schema:
    return {"type": "integer", "minimum": low, **more}


def structure(required: str, properties: dict[str, Schema], **more: Any) -> Schema:
    """An object; the required ones of its fields are separated by spaces."""
    return {"type": "object", "required": required.split(), "properties": properties, **more}


_ID = text(minLength=1, maxLength=MAX_ID_BYTES)
SQUARE = {
    "type": "Polygon",
    "coordinates": [
        [[24.93, 60.16], [24.96, 60.16], [24.96, 60.18], [24.93, 60.18], [24.93, 60.16]]
    ],
}

# Each with an example.
_FIELDS: dict[str, tuple[Any, Schema]] = {
    "id": ("taxi-1", _ID),
    "publication": ("taxi-1", _ID),
    "subscription": ("me", _ID),
    "topic": ("taxi", text(pattern="^[A-Za-z0-9][A-Za-z0-9_.\\-]{0,199}$")),
    "values": (
        {"seats": 4},
        {
            "type": "object",
            "maxProperties": MAX_VALUES,
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        },
    ),
    "radius_m": (500, number(exclusiveMinimum=0, maximum=MAX_RADIUS_M)),
    "area": (
        SQUARE,
        structure(
            "type coordinates",
            {"type": {"const": "Polygon"}, "coordinates": {"type": "array"}},
            description=f"A GeoJSON Polygon (RFC 7946) of at most {MAX_CORNERS} corners",
        ),
    ),
    "where": (
        "seats >= 2",
        text(
            maxLength=MAX_WHERE_CHARACTERS,
            description="A filter over the values, such as seats >= 2 and brand == 'X'",
        ),
    ),
    "lat": (60.17, number(minimum=-90, maximum=90)),
    "lon": (24.94, number(minimum=-180, maximum=180)),
    "accuracy_m": (5, number(minimum=0)),
    "time_us": (1700000000000000, whole(0, description="Microseconds since 1970 UTC")),
    "inside": (
        True,
        {
            "type": "boolean",
            "default": False,
            "description": "Notified at every update of either side, not of changes alone",
        },
    ),
    "dwell_s": (30, number(minimum=0)),
    "hysteresis_m": (10, number(minimum=0, description="How far outside the scope is out")),
    "ttl_s": (
        60,
        number(
            exclusiveMinimum=0,
            maximum=MAX_TTL_S,
            description="It is forgotten this many seconds after it was last heard of",
        ),
    ),
    "limit": (10, whole(1, default=DEFAULT_LIMIT)),
    "handle": (
        7,
        whole(
            0,
            maximum=MAX_HANDLE - 1,
            description="A number for it in binary frames, chosen by the client",
        ),
    ),
    "side": ("publication", {"enum": ["publication", "subscription"]}),
    "n": (1, {"type": ["number", "string"], "description": "Repeated in the answer"}),
    "event": ("enter", {"enum": ["enter", "inside", "exit", "dwell"]}),
    "reason": ("moved", {"enum": ["moved", "changed", "withdrawn", "expired", "time"]}),
    "distance_m": (12.5, number()),
}
NUMBERS = {
    name for name, (_, schema) in _FIELDS.items() if schema.get("type") in ("number", "integer")
}


def fields(*names: str) -> dict[str, Schema]:
    return {name: _FIELDS[name][1] for name in names}


def either_scope(schema: Schema) -> Schema:
    """A scope is a radius or an area, never both."""
    return {**schema, "oneOf": [{"required": ["radius_m"]}, {"required": ["area"]}]}


PUBLICATION_FIELDS = {
    **fields(*PUBLICATION),
    "radius_m": number(minimum=0, description="A scope of its own"),
}
ERROR = structure(
    "error reason",
    {
        "error": text(description="A sentence"),
        "reason": text(description="A word to count it under"),
    },
)


def example(*names: str, **more: Any) -> dict[str, Any]:
    """An object with these fields."""
    return {**{name: _FIELDS[name][0] for name in names}, **more}
