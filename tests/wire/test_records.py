"""What travels beside an Envelope on the bus."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from mercury.model.area import Position
from mercury.model.message import Telemetry
from mercury.wire.records import (
    Fix,
    Headers,
    Route,
    fix_header,
    interests_header,
    read_fix,
    read_interests,
    read_route,
    read_traffic,
    route_header,
    telemetry_fix,
    traffic_header,
)


@given(st.integers(0, 255), st.integers(0, 9), st.integers(0, 2**64 - 1))
def test_a_route_comes_back(kind: int, priority: int, expires_us: int) -> None:
    headers = (("other", b"x"), route_header(kind, priority, expires_us))
    assert read_route(headers) == Route(kind, priority, expires_us)


def test_what_is_unknown_of_a_place_is_nan_and_an_unknown_place_is_none() -> None:
    fix = read_fix((telemetry_fix(Telemetry(Position(40.0, -111.0), speed_mps=3.0)),))
    assert fix is not None
    assert (fix.lat, fix.lon, fix.speed_mps) == (40.0, -111.0, 3.0)
    assert math.isnan(fix.heading_deg)
    assert read_fix((fix_header(1.0, 2.0, 3.0, 4.0),)) == Fix(1.0, 2.0, 3.0, 4.0)
    assert read_fix((fix_header(math.nan, 2.0, 3.0, 4.0),)) is None


def test_interests_and_traffic_come_back() -> None:
    ids = [bytes((number,)) * 8 for number in range(5)]
    assert read_interests((interests_header(ids),)) == ids
    assert read_traffic((traffic_header(13.5),)) == 13.5


def test_missing_and_broken_headers_are_none() -> None:
    cases: list[Headers] = [
        (),
        (("route", b""), ("position", b"short"), ("traffic", b"x")),
        (("route", b"\x10\xc8" + bytes(8)),),  # priority 200 has no queue
    ]
    for headers in cases:
        assert read_route(headers) is None
        assert read_fix(headers) is None
        assert read_traffic(headers) is None
        assert read_interests(headers) == []
