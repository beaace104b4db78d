"""Decodes messages into rows of the stored tables; a bad record has a reason, not an error."""

from __future__ import annotations

import base64
import json
import math
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from mercury.geo.outline import bounding_circle
from mercury.mediator import NAMES
from mercury.model import topics
from mercury.model.delivery import DeliveryState
from mercury.model.errors import AreaError, PacketError
from mercury.model.geojson import area_to_geojson
from mercury.model.message import Kind, Value
from mercury.pipeline.history.schemas import ORIGIN
from mercury.pipeline.schemas import joined, schema
from mercury.pipeline.sensed import read_sensed
from mercury.wire import mercury_pb2 as pb
from mercury.wire import parse
from mercury.wire.codec import deliveries_from_pb
from mercury.wire.fields import area_from_pb, values_from_pb
from mercury.wire.records import on_earth

Said = dict[str, Any]
_POLICIES = {int(strength): name for name, strength in NAMES.items()}
_PROBLEM = schema("problem string")


def read_event(topic: str, position: bytes | None, value: bytes) -> Said:
    """The columns of an event, but for its time."""
    envelope, fix = read_sensed(position, value)
    event = envelope.event
    speed_mps = event.speed_mps if event.HasField("speed_mps") else None
    return {
        "kind": topic.removeprefix(topics.EVENTS_PREFIX),
        "id": _id(envelope.id),
        "reporter": envelope.source.client or envelope.source.service,
        "lat": fix.lat if fix else None,
        "lon": fix.lon if fix else None,
        "heading_deg": _known(fix.heading_deg if fix else None),
        "speed_mps": _known(fix.speed_mps if fix else speed_mps),
        "radius_m": event.radius_m if event.HasField("radius_m") else None,
        "priority": envelope.priority,
        **_words(event),
    }


def read_alert(topic: str, position: bytes | None, value: bytes) -> Said:
    """The columns of an alert, but for its time."""
    envelope = parse(value)
    payload = envelope.WhichOneof("payload")
    event = envelope.event if payload == "event" else None
    # Messages between clients are content; their value `text` may be the text.
    said = event if event is not None else envelope.attributes
    lat = lon = None
    if said.HasField("position"):
        lat, lon = said.position.lat, said.position.lon
    shown = None
    ends = [envelope.expires_us]
    if envelope.destination.WhichOneof("target") == "area":
        try:
            area = area_from_pb(envelope.destination.area)
        except AreaError:
            raise PacketError("bad-coordinates") from None
        centre = bounding_circle(area.shape).center
        lat, lon = centre.lat, centre.lon
        shown = json.dumps(area_to_geojson(area), separators=(",", ":"))
        ends.append(area.valid_until_us or 0)
    kind = _kind(envelope.kind)
    return {
        "id": _id(envelope.id),
        "kind": (event.kind if event is not None else "") or kind,
        "message_kind": kind,
        "subject": envelope.topic or None,
        "policy": _POLICIES.get(envelope.policy),
        "sent_us": _instant(envelope.sent_us),
        "ends_us": min((end for end in map(_instant, ends) if end), default=None),
        "priority": envelope.priority,
        "source": _address(envelope.source),
        "destination": _address(envelope.destination),
        "expires_us": _instant(envelope.expires_us),
        "correlation": _id(envelope.correlation) if envelope.correlation else None,
        "area": shown,
        **_checked(lat, lon),
        **_words(said),
    }


def read_receipts(topic: str, position: bytes | None, value: bytes) -> Said:
    """The columns of receipts, but for their time."""
    envelope = parse(value)
    if envelope.WhichOneof("payload") != "deliveries":
        raise PacketError("no-receipts")
    found = deliveries_from_pb(envelope.deliveries)
    return {
        "message": str(found.message),
        "source": found.source or None,
        "kind": _kind(found.kind),
        "adapter": envelope.source.adapter or None,
        "recipients": len(found.rows),
        "waiting": sum(row.state is DeliveryState.WAITING for row in found.rows),
    }


def _checked(lat: float | None, lon: float | None) -> Said:
    if lat is None or lon is None:
        return {"lat": None, "lon": None}
    if not on_earth(lat, lon):
        raise PacketError("bad-coordinates")
    return {"lat": lat, "lon": lon}


def _words(written: pb.Event | pb.Attributes) -> Said:
    values = {key: _plain(value) for key, value in values_from_pb(written.values).items()}
    said = json.dumps(values, separators=(",", ":"), sort_keys=True) if values else None
    text = written.text if isinstance(written, pb.Event) else values.get("text")
    return {"text": text if isinstance(text, str) and text else None, "values": said}


def _kind(number: int) -> str | None:
    try:
        return Kind(number).name.lower()
    except ValueError:
        return None


def _plain(value: Value) -> Value | None:
    """The value as JSON types."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _known(value) if isinstance(value, float) else value


def _id(id: bytes) -> str:
    if len(id) != 16:
        raise PacketError("malformed")
    return str(uuid.UUID(bytes=id))


def _address(address: pb.Address) -> str | None:
    which = address.WhichOneof("target")
    name = getattr(address, which) if which else None
    return f"{which}:{name}" if isinstance(name, str) else which


def _known(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _instant(time_us: int) -> int | None:
    """A time that fits the column; 0 is null."""
    return time_us if 0 < time_us < 2**63 else None


def read_rows(
    read: Callable[[str, bytes | None, bytes], Said], columns: StructType, records: pa.Table
) -> pa.Table:
    """Records as rows with these columns; `problem` says why one cannot be read."""
    schema = to_arrow_schema(joined(columns, ORIGIN, _PROBLEM))
    kept = set(ORIGIN.names) | {"time_us"}  # as they came
    said = []
    needed = (records.column(name).to_pylist() for name in ("topic", "position", "value"))
    for topic, position, value in zip(*needed, strict=True):
        try:
            said.append(read(topic, position, value or b""))
        except PacketError as error:
            said.append({"problem": error.reason})
        except Exception as error:  # any error concerns this record alone
            said.append({"problem": f"unreadable: {type(error).__name__}"})
    return pa.table(
        [
            records.column(field.name).cast(field.type)
            if field.name in kept
            else pa.array([one.get(field.name) for one in said], field.type)
            for field in schema
        ],
        schema=schema,
    )
