"""Parses the gateway's requests: publications, subscriptions and positions.

One parser for all: a subscription is the same whether it is a query, comes by a WebSocket or is
streamed, and whether it came as JSON or as the parameters of an address. An error names the
field.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from mercury.matcher.gateway import schemas
from mercury.matcher.gateway.schemas import DEFAULT_LIMIT, MAX_HANDLE, MAX_VALUES
from mercury.model.area import LAST_INSTANT_US, Polygon
from mercury.model.errors import AreaError, FilterError, MatchingError, shown
from mercury.model.filter import Value
from mercury.model.geojson import area_from_geojson
from mercury.model.matching import NearSubscription, Publication

MAX_VALUE_CHARACTERS = 1000
MAX_NAME_BYTES = 160  # of a subscription; the gateway adds a prefix

_PUBLICATION = {"id", *schemas.PUBLICATION}
_ASK = {"id", *schemas.QUERY, "limit"}
_NEAR = {"id", *schemas.SUBSCRIPTION, *schemas.POSITION_UPDATE}
_MOVE = {"id", "side", *schemas.POSITION_UPDATE}
# Further fields of the objects of a websocket.
FRAME = frozenset({"op", "n", "handle"})


class PositionUpdate(NamedTuple):
    """A position of an entity, now or at a time."""

    lat: float
    lon: float
    accuracy_m: float
    time_us: int | None  # none: now


class NearRequest(NamedTuple):
    """A subscription, and its position."""

    subscription: NearSubscription
    update: PositionUpdate | None
    limit: int  # of the matches in the answer to a query


def read_publication(fields: Mapping[str, Any]) -> tuple[Publication, PositionUpdate | None]:
    """A publication, and its position, if given."""
    _refuse_unknown(fields, _PUBLICATION)
    publication = Publication(
        id=read_text(fields, "id"),
        topic=read_text(fields, "topic"),
        values=_values(fields.get("values")),
        radius_m=_number(fields, "radius_m") or 0.0,
        ttl_s=_number(fields, "ttl_s"),
    )
    return publication, read_update(fields)


def read_near(fields: Mapping[str, Any], prefix: str = "") -> NearRequest:
    """A subscription; the prefix is put before its id in the engine."""
    _refuse_unknown(fields, _NEAR)
    return _near_request(fields, DEFAULT_LIMIT, prefix)


def read_ask(fields: Mapping[str, Any], max_limit: int) -> NearRequest:
    """A query: a subscription that is answered once; it needs no id."""
    _refuse_unknown(fields, _ASK | _NEAR)
    limit = _whole({"limit": DEFAULT_LIMIT, **fields}, "limit", "a whole number above 0", 1)
    if limit is None:
        raise MatchingError("limit must be a whole number above 0, not nothing", "limit")
    wanted = _near_request({**fields, "id": fields.get("id") or "ask"}, min(limit, max_limit), "")
    if wanted.update is None and wanted.subscription.polygon is None:
        raise MatchingError("a query with a radius needs lat and lon", "lat")
    return wanted


def read_move(fields: Mapping[str, Any]) -> PositionUpdate:
    """A position, which is required."""
    _refuse_unknown(fields, _MOVE)
    update = read_update(fields)
    if update is None:
        raise MatchingError("a move needs lat and lon", "lat")
    return update


def read_update(fields: Mapping[str, Any]) -> PositionUpdate | None:
    """A position, if one is given."""
    lat, lon = _number(fields, "lat"), _number(fields, "lon")
    if lat is None and lon is None:
        for name in ("accuracy_m", "time_us"):
            if fields.get(name) is not None:
                raise MatchingError(f"{name} needs lat and lon", name)
        return None
    if lat is None or not -90.0 <= lat <= 90.0:
        raise MatchingError(f"lat must be between -90 and 90, not {shown(lat)}", "lat")
    if lon is None or not -180.0 <= lon <= 180.0:
        raise MatchingError(f"lon must be between -180 and 180, not {shown(lon)}", "lon")
    accuracy_m = _number(fields, "accuracy_m") or 0.0
    if accuracy_m < 0.0:
        raise MatchingError(f"accuracy_m {accuracy_m:g} is below 0", "accuracy_m")
    time_us = _whole(fields, "time_us", "whole microseconds since 1970", 0, LAST_INSTANT_US)
    return PositionUpdate(lat, lon, accuracy_m, time_us or None)


def read_handle(fields: Mapping[str, Any]) -> int | None:
    """The client's number for an entity, if given."""
    expected = f"a whole number from 0 to {MAX_HANDLE - 1}"
    return _whole(fields, "handle", expected, 0, MAX_HANDLE - 1)


def read_flag(fields: Mapping[str, Any], name: str, otherwise: bool) -> bool:
    value = fields.get(name, otherwise)
    if not isinstance(value, bool):
        raise MatchingError(f"{name} must be true or false, not {shown(value)}", name)
    return value


def read_json(text: str | bytes) -> Any:
    """Parse JSON; NaN and infinities are invalid (RFC 8259 §6)."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except MatchingError:
        raise
    except (ValueError, RecursionError) as error:
        raise MatchingError(f"not JSON: {error}", "json") from None


def fields_of_parameters(parameters: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of an address as the fields of a JSON object."""
    fields: dict[str, Any] = {}
    for name, text in parameters.items():
        if name in schemas.NUMBERS:
            fields[name] = _parsed_number(name, text)
        elif name == "inside":
            if text not in ("true", "false"):
                raise MatchingError(f"inside must be true or false, not {shown(text)}", name)
            fields[name] = text == "true"
        else:
            fields[name] = read_json(text) if name == "area" else text
    return fields


REFUSED = (MatchingError, FilterError, AreaError)


def _near_request(fields: Mapping[str, Any], limit: int, prefix: str) -> NearRequest:
    name = read_text(fields, "id")
    if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
        raise MatchingError(f"an id has 1 to {MAX_NAME_BYTES} bytes here", "id")
    subscription = NearSubscription(
        id=prefix + name,
        topic=read_text(fields, "topic"),
        radius_m=_number(fields, "radius_m"),
        polygon=_polygon(fields.get("area")),
        where=read_text({"where": "", **fields}, "where"),
        inside=read_flag(fields, "inside", False),
        dwell_s=_number(fields, "dwell_s"),
        hysteresis_m=_number(fields, "hysteresis_m"),
        ttl_s=_number(fields, "ttl_s"),
    )
    return NearRequest(subscription, read_update(fields), limit)


def _polygon(value: Any) -> Polygon | None:
    if value is None:
        return None
    area = area_from_geojson(value)
    if not isinstance(area.shape, Polygon):
        raise MatchingError("area must be a GeoJSON Polygon; a circle is written radius_m", "area")
    if (area.heading, area.valid_from_us, area.valid_until_us) != (None, None, None):
        raise MatchingError("an area has no heading and no validity here", "area")
    return area.shape


def _values(value: Any) -> dict[str, Value]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MatchingError(f"values must be an object, not {shown(value)}", "values")
    if len(value) > MAX_VALUES:
        raise MatchingError(f"{len(value)} values, at most {MAX_VALUES} are allowed", "values")
    for key, one in value.items():
        if not isinstance(one, str | int | float) or (
            isinstance(one, float) and not math.isfinite(one)
        ):
            raise MatchingError(
                f"values: {shown(key)} must be a text, a number, true or false", "values"
            )
        if isinstance(one, str) and len(one) > MAX_VALUE_CHARACTERS:
            raise MatchingError(
                f"values: {shown(key)} has more than {MAX_VALUE_CHARACTERS} characters", "values"
            )
        if isinstance(one, int) and not -(1 << 63) <= one < 1 << 63:
            raise MatchingError(f"values: {shown(key)} does not fit 64 bits", "values")
    return value


def read_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise MatchingError(f"{name} is missing", name)
    if not isinstance(value, str):
        raise MatchingError(f"{name} must be a text, not {shown(value)}", name)
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise MatchingError(f"{name} holds half a character", name)
    return value


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MatchingError(f"{name} must be a number, not {shown(value)}", name)
    if not abs(value) <= sys.float_info.max:
        raise MatchingError(f"{name} must be a finite number", name)
    return float(value)


def _whole(
    fields: Mapping[str, Any], name: str, expected: str, low: int, high: float = math.inf
) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MatchingError(f"{name} must be {expected}, not {shown(value)}", name)
    return value


def _parsed_number(name: str, text: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise MatchingError(f"{name} must be a number, not {shown(text)}", name)


def _refuse_unknown(fields: Mapping[str, Any], known: set[str]) -> None:
    unknown = fields.keys() - known - FRAME
    if unknown:
        name = min(unknown)
        raise MatchingError(
            f"there is no field {shown(name)} here; known are {', '.join(sorted(known))}", "field"
        )


def _refuse_constant(name: str) -> float:
    raise MatchingError(f"{name} is not a number of JSON", "number")
