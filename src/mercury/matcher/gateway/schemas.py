"""The schemas that both descriptions of the gateway share, in JSON Schema 2020-12."""

from __future__ import annotations

from typing import Any

from mercury.model.matching import MAX_CORNERS, MAX_ID_BYTES, MAX_RADIUS_M, MAX_TTL_S

Schema = dict[str, Any]

SQUARE = {
    "type": "Polygon",
    "coordinates": [
        [[24.93, 60.16], [24.96, 60.16], [24.96, 60.18], [24.93, 60.18], [24.93, 60.16]]
    ],
}

ID: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_ID_BYTES}
TOPIC: Schema = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.\\-]{0,199}$"}
LATITUDE: Schema = {"type": "number", "minimum": -90, "maximum": 90}
LONGITUDE: Schema = {"type": "number", "minimum": -180, "maximum": 180}
TIME_US: Schema = {
    "type": "integer",
    "minimum": 0,
    "description": "Microseconds since 1970 UTC",
}
VALUES: Schema = {
    "type": "object",
    "maxProperties": 64,
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
TTL: Schema = {
    "type": "number",
    "exclusiveMinimum": 0,
    "maximum": MAX_TTL_S,
    "description": "It is forgotten so many seconds after it was last heard of",
}
WHERE: Schema = {
    "type": "string",
    "maxLength": 4096,
    "description": "A filter over the values, such as seats >= 2 and brand == 'X'",
}
RADIUS: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_RADIUS_M}
AREA: Schema = {
    "type": "object",
    "description": f"A GeoJSON Polygon (RFC 7946) of at most {MAX_CORNERS} corners",
    "required": ["type", "coordinates"],
    "properties": {"type": {"const": "Polygon"}, "coordinates": {"type": "array"}},
}

FIX: dict[str, Schema] = {
    "lat": LATITUDE,
    "lon": LONGITUDE,
    "accuracy_m": {"type": "number", "minimum": 0},
    "time_us": TIME_US,
}
PUBLICATION: dict[str, Schema] = {
    "topic": TOPIC,
    "values": VALUES,
    "radius_m": {"type": "number", "minimum": 0, "description": "A scope of its own"},
    "ttl_s": TTL,
    **FIX,
}
QUERY: dict[str, Schema] = {
    "topic": TOPIC,
    "radius_m": RADIUS,
    "area": AREA,
    "where": WHERE,
    "lat": LATITUDE,
    "lon": LONGITUDE,
}
LIMIT: Schema = {"type": "integer", "minimum": 1, "default": 100}
SUBSCRIPTION: dict[str, Schema] = {
    **QUERY,
    "inside": {
        "type": "boolean",
        "default": False,
        "description": "Told at every update of either side, not of changes alone",
    },
    "dwell_s": {"type": "number", "minimum": 0},
    "hysteresis_m": {
        "type": "number",
        "minimum": 0,
        "description": "How far outside the scope is out",
    },
    "ttl_s": TTL,
}

EVENT: Schema = {
    "type": "object",
    "required": ["event", "reason", "subscription", "publication", "topic", "time_us"],
    "properties": {
        "event": {"enum": ["enter", "inside", "exit", "dwell"]},
        "reason": {"enum": ["moved", "changed", "withdrawn", "expired", "time"]},
        "subscription": ID,
        "publication": ID,
        "topic": TOPIC,
        "values": VALUES,
        "lat": LATITUDE,
        "lon": LONGITUDE,
        "distance_m": {"type": "number"},
        "time_us": TIME_US,
    },
}
EVENT_EXAMPLE = {
    "event": "enter",
    "reason": "moved",
    "subscription": "me",
    "publication": "taxi-1",
    "topic": "taxi",
    "values": {"seats": 4},
    "lat": 60.17,
    "lon": 24.94,
    "distance_m": 12.5,
    "time_us": 1700000000000000,
}
FOUND: Schema = {
    "type": "object",
    "required": ["publication", "topic", "values", "lat", "lon", "distance_m", "time_us"],
    "properties": {
        "publication": ID,
        "topic": TOPIC,
        "values": VALUES,
        "lat": LATITUDE,
        "lon": LONGITUDE,
        "distance_m": {"type": "number"},
        "time_us": TIME_US,
    },
}
ERROR: Schema = {
    "type": "object",
    "required": ["error", "reason"],
    "properties": {
        "error": {"type": "string", "description": "A sentence"},
        "reason": {"type": "string", "description": "A word to count it under"},
    },
}


def either_scope(schema: Schema) -> Schema:
    """A scope is a radius or an area, never both."""
    return {**schema, "oneOf": [{"required": ["radius_m"]}, {"required": ["area"]}]}
