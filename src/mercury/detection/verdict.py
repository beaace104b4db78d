"""The output of detection: alerts that are due, and conditions at places."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from mercury.model.area import LAST_INSTANT_US, Area, HeadingSector, Position, Shape
from mercury.model.message import Event, Value


@dataclass(frozen=True, slots=True)
class DetectedCondition:
    """A condition at a place; `incident_id` stays while it is the same incident."""

    kind: str
    incident_id: bytes
    centre: Position
    radius_m: float  # from the centre, takes in all positions it was found from
    area: Area  # who is concerned, valid until `until_us`
    since_us: int
    at_us: int  # the time it was decided at, in the time of the records
    until_us: int
    values: dict[str, Value] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many different vehicles it was found from."""
        return int(self.values["count"])


@dataclass(frozen=True, slots=True)
class Verdict(DetectedCondition):
    """An alert that is due: the same observations always give the same `alert_id`."""

    alert_id: bytes = b""
    priority: int = 0
    text: str = ""

    @classmethod
    def about(cls, found: DetectedCondition, alert_id: bytes, priority: int, text: str) -> Verdict:
        """The alert about a condition."""
        same = {field.name: getattr(found, field.name) for field in fields(found)}
        return cls(**same, alert_id=alert_id, priority=priority, text=text)

    def event(self) -> Event:
        """What the alert carries."""
        return Event(
            self.kind, self.centre, self.radius_m, text=self.text, values=dict(self.values)
        )


def area_until(shape: Shape, until_us: int, heading: HeadingSector | None = None) -> Area:
    """An area valid until then, or to the end of all time stamps."""
    return Area(shape, heading, valid_until_us=min(until_us, LAST_INSTANT_US))
