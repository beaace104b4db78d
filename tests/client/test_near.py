"""What comes near a client, from its call to its stream, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from live import FAR, HERE, NEAR, Hand, connect, in_loop, live, until
from matching.bus_twin import bus_twin

import mercury
from mercury.client import moving_entities as client_moving
from mercury.matching import MatchingRules
from mercury.model.area import Position
from mercury.model.declarations import Declaration, Matches, NumberedMatch
from mercury.model.errors import (
    FilterError,
    MatchingError,
    NotConnectedError,
    RequestError,
)
from mercury.model.matching import EventReason, EventType, Match, Publication
from mercury.model.message import Attributes, Kind
from mercury.session import SessionSettings

QUICK = SessionSettings(report_interval_s=0.05, missed_reports=40)


async def next_of(matches: AsyncIterator[Match]) -> Match:
    async with asyncio.timeout(10.0):
        return await anext(matches)


@in_loop
async def test_a_taxi_comes_near_and_leaves() -> None:
    async with live() as world, bus_twin(world.bus):
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "cab", FAR) as cab, connect(adapter, "me") as me:
            taxi = await cab.publish_moving("taxi", {"seats": 4})
            stream = me.near("taxi", radius_m=500.0, where="seats >= 2")
            await stream.declared(5.0)
            matches = aiter(stream)
            cab.move(NEAR.lat, NEAR.lon, report=True)
            enter = await next_of(matches)
            assert enter.event_type is EventType.ENTER
            assert enter.reason is EventReason.MOVED
            assert (enter.publication, enter.subscription) == ("cab/taxi", "taxi")
            assert (enter.topic, enter.values) == ("taxi", {"seats": 4})
            assert (enter.lat, enter.lon) == pytest.approx((NEAR.lat, NEAR.lon), abs=1e-6)
            assert enter.distance_m == pytest.approx(111.2, abs=0.5)
            assert [match.publication for match in stream.inside] == ["cab/taxi"]
            await taxi.update({"seats": 1})
            left = await next_of(matches)
            assert (left.event_type, left.reason) == (EventType.EXIT, EventReason.CHANGED)
            await taxi.update({"seats": 3})
            assert (await next_of(matches)).values == {"seats": 3}
            me.move(FAR.lat, FAR.lon, report=True)  # it is me who leaves
            left = await next_of(matches)
            assert (left.event_type, left.reason) == (EventType.EXIT, EventReason.MOVED)
            assert stream.inside == []
            await stream.cancel()
            with pytest.raises(StopAsyncIteration):
                await anext(matches)
            await until(lambda: len(adapter.moving.entities) == 1)
            await taxi.withdraw()
            await until(lambda: len(adapter.moving.entities) == 0)


@in_loop
async def test_every_move_of_what_is_inside_is_told_if_asked_for() -> None:
    async with live() as world, bus_twin(world.bus):
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "cab") as cab, connect(adapter, "me") as me:
            await cab.publish_moving("taxi", {})
            matches = aiter(me.near("taxi", radius_m=500.0, inside=True, dwell_s=0.2))
            seen = [(await next_of(matches)).event_type for _ in range(12)]
            assert seen[0] is EventType.ENTER
            assert set(seen[1:]) == {EventType.INSIDE, EventType.DWELL}
            assert seen.count(EventType.DWELL) == 1
            cab.move(NEAR.lat, NEAR.lon, report=True)
            while (match := await next_of(matches)).distance_m < 100.0:
                assert match.event_type is EventType.INSIDE
            assert match.distance_m == pytest.approx(111.2, abs=0.5)


@in_loop
async def test_a_place_stays_where_it_is() -> None:
    corners = [(40.75, -111.9), (40.75, -111.88), (40.77, -111.88), (40.77, -111.9)]
    async with live() as world, bus_twin(world.bus):
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "cab") as cab, connect(adapter, "me", FAR) as me:
            await cab.publish_moving("taxi", {})
            heard: list[Match] = []
            stream = me.near("taxi", polygon=corners, handler=heard.append)
            await until(lambda: heard)
            assert heard[0].distance_m == 0.0
            me.move(0.0, 0.0, report=True)
            cab.move(FAR.lat, FAR.lon, report=True)
            await until(lambda: len(heard) == 2)
            assert [match.event_type for match in heard] == [EventType.ENTER, EventType.EXIT]
            assert stream.inside == []


@in_loop
async def test_nobody_hears_of_itself() -> None:
    async with live() as world, bus_twin(world.bus) as matcher:
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "a") as a, connect(adapter, "b") as b:
            heard: list[Match] = []
            await a.publish_moving("taxi", {})
            a.near("taxi", radius_m=500.0, handler=heard.append)
            await until(lambda: matcher.twin.pairs)
            await b.publish_moving("taxi", {})
            await until(lambda: heard)
            assert [match.publication for match in heard] == ["b/taxi"]


@in_loop
async def test_what_is_asked_once() -> None:
    async with live() as world, bus_twin(world.bus) as matcher:
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "me") as me, AsyncExitStack() as lots:
            assert await me.ask_near("parking", radius_m=500.0) == []
            for free, north_m in ((3, 300), (0, 100), (7, 200), (9, 900)):
                place = Position(HERE.lat + north_m / 111_200.0, HERE.lon)
                lot = await lots.enter_async_context(connect(adapter, f"lot-{free}", place))
                await lot.publish_moving("parking", {"free": free})
            found = await me.ask_near("parking", radius_m=500.0, where="free > 0")
            assert [match.publication for match in found] == ["lot-7/parking", "lot-3/parking"]
            assert [match.values for match in found] == [{"free": 7}, {"free": 3}]
            assert found[0].distance_m == pytest.approx(200.0, abs=1.0)
            nearest = await me.ask_near("parking", radius_m=500.0, limit=1)
            assert [match.values["free"] for match in nearest] == [0]
            corners = [(40.0, -112.0), (40.0, -111.0), (41.0, -111.0), (41.0, -112.0)]
            everything = await me.ask_near("parking", polygon=corners)
            assert {match.values["free"] for match in everything} == {0, 3, 7, 9}
            await until(lambda: not matcher.twin.subscriptions)  # nothing stays behind
            assert len(adapter.moving.entities) == 4
            with pytest.raises(MatchingError, match="is not more than 0"):
                await me.ask_near("parking", radius_m=-1.0)


@in_loop
async def test_refusals_come_back_as_errors() -> None:
    rules = MatchingRules(max_radius_m=1000.0, topics=frozenset({"taxi"}))
    async with live() as world, bus_twin(world.bus, rules):
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "me") as me:
            with pytest.raises(MatchingError, match="there is no topic 'boat' here") as refused:
                await me.publish_moving("boat", {})
            assert refused.value.reason == "topic"
            with pytest.raises(MatchingError, match="wider than"):
                async for _ in me.near("taxi", radius_m=2000.0):
                    pass
            with pytest.raises(MatchingError, match="wider than"):
                await me.ask_near("taxi", radius_m=2000.0)
            with pytest.raises(FilterError):
                me.near("taxi", radius_m=500.0, where="seats >")
            with pytest.raises(MatchingError, match="a radius or a polygon: give one"):
                me.near("taxi")
            taxi = await me.publish_moving("taxi", {})
            with pytest.raises(MatchingError, match="at most 16384 bytes"):
                await taxi.update({"text": "x" * 20_000})
            with pytest.raises(MatchingError, match="declared already"):
                await me.publish_moving("taxi", {}, name="taxi")
            assert (await me.publish_moving("taxi", {})).what.id == "taxi-2"
            assert me.moving.streams == {}
            assert len(adapter.moving.entities) == 2


@in_loop
async def test_a_refusal_after_all_ends_the_stream() -> None:
    async with live() as world:  # no matcher yet: nobody refuses
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "me") as me:
            stream = me.near("boat", radius_m=500.0)
            boat = await me.publish_moving("boat", {})
            await stream.declared(5.0)
            async with bus_twin(world.bus, MatchingRules(topics=frozenset({"taxi"}))):
                for one in (boat, stream):
                    await me.moving.repeat(one)
                with pytest.raises(MatchingError, match="no topic 'boat'"):
                    async for _ in stream:
                        pass
                with pytest.raises(MatchingError, match="no topic 'boat'"):
                    await boat.update({"free": 1})


@in_loop
async def test_an_adapter_of_an_earlier_version_says_no() -> None:
    # It passes requests on that it does not know, and the broker refuses them.
    async with live() as world:
        adapter = await world.adapter(session=QUICK)
        await world.broker()
        adapter._on_message = lambda session, body, envelope: _as_before(adapter, session, body)
        async with connect(adapter, "me") as me:
            with pytest.raises(RequestError, match="does not match what moves"):
                await me.publish_moving("taxi", {})
            with pytest.raises(RequestError, match="does not match what moves"):
                async for _ in me.near("taxi", radius_m=500.0):
                    pass


def _as_before(adapter: mercury.adapter.Adapter, session: object, body: bytes) -> None:
    adapter.bus.append("requests", body, session.key)  # type: ignore[attr-defined]


@in_loop
async def test_declarations_survive_an_adapter_and_a_matcher() -> None:
    async with live() as world, bus_twin(world.bus) as matcher:
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "cab") as cab, connect(adapter, "me") as me:
            await cab.publish_moving("taxi", {})
            heard: list[Match] = []
            stream = me.near("taxi", radius_m=500.0, handler=heard.append)
            await until(lambda: heard)
            port, first = adapter.port, stream.pairs.incarnation
            await world.stop(adapter)
            adapter = await world.adapter(session=QUICK, port=port)
            await until(lambda: len(adapter.moving.entities) == 2)
            # All that was inside has come in again.
            await until(lambda: stream.pairs.incarnation > first and not stream.pairs.is_unsure)
            incarnation = stream.pairs.incarnation
            cab.move(NEAR.lat, NEAR.lon)
            assert [match.event_type for match in heard] == [EventType.ENTER]  # not told again
            matcher.forget_everything()
            for client in (cab, me):
                for one in (*client.moving.publications.values(), *client.moving.streams.values()):
                    await client.moving.repeat(one)
            await until(lambda: matcher.twin.pairs)
            cab.move(FAR.lat, FAR.lon)
            await until(lambda: len(heard) == 2)
            assert heard[1].event_type is EventType.EXIT
            assert stream.pairs.incarnation >= incarnation


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("RESOLVE_S", 0.5), ("GAP_S", 0.3)):
        monkeypatch.setattr(client_moving, name, seconds)


def test_what_is_gone_when_the_session_is_back_went_out(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    in_loop(_gone_meanwhile)()


async def _gone_meanwhile() -> None:
    async with live() as world, bus_twin(world.bus) as matcher:
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "me") as me:
            heard: list[Match] = []
            me.near("taxi", radius_m=500.0, handler=heard.append)
            async with connect(adapter, "cab") as cab:
                await cab.publish_moving("taxi", {})
                await until(lambda: heard)
                port = adapter.port
                await world.stop(adapter)
            matcher.forget_everything()
            await world.adapter(session=QUICK, port=port)
            await until(lambda: len(heard) == 2)
            assert heard[1] == heard[0]._replace(
                event_type=EventType.EXIT, reason=EventReason.EXPIRED, time_us=heard[1].time_us
            )


def test_who_has_lost_something_for_good_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    in_loop(_lost_for_good)()


async def _lost_for_good() -> None:
    async with live() as world, bus_twin(world.bus):
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "cab") as cab, connect(adapter, "me") as me:
            await cab.publish_moving("taxi", {})
            heard: list[Match] = []
            stream = me.near("taxi", radius_m=500.0, handler=heard.append)
            await until(lambda: heard)
            incarnation = stream.pairs.incarnation
            lost = NumberedMatch(incarnation, 3, heard[0]._replace(publication="another/taxi"))
            me.moving.take(Matches((lost,)))  # the second never comes
            assert stream.pairs.has_gap
            await until(lambda: stream.pairs.incarnation > incarnation)
            assert not stream.pairs.has_gap
            assert me.dropped["matches-lost"] == 1
            cab.move(FAR.lat, FAR.lon, report=True)
            await until(lambda: len(heard) == 2)
            assert [match.event_type for match in heard] == [EventType.ENTER, EventType.EXIT]


@in_loop
async def test_who_closes_is_gone_for_the_others() -> None:
    async with live() as world, bus_twin(world.bus) as matcher:
        adapter = await world.adapter(session=QUICK)
        async with connect(adapter, "me") as me:
            heard: list[Match] = []
            me.near("taxi", radius_m=500.0, handler=heard.append)
            async with connect(adapter, "cab") as cab:
                await cab.publish_moving("taxi", {})
                await until(lambda: heard)
            await until(lambda: len(heard) == 2)
            assert (heard[1].event_type, heard[1].reason) == (EventType.EXIT, EventReason.WITHDRAWN)
        await until(lambda: not matcher.twin.subscriptions)


@in_loop
async def test_who_changes_adapters_is_there_in_the_end() -> None:
    brief = SessionSettings(report_interval_s=0.15, missed_reports=3)
    async with live() as world, bus_twin(world.bus) as matcher:
        here, there = await world.adapter(session=brief), await world.adapter(session=brief, id="b")
        async with connect(there, "me") as me:
            heard: list[Match] = []
            stream = me.near("taxi", radius_m=500.0, handler=heard.append)
            hand = Hand(here, "cab")  # falls silent: it has come to the other adapter
            await hand.init(NEAR)
            said = Declaration(Publication("taxi", "taxi"))
            hand.say(Kind.REQUEST, said, topic="moving.declare")
            await until(lambda: heard)
            async with connect(there, "cab", NEAR) as cab:
                await cab.publish_moving("taxi", {})
                # The first adapter withdraws what it thinks is gone.
                await until(lambda: len(heard) >= 2)
                await until(lambda: len(heard) >= 3)
                assert [match.event_type for match in heard] == [
                    EventType.ENTER, EventType.EXIT, EventType.ENTER,
                ]  # fmt: skip
                assert len(stream.inside) == len(matcher.twin.pairs) == 1
            hand.close()


@in_loop
async def test_a_stream_that_was_given_up_says_so() -> None:
    async with live() as world:
        adapter = await world.adapter()
        stream = connect(adapter, "you").near("taxi", radius_m=500.0)
        stream.close()
        with pytest.raises(NotConnectedError, match="given up"):
            await stream.declared(1.0)


@in_loop
async def test_a_hand_that_talks_nonsense_is_counted() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = Hand(adapter)
        await hand.init()
        hand.say(Kind.REQUEST, Attributes({"what": 1}), topic="moving.declare")
        await until(lambda: adapter.dropped["malformed"] == 1)
        assert len(adapter.moving.entities) == 0
        hand.close()


@in_loop
async def test_at_20_percent_loss_everything_comes_and_goes_exactly_once() -> None:
    async with live() as world, bus_twin(world.bus) as matcher:
        adapter = await world.adapter(session=QUICK)
        link = "loss=0.2,delay=5ms,duplicate=0.1,reorder=0.1"
        async with (
            connect(adapter, "cab", FAR, link=link, connect_timeout_s=30.0) as cab,
            connect(adapter, "me", link=link, connect_timeout_s=30.0) as me,
        ):
            heard: list[Match] = []
            stream = me.near("taxi", radius_m=500.0, handler=heard.append, timeout_s=30.0)
            await stream.declared(30.0)
            await cab.publish_moving("taxi", {})
            for _ in range(30):
                for place, inside in ((NEAR, True), (FAR, False)):
                    cab.move(place.lat, place.lon, report=True)
                    await until(lambda inside=inside: bool(matcher.twin.pairs) is inside)
            await until(lambda: len(heard) >= 60, 25.0)
            await until(lambda: not adapter.mediator.outgoing.waiting, 25.0)
            event_types = [match.event_type for match in heard]
            assert event_types == [EventType.ENTER, EventType.EXIT] * 30
            times = [match.time_us for match in heard]
            assert times == sorted(times)
            assert adapter.mediator.outgoing.topics["near"].resent > 0
            assert me.dropped["match-repeated"] == 0  # the mediator had removed them
