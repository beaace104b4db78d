"""The hub: runs the matching engine of a process and passes its events to subscribers."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import grown
from mercury.matcher.backend import Listener
from mercury.matching import Engine, Events, MatchingRules, NearbyPublication
from mercury.matching.layout import SLOT_MASK
from mercury.model.matching import NearSubscription, Publication, Side
from mercury.service.clock import now_us
from mercury.service.statistics import Statistics

log = logging.getLogger(__name__)

TICK_S = 0.1
AT_ONCE_ROWS = 1024  # updates that are worth a call of their own
WITHDRAWN_AT_ONCE = 500  # of a listener that left, so that others are not delayed
NOBODY = -1


class Hub:
    """Collects updates into batches for the engine and passes each listener its events.

    A `MatchingBackend`: see there for its methods.
    """

    def __init__(self, rules: MatchingRules, *, clock: Callable[[], int] = now_us) -> None:
        self.rules = rules
        self.engine = Engine(rules)
        self.clock = clock
        self.unheard = 0  # events of subscriptions without a listener
        self.failures = 0  # of listeners
        self._moves: list[tuple[NDArray[Any], ...]] = []  # the columns of `move`
        self._rows = 0  # in them
        self._flush_is_planned = False
        self._numbers: dict[Listener, int] = {}
        self._listeners: dict[int, Listener] = {}  # by number, never reused
        self._numbered = itertools.count()
        # By slot: whose subscription it is, and of which generation of the slot.
        self._owners = np.full(1024, NOBODY, np.int64)
        self._refs = np.full(1024, NOBODY, np.int64)
        # Owners of subscriptions whose slot was reused before their last events were passed on.
        self._former: dict[int, int] = {}
        self._revisions = np.zeros(1024, np.int64)  # of publications, by slot
        self._revision = 0

    def publish(
        self, publication: Publication, time_us: int | None = None, participant: object = None
    ) -> int:
        """Declare or change a publication; returns its reference, or raises at once."""
        self._hand_over()
        known = self.engine.find("publication", publication.id)
        before = None if known is None else self.engine.publication(known)
        ref = self.engine.publish(publication, self.clock() if time_us is None else time_us)
        if before != publication or known != ref:
            slot = ref & SLOT_MASK
            self._revisions = grown(self._revisions, slot)
            self._revision += 1
            self._revisions[slot] = self._revision
        self._plan_flush()
        return ref

    def subscribe(
        self, subscription: NearSubscription, listener: Listener, time_us: int | None = None
    ) -> int:
        self._hand_over()
        ref = self.engine.subscribe(subscription, self.clock() if time_us is None else time_us)
        slot = ref & SLOT_MASK
        self._owners = grown(self._owners, slot, NOBODY)
        self._refs = grown(self._refs, slot, NOBODY)
        if self._refs[slot] != ref and self._owners[slot] != NOBODY:
            self._former[int(self._refs[slot])] = int(self._owners[slot])
        self._owners[slot] = self._number(listener)
        self._refs[slot] = ref
        self._plan_flush()
        return ref

    def withdraw(self, ref: int) -> None:
        self._hand_over()
        self.engine.withdraw(ref, self.clock())
        self._plan_flush()

    def move(
        self,
        refs: NDArray[np.int64],
        lats: NDArray[np.float64],
        lons: NDArray[np.float64],
        times_us: NDArray[np.int64],
        accuracy_m: NDArray[np.float64],
    ) -> None:
        """Set positions, one row an update; batched with others of this loop iteration."""
        self._moves.append((refs, lats, lons, times_us, accuracy_m))
        self._rows += len(refs)
        if self._rows > AT_ONCE_ROWS:
            self._hand_over()
        self._plan_flush()

    def heard_us(self, ref: int) -> int:
        """The time of an entity's last update or declaration."""
        self._hand_over()
        return self.engine.heard_us(ref)

    def move_one(
        self, ref: int, lat: float, lon: float, time_us: int | None = None, accuracy_m: float = 0.0
    ) -> None:
        time_us = self.clock() if time_us is None else time_us
        self.move(*(np.array([value]) for value in (ref, lat, lon, time_us, accuracy_m)))

    def ask(
        self, subscription: NearSubscription, lat: float | None, lon: float | None, limit: int
    ) -> asyncio.Future[list[NearbyPublication]]:
        """The current matches of a subscription, nearest first; already done."""
        self._hand_over()
        answer: asyncio.Future[list[NearbyPublication]] = asyncio.get_running_loop().create_future()
        answer.set_result(self.engine.near(subscription, lat, lon, limit))
        return answer

    def find(self, side: Side, entity_id: str) -> int | None:
        return self.engine.find(side, entity_id)

    def publication(self, ref: int) -> Publication | None:
        return self.engine.publication(ref)

    def topics(self) -> list[dict[str, str | int]]:
        return [
            {"topic": topic, "publications": publications, "subscriptions": subscriptions}
            for topic, (publications, subscriptions) in sorted(self.engine.topics().items())
        ]

    def revisions(self, refs: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.take(self._revisions, refs & SLOT_MASK, mode="clip")

    def forget(self, listener: Listener) -> None:
        """Stop notifying a listener; withdraw its subscriptions, some in each loop iteration."""
        number = self._numbers.pop(listener, None)
        if number is not None:
            del self._listeners[number]
            self._withdraw_all(number)

    async def run(self) -> None:
        """Advance the engine's time, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    def tick(self) -> None:
        """Advance the engine to now: expiry and dwell."""
        self._hand_over()
        self.engine.tick(self.clock())
        self._notify()

    def flush(self) -> None:
        """Process the collected updates and notify the listeners."""
        self._flush_is_planned = False
        self._hand_over()
        self._notify()

    def statistics(self) -> Statistics:
        gauges = self.engine.statistics()
        counters = {name: gauges.pop(name) for name in ("updates", "events")}
        return Statistics(
            counters={
                **counters,
                "events_unheard": self.unheard,
                "listeners_failed": self.failures,
            },
            gauges={**gauges, "listeners": len(self._numbers)},
            dropped=dict(self.engine.dropped),
        )

    # Inside

    def _plan_flush(self) -> None:
        if not self._flush_is_planned:
            self._flush_is_planned = True
            asyncio.get_running_loop().call_soon(self.flush)

    def _hand_over(self) -> None:
        """Pass the collected updates to the engine, before any other call of it."""
        if not self._moves:
            return
        moves, self._moves, self._rows = self._moves, [], 0
        if len(moves) == 1:
            self.engine.move(*moves[0])
        else:
            self.engine.move(*(np.concatenate(column) for column in zip(*moves, strict=True)))

    def _notify(self) -> None:
        events = self.engine.take()
        if not len(events):
            return
        slots = events.subscription & SLOT_MASK
        owners = np.take(self._owners, slots, mode="clip")
        for row in np.flatnonzero(np.take(self._refs, slots, mode="clip") != events.subscription):
            owners[row] = self._former.get(int(events.subscription[row]), NOBODY)
        self._former.clear()
        first = int(owners[0])
        if (owners == first).all():  # one large listener, or a quiet iteration
            self._notify_one(first, events)
            return
        order = np.argsort(owners, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(owners[order])) + 1):
            self._notify_one(int(owners[rows[0]]), events.take(rows))

    def _notify_one(self, number: int, events: Events) -> None:
        listener = self._listeners.get(number)
        if listener is None:
            self.unheard += len(events)
            return
        try:
            listener.notify(events)
        except Exception:  # one listener's error must not affect the others
            self.failures += 1
            log.exception("a listener failed")

    def _number(self, listener: Listener) -> int:
        number = self._numbers.get(listener)
        if number is None:
            number = self._numbers[listener] = next(self._numbered)
            self._listeners[number] = listener
        return number

    def _withdraw_all(self, number: int) -> None:
        self._hand_over()
        slots = np.flatnonzero(self._owners == number)
        now = self.clock()
        for slot in slots[:WITHDRAWN_AT_ONCE]:
            self.engine.withdraw(int(self._refs[slot]), now, silently=True)
        self._owners[slots[:WITHDRAWN_AT_ONCE]] = NOBODY
        if len(slots) > WITHDRAWN_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._withdraw_all, number)
