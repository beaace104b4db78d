"""Every message there can be, for Hypothesis."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from mercury.model.area import (
    HALF_MERIDIAN_M,
    LAST_INSTANT_US,
    Area,
    Circle,
    Corridor,
    Ellipse,
    HeadingSector,
    Polygon,
    Position,
    Rectangle,
    Shape,
)
from mercury.model.errors import AreaError
from mercury.model.message import (
    Address,
    AddressKind,
    Attributes,
    DeliveryPolicy,
    Event,
    Grant,
    Kind,
    Message,
    Payload,
    Subscription,
    Telemetry,
)

U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NAME = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
REAL = st.floats(allow_nan=False)
REAL32 = st.floats(allow_nan=False, width=32)
LENGTH = st.floats(0.0, HALF_MERIDIAN_M, exclude_min=True)

positions = st.builds(Position, st.floats(-90.0, 90.0), st.floats(-180.0, 180.0))
values = st.dictionaries(
    TEXT,
    TEXT | st.integers(-(2**63), 2**63 - 1) | REAL | st.booleans() | st.binary(max_size=20),
    max_size=5,
)


@st.composite
def ellipses(draw: st.DrawFn) -> Ellipse:
    minor_m, major_m = sorted((draw(LENGTH), draw(LENGTH)))
    return Ellipse(draw(positions), major_m, minor_m, draw(st.floats(-360.0, 360.0)))


@st.composite
def rectangles(draw: st.DrawFn) -> Rectangle:
    south, north = sorted((draw(st.floats(-90.0, 90.0)), draw(st.floats(-90.0, 90.0))))
    west, east = draw(st.floats(-180.0, 180.0)), draw(st.floats(-180.0, 180.0))
    assume(south < north and west != east and (west, east) != (180.0, -180.0))
    return Rectangle(south, west, north, east)


@st.composite
def polygons(draw: st.DrawFn) -> Polygon:
    rings = st.lists(positions, min_size=3, max_size=6)
    try:
        return Polygon(tuple(draw(rings)), tuple(map(tuple, draw(st.lists(rings, max_size=2)))))
    except AreaError:
        assume(False)
        raise


corridors = st.builds(Corridor, st.lists(positions, min_size=2, max_size=6).map(tuple), LENGTH)
shapes: SearchStrategy[Shape] = st.one_of(
    st.builds(Circle, positions, LENGTH), ellipses(), rectangles(), polygons(), corridors
)


@st.composite
def areas(draw: st.DrawFn) -> Area:
    sector = st.builds(HeadingSector, st.floats(-360.0, 360.0), st.floats(0.0, 180.0))
    instants = sorted(
        draw(st.sets(st.integers(0, LAST_INSTANT_US), min_size=2, max_size=2)),
    )
    return Area(
        draw(shapes),
        draw(st.none() | sector),
        instants[0] if draw(st.booleans()) else None,
        instants[1] if draw(st.booleans()) else None,
    )


named = st.sampled_from(sorted(set(AddressKind) - {AddressKind.EVERYONE, AddressKind.AREA}))
addresses: SearchStrategy[Address] = st.one_of(
    st.builds(Address, named, NAME),
    st.just(Address.everyone()),
    st.builds(Address.to_area, areas()),
)

payloads: SearchStrategy[Payload] = st.one_of(
    st.none(),
    st.builds(
        Telemetry,
        positions,
        st.none() | REAL32,
        st.none() | REAL32,
        st.none() | REAL32,
        st.none() | REAL32,
        U64,
    ),
    st.builds(
        Event, TEXT, st.none() | positions, st.none() | REAL, st.none() | REAL32, TEXT, values
    ),
    st.builds(Attributes, values, st.none() | positions),
    st.builds(Subscription, st.binary(max_size=16), TEXT, TEXT, st.none() | REAL),
    st.builds(Grant, st.binary(max_size=16), U64, REAL, REAL, TEXT),
)

messages = st.builds(
    Message,
    kind=st.sampled_from(Kind),
    source=addresses,
    destination=addresses,
    topic=TEXT,
    payload=payloads,
    priority=st.integers(0, 9),
    id=st.uuids(),
    session=st.binary(max_size=16),
    sent_us=U64,
    expires_us=U64,
    correlation=st.none() | st.uuids(),
    policy=st.sampled_from(DeliveryPolicy),
    sequence=U64,
    auth=st.binary(max_size=40),
)
