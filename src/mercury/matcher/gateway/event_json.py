"""Events as a client reads them: objects of JSON, one each, or rows of a binary frame."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercury.matcher.backend import MatchingBackend
from mercury.matching import Events, NearbyPublication
from mercury.model.matching import EventReason, EventType, Publication
from mercury.wire.gateway_frames import EVENT_ROW
from mercury.wire.match_frames import rows, to_e7

_EVENT_TYPES = {int(event_type): event_type.name.lower() for event_type in EventType}
_REASONS = {int(reason): reason.name.lower() for reason in EventReason}


def event_objects(
    events: Events, hub: MatchingBackend, name_of: Callable[[int], str | None]
) -> Iterator[dict[str, Any]]:
    """One object per event; `name_of` returns its owner's name of a subscription."""
    columns = (
        events.event_type.tolist(),
        events.reason.tolist(),
        events.subscription.tolist(),
        events.publication.tolist(),
        np.round(events.lat, 7).tolist(),
        np.round(events.lon, 7).tolist(),
        np.round(events.distance_m.astype(np.float64), 2).tolist(),
        events.time_us.tolist(),
    )
    for event_type, reason, wanted, ref, lat, lon, distance_m, time_us in zip(
        *columns, strict=True
    ):
        name, publication = name_of(wanted), hub.publication(ref)
        if name is None or publication is None:
            continue  # removed meanwhile: it cannot be described
        yield {
            "event": _EVENT_TYPES[event_type],
            "reason": _REASONS[reason],
            "subscription": name,
            "publication": publication.id,
            "topic": publication.topic,
            "values": publication.values,
            "lat": lat,
            "lon": lon,
            "distance_m": distance_m,
            "time_us": time_us,
        }


def found_object(found: NearbyPublication) -> dict[str, Any]:
    """A match in the answer to a query."""
    return {
        "publication": found.publication.id,
        "topic": found.publication.topic,
        "values": found.publication.values,
        "lat": round(found.lat, 7),
        "lon": round(found.lon, 7),
        "distance_m": round(found.distance_m, 2),
        "time_us": found.time_us,
    }


def introduction(number: int, publication: Publication) -> dict[str, Any]:
    """What a number in binary frames refers to."""
    return {
        "number": number,
        "id": publication.id,
        "topic": publication.topic,
        "values": publication.values,
    }


def to_text(value: Any) -> str:
    """JSON without needless spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=dict)


def event_rows(
    events: Events, handles: NDArray[np.uint32], numbers: NDArray[np.uint32]
) -> NDArray[np.void]:
    """One row per event; the other arguments are the numbers of the two sides."""
    return rows(
        EVENT_ROW, len(events), subscription=handles, publication=numbers, time_us=events.time_us,
        lat_e7=to_e7(events.lat), lon_e7=to_e7(events.lon), distance_m=events.distance_m,
        event_type=events.event_type, reason=events.reason,
    )  # fmt: skip
