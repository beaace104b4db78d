"""The matcher on the bus: alone and shared, it tells the same."""

from __future__ import annotations

import pytest
from live import in_loop, live, until
from matcher.frontend import Frontend

from mercury.config import MatcherSettings
from mercury.matcher.service import Matcher, SharedMatcher
from mercury.model.area import Polygon, Position
from mercury.model.matching import EventReason, EventType, NearSubscription, Publication
from mercury.service import now_us

LAT, LON = 47.0, 8.0

both = pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])


def matcher_of(world, shared: bool, **settings: object):  # type: ignore[no-untyped-def]
    made = MatcherSettings.model_validate({"shared": shared, **settings})
    if shared:
        return world._start(SharedMatcher(world.open(), made))
    return world._start(Matcher(world.open(), made))


@both
@in_loop
async def test_who_comes_near_is_told(shared: bool) -> None:
    async with live() as world, Frontend(world.bus) as front:
        matcher = await matcher_of(world, shared)
        taxi, me = front.declare(
            Publication("taxi-1", "taxi", {"seats": 4}),
            NearSubscription("me", "taxi", 500.0, where="seats >= 2"),
        )
        front.move([taxi, me], [LAT, LAT], [LON, LON])
        await until(lambda: front.told)
        assert front.told[0][:4] == (EventType.ENTER, EventReason.MOVED, me, taxi)
        assert front.described[taxi].values == {"seats": 4}
        front.move([taxi], [LAT + 0.1], [LON])
        await until(lambda: len(front.told) == 2)
        assert front.told[1][:4] == (EventType.EXIT, EventReason.MOVED, me, taxi)
        assert front.told[1].distance_m == pytest.approx(11_119.5, abs=5.0)
        front.move([taxi], [LAT], [LON])
        await until(lambda: len(front.told) == 3)
        front.declare(Publication("taxi-1", "taxi", {"seats": 1}))
        await until(lambda: len(front.told) == 4)
        assert front.told[3][:4] == (EventType.EXIT, EventReason.CHANGED, me, taxi)
        front.declare(Publication("taxi-1", "taxi", {"seats": 3}))
        await until(lambda: len(front.told) == 5)
        assert front.described[taxi].values == {"seats": 3}
        front.withdraw(me)
        await until(lambda: len(front.told) == 6)
        assert front.told[5][:4] == (EventType.EXIT, EventReason.WITHDRAWN, me, taxi)
        assert front.inside() == set()
        numbers = matcher.statistics().flat()
        assert numbers["publications"] == 1
        assert numbers["subscriptions"] == 0


@both
@in_loop
async def test_who_was_left_for_another_adapter_cannot_withdraw(shared: bool) -> None:
    async with live() as world, Frontend(world.bus) as front:
        matcher = await matcher_of(world, shared)
        taxi, me = front.declare(
            Publication("taxi-1", "taxi"), NearSubscription("me", "taxi", 500.0, inside=True)
        )
        left_us = now_us()
        front.move([taxi, me], [LAT, LAT], [LON, LON], left_us)
        await until(lambda: front.told)
        front.move([taxi], [LAT], [LON], left_us + 1_500_000)  # by another adapter
        front.withdraw(taxi, left_us + 200_000)  # when the first one misses it
        front.move([taxi], [LAT], [LON], left_us + 1_600_000)
        await until(lambda: len(front.told) == 3)
        assert matcher.statistics().dropped["late"] == 1
        front.withdraw(taxi, left_us + 1_500_000)  # as of the last word, or about
        await until(lambda: len(front.told) == 4)
        happened = [told.event_type for told in front.told]
        assert happened == [EventType.ENTER, EventType.INSIDE, EventType.INSIDE, EventType.EXIT]


@both
@in_loop
async def test_places_dwell_and_silence(shared: bool) -> None:
    corners = ((46.99, 7.99), (46.99, 8.01), (47.01, 8.01), (47.01, 7.99))
    square = Polygon(tuple(Position(*corner) for corner in corners))
    async with live() as world, Frontend(world.bus) as front:
        await matcher_of(world, shared)
        ship, _ = front.declare(
            Publication("ship", "ships", ttl_s=1.0),
            NearSubscription("harbour", "ships", polygon=square, dwell_s=0.3),
        )
        time_us = now_us()
        front.move([ship], [LAT], [LON], time_us)
        await until(lambda: len(front.told) == 3)
        assert [one.event_type for one in front.told] == [
            EventType.ENTER, EventType.DWELL, EventType.EXIT,
        ]  # fmt: skip
        enter, dwell, leave = front.told
        assert dwell.time_us - enter.time_us == 300_000
        assert leave.reason == EventReason.EXPIRED
        assert leave.time_us == time_us + 1_000_000


@both
@in_loop
async def test_bad_input_is_refused_or_dropped_and_work_goes_on(shared: bool) -> None:
    async with live() as world, Frontend(world.bus) as front:
        matcher = await matcher_of(world, shared, max_radius_m=1000.0, topics=["taxi"])
        world.bus.append("entities", b"\x01M\xff\xff\xff\xff", b"00")
        world.bus.append("entities", b"", b"07")
        front.move([12345], [LAT], [LON])
        wide, other, good = front.declare(
            NearSubscription("wide", "taxi", 2000.0),
            Publication("p", "ships"),
            NearSubscription("good", "taxi", 500.0),
        )
        await until(lambda: len(front.refused) == 2)
        assert {(one.key, one.reason) for one in front.refused} == {
            (wide, "radius"),
            (other, "topic"),
        }
        front.move([good], [LAT], [LON])
        await until(lambda: matcher.statistics().flat()["updates"] == 1)
        dropped = matcher.statistics().dropped
        assert dropped["truncated"] == 2
        assert dropped["unknown"] == 1
        assert dropped["refused"] == 2


@in_loop
async def test_a_restart_tells_nothing_twice() -> None:
    async with live() as world, Frontend(world.bus) as front:
        matcher = await matcher_of(world, False)
        near, far, me = front.declare(
            Publication("near", "taxi"),
            Publication("far", "taxi"),
            NearSubscription("me", "taxi", 500.0),
        )
        front.move([near, far, me], [LAT, LAT + 0.1, LAT], [LON, LON, LON])
        await until(lambda: len(front.told) == 1)
        await world.stop(matcher)
        front.move([near, far], [LAT + 0.1, LAT], [LON, LON])  # while nobody is there
        await world.bus.flush()
        await matcher_of(world, False)
        await until(lambda: len(front.told) == 3)
        assert [(one.event_type, one.publication) for one in front.told] == [
            (EventType.ENTER, near),
            (EventType.EXIT, near),
            (EventType.ENTER, far),
        ]
        assert front.inside() == {(me, far)}
