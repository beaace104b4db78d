"""The hub: batches for the engine, events for whom they concern."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from live import iterate, until

from mercury.matcher import hub as hub_module
from mercury.matcher.hub import Hub
from mercury.matching import Events, MatchingRules
from mercury.model.errors import MatchingError
from mercury.model.matching import EventReason, EventType, NearSubscription, Publication

LAT, LON = 48.0, 11.0
NORTH_100_M = 100 / 111_195


class Heard:
    """A listener that writes down what it is notified of."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.times = 0
        self.events: list[tuple[EventType, EventReason, str, str]] = []

    def notify(self, events: Events) -> None:
        self.times += 1
        for row in range(len(events)):
            publication = self.hub.engine.publication(int(events.publication[row]))
            subscription = self.hub.engine.subscription(int(events.subscription[row]))
            assert publication is not None
            assert subscription is not None
            self.events.append(
                (
                    EventType(events.event_type[row]),
                    EventReason(events.reason[row]),
                    subscription.id,
                    publication.id,
                )
            )

    def event_types(self) -> list[tuple[str, str]]:
        return [(what.name, publication) for what, _, _, publication in self.events]


class Deaf(Heard):
    def notify(self, events: Events) -> None:
        raise RuntimeError("this listener is broken")


class Now:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.us = 1_000_000_000

    def __call__(self) -> int:
        return self.us


def with_hub(
    work: Callable[[Hub, Now], Awaitable[None]], rules: MatchingRules | None = None
) -> None:
    async def run() -> None:
        now = Now()
        await work(Hub(rules or MatchingRules(), clock=now), now)

    asyncio.run(run())


def near(name: str, **fields: object) -> NearSubscription:
    return NearSubscription(name, "taxi", **{"radius_m": 50.0, **fields})  # type: ignore[arg-type]


def test_each_listener_is_notified_of_its_own() -> None:
    async def work(hub: Hub, now: Now) -> None:
        ann, bob = Heard(hub), Heard(hub)
        taxis = [hub.publish(Publication(f"taxi-{i}", "taxi")) for i in range(3)]
        for name, listener, place in (("a", ann, 0), ("b", bob, 2), ("a2", ann, 2)):
            hub.move_one(hub.subscribe(near(name), listener), LAT + place * NORTH_100_M, LON)
        for i, taxi in enumerate(taxis):
            hub.move_one(taxi, LAT + i * NORTH_100_M, LON)
        assert ann.times == bob.times == 0  # nothing before the event-loop iteration is over
        await iterate()
        moved = (EventType.ENTER, EventReason.MOVED)
        assert ann.events == [(*moved, "a", "taxi-0"), (*moved, "a2", "taxi-2")]
        assert bob.events == [(*moved, "b", "taxi-2")]
        assert ann.times == bob.times == 1

    with_hub(work)


def test_an_iteration_is_one_call_of_the_engine_and_many_rows_do_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(hub: Hub, now: Now) -> None:
        batches: list[int] = []
        move = hub.engine.move
        monkeypatch.setattr(
            hub.engine, "move", lambda refs, *rest: (batches.append(len(refs)), move(refs, *rest))
        )
        ref = hub.publish(Publication("taxi-1", "taxi"))
        for _ in range(10):
            hub.move_one(ref, LAT, LON)
        await iterate()
        assert batches == [10]
        count = hub_module.AT_ONCE_ROWS + 1
        place = np.full(count, LAT)
        hub.move(np.full(count, ref), place, place, np.full(count, now()), np.zeros(count))
        assert batches == [10, count]
        assert hub.engine.statistics()["updates"] == 10 + count

    with_hub(work)


def test_what_is_said_in_order_happens_in_order() -> None:
    async def work(hub: Hub, now: Now) -> None:
        ann = Heard(hub)
        me = hub.subscribe(near("me", inside=True), ann)
        hub.move_one(me, LAT, LON)
        taxi = hub.publish(Publication("taxi-1", "taxi"))
        hub.move_one(taxi, LAT, LON)
        now.us += 1
        hub.move_one(taxi, LAT + NORTH_100_M / 10, LON)
        hub.withdraw(taxi)
        hub.withdraw(12345)  # unknown: ignored
        await iterate()
        assert ann.event_types() == [(what, "taxi-1") for what in ("ENTER", "INSIDE", "EXIT")]

    with_hub(work)


def test_a_slot_that_was_given_away_does_not_mix_up_listeners() -> None:
    async def work(hub: Hub, now: Now) -> None:
        ann, bob = Heard(hub), Heard(hub)
        hub.move_one(hub.publish(Publication("taxi-1", "taxi")), LAT, LON)
        mine = hub.subscribe(near("a"), ann)
        hub.move_one(mine, LAT, LON)
        hub.withdraw(mine)
        hub.move_one(hub.subscribe(near("b"), bob), LAT, LON)  # may get the slot
        await iterate()
        assert ann.event_types() == [("ENTER", "taxi-1"), ("EXIT", "taxi-1")]
        assert bob.event_types() == [("ENTER", "taxi-1")]

    with_hub(work)


def test_who_left_is_told_nothing_and_its_subscriptions_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_module, "WITHDRAWN_AT_ONCE", 3)

    async def work(hub: Hub, now: Now) -> None:
        ann, bob = Heard(hub), Heard(hub)
        taxi = hub.publish(Publication("taxi-1", "taxi"))
        for i in range(10):
            hub.move_one(hub.subscribe(near(f"a-{i}"), ann), LAT, LON)
        hub.move_one(hub.subscribe(near("b"), bob), LAT, LON)
        hub.forget(ann)
        hub.move_one(hub.subscribe(near("a-9"), bob), LAT, LON)  # taken over in between
        hub.move_one(taxi, LAT, LON)
        await iterate(6)
        assert ann.events == []
        assert sorted(event[2] for event in bob.events) == ["a-9", "b"]
        assert hub.engine.statistics()["subscriptions"] == 2
        hub.forget(ann)  # twice is once
        # Whoever comes then hears its own alone.
        eve = Heard(hub)
        hub.move_one(hub.subscribe(near("e"), eve), LAT, LON)
        await iterate()
        assert [event[2] for event in eve.events] == ["e"]
        assert hub.statistics().gauges["listeners"] == 2

    with_hub(work)


def test_a_broken_listener_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def work(hub: Hub, now: Now) -> None:
        ann, deaf = Heard(hub), Deaf(hub)
        for name, listener in (("d", deaf), ("a", ann)):
            hub.move_one(hub.subscribe(near(name), listener), LAT, LON)
        hub.move_one(hub.publish(Publication("taxi-1", "taxi")), LAT, LON)
        await iterate()
        assert ann.event_types() == [("ENTER", "taxi-1")]
        assert hub.statistics().counters["listeners_failed"] == 1

    with_hub(work)
    assert "this listener is broken" in caplog.text


def test_dwell_and_expiry_come_with_time() -> None:
    async def work(hub: Hub, now: Now) -> None:
        ann = Heard(hub)
        hub.move_one(hub.subscribe(near("a", dwell_s=2.0, ttl_s=60.0), ann), LAT, LON)
        hub.move_one(hub.publish(Publication("taxi-1", "taxi", ttl_s=5.0)), LAT, LON)
        running = asyncio.create_task(hub.run())
        for told in (1, 2, 3):
            await until(lambda told=told: len(ann.events) >= told)
            now.us += 3_000_000
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert [event[:2] for event in ann.events] == [
            (EventType.ENTER, EventReason.MOVED),
            (EventType.DWELL, EventReason.TIME),
            (EventType.EXIT, EventReason.EXPIRED),
        ]

    with_hub(work)


def test_revisions_tell_when_values_are_others() -> None:
    async def work(hub: Hub, now: Now) -> None:
        def revision(ref: int) -> int:
            return int(hub.revisions(np.array([ref]))[0])

        ref = hub.publish(Publication("taxi-1", "taxi", {"seats": 4}))
        first = revision(ref)
        hub.publish(Publication("taxi-1", "taxi", {"seats": 4}))
        assert revision(ref) == first
        hub.publish(Publication("taxi-1", "taxi", {"seats": 3}))
        assert revision(ref) != first
        await iterate()

    with_hub(work)


def test_asking_sees_what_was_said_before() -> None:
    async def work(hub: Hub, now: Now) -> None:
        for i in range(5):
            ref = hub.publish(Publication(f"taxi-{i}", "taxi", {"seats": i}))
            hub.move_one(ref, LAT + i * NORTH_100_M / 10, LON)
        found = hub.ask(near("ask", where="seats >= 1"), LAT, LON, 3).result()
        assert [one.publication.id for one in found] == ["taxi-1", "taxi-2", "taxi-3"]
        assert found[0].distance_m == pytest.approx(10, rel=0.01)
        await iterate()

    with_hub(work)


def test_what_the_rules_forbid_is_refused() -> None:
    async def work(hub: Hub, now: Now) -> None:
        with pytest.raises(MatchingError, match="no topic 'taxi' here"):
            hub.subscribe(near("a"), Heard(hub))
        with pytest.raises(MatchingError, match="no topic 'taxi' here"):
            hub.publish(Publication("taxi-1", "taxi"))
        await iterate()

    with_hub(work, MatchingRules(topics=frozenset({"bus"})))


def test_after_warming_up_nothing_is_left_to_compile() -> None:
    code = """
import sys
from mercury.matching import warm_up
warm_up()
for name, module in list(sys.modules.items()):
    if name.startswith("mercury.matching."):
        for function in vars(module).values():
            own = getattr(function, "py_func", None)
            if own is not None and own.__module__ == name and not function.signatures:
                if not {"forceinline", "inline"} & set(function.targetoptions):  # parts of others
                    print(own.__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == ""
