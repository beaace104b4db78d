"""Standing alerts: each client gets each alert once, whenever it comes inside."""

from __future__ import annotations

import numpy as np
from geo.strategies import shapes
from hypothesis import given
from hypothesis import strategies as st

from mercury.adapter.kept_alerts import StandingAlert, StandingAlerts
from mercury.geo import contains
from mercury.model.area import (
    LAST_INSTANT_US,
    Area,
    Circle,
    HeadingSector,
    Position,
    Rectangle,
    Shape,
)
from mercury.model.message import Priority
from mercury.session import Session, SessionTable

INSIDE, OUTSIDE = (40.0, -111.0), (41.0, -111.0)
SHAPE = Circle(Position(*INSIDE), 500.0)
UNTIL_US = 1000


class Bench:
    """Standing alerts over clients that are moved by hand."""

    def __init__(self, **settings: int) -> None:
        self.table = SessionTable()
        self.standing = StandingAlerts(self.table, **settings)
        self._tokens = 0

    def open(
        self, identity: str, at: tuple[float, float] = OUTSIDE, had: tuple[bytes, ...] = ()
    ) -> Session:
        self._tokens += 1
        token = self._tokens.to_bytes(16, "big")
        session = self.table.add(identity, token, 1, bytes(16), 0.0)
        self.standing.opened(session, had)
        self.move(session, at)
        return session

    def close(self, session: Session) -> None:
        self.table.remove(session)

    def move(self, session: Session, at: tuple[float, float], heading_deg: float = np.nan) -> None:
        self.table.lat[session.slot], self.table.lon[session.slot] = at
        self.table.heading[session.slot] = heading_deg
        self.table.moved[session.slot] = True

    def add(
        self,
        id: bytes = b"1",
        area: Area | None = None,
        until_us: int = UNTIL_US,
        source: str = "service:office",
        priority: int = Priority.EMERGENCY,
    ) -> bool:
        area = area or Area(SHAPE, valid_until_us=until_us)
        return self.standing.add(id, area, priority, until_us, source) is not None

    def due(self, now_us: int = 10) -> list[tuple[bytes, list[str]]]:
        """Who is due for which alert; alerts nobody is due for are left out."""
        found: list[tuple[StandingAlert, list[str]]] = []
        for alert, slots in self.standing.due(now_us):
            sessions = [self.table.at(int(slot)) for slot in slots]
            found.append((alert, [session.identity for session in sessions if session]))
        return [(alert.id, names) for alert, names in found if names]


def test_who_is_inside_gets_it_and_who_enters_gets_it_then() -> None:
    bench = Bench()
    bench.open("inside", INSIDE)
    outside = bench.open("outside")
    bench.add()
    assert bench.due() == [(b"1", ["inside"])]
    assert bench.due() == []
    bench.move(outside, INSIDE)
    assert bench.due() == [(b"1", ["outside"])]


def test_each_client_gets_it_once_however_often_it_comes_and_goes() -> None:
    bench = Bench()
    car = bench.open("car", INSIDE)
    bench.add()
    assert bench.due() == [(b"1", ["car"])]
    for at in (OUTSIDE, INSIDE, OUTSIDE, INSIDE):
        bench.move(car, at)
        assert bench.due() == []


def test_a_known_alert_is_not_taken_again() -> None:
    bench = Bench()
    assert bench.add(b"1")
    assert not bench.add(b"1")
    assert bench.add(b"2")
    assert len(bench.standing) == 2


def test_an_alert_ends_with_its_validity() -> None:
    bench = Bench()
    car = bench.open("car")
    bench.add(until_us=100)
    assert bench.due(99) == []
    bench.move(car, INSIDE)
    assert bench.due(100) == []
    assert len(bench.standing) == 0


def test_an_alert_whose_validity_begins_later_waits_also_for_those_who_do_not_move() -> None:
    bench = Bench()
    bench.open("parked", INSIDE)
    bench.add(area=Area(SHAPE, valid_from_us=50, valid_until_us=UNTIL_US))
    assert bench.due(49) == []
    assert bench.due(50) == [(b"1", ["parked"])]
    assert bench.due(51) == []


def test_only_one_side_of_the_road() -> None:
    bench = Bench()
    car = bench.open("car")
    bench.add(area=Area(SHAPE, HeadingSector(90.0, 45.0), valid_until_us=UNTIL_US))
    bench.move(car, INSIDE, heading_deg=270.0)
    assert bench.due() == []
    bench.move(car, INSIDE, heading_deg=100.0)
    assert bench.due() == [(b"1", ["car"])]


def test_a_slot_that_changes_hands_starts_anew() -> None:
    bench = Bench()
    first = bench.open("first", INSIDE)
    bench.add()
    assert bench.due() == [(b"1", ["first"])]
    bench.close(first)
    second = bench.open("second", INSIDE)
    assert second.slot == first.slot
    assert bench.due() == [(b"1", ["second"])]


def test_who_comes_back_has_it_already() -> None:
    bench = Bench()
    car = bench.open("car", INSIDE)
    bench.add()
    bench.due()
    bench.close(car)
    bench.open("another", INSIDE)
    bench.open("car", INSIDE, had=(b"1",))
    assert bench.due() == [(b"1", ["another"])]


def test_who_left_without_it_gets_it_on_return() -> None:
    bench = Bench()
    car = bench.open("car", OUTSIDE)
    bench.add()
    bench.due()
    bench.close(car)
    bench.open("car", INSIDE)
    assert bench.due() == [(b"1", ["car"])]


def test_alerts_outlive_the_growth_of_the_table() -> None:
    bench = Bench()
    bench.open("early", INSIDE)
    bench.add()
    bench.due()
    names = [f"car-{number}" for number in range(len(bench.table.active) + 10)]
    for name in names:
        bench.open(name, INSIDE)
    [(_, reached)] = bench.due()
    assert sorted(reached) == sorted(names)


def test_above_the_limit_the_least_urgent_makes_room() -> None:
    bench = Bench(max_alerts=3)
    bench.add(b"urgent", priority=7)
    bench.add(b"old", priority=3)
    bench.add(b"ice", priority=5)
    bench.add(b"new", priority=3)
    bench.add(b"less", priority=2)  # there is no room for this itself
    bench.open("car", INSIDE)
    assert [id for id, _ in bench.due()] == [b"urgent", b"ice", b"new"]
    assert bench.standing.shed == 2


def test_no_emergency_in_force_makes_room() -> None:
    bench = Bench(max_alerts=2)
    for number in range(3):
        bench.add(b"%d" % number, priority=Priority.EMERGENCY)
    bench.add(b"ice", priority=Priority.WARNING)
    bench.open("car", INSIDE)
    assert [id for id, _ in bench.due()] == [b"0", b"1", b"2"]


def test_whoever_sends_most_makes_room_and_newcomers_have_some() -> None:
    bench = Bench(max_alerts=100, max_per_client=60)
    for number in range(90):
        bench.add(b"many %d" % number, source="client:many", priority=7)
    assert len(bench.standing) == 60
    for number in range(45):
        bench.add(b"%d" % number, source=f"client:{number}", priority=7)
    assert len(bench.standing) == 100
    bench.open("car", INSIDE)
    ids = [id for id, _ in bench.due()]
    assert sum(id.startswith(b"many") for id in ids) == 55
    assert len(ids) == 100
    # A service is not the one that makes room for clients.
    for number in range(90):
        bench.add(b"service %d" % number, source="service:weather", priority=7)
    bench.open("other", INSIDE)
    assert sum(id.startswith(b"service") for id, _ in bench.due()) == 90


def test_an_emergency_is_sent_to_who_drives_in_however_full_the_table_is() -> None:
    bench = Bench()
    car = bench.open("car")
    for number in range(11_000):
        bench.add(b"%d" % number, source=f"client:{number}", priority=7, until_us=LAST_INSTANT_US)
    bench.due()
    bench.add(b"emergency", source="broker:one", priority=9, until_us=60)
    for number in range(100):
        bench.add(b"more %d" % number, source="client:x", priority=7, until_us=LAST_INSTANT_US)
    assert len(bench.standing) == 10_000
    bench.move(car, INSIDE)
    assert bench.due(20)[0] == (b"emergency", ["car"])


def test_a_pole_is_in_an_area_at_every_longitude() -> None:
    bench = Bench()
    car = bench.open("car")
    bench.add(area=Area(Rectangle(80.0, 0.0, 90.0, 10.0), valid_until_us=UNTIL_US))
    bench.due()
    bench.move(car, (90.0, 170.0))
    assert bench.due() == [(b"1", ["car"])]


def test_an_alert_forgets_those_who_have_gone() -> None:
    bench = Bench()
    bench.add()
    for number in range(1000):
        session = bench.open(f"car-{number}", INSIDE)
        assert bench.due() == [(b"1", [f"car-{number}"])]
        bench.close(session)
    [alert] = bench.standing._alerts.values()
    assert len(alert.sessions) < 100


@given(
    cars=st.lists(
        st.tuples(st.floats(-90.0, 90.0), st.floats(-180.0, 180.0)), min_size=1, max_size=20
    ),
    areas=st.lists(shapes, min_size=1, max_size=20),
)
def test_who_enters_is_found_as_by_looking_at_each_alert(
    cars: list[tuple[float, float]], areas: list[Shape]
) -> None:
    bench = Bench()
    sessions = [bench.open(str(number), (89.0, 0.0)) for number in range(len(cars))]
    for number, shape in enumerate(areas):
        bench.add(b"%d" % number, Area(shape, valid_until_us=UNTIL_US))
    before = {(id, name) for id, names in bench.due() for name in names}
    for session, at in zip(sessions, cars, strict=True):
        bench.move(session, at)
    found = {(id, name) for id, names in bench.due() for name in names}
    lats, lons = (np.array(column) for column in zip(*cars, strict=True))
    expected = {
        (b"%d" % number, str(car))
        for number, shape in enumerate(areas)
        for car in np.flatnonzero(contains(shape, lats, lons)).tolist()
    }
    assert found == expected - before
