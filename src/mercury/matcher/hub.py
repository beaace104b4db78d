"""The hub: the one engine of a process, who listens to which subscription, and when it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import grown
from mercury.matching import Engine, Events, Found, MatchingRules
from mercury.matching.layout import SLOT_MASK
from mercury.model.matching import NearSubscription, Publication, Side
from mercury.service.clock import now_us
from mercury.service.statistics import Statistics

log = logging.getLogger(__name__)

TICK_S = 0.1
AT_ONCE_ROWS = 1024  # so many updates are worth a call of their own
WITHDRAWN_AT_ONCE = 500  # of a listener that left, so that the others do not wait for it
NOBODY = -1

Moves = tuple[
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.float64],
]


class Listener(Protocol):
    """Somebody who has subscriptions."""

    def tell(self, events: Events) -> None:
        """Rows of its subscriptions, in order; must not block."""


class Hub:
    """Collects updates into batches for the engine and hands each listener its events."""

    def __init__(self, rules: MatchingRules, *, clock: Callable[[], int] = now_us) -> None:
        self.rules = rules
        self.engine = Engine(rules)
        self.clock = clock
        self.unheard = 0  # events of subscriptions that nobody listens to any more
        self.failures = 0  # of listeners
        self._moves: list[Moves] = []
        self._rows = 0  # in them
        self._flush_is_planned = False
        self._listeners: list[Listener | None] = []  # by number
        self._numbers: dict[Listener, int] = {}
        self._free_numbers: list[int] = []
        # By slot: whose subscription it is, and of which generation of the slot.
        self._owners = np.full(1024, NOBODY, np.int32)
        self._refs = np.full(1024, NOBODY, np.int64)
        # Whose a subscription was whose slot was given away before its last events were handed out.
        self._former: dict[int, int] = {}
        self._revisions = np.zeros(1024, np.int64)  # of publications, by slot
        self._revision = 0

    def publish(
        self, publication: Publication, time_us: int | None = None, participant: object = None
    ) -> int:
        """Declare or change a publication; its reference. What is refused is refused at once."""
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
        """Declare or change a subscription, whose events go to the listener; its reference."""
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
        """End a publication or a subscription; unknown ones are ignored."""
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
        """Say where things are, one row an update; together with others of this turn."""
        self._moves.append((refs, lats, lons, times_us, accuracy_m))
        self._rows += len(refs)
        if self._rows > AT_ONCE_ROWS:
            self._hand_over()
        self._plan_flush()

    def heard_us(self, ref: int) -> int:
        """The time of the last word of something that lives."""
        self._hand_over()
        return self.engine.heard_us(ref)

    def move_one(
        self, ref: int, lat: float, lon: float, time_us: int | None = None, accuracy_m: float = 0.0
    ) -> None:
        """Say where one thing is."""
        time_us = self.clock() if time_us is None else time_us
        self.move(
            np.array([ref]),
            np.array([lat]),
            np.array([lon]),
            np.array([time_us]),
            np.array([accuracy_m]),
        )

    def near(
        self, subscription: NearSubscription, lat: float | None, lon: float | None, limit: int
    ) -> list[Found]:
        """What a subscription would be notified of now, nearest first."""
        self._hand_over()
        return self.engine.near(
            subscription.topic,
            lat=lat,
            lon=lon,
            radius_m=subscription.radius_m,
            polygon=subscription.polygon,
            where=subscription.where,
            limit=limit,
        )

    def ask(
        self, subscription: NearSubscription, lat: float | None, lon: float | None, limit: int
    ) -> asyncio.Future[list[Found]]:
        """The same, as the gateway asks: here the answer is there already."""
        answer: asyncio.Future[list[Found]] = asyncio.get_running_loop().create_future()
        answer.set_result(self.near(subscription, lat, lon, limit))
        return answer

    def find(self, side: Side, entity_id: str) -> int | None:
        """The reference of something that lives."""
        return self.engine.find(side, entity_id)

    def publication(self, ref: int) -> Publication | None:
        """What a publication is, also for a while after it has gone."""
        return self.engine.publication(ref)

    def topics(self) -> list[dict[str, str | int]]:
        """The topics that something is declared for, and how much of each side."""
        return [
            {"topic": topic, "publications": publications, "subscriptions": subscriptions}
            for topic, (publications, subscriptions) in sorted(self.engine.topics().items())
        ]

    def revisions(self, refs: NDArray[np.int64]) -> NDArray[np.int64]:
        """A number for each publication that is another once its values are."""
        return np.take(self._revisions, refs & SLOT_MASK, mode="clip")

    def forget(self, listener: Listener) -> None:
        """Tell it nothing more; withdraw its subscriptions, some at each event-loop iteration."""
        number = self._numbers.pop(listener, None)
        if number is not None:
            self._listeners[number] = None
            self._withdraw_all(number)

    async def run(self) -> None:
        """Let time pass for the engine, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    def tick(self) -> None:
        """Let what is due by now come about."""
        self._hand_over()
        self.engine.tick(self.clock())
        self._tell()

    def flush(self) -> None:
        """Hand over what was collected and tell what happened."""
        self._flush_is_planned = False
        self._hand_over()
        self._tell()

    def statistics(self) -> Statistics:
        """The engine's numbers and our own."""
        numbers = self.engine.statistics()
        counting = ("updates", "events")
        return Statistics(
            gauges={
                **{name: value for name, value in numbers.items() if name not in counting},
                "listeners": len(self._numbers),
            },
            counters={
                **{name: numbers[name] for name in counting},
                "events_unheard": self.unheard,
                "listeners_failed": self.failures,
            },
            dropped=dict(self.engine.dropped),
        )

    # Inside

    def _plan_flush(self) -> None:
        if not self._flush_is_planned:
            self._flush_is_planned = True
            asyncio.get_running_loop().call_soon(self.flush)

    def _hand_over(self) -> None:
        """Give the engine what was collected; whatever else it is asked comes after that."""
        if not self._moves:
            return
        moves, self._moves, self._rows = self._moves, [], 0
        if len(moves) == 1:
            self.engine.move(*moves[0])
        else:
            self.engine.move(*(np.concatenate(column) for column in zip(*moves, strict=True)))

    def _tell(self) -> None:
        events = self.engine.take()
        if not len(events):
            return
        slots = events.subscription & SLOT_MASK
        owners = np.take(self._owners, slots, mode="clip")
        strangers = np.flatnonzero(np.take(self._refs, slots, mode="clip") != events.subscription)
        for row in strangers:
            owners[row] = self._former.get(int(events.subscription[row]), NOBODY)
        self._former.clear()
        first = int(owners[0])
        if (owners == first).all():  # one large listener, or a quiet turn
            self._tell_one(first, events)
            return
        order = np.argsort(owners, kind="stable")
        owners = owners[order]
        starts = np.flatnonzero(np.diff(owners, prepend=owners[0] - 1))
        ends = [*starts[1:].tolist(), len(owners)]
        for start, end in zip(starts.tolist(), ends, strict=True):
            self._tell_one(int(owners[start]), events.take(order[start:end]))

    def _tell_one(self, number: int, events: Events) -> None:
        listener = None if number == NOBODY else self._listeners[number]
        if listener is None:
            self.unheard += len(events)
            return
        try:
            listener.tell(events)
        except Exception:  # the others must not suffer from it
            self.failures += 1
            log.exception("a listener failed")

    def _number(self, listener: Listener) -> int:
        number = self._numbers.get(listener)
        if number is None:
            if self._free_numbers:
                number = self._free_numbers.pop()
                self._listeners[number] = listener
            else:
                number = len(self._listeners)
                self._listeners.append(listener)
            self._numbers[listener] = number
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
        else:
            self._former = {ref: who for ref, who in self._former.items() if who != number}
            self._free_numbers.append(number)
