"""Messages in a line for people, and as JSON for programs."""

from __future__ import annotations

import base64
from collections import Counter
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from mercury.mediator.explain import address_text
from mercury.model.area import Area, Position
from mercury.model.delivery import Deliveries
from mercury.model.geojson import area_to_geojson
from mercury.model.message import Event, Message, Subscription, Telemetry
from mercury.model.printable import printable
from mercury.service.clock import clock_time, seconds_of


def iso_time(time_us: int) -> str:
    return datetime.fromtimestamp(seconds_of(time_us), UTC).isoformat(timespec="microseconds")


def message_line(message: Message) -> str:
    payload = message.payload
    said = ""
    if isinstance(payload, Telemetry):
        said = f"at {payload.position.lat:.5f},{payload.position.lon:.5f}"
        if payload.speed_mps is not None:
            said += f" {payload.speed_mps:.1f} m/s"
        if payload.heading_deg is not None:
            said += f" heading {payload.heading_deg:.0f}°"
    elif isinstance(payload, Event):
        said = f"{payload.kind}: {payload.text}" if payload.text else payload.kind
    elif isinstance(payload, Deliveries):
        states = Counter(row.state.label for row in payload.rows)
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        said = f"{payload.message}: {counts}"
    elif isinstance(payload, Subscription):
        said = f"{payload.topic} where {payload.filter or 'anything'}"
    if message.values:
        said += " " + " ".join(f"{key}={value!r}" for key, value in message.values.items())
    topic = f" [{message.topic}]" if message.topic else ""
    return printable(
        f"{clock_time(message.sent_us)} {message.kind.name:<9} {message.source} → "
        f"{address_text(message.destination)}{topic} {said}".rstrip()
    )


def message_json(message: Message) -> dict[str, Any]:
    return {
        "id": str(message.id),
        "kind": message.kind.name.lower(),
        "source": str(message.source),
        "destination": plain(message.destination.area) or str(message.destination),
        "topic": message.topic,
        "priority": message.priority,
        "sent": iso_time(message.sent_us),
        "expires": iso_time(message.expires_us) if message.expires_us else None,
        "correlation": str(message.correlation) if message.correlation else None,
        "payload": plain(message.payload),
    }


def plain(value: object) -> Any:
    """Turn the model's nouns into what JSON knows."""
    if isinstance(value, Area):
        return area_to_geojson(value)
    if isinstance(value, Position):
        return {"lat": value.lat, "lon": value.lon}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value
