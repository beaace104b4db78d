"""The record of an incident: who was inside, who was told, and how people read it."""

from __future__ import annotations

import json
from uuid import UUID

import numpy as np

from mercury.model.area import Area, Circle, HeadingSector, Position
from mercury.model.identity import new_uuid
from mercury.model.message import Address, Event, Kind, Message
from mercury.roads.plane import PlaneFrame
from mercury.sim.incident import Incident, Traffic

FRAME = PlaneFrame(Position(40.76, -111.89))
NAMES = [f"car-{number}" for number in range(1, 7)]


def traffic(x: list[float], heading: float = 0.0) -> Traffic:
    """Vehicles along a street to the east."""
    x_m, y_m = np.array(x), np.zeros(len(x))
    lat, lon = FRAME.to_wgs84(x_m, y_m)
    return Traffic(x_m, y_m, lat, lon, np.full(len(x), heading), np.full(len(x), 10.0))


def alert(
    correlation: UUID, radius_m: float = 100.0, heading: HeadingSector | None = None
) -> Message:
    return Message(
        kind=Kind.ALERT,
        source=Address.broker(),
        destination=Address.to_area(Area(Circle(FRAME.origin, radius_m), heading)),
        correlation=correlation,
        payload=Event("emergency"),
    )


def incident(streets: Traffic, *sensed: int, begun: float = 50.0) -> tuple[Incident, list[bytes]]:
    record = Incident("emergency", 0.0, 0.0, 30.0, NAMES, streets)
    ids = [new_uuid() for _ in sensed]
    for count, (vehicle, id) in enumerate(zip(sensed, ids, strict=True)):
        record.sensed_by(vehicle, id, begun + count)
    return record, ids


def test_who_was_inside_notified_missed_late_and_wrongly_notified() -> None:
    streets = traffic([0.0, 10.0, 50.0, 90.0, 150.0, 300.0])
    record, ids = incident(streets, 0, 1)
    first = alert(ids[1])
    assert record.caused(first)
    assert not record.caused(alert(new_uuid()))
    record.notified(0, first, 50.001, streets)
    record.notified(2, first, 50.003, streets)
    streets.x_m[4] = 99.0
    streets.lat[:], streets.lon[:] = FRAME.to_wgs84(streets.x_m, streets.y_m)
    record.notified(4, first, 51.5, streets)
    record.notified(5, first, 51.6, streets)
    record.notified(5, first, 51.7, streets)
    record.notified(0, alert(ids[0]), 51.8, streets)

    assert record.inside == [0, 1, 2, 3]
    assert record.notified_inside == [0, 2]
    assert record.missed == [1, 3]
    assert record.notified_on_entering == [4]
    assert record.notified_outside == [5]
    assert record.repeated == 1
    assert record.further_alerts == 1
    assert record.at_alert is not None
    assert record.at_alert.x_m.tolist() == [0.0, 10.0, 50.0, 90.0, 150.0, 300.0]
    assert record.sentences() == (
        "Emergency at (0 m, 0 m): 2 vehicles sensed it. 4 vehicles were within 100 m; 2 of 4 were"
        " told, not car-2, car-4, the first after 1.0 ms, half within 2.0 ms, the last after"
        " 3.0 ms. 1 more was told on entering the area. car-6 was told outside of it! Witnesses"
        " far apart caused 1 more alert."
    )
    document = json.loads(json.dumps(record.to_json()))
    assert document["sensed"] == ["car-1", "car-2"]
    assert document["missed"] == ["car-2", "car-4"]
    assert document["notified_outside"] == ["car-6"]
    assert document["notified_ms"]["car-3"] == 3.0
    assert (document["first_ms"], document["median_ms"], document["last_ms"]) == (1.0, 2.0, 3.0)
    assert document["area"]["properties"]["radius_m"] == 100.0


def test_all_inside_are_notified() -> None:
    streets = traffic([0.0, 10.0, 50.0, 200.0, 200.0, 200.0])
    record, ids = incident(streets, 0)
    the_alert = alert(ids[0])
    for vehicle in (0, 1, 2):
        record.notified(vehicle, the_alert, 50.002, streets)
    assert record.sentences() == (
        "Emergency at (0 m, 0 m): 1 vehicle sensed it. 3 vehicles were within 100 m; all 3 were"
        " told, the first after 2.0 ms, half within 2.0 ms, the last after 2.0 ms."
        " Nobody outside was told."
    )


def test_another_heading_is_outside() -> None:
    streets = traffic([0.0, 10.0], heading=270.0)
    streets.heading_deg[1] = 90.0
    record, ids = incident(streets, 0)
    record.notified(1, alert(ids[0], heading=HeadingSector(90.0, 45.0)), 50.002, streets)
    assert record.inside == [1]
    assert record.notified_outside == []


def test_nobody_senses_and_nothing_comes() -> None:
    streets = traffic([500.0, 600.0])
    record, _ = incident(streets)
    assert record.sentences() == "Emergency at (0 m, 0 m): nobody was within 30 m to sense it."
    record, _ = incident(streets, 0)
    assert record.sentences() == "Emergency at (0 m, 0 m): 1 vehicle sensed it. No alert came."
    assert record.to_json()["area"] is None
    assert record.to_json()["first_ms"] is None
