"""What moves with clients, between their packets and the bus: batches in, packets out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from adapter.invariants import check_entities
from hypothesis import given, settings
from hypothesis import strategies as st
from live import FAR, HERE, NEAR, Hand, Live, connect, in_loop, live, poll, until
from matching.bus_twin import bus_twin
from wire.frames import Declared, Moved, Withdrawn, read_frame

from mercury.adapter import Adapter
from mercury.adapter.entities import NONE, Entities
from mercury.model import topics
from mercury.model.area import Polygon, Position
from mercury.model.declarations import (
    ASK,
    DECLARE,
    WITHDRAW,
    Declaration,
    Matches,
    NearQuery,
    Withdrawal,
)
from mercury.model.errors import BusFullError
from mercury.model.matching import (
    EventReason,
    EventType,
    Match,
    NearSubscription,
    Publication,
    entity_key,
)
from mercury.model.message import Kind, Telemetry
from mercury.session import Session, SessionSettings
from mercury.wire import HEADER_BYTES
from mercury.wire.match_frames import EVENTS, FrameWriter, bucket_key, buckets_of, rows
from mercury.wire.origins import Origin, origin_header
from mercury.wire.records import Headers

TRIANGLE = Polygon((Position(40.0, -112.0), Position(41.0, -112.0), Position(40.5, -111.0)))
ME = entity_key("subscription", "me/taxi")


def frames_of(records: Iterable[object]) -> list[tuple[bytes, list[object]]]:
    return [(record.key, read_frame(record.value)) for record in records]


def session(slot: int) -> Session:
    return Session(slot, f"car-{slot}", bytes(16), 1, b"", 0.0)


# Columns


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=60))
def test_entities_come_and_go(steps: list[tuple[int, int, bool]]) -> None:
    entities, sessions = Entities(), [session(slot * 300) for slot in range(5)]
    moving: dict[tuple[int, str], bool] = {}
    for who, what, moves in steps:
        known = entities.get(sessions[who], "publication", str(what))
        if known is None:
            key = entity_key("publication", f"{who}/{what}")
            entities.add(sessions[who], "publication", str(what), key, 1, moves=moves)
            moving[who, str(what)] = moves
        elif moves:
            entities.set_moving(known, not moving[who, str(what)])
            moving[who, str(what)] ^= True
        else:
            entities.remove(known)
            assert entities.find(np.array([known.key], np.uint64)).tolist() == [NONE]
            del moving[who, str(what)]
        check_entities(entities)
    slots = np.array([one.slot for one in sessions] * 2)  # each reports twice
    index, found = entities.moving(slots)
    pairs = sorted((int(i), entities.at(int(row)).id) for i, row in zip(index, found, strict=True))
    expected = [(i, name) for (i, name), moves in moving.items() if moves]
    assert pairs == sorted(expected + [(i + 5, name) for i, name in expected])
    absent = np.array([entity_key("publication", "nobody")], np.uint64)
    assert entities.find(absent).tolist() == [NONE]
    assert [entities.moves(one.slot) for one in sessions] == [
        any(moves for (who, _), moves in moving.items() if who == index) for index in range(5)
    ]


# To the bus


def declare(hand: Hand, what: Publication | NearSubscription) -> None:
    hand.say(Kind.REQUEST, Declaration(what), topic=DECLARE)


@in_loop
async def test_reports_of_many_share_records_by_bucket() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hands = [Hand(adapter, f"car-{number}") for number in range(40)]
        for hand in hands:
            await hand.init()
            declare(hand, Publication("taxi", "taxi"))
        await until(lambda: len(adapter.moving.entities) == 40)
        await adapter.bus.flush()
        moving = world.read(topics.ENTITIES)
        packets = []
        for step in range(3):
            for hand in hands:
                where = Telemetry(NEAR, accuracy_m=5.0, time_us=100 + step)
                packets.append(hand.packet(Kind.REPORT, hand.body(Kind.REPORT, where)))
        # All in one event-loop iteration, however they would come over the network.
        adapter._on_packets([(packet, b"\0" * 16) for packet in packets])
        records = await poll(moving, 1)
        keys = [entity_key("publication", f"car-{number}/taxi") for number in range(40)]
        buckets = set(buckets_of(keys).tolist())
        assert {record.key for record in records} == {bucket_key(bucket) for bucket in buckets}
        assert len(records) == len(buckets)
        seen = []
        for key, [moved] in frames_of(records):
            assert isinstance(moved, Moved)
            assert {bucket_key(one) for one in buckets_of(moved.rows["key"])} == {key}
            assert set(moved.rows["accuracy_m"].tolist()) == {5.0}
            for one in np.unique(moved.rows["key"]):  # each entity's own, in order
                sequence = moved.rows["sequence"][moved.rows["key"] == one].astype(np.int64)
                assert np.all(np.diff(sequence) > 0)
            seen += moved.rows["key"].tolist()
        assert sorted(seen) == sorted(keys * 3)
        for hand in hands:
            hand.close()


@in_loop
async def test_a_declaration_brings_its_place_and_a_withdrawal_ends_it() -> None:
    async with live() as world:
        adapter = await world.adapter()
        moving = world.read(topics.ENTITIES)
        hand = Hand(adapter, "car")
        await hand.init(NEAR)
        declare(hand, Publication("taxi", "taxi", {"seats": 4}))
        [(_, [declared, moved])] = frames_of(await poll(moving, 1))
        assert isinstance(declared, Declared)
        assert isinstance(moved, Moved)
        [one] = declared.declarations
        assert one.what == Publication("car/taxi", "taxi", {"seats": 4})
        assert moved.rows["key"].tolist() == [one.key]
        assert moved.rows["lat_e7"].tolist() == [round(NEAR.lat * 1e7)]
        assert moved.rows["time_us"][0] >= one.time_us
        assert (await hand.next(Kind.REPLY)).values == {"ok": True}
        # A subscription begins anew, wherever it was before; a place does not move.
        declare(hand, NearSubscription("here", "taxi", polygon=TRIANGLE))
        [(_, segments)] = frames_of(await poll(moving, 1))
        assert [type(segment) for segment in segments] == [Withdrawn, Declared]
        hand.say(Kind.REQUEST, Withdrawal("publication", "taxi"), topic=WITHDRAW)
        [(_, [withdrawn])] = frames_of(await poll(moving, 1))
        assert isinstance(withdrawn, Withdrawn)
        assert withdrawn.rows["key"].tolist() == [one.key]
        hand.say(Kind.REPORT, Telemetry(FAR))
        await until(lambda: adapter.counters["reports"] == 2)
        assert moving.poll() == []
        hand.close()


@in_loop
async def test_who_is_silent_was_gone_when_it_was_last_heard() -> None:
    async with live() as world:
        adapter = await world.adapter(
            session=SessionSettings(report_interval_s=0.2, missed_reports=2)
        )
        moving = world.read(topics.ENTITIES)
        hand = Hand(adapter, "car")
        await hand.init()
        declare(hand, Publication("taxi", "taxi"))
        await poll(moving, 1)
        heard_us = time.time_ns() // 1000
        found = [frame for _, frame in frames_of(await poll(moving, 1))]
        [withdrawn] = found[-1]
        assert isinstance(withdrawn, Withdrawn)
        assert withdrawn.rows["time_us"][0] < heard_us + 100_000
        assert time.time_ns() // 1000 > heard_us + 300_000
        assert len(adapter.moving.entities) == 0
        hand.close()


@in_loop
async def test_what_another_adapter_may_have_undone_is_said_once_more() -> None:
    async with live() as world:
        settings = SessionSettings(report_interval_s=0.1, missed_reports=3)
        adapter = await world.adapter(session=settings)
        moving = world.read(topics.ENTITIES)
        async with connect(adapter, "car") as car:
            await car.publish_moving("taxi", {})
            declared = []
            async with asyncio.timeout(5.0):
                while len(declared) < 2:
                    for _, segments in frames_of(await moving.read()):
                        declared += [one for one in segments if isinstance(one, Declared)]
        assert declared[0].declarations[0].what == declared[1].declarations[0].what


@in_loop
async def test_a_report_that_was_overtaken_moves_nothing() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = Hand(adapter, "car")
        await hand.init()
        declare(hand, Publication("taxi", "taxi"))
        await until(lambda: len(adapter.moving.entities) == 1)
        start = 1_000_000_000
        for time_us in (start, start - 1, start - 60_000_000):  # the last: its clock was put right
            hand.say(Kind.REPORT, Telemetry(NEAR, time_us=time_us))
        await until(lambda: adapter.counters["reports"] == 4)
        assert adapter.dropped["overtaken-report"] == 1
        assert adapter.counters["moves"] == 3  # with the declaration's
        hand.close()


@in_loop
async def test_too_much_is_refused_with_a_sentence() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = Hand(adapter, "car")
        await hand.init()
        for number in range(65):
            declare(hand, Publication(f"taxi-{number}", "taxi"))
        await until(lambda: len(hand.messages(Kind.REPLY)) == 65)
        errors = [one.values for one in hand.messages(Kind.REPLY) if "error" in one.values]
        assert errors == [{"error": "a client declares at most 64 things", "reason": "count"}]
        hand.received.clear()
        declare(hand, Publication("x" * 198, "taxi"))
        refused = (await hand.next(Kind.REPLY)).values
        assert refused == {"error": "an id has 1 to 200 bytes", "reason": "id"}
        hand.close()


@in_loop
async def test_a_declaration_cannot_pass_for_what_is_there_for_a_query() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = Hand(adapter, "car")
        await hand.init(NEAR)
        near = NearSubscription("x", "taxi", radius_m=100.0)
        hand.say(Kind.REQUEST, NearQuery(near, 5), topic=ASK)
        await until(lambda: len(adapter.moving.queries) == 1)
        (asked,) = adapter.moving.queries.by_row.values()
        hand.say(Kind.REQUEST, Declaration(replace(near, id=asked.entity.id)), topic=DECLARE)
        refusal = await hand.next(Kind.REPLY)
        assert "begins with ?" in refusal.values["error"]
        assert (await hand.next(Kind.REPLY)).payload == Matches(())  # the query has its answer
        hand.close()


@in_loop
async def test_who_asks_again_is_answered_once_done_and_nothing_is_done_twice() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = Hand(adapter, "car")
        await hand.init()
        body = hand.body(Kind.REQUEST, Declaration(Publication("taxi", "taxi")), topic=DECLARE)
        hand.raw(hand.packet(Kind.REQUEST, body), hand.packet(Kind.REQUEST, body))
        await hand.next(Kind.REPLY)
        hand.say(Kind.REQUEST, Withdrawal("publication", "taxi"), topic=WITHDRAW)
        await hand.next(Kind.REPLY)
        hand.raw(hand.packet(Kind.REQUEST, body))  # a late copy brings nothing back
        assert (await hand.next(Kind.REPLY)).values == {"ok": True}
        assert len(adapter.moving.entities) == 0
        assert adapter.counters["declarations"] == 1
        hand.close()


# From the bus


async def subscriber(adapter: Adapter) -> Hand:
    hand = Hand(adapter, "me")
    await hand.init()
    declare(hand, NearSubscription("taxi", "taxi", 500.0, inside=True))
    await until(lambda: len(adapter.moving.entities) == 1)
    return hand


def meet(
    world: Live,
    event_types: Iterable[tuple[EventType, int]],
    *,
    describe: bool = True,
    subscription: object = ME,
    headers: Headers = (),
) -> None:
    """A matcher tells of publications by number."""
    met = list(event_types)
    keys = [entity_key("publication", f"cab-{number}/taxi") for _, number in met]
    frame = FrameWriter()
    if describe:
        described = {
            key: Publication(f"cab-{number}/taxi", "taxi", {"number": number})
            for key, (_, number) in zip(keys, met, strict=True)
        }
        frame.describe(described)
    frame.notify(
        rows(
            EVENTS,
            len(met),
            subscription=subscription,
            publication=np.array(keys, np.uint64),
            time_us=np.arange(len(met)) + 1,
            event_type=[event_type for event_type, _ in met],
            reason=int(EventReason.MOVED),
        )
    )
    world.bus.append(topics.MATCHES, frame.to_bytes(), b"00", headers)
    world.bus.flush_now()


def matches_of(hand: Hand) -> list[tuple[int, Match]]:
    """Numbers and matches, as they came."""
    payloads = [message.payload for message in hand.messages(Kind.CONTENT)]
    found = [one.rows for one in payloads if isinstance(one, Matches)]
    return [(number, match) for table in found for _, number, match in table]


@in_loop
async def test_many_matches_share_packets_that_fit_into_a_datagram() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = await subscriber(adapter)
        meet(world, [(EventType.ENTER, number) for number in range(100)])
        await until(lambda: len(matches_of(hand)) >= 100)
        packets = [one for one in hand.received if len(one) > HEADER_BYTES + 500]
        assert 5 <= len(packets) <= 15
        assert max(map(len, packets)) <= 1300
        told = matches_of(hand)
        assert [number for number, _ in told] == list(range(1, 101))
        assert [match.values["number"] for _, match in told] == list(range(100))
        hand.close()


@in_loop
async def test_each_subscription_counts_by_itself() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = await subscriber(adapter)
        other = Hand(adapter, "other")
        await other.init()
        for one, name in ((hand, "taxi-2"), (other, "taxi")):
            declare(one, NearSubscription(name, "taxi", 500.0))
        await until(lambda: len(adapter.moving.entities) == 3)
        keys = [ME, *(entity_key("subscription", name) for name in ("me/taxi-2", "other/taxi"))]
        enter, inside, leave = EventType.ENTER, EventType.INSIDE, EventType.EXIT
        met = [(enter, 1), (enter, 1), (inside, 1), (enter, 1), (leave, 1), (inside, 1), (leave, 1)]
        whose = [keys[index] for index in (0, 1, 0, 2, 1, 2, 2)]
        for _ in range(2):  # the numbers go on in the next frame
            meet(world, met, subscription=np.array(whose, np.uint64))
        await until(lambda: len(matches_of(hand)) >= 8 and len(matches_of(other)) >= 6)
        told = sorted(
            (one.subscription, number, one.event_type) for number, one in matches_of(hand)
        )
        assert told == [
            ("taxi", 1, enter), ("taxi", 1, inside), ("taxi", 2, enter), ("taxi", 2, inside),
            ("taxi-2", 1, enter), ("taxi-2", 2, leave), ("taxi-2", 3, enter), ("taxi-2", 4, leave),
        ]  # fmt: skip
        told = sorted((number, one.event_type) for number, one in matches_of(other))
        assert told == [
            (1, enter), (1, inside), (2, leave), (3, enter), (3, inside), (4, leave),
        ]  # fmt: skip
        hand.close()
        other.close()


@in_loop
async def test_what_matters_is_repeated_and_what_does_not_is_not() -> None:
    async with live() as world:
        adapter = await world.adapter()
        deliveries = world.read(topics.DELIVERIES)
        hand = await subscriber(adapter)
        meet(world, [(EventType.ENTER, 1), (EventType.INSIDE, 1), (EventType.EXIT, 1)])
        await until(lambda: len(matches_of(hand)) == 5)  # the first two, two more after 0.5 s
        told = [(number, match.event_type) for number, match in matches_of(hand)]
        assert sorted(told) == [
            (1, EventType.ENTER), (1, EventType.ENTER), (1, EventType.INSIDE),
            (2, EventType.EXIT), (2, EventType.EXIT),
        ]  # fmt: skip
        ids = {message.id for message in hand.messages(Kind.CONTENT)}
        hand.acknowledge(*ids)
        await until(lambda: len(adapter.mediator.outgoing) == 0)  # and nothing is kept of it
        assert not adapter.mediator.outgoing.waiting
        await adapter.bus.flush()
        assert deliveries.poll() == []  # matches are not in the ledger
        hand.close()


@in_loop
async def test_what_a_matcher_says_again_is_not_told_again() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = await subscriber(adapter)
        for offset, what in ((4, EventType.ENTER), (5, EventType.EXIT)) * 2:
            headers = (origin_header(Origin(3, 0, offset)),)
            meet(world, [(what, 1)], headers=headers)
        meet(world, [(EventType.ENTER, 2)], headers=(origin_header(Origin(3, 0, 6)),))
        await until(lambda: len(matches_of(hand)) >= 3)
        told = [(number, match.event_type) for number, match in matches_of(hand)][:3]
        assert told == [(1, EventType.ENTER), (2, EventType.EXIT), (3, EventType.ENTER)]
        assert adapter.dropped["bus-repeated"] == 2
        hand.close()


@in_loop
async def test_who_lags_behind_hears_of_comings_and_goings_only() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = await subscriber(adapter)
        for number in range(40):  # never answered
            meet(world, [(EventType.ENTER, number)])
        await until(lambda: len(matches_of(hand)) >= 40)
        meet(world, [(EventType.INSIDE, 1), (EventType.INSIDE, 2), (EventType.EXIT, 1)])
        await until(
            lambda: any(match.event_type is EventType.EXIT for _, match in matches_of(hand))
        )
        assert adapter.dropped["shed-inside"] == 2
        assert all(match.event_type is not EventType.INSIDE for _, match in matches_of(hand))
        hand.close()


@in_loop
async def test_what_a_matcher_says_wrongly_is_counted() -> None:
    async with live() as world:
        adapter = await world.adapter()
        hand = await subscriber(adapter)
        good = FrameWriter().notify(rows(EVENTS, 1, subscription=ME)).to_bytes()
        one = FrameWriter().notify(rows(EVENTS, 1))
        bad_description = one.segment(b"P", b"\xff" * 9).to_bytes()
        for value in (b"", b"\x09", good[:-1], bad_description, good):
            world.bus.append(topics.MATCHES, value, b"00")
        world.bus.flush_now()
        meet(world, [(EventType.EXIT, 7)], describe=False)
        meet(world, [(EventType.ENTER, 8)], subscription=ME + 1)
        meet(world, [(EventType.ENTER, 9)])
        await until(lambda: len(matches_of(hand)) == 1)
        assert [(number, match.values) for number, match in matches_of(hand)] == [
            (1, {"number": 9})
        ]
        assert adapter.dropped["bus-truncated"] == 2
        assert adapter.dropped["bus-version"] == 1
        assert adapter.dropped["undescribed"] == 1
        hand.close()


@in_loop
async def test_it_goes_on_when_the_bus_does_not_take_anything() -> None:
    async with live() as world, bus_twin(world.bus) as matcher:
        adapter = await world.adapter()
        async with connect(adapter, "car", HERE) as car:
            append = adapter.bus.append

            def full(topic: str, *rest: object) -> None:
                if topic == topics.ENTITIES:
                    raise BusFullError("no space left")
                append(topic, *rest)  # type: ignore[arg-type]

            adapter.bus.append = full  # type: ignore[method-assign]
            hand = Hand(adapter, "hand")
            await hand.init()
            declare(hand, Publication("taxi", "taxi"))
            refused = (await hand.next(Kind.REPLY)).values
            assert refused["reason"] == "bus"
            assert "no space left" in str(refused["error"])
            assert adapter.dropped["bus-unavailable"] >= 1
            adapter.bus.append = append  # type: ignore[method-assign]
            await car.publish_moving("taxi", {})
            await until(lambda: "car/taxi" in matcher.twin.publications)
            hand.close()
