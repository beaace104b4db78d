"""An incident and its outcome: who sensed it, whom it concerned, who was notified when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple
from uuid import UUID

from mercury.geo import contains, contains_point
from mercury.geo.arrays import FloatArray
from mercury.model.area import Area, Circle, Position
from mercury.model.geojson import area_to_geojson
from mercury.model.message import Message

_NAMED = 5  # vehicles that a sentence names at most


class Traffic(NamedTuple):
    """The true positions of all vehicles, by number."""

    x_m: FloatArray
    y_m: FloatArray
    lat: FloatArray
    lon: FloatArray
    heading_deg: FloatArray
    speed_mps: FloatArray

    def copy(self) -> Traffic:
        """A copy of the current state."""
        return Traffic(*(column.copy() for column in self))


@dataclass(slots=True)
class Incident:
    """The record of one simulated event (Mercury §7.1) and of the first alert it caused.

    Inside and outside are judged by where the vehicles truly are when the alert arrives, not by
    what they last reported.
    """

    kind: str
    x_m: float
    y_m: float
    radius_m: float
    identities: Sequence[str]
    at_event: Traffic  # when it was sensed
    place: Position | None = None  # its centre on the Earth, to know alerts that name no witness
    reported: bool = True  # vehicles report it; else it must be detected
    sensed: list[int] = field(default_factory=list)  # vehicle numbers, in order of sensing
    area: Area | None = None  # whom the alert is for
    at_alert: Traffic | None = None  # when the alert first arrived
    inside: list[int] = field(default_factory=list)  # in the area when the alert first arrived
    notified_ms: dict[int, float] = field(default_factory=dict)  # since it was first sensed
    notified_outside: list[int] = field(default_factory=list)  # where they should not be
    repeated: int = 0  # the same alert again for the same vehicle
    begun: float = 0.0  # when it was first sensed, or began unsensed
    _event_ids: set[UUID] = field(default_factory=set)
    _alert_id: UUID | None = None
    _further_ids: set[UUID] = field(default_factory=set)

    def sensed_by(self, vehicle: int, event_id: UUID, now: float) -> None:
        """Record that a vehicle published the event."""
        if not self.sensed:
            self.begun = now
        self.sensed.append(vehicle)
        self._event_ids.add(event_id)

    def caused(self, alert: Message) -> bool:
        """Whether an alert is about this incident: it names a witness's event, or the place."""
        if alert.correlation in self._event_ids:
            return True
        area, event = alert.destination.area, alert.event
        if self.place is None or area is None or event is None or event.kind != self.kind:
            return False
        return contains_point(replace(area, heading=None), self.place.lat, self.place.lon)

    def notified(self, vehicle: int, alert: Message, now: float, traffic: Traffic) -> None:
        """Record that a vehicle received an alert about this incident."""
        area = alert.destination.area
        if area is None:
            return
        if self.area is None:
            self.area = area
            self._alert_id = alert.id
            self.at_alert = traffic.copy()
            inside = contains(area, traffic.lat, traffic.lon, traffic.heading_deg)
            self.inside = [int(number) for number in inside.nonzero()[0]]
        elif alert.id != self._alert_id:
            self._further_ids.add(alert.id)
            return
        if vehicle in self.notified_ms:
            self.repeated += 1
            return
        self.notified_ms[vehicle] = (now - self.begun) * 1e3
        lat, lon = float(traffic.lat[vehicle]), float(traffic.lon[vehicle])
        if not contains_point(self.area, lat, lon, float(traffic.heading_deg[vehicle])):
            self.notified_outside.append(vehicle)

    @property
    def alert(self) -> str | None:
        """The id of the first alert, as a person writes it."""
        return None if self._alert_id is None else str(self._alert_id)

    @property
    def notified_inside(self) -> list[int]:
        """Vehicles in the area when the alert came that were notified."""
        return [vehicle for vehicle in self.inside if vehicle in self.notified_ms]

    @property
    def notified_on_entering(self) -> list[int]:
        """Vehicles that entered the area later and were notified."""
        inside = {*self.inside, *self.notified_outside}
        return [vehicle for vehicle in self.notified_ms if vehicle not in inside]

    @property
    def missed(self) -> list[int]:
        """Vehicles in the area when the alert came that were not notified."""
        return [vehicle for vehicle in self.inside if vehicle not in self.notified_ms]

    @property
    def further_alerts(self) -> int:
        """How many more alerts came, where witnesses were too far apart to be taken for one."""
        return len(self._further_ids)

    def to_json(self) -> dict[str, Any]:
        times_ms = sorted(self.notified_ms[vehicle] for vehicle in self.notified_inside)
        return {
            "kind": str(self.kind),
            "x_m": self.x_m,
            "y_m": self.y_m,
            "radius_m": self.radius_m,
            "sensed": self._names(self.sensed),
            "alert": self.alert,
            "area": None if self.area is None else area_to_geojson(self.area),
            "inside": self._names(self.inside),
            "notified_ms": {self.identities[v]: round(ms, 3) for v, ms in self.notified_ms.items()},
            "notified_inside": self._names(self.notified_inside),
            "notified_on_entering": self._names(self.notified_on_entering),
            "missed": self._names(self.missed),
            "notified_outside": self._names(self.notified_outside),
            "repeated": self.repeated,
            "further_alerts": self.further_alerts,
            "first_ms": round(times_ms[0], 3) if times_ms else None,
            "median_ms": round(median(times_ms), 3) if times_ms else None,
            "last_ms": round(times_ms[-1], 3) if times_ms else None,
            "summary": self.sentences(),
        }

    def sentences(self) -> str:
        return " ".join(self.lines())

    def lines(self) -> list[str]:
        """The same, sentence by sentence."""
        text = f"{self.kind.capitalize()} at ({self.x_m:g} m, {self.y_m:g} m): "
        if self.reported and not self.sensed:
            return [f"{text}nobody was within {self.radius_m:g} m to sense it."]
        sensed = f"{_vehicles(len(self.sensed))} sensed it."
        text += sensed if self.reported else "nobody reported it."
        if self.area is None:
            return [text, "No alert came."]
        return [text, self._of_those_inside(), *self._of_others()]

    def _of_those_inside(self) -> str:
        count, notified = len(self.inside), len(self.notified_inside)
        where = "in the area"
        if self.area is not None and isinstance(self.area.shape, Circle):
            where = f"within {self.area.shape.radius_m:.0f} m"
        text = f"{_vehicles(count)} {_were(count)} {where}"
        if not count:
            return f"{text}."
        if missed := self.missed:
            text += f"; {notified} of {count} {_were(notified)} told, not {self._listed(missed)}"
        else:
            all_of_them = {1: "it was told", 2: "both were told"}
            text += f"; {all_of_them.get(count, f'all {count} were told')}"
        times_ms = sorted(self.notified_ms[vehicle] for vehicle in self.notified_inside)
        if len(times_ms) == 1:
            text += f", after {_span(times_ms[0])}"
        elif times_ms:
            text += (
                f", the first after {_span(times_ms[0])}, half within {_span(median(times_ms))},"
                f" the last after {_span(times_ms[-1])}"
            )
        return f"{text}."

    def _of_others(self) -> list[str]:
        parts = []
        if later := len(self.notified_on_entering):
            parts.append(f"{later} more {_were(later)} told on entering the area.")
        if outside := len(self.notified_outside):
            parts.append(
                f"{self._listed(self.notified_outside)} {_were(outside)} told outside of it!"
            )
        else:
            parts.append("Nobody outside was told.")
        if more := self.further_alerts:
            alerts = f"{more} more alert{'s' if more > 1 else ''}"
            parts.append(
                f"Witnesses far apart caused {alerts}."
                if self.reported
                else f"{alerts} came for other directions and as it grew."
            )
        return parts

    def _names(self, vehicles: Iterable[int]) -> list[str]:
        return [self.identities[vehicle] for vehicle in vehicles]

    def _listed(self, vehicles: list[int]) -> str:
        names = self._names(vehicles[:_NAMED])
        rest = len(vehicles) - len(names)
        return ", ".join(names) + (f" and {rest} others" if rest else "")


def _vehicles(count: int) -> str:
    return "1 vehicle" if count == 1 else f"{count or 'No'} vehicles"


def _span(ms: float) -> str:
    return f"{ms:.1f} ms" if ms < 1000.0 else f"{ms / 1e3:.1f} s"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
