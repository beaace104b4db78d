"""The front: a hub without an engine, which shares the work of many workers over the bus.

What its guests declare and where they are goes to the topic `moving`, what happened to them comes
from `meetings`. It is to a web door what a hub is, and to the workers what an adapter is.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mercury.bus import Bus, Consumer
from mercury.matcher.backend import Participant
from mercury.matcher.front_frames import FrontFrames
from mercury.matcher.front_leases import LONG_LAG_US, Leases
from mercury.matcher.front_meetings import FrontMeetings, exits_of
from mercury.matcher.front_things import Slots, Things
from mercury.matcher.hub import WITHDRAWN_AT_ONCE
from mercury.matcher.one_shot_query import TTL_S, OneShotQuery
from mercury.matcher.shared.routing import reach_of
from mercury.matching import Events, MatchingRules, NearbyPublication
from mercury.matching.layout import SLOT_MASK
from mercury.model import topics
from mercury.model.errors import BusError, MatchingError
from mercury.model.matching import EventReason, NearSubscription, Publication, Side, entity_key
from mercury.service.clock import now_us
from mercury.service.statistics import Statistics
from mercury.wire.declarations import Refusal

log = logging.getLogger(__name__)

TICK_S = 0.25
MAX_QUESTIONS = 1000  # at once
_LAST_NEWS_US = 10_000_000  # so long after its end a subscription's last events may come
_TICK_S = 0.005  # what is said meanwhile goes out together
# So near to its end a thing is declared anew when it moves: matchers may have let go of it.
_NEAR_END_US = 2_000_000
_BATCH = 512


class Front:
    """Speaks for the guests of a door, in turns: one record for each bucket every few ms."""

    def __init__(
        self, bus: Bus, rules: MatchingRules, *, clock: Callable[[], int] = now_us
    ) -> None:
        self.rules = rules
        self.clock = clock
        self.things = Things()
        self.counters: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._bus = bus
        self._frames = FrontFrames()
        self._leases = Leases(self.things, rules.ttl_s)
        self._heard = FrontMeetings(self.things, self._tell, self._refused)
        self._meetings: Consumer | None = None
        self._flush_is_planned = False
        self._is_closed = False
        self._questions: set[OneShotQuery] = set()
        self._asked = itertools.count(1)
        self._token = secrets.token_hex(4)

    # What the door says

    def publish(
        self,
        publication: Publication,
        time_us: int | None = None,
        participant: Participant | None = None,
    ) -> int:
        """Declare or change a publication; its reference. Without a guest it lives by its TTL."""
        self.rules.check(publication.topic, publication.radius_m, publication=True)
        return self._declare("publication", publication, time_us, participant)

    def subscribe(
        self, subscription: NearSubscription, listener: Participant, time_us: int | None = None
    ) -> int:
        """Declare or change a subscription, whose events go to the listener; its reference."""
        reach_of(subscription, self.rules)  # refuses what the workers would
        return self._declare("subscription", subscription, time_us, listener)

    def withdraw(self, ref: int) -> None:
        """End something that was declared here; unknown ones are ignored."""
        slot = self.things.slot_of(ref)
        if slot is not None and self.things.own[slot]:
            self._end(slot, EventReason.WITHDRAWN)

    def move(
        self,
        refs: NDArray[np.int64],
        lats: NDArray[np.float64],
        lons: NDArray[np.float64],
        times_us: NDArray[np.int64],
        accuracy_m: NDArray[np.float64],
    ) -> None:
        """Say where things are, one row an update; together with others of this turn."""
        things, now = self.things, self.clock()
        slots = np.minimum(refs & SLOT_MASK, len(things.ref) - 1)
        good = (things.ref[slots] == refs) & things.own[slots]
        left_us = things.expires_us(slots) - now
        good &= left_us > 0
        if not good.all():
            self.dropped["unknown"] += int(np.count_nonzero(~good))
            slots, lats, lons, left_us = slots[good], lats[good], lons[good], left_us[good]
            times_us, accuracy_m = times_us[good], accuracy_m[good]
        if not len(slots):
            return
        aged = things.leased[slots] & (now - times_us > LONG_LAG_US)
        for slot in np.unique(slots[aged | (left_us < _NEAR_END_US)]).tolist():
            if now - int(times_us[slots == slot].min()) > LONG_LAG_US:
                self._leases.end(slot)
            self._say_again(slot, int(things.time_us[slot]))
        np.maximum.at(things.time_us, slots, times_us)
        things.heard_us[slots] = now
        things.place[slots] = np.stack([lats, lons, accuracy_m], axis=1)
        things.placed[slots] = things.touched[slots] = True
        self._frames.move(things.key[slots], lats, lons, times_us, accuracy_m)
        self.counters["moves"] += len(slots)
        self._plan_flush()

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

    def ask(
        self, subscription: NearSubscription, lat: float | None, lon: float | None, limit: int
    ) -> asyncio.Future[list[NearbyPublication]]:
        """What is found within half a second, nearest first."""
        if len(self._questions) >= MAX_QUESTIONS:
            raise MatchingError(f"at most {MAX_QUESTIONS} questions are answered at once", "count")
        name = f"ask-{self._token}-{next(self._asked)}"
        subscription = replace(subscription, id=name, inside=False, dwell_s=None, ttl_s=TTL_S)
        reach_of(subscription, self.rules)
        question = OneShotQuery(limit, self.publication, self._answered)
        self._questions.add(question)
        self.counters["questions"] += 1
        ref = self.subscribe(subscription, question)
        if lat is not None and lon is not None and subscription.polygon is None:
            self.move_one(ref, lat, lon)
        return question.answer

    def forget(self, listener: Participant) -> None:
        """Withdraw its subscriptions without a word, some at each turn of the loop."""
        things = self.things
        subscriptions = [slot for slot in things.of.get(listener, ()) if slot in things.inside]
        for slot in subscriptions[:WITHDRAWN_AT_ONCE]:
            self._end(slot, None)
        if len(subscriptions) > WITHDRAWN_AT_ONCE:
            asyncio.get_running_loop().call_soon(self.forget, listener)

    # What the door asks

    def find(self, side: Side, entity_id: str) -> int | None:
        """The reference of something that was declared here and lives."""
        slot = self.things.find(side, entity_id)
        if slot is None or not self.things.own[slot]:
            return None
        lives = int(self.things.time_us[slot] + self.things.ttl_us[slot]) > self.clock()
        return int(self.things.ref[slot]) if lives else None

    def publication(self, ref: int) -> Publication | None:
        """What a publication is, as the workers describe it."""
        slot = self.things.slot_of(ref)
        return None if slot is None else self.things.known.get(slot)

    def revisions(self, refs: NDArray[np.int64]) -> NDArray[np.int64]:
        """A number for each publication that is another once its values are."""
        return np.take(self.things.revision, refs & SLOT_MASK, mode="clip")

    def topics(self) -> list[dict[str, str | int]]:
        """The topics that something was declared for here, and how much of each side."""
        counted: dict[str, list[int]] = {}
        for what in self.things.declared.values():
            counted.setdefault(what.topic, [0, 0])[isinstance(what, NearSubscription)] += 1
        return [
            {"topic": topic, "publications": publications, "subscriptions": subscriptions}
            for topic, (publications, subscriptions) in sorted(counted.items())
        ]

    def statistics(self) -> Statistics:
        """Numbers of what was declared here."""
        subscriptions = len(self.things.inside)
        return Statistics(
            gauges={
                "publications": len(self.things.declared) - subscriptions,
                "subscriptions": subscriptions,
                "pairs": self.things.pairs(),
                "listeners": len(self.things.of),
            },
            counters={name: self.counters[name] for name in _COUNTED},
            dropped={**self.dropped, **self._heard.dropped},
        )

    # The bus

    def open(self) -> None:
        """Listen; before anything is declared, so that nothing is missed."""
        self._meetings = self._bus.subscribe((topics.MATCHES,))

    async def listen(self) -> None:
        """Tell guests what happened, until cancelled."""
        assert self._meetings is not None
        while True:
            self._heard.take(await self._meetings.read(_BATCH))

    async def run(self) -> None:
        """Let time pass, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    def tick(self) -> None:
        """Renew what is due and let go of what has ended."""
        now = self.clock()
        for slot, time_us, placed in self._leases.due(now):
            self._say_again(slot, time_us)
            if placed:
                lat, lon, accuracy_m = self.things.place[slot, :, None]
                time = np.array([time_us])
                self._frames.move(self.things.key[slot : slot + 1], lat, lon, time, accuracy_m)
        own = self.things.own_slots()
        for slot in own[self.things.expires_us(own) <= now].tolist():
            if slot not in self.things.inside:
                self.things.disown(slot)  # the workers tell of it
            elif int(self.things.time_us[slot] + self.things.ttl_us[slot]) + _LAST_NEWS_US <= now:
                self._part(slot, EventReason.EXPIRED)
        if self._frames:
            self._plan_flush()

    def flush(self) -> None:
        """Put on the bus what was collected."""
        self._flush_is_planned = False
        if self._is_closed or not self._frames:
            return
        self.things.touched[:] = False
        for record in self._frames.take():
            try:
                self._bus.append(topics.ENTITIES, record.value, record.key)
            except BusError as error:
                self.dropped["bus"] += record.rows + len(record.declared)
                for key in record.declared:
                    self._refused(Refusal(key, "bus", f"the bus does not take it: {error}"))

    def close(self) -> None:
        """Withdraw what is some guest's, and say no more."""
        for question in list(self._questions):
            question.finish()
        for slot in list(self.things.participant):
            if slot in self.things.participant:
                self._end(slot, None)
        self.flush()
        self._is_closed = True
        if self._meetings is not None:
            self._meetings.close()

    # Inside

    def _declare(
        self,
        side: Side,
        what: Publication | NearSubscription,
        time_us: int | None,
        participant: Participant | None,
    ) -> int:
        things, now = self.things, self.clock()
        time_us = now if time_us is None else time_us
        key = entity_key(side, what.id)
        slot = things.take(side, key)
        if things.touched[slot]:
            self.flush()  # what was said of it holds in its order
        if not things.own[slot]:
            things.own[slot], things.placed[slot], things.time_us[slot] = True, False, time_us
        things.touched[slot] = True
        things.declared[slot] = what
        if isinstance(what, Publication) and slot not in things.known:
            things.describe(slot, what)
        things.time_us[slot] = max(int(things.time_us[slot]), time_us)
        things.heard_us[slot] = now
        things.give(slot, participant)
        self._leases.begin(slot, now)
        self._frames.declare(key, self._leases.as_said(slot, time_us), time_us)
        self.counters["declarations"] += 1
        self._plan_flush()
        return int(things.ref[slot])

    def _say_again(self, slot: int, time_us: int) -> None:
        key = int(self.things.key[slot])
        if not self._frames.is_declared(key):
            self._frames.declare(key, self._leases.as_said(slot, time_us), time_us)
            self.counters["renewals"] += 1

    def _end(self, slot: int, reason: EventReason | None) -> None:
        """Withdraw something; without a cause its guest is not told what parts."""
        if self.things.touched[slot]:
            self.flush()
        self._say_withdrawn(slot)
        self._part(slot, reason)

    def _say_withdrawn(self, slot: int) -> None:
        # Not before what was said of it last, which may bear any time.
        time_us = max(self.clock(), int(self.things.time_us[slot]))
        self._frames.withdraw(int(self.things.key[slot]), time_us)
        self._plan_flush()

    def _part(self, slot: int, reason: EventReason | None) -> None:
        things = self.things
        if reason is not None and things.inside.get(slot):
            events = exits_of(things, slot, reason, self.clock())
            self._tell(np.full(len(events), slot), events)
        things.disown(slot)

    def _tell(self, slots: Slots, events: Events) -> None:
        several, which = np.unique(slots, return_inverse=True)
        participants: dict[Participant, int] = {}
        whose = [
            participants.setdefault(self.things.participant[slot], len(participants))
            for slot in several.tolist()
        ]
        owners = np.array(whose, np.int64)[which]
        order = np.argsort(owners, kind="stable")
        ends = np.cumsum(np.bincount(owners))
        for participant, rows in zip(participants, np.split(order, ends[:-1]), strict=True):
            try:
                participant.tell(events if len(participants) == 1 else events.take(rows))
            except Exception:  # the others must not suffer from it
                self.counters["listeners_failed"] += 1
                log.exception("a listener failed")
        self.counters["events"] += len(events)

    def _refused(self, refusal: Refusal) -> None:
        """The workers do not take what was declared here."""
        slot = self.things.slot_of_key(refusal.key)
        if slot is None or not self.things.own[slot]:
            return
        self.dropped["refused"] += 1
        participant, ref = self.things.participant.get(slot), int(self.things.ref[slot])
        # What it was before may still be known to them.
        self._say_withdrawn(slot)
        self._part(slot, EventReason.CHANGED)
        if participant is not None:
            participant.refuse(ref, refusal)

    def _answered(self, question: OneShotQuery) -> None:
        self._questions.discard(question)
        self.forget(question)

    def _plan_flush(self) -> None:
        if not self._flush_is_planned and not self._is_closed:
            self._flush_is_planned = True
            asyncio.get_running_loop().call_later(_TICK_S, self.flush)


_COUNTED = ("declarations", "renewals", "moves", "questions", "events", "listeners_failed")
