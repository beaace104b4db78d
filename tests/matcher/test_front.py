"""Shared workers with gateways: what comes in by one gateway is told at all of them."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live import Live, in_loop, live, until
from matcher.gateway_client import BINARY, LAT, LON, METRE, World, move, near, publish
from wire.frames import Declared, Moved, Withdrawn, read_frame

from mercury.bus import Record
from mercury.config import GatewaySettings, MatcherSettings
from mercury.matcher.front import Front
from mercury.matcher.gateway.server import Gateway
from mercury.matcher.service import SharedMatcher
from mercury.matching import Events, MatchingRules
from mercury.model import topics
from mercury.model.errors import BusFullError
from mercury.model.matching import EventReason, EventType, NearSubscription, Publication, entity_key
from mercury.wire.declarations import Refusal
from mercury.wire.match_frames import EVENTS, FrameWriter
from mercury.wire.origins import Origin, origin_header

SQUARE = {
    "type": "Polygon",
    "coordinates": [
        [[24.93, 60.16], [24.96, 60.16], [24.96, 60.18], [24.93, 60.18], [24.93, 60.16]]
    ],
}


async def worker(world: Live, number: int, **settings: Any) -> World:
    """A shared worker with a gateway."""
    matcher: SharedMatcher = await world._start(
        SharedMatcher(
            world.open(),
            MatcherSettings(id=f"matcher-{number}", shared=True, **settings),
            GatewaySettings(port=0),
        )
    )
    assert matcher.front is not None
    assert matcher.gateway is not None
    return World(matcher.front, matcher.gateway)  # type: ignore[arg-type]


@asynccontextmanager
async def workers(tmp_path: Path, count: int = 1, **settings: Any) -> AsyncIterator[list[World]]:
    """Workers on an embedded bus."""
    async with live(f"embedded:{tmp_path / 'bus.db'}") as world:
        here = [await worker(world, number, **settings) for number in range(count)]
        yield here
        for one in here:
            front_of(one).things.validate()


def front_of(here: World) -> Front:
    assert isinstance(here.hub, Front)
    return here.hub


def declared(here: World) -> tuple[float, float]:
    return declared_by(front_of(here))


async def fetch(url: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()

    def load() -> tuple[int, Any]:
        request = urllib.request.Request(url, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return await asyncio.to_thread(load)


@in_loop
async def test_a_session_in_json(tmp_path: Path) -> None:
    async with workers(tmp_path) as (here,), here.connect() as ann, here.connect() as cab:
        await ann.ok(near(inside=True, dwell_s=0.3, where="seats >= 2"))
        await cab.ok(publish("taxi-1", 100, values={"seats": 4}))
        entered = await ann.event()
        assert entered["distance_m"] == pytest.approx(100, rel=0.01)
        assert entered["lat"] == pytest.approx(LAT + 100 * METRE, abs=1e-6)
        said = {key: entered[key] for key in ("event", "reason", "subscription", "publication")}
        assert said == {
            "event": "enter", "reason": "moved", "subscription": "me", "publication": "taxi-1"
        }  # fmt: skip
        assert (entered["topic"], entered["values"]) == ("taxi", {"seats": 4})
        await cab.ok(move("taxi-1", 200))
        inside = await ann.event()
        assert (inside["event"], inside["distance_m"]) == ("inside", pytest.approx(200, rel=0.01))
        assert (await ann.event())["event"] == "dwell"
        await cab.ok(move("taxi-1", 900))
        left = await ann.event()
        assert (left["event"], left["reason"]) == ("exit", "moved")


@in_loop
async def test_a_session_in_rows(tmp_path: Path) -> None:
    async with workers(tmp_path) as (here,), here.connect(BINARY) as ann:
        answers = await ann.say(
            near("me", None, handle=8, inside=True),
            publish("taxi-1", handle=7, values={"seats": 4}),
        )
        assert answers == [{"ok": True}] * 2
        for metres, event_type in ((100, EventType.ENTER), (50, EventType.INSIDE)):
            await ann.move((8, LAT, LON), (7, LAT + metres * METRE, LON))
            # The subscription's own update is told as well, once it is inside.
            rows = await ann.rows(1 if event_type is EventType.ENTER else 2)
            assert rows["event_type"][-1] == event_type
            assert set(rows["subscription"].tolist()) == {8}
        assert rows["distance_m"][-1] == pytest.approx(50, rel=0.02)
        number = int(rows["publication"][-1])
        assert ann.names == {number: {"id": "taxi-1", "topic": "taxi", "values": {"seats": 4}}}
        # It is introduced anew when its values are others.
        assert await ann.say(publish("taxi-1", handle=7, values={"seats": 1})) == {"ok": True}
        await ann.move((7, LAT, LON))
        await ann.rows(1)
        assert ann.names[number]["values"] == {"seats": 1}
        await ann.move((7, LAT + 900 * METRE, LON))
        (row,) = await ann.rows(1)
        assert (row["event_type"], row["reason"], row["publication"]) == (
            EventType.EXIT, EventReason.MOVED, number
        )  # fmt: skip
        await ann.until_progress(6, 0)


@in_loop
async def test_two_gateways_see_what_comes_in_by_the_other(tmp_path: Path) -> None:
    async with workers(tmp_path, 2) as (one, other), one.connect() as ann, other.connect() as bob:
        await ann.ok(publish("taxi-a", 0), near("me", 0))
        await bob.ok(publish("taxi-b", 10), near("me", 10))
        for talk in (ann, bob):
            told = [await talk.event() for _ in range(2)]
            assert {event["publication"] for event in told} == {"taxi-a", "taxi-b"}
            assert {event["event"] for event in told} == {"enter"}
        # What is declared again elsewhere is another for all.
        await bob.ok({"op": "withdraw", "id": "taxi-b"})
        for talk in (ann, bob):
            left = await talk.event()
            assert (left["event"], left["publication"]) == ("exit", "taxi-b")
            assert left["reason"] == "withdrawn"
        assert declared(one) == (1, 1)
        assert declared(other) == (0, 1)


@in_loop
async def test_a_close_withdraws(tmp_path: Path) -> None:
    async with workers(tmp_path, 2) as (one, other), one.connect() as ann:
        await ann.ok(near())
        async with other.connect() as cab:
            await cab.ok(publish("taxi-1", 0), near("cab", 0), near("area", None, area=SQUARE))
            assert (await ann.event())["event"] == "enter"
            assert {(await cab.event())["subscription"] for _ in range(2)} == {"cab", "area"}
            assert declared(other) == (1, 2)
        told = await ann.event()
        assert (told["event"], told["reason"]) == ("exit", "withdrawn")
        assert declared(other) == (0, 0)
        assert other.count("gateway_connections") == 0


@in_loop
async def test_withdrawing_a_wish_tells_its_last_events_before_the_answer(tmp_path: Path) -> None:
    async with workers(tmp_path) as (here,), here.connect() as ann:
        await ann.ok(publish("taxi-1", 100), near())
        assert (await ann.event())["event"] == "enter"
        await ann.websocket.send('{"op":"withdraw","id":"me","n":"last"}')
        left = json.loads(await ann.websocket.recv())
        assert (left["event"], left["reason"], left["publication"]) == (
            "exit",
            "withdrawn",
            "taxi-1",
        )
        assert left["distance_m"] == pytest.approx(100, rel=0.01)
        assert str(await ann.websocket.recv()) == '{"ok":true,"n":"last"}'
        # What the workers say of that comes too late, and nobody hears it twice.
        await ann.ok(near())
        assert (await ann.event())["event"] == "enter"
        await ann.ok(move("taxi-1", 900))
        assert (await ann.event())["reason"] == "moved"


@in_loop
async def test_what_is_refused_at_once_and_what_is_refused_by_workers(tmp_path: Path) -> None:
    async with workers(tmp_path, topics=["taxi"], max_radius_m=5000.0) as (here,):
        async with here.connect() as ann:
            answer = await ann.say(near(topic="bus"))
            assert answer == {"error": "there is no topic 'bus' here", "reason": "topic"}
            assert (await ann.say(near(radius_m=6000)))["reason"] == "radius"
            assert (await ann.say(near(where="seats >")))["reason"] == "where"
            assert declared(here) == (0, 0)
        # A gateway that does not know the rules of the workers, as while they are being changed.
        front = Front(front_of(here)._bus, MatchingRules())
        front.open()
        gateway = Gateway(front, GatewaySettings(port=0))
        await gateway.start()
        tasks = [asyncio.create_task(work) for work in (front.listen(), front.run())]
        try:
            async with World(front, gateway).connect() as ann:  # type: ignore[arg-type]
                sentence = "there is no topic 'bus' here"
                for op, side in ((near(topic="bus"), "subscription"), (publish(topic="bus"), "")):
                    assert await ann.say(op) == {"ok": True}
                    assert await ann.hear_answer() == {
                        "error": sentence, "reason": "topic", side or "publication": op["id"]
                    }  # fmt: skip
                assert (await ann.say(move("me", 0)))["reason"] == "id"  # it is forgotten
                said = {"op": "ask", "topic": "bus", "radius_m": 100, "lat": LAT, "lon": LON}
                assert await ann.say(said) == {"error": sentence, "reason": "topic"}
                await ann.ok(near(), publish("taxi-1", 0))  # the rest goes on
                assert (await ann.event())["event"] == "enter"
            front.things.validate()
        finally:
            await gateway.stop()
            front.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@in_loop
async def test_asking_over_both_protocols(tmp_path: Path) -> None:
    async with workers(tmp_path, 2) as (one, other), one.connect() as ann:
        for number in range(3):
            body = {"topic": "taxi", "values": {"seats": number}, "ttl_s": 600}
            place = {"lat": LAT + number * 100 * METRE, "lon": LON}
            url = f"{other.url}/v1/publications/taxi-{number}"
            assert await fetch(url, "PUT", body | place) == (201, {"ok": True})
        question = {"topic": "taxi", "radius_m": 500, "lat": LAT, "lon": LON, "where": "seats >= 1"}
        said = await ann.say({"op": "ask", **question, "limit": 1}, {"op": "hello", "n": 2})
        found, then = said
        assert [item["publication"] for item in found["found"]] == ["taxi-1"]
        assert found["found"][0]["distance_m"] == pytest.approx(100, rel=0.01)
        assert then == {"ok": True, "n": 2}  # in the order of what was said
        status, answer = await fetch(f"{one.url}/v1/near", "POST", question)
        assert status == 200
        assert [item["publication"] for item in answer["found"]] == ["taxi-1", "taxi-2"]
        assert await fetch(f"{one.url}/v1/near", "POST", {**question, "topic": "bus"}) == (
            200, {"found": []}
        )  # fmt: skip
        # What was put at a gateway is known there, and lives without a connection.
        assert await fetch(f"{other.url}/v1/topics") == (
            200, {"topics": [{"topic": "taxi", "publications": 3, "subscriptions": 0}]}
        )  # fmt: skip
        url = f"{other.url}/v1/publications/taxi-1"
        assert await fetch(url, "DELETE") == (200, {"ok": True})
        assert (await fetch(url, "DELETE"))[0] == 404
        _, answer = await fetch(f"{one.url}/v1/near", "POST", question)
        assert [item["publication"] for item in answer["found"]] == ["taxi-2"]
        await until(lambda: declared(one) == (0, 0))  # questions leave nothing behind


@in_loop
async def test_what_says_nothing_expires_and_may_come_again(tmp_path: Path) -> None:
    async with workers(tmp_path) as (here,), here.connect() as ann:
        await ann.ok(near("centre", None, area=SQUARE), publish("taxi-1", 0, ttl_s=1.0))
        assert (await ann.event())["event"] == "enter"
        left = await ann.event()
        assert (left["event"], left["reason"]) == ("exit", "expired")
        assert (await ann.say(move("taxi-1", 0)))["reason"] == "expired"
        await ann.ok(publish("taxi-1", 0, ttl_s=1.0))
        assert (await ann.event())["event"] == "enter"


# The front alone, with a clock of its own.


class Heard:
    """A participant that takes notes."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, int]] = []  # happening, cause, publication
        self.refused: list[tuple[int, str]] = []

    def tell(self, events: Events) -> None:
        columns = (events.event_type, events.reason, events.publication)
        self.events += zip(*(column.tolist() for column in columns), strict=True)

    def refuse(self, ref: int, refusal: Refusal) -> None:
        self.refused.append((ref, refusal.reason))


class Deaf(Heard):
    def tell(self, events: Events) -> None:
        raise RuntimeError("deaf")


class Told:
    """A front whose records are read, at a time that is set."""

    def __init__(self, world: Live) -> None:
        self.now_us = 1_750_000_000_000_000
        self.front = Front(world.bus, MatchingRules(), clock=lambda: self.now_us)
        self._bus = world.bus
        self._moving = world.read(topics.ENTITIES)

    def said(self) -> list[str]:
        """What went to the bus since the last time, in short."""
        self.front.tick()
        self.front.flush()
        self.front.things.validate()
        self._bus.flush_now()
        said = []
        for record in self._moving.poll():
            for segment in read_frame(record.value):
                match segment:
                    case Declared(declarations):
                        said += [f"D {one.what.id} {one.what.ttl_s}" for one in declarations]  # type: ignore[union-attr]
                    case Moved(rows):
                        said.append(f"M {len(rows)}")
                    case Withdrawn(rows):
                        said.append(f"W {len(rows)}")
        return said

    def pass_s(self, seconds: float) -> None:
        self.now_us += round(seconds * 1e6)


@in_loop
async def test_a_turn_is_a_record_a_bucket_and_keeps_the_order_of_a_thing() -> None:
    async with live() as world:
        told, participant = Told(world), Heard()
        ref = told.front.publish(Publication("a", "taxi"), None, participant)
        told.front.move_one(ref, LAT, LON)
        told.front.move_one(ref, LAT, LON)
        assert told.said() == ["D a None", "M 2"]
        told.front.move_one(ref, LAT, LON)
        told.front.publish(Publication("a", "taxi", {"seats": 1}), None, participant)
        told.front.withdraw(ref)
        assert told.said() == ["M 1", "D a None", "W 1"]
        told.front.move_one(ref, LAT, LON)
        told.front.withdraw(ref)
        assert told.said() == []
        assert told.front.dropped["unknown"] == 1
        subscription = told.front.subscribe(NearSubscription("b", "taxi", 10.0), participant)
        told.front.forget(participant)
        assert told.said() == ["D b None", "W 1"]
        again = told.front.subscribe(NearSubscription("c", "taxi", 10.0), participant)
        assert again != subscription
        assert again & 0xFFFF_FFFF == subscription & 0xFFFF_FFFF


def meeting(
    number: int, *rows: tuple[str, str, EventType], described: tuple[str, ...] = ()
) -> Record:
    """A record of `matches`, which follows from the offset `number`."""
    table = np.zeros(len(rows), EVENTS)
    for row, (subscription, publication, event_type) in zip(table, rows, strict=True):
        row["subscription"] = entity_key("subscription", subscription)
        row["publication"] = entity_key("publication", publication)
        row["event_type"], row["reason"] = event_type, EventReason.MOVED
    known = {entity_key("publication", id): Publication(id, "taxi") for id in described}
    headers = (origin_header(Origin(3, 0, number)),)
    value = FrameWriter().describe(known).tell(table).to_bytes()
    return Record(topics.MATCHES, 0, number, 0, b"00", headers, value)


@in_loop
async def test_what_is_heard_is_told_once_in_turn_and_to_whom_it_concerns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    enter, inside, left = EventType.ENTER, EventType.INSIDE, EventType.EXIT
    async with live() as world:
        front, ann, bob, deaf = Told(world).front, Heard(), Heard(), Deaf()
        for name, participant in (("a", ann), ("b", bob), ("d", deaf)):
            front.subscribe(NearSubscription(name, "taxi", 10.0), participant)
        take = front._heard.take
        everybody = [(name, "t", enter) for name in ("a", "b", "stranger", "d", "a")]
        first = meeting(1, *everybody, described=("t", "of others"))
        take([first, first])
        ref = ann.events[0][2]
        assert ann.events == bob.events == [(enter, EventReason.MOVED, ref)]
        assert front.publication(ref) == Publication("t", "taxi")
        assert front.statistics().counters["listeners_failed"] == 1
        take([meeting(2, ("a", "t", inside), ("a", "t", left), ("a", "t", left))])
        take([meeting(3, ("a", "t", inside), ("b", "t", inside), ("a", "unknown", enter))])
        assert [one[0] for one in ann.events] == [enter, inside, left]
        assert [one[0] for one in bob.events] == [enter, inside]
        damaged = first._replace(value=first.value[:-1], headers=())
        take([damaged, damaged._replace(value=b"")])
        assert front.statistics().dropped == {
            "repeated": 1, "not-inside": 2, "undescribed": 1, "truncated": 2
        }  # fmt: skip
        assert front.statistics().gauges["pairs"] == 2
        front.things.validate()
        front.forget(bob)
        assert len(bob.events) == 2  # without a word
        front.things.validate()
        # Its own publication is the one it meets.
        mine = front.publish(Publication("t", "taxi"), None, ann)
        assert mine == ref
        revision = front.revisions(np.array([ref]))[0]
        take([meeting(4, ("a", "t", enter), described=("t",))])
        assert front.revisions(np.array([ref]))[0] == revision
        front.close()
        assert declared_by(front) == (0, 0)


@in_loop
async def test_a_full_bus_is_told_to_whom_it_concerns(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live() as world:
        told, participant = Told(world), Heard()

        def refuse(*_: object) -> None:
            raise BusFullError("64 MiB wait")

        kept = told.front.publish(Publication("kept", "taxi"), None, participant)
        assert told.said() == ["D kept None"]
        with monkeypatch.context() as patched:
            patched.setattr(world.bus, "append", refuse)
            ref = told.front.publish(Publication("lost", "taxi"), None, participant)
            told.front.move_one(ref, LAT, LON)
            told.front.move_one(kept, LAT, LON)
            assert told.said() == []
        assert participant.refused == [(ref, "bus")]
        assert told.front.dropped["bus"] == 3
        told.front.move_one(kept, LAT, LON)
        assert sorted(told.said()) == ["M 1", "W 1"]  # in case that it was known before


@in_loop
async def test_leases_are_renewed_and_end_with_what_was_declared() -> None:
    async with live() as world:
        told, participant = Told(world), Heard()
        told.front.subscribe(NearSubscription("long", "taxi", 10.0, ttl_s=200.0), participant)
        assert told.said() == ["D long 120.0"]
        told.pass_s(39.0)
        assert told.said() == []
        told.pass_s(2.0)
        assert told.said() == ["D long 120.0"]  # a dead front leaves it for two minutes, no longer
        told.pass_s(80.0)
        assert told.said() == ["D long 79.0"]  # until its own time is over
        told.pass_s(78.0)
        assert told.said() == ["D long 1.0"]
        told.pass_s(2.0)
        assert told.said() == []
        assert told.front.find("subscription", "long") is None
        told.pass_s(10.0)
        assert told.said() == []
        assert declared_by(told.front) == (0, 0)
        # Short ones live by their updates; near their end these come with what they are.
        short = told.front.publish(Publication("short", "taxi"), None, participant)
        told.front.move_one(short, LAT, LON)
        assert told.said() == ["D short None", "M 1"]
        told.pass_s(41.0)  # once again, in case that the gateway it came from withdrew it late
        assert told.said() == ["D short None", "M 1"]
        told.pass_s(18.5)
        told.front.move_one(short, LAT, LON)
        assert told.said() == ["D short None", "M 1"]
        told.pass_s(30.0)
        told.front.move_one(short, LAT, LON)
        assert told.said() == ["M 1"]
        told.pass_s(61.0)
        told.front.move_one(short, LAT, LON)
        assert told.said() == []
        assert told.front.dropped["unknown"] == 1
        # Whose updates are old when they come has no lease: it would be over too soon.
        late = told.front.publish(Publication("late", "taxi", ttl_s=600.0), None, participant)
        assert told.said() == ["D late 120.0"]
        told.front.move_one(late, LAT, LON, told.now_us - 61_000_000)
        assert told.said() == ["D late 600.0", "M 1"]
        # What has no participant lives by its TTL alone.
        told.front.publish(Publication("put", "taxi", ttl_s=600.0))
        assert told.said() == ["D put 600.0"]
        told.front.close()
        assert told.said() == ["W 1"]  # the late one; the short one has expired
        assert declared_by(told.front) == (1, 0)


def declared_by(front: Front) -> tuple[float, float]:
    gauges = front.statistics().gauges
    return gauges["publications"], gauges["subscriptions"]
