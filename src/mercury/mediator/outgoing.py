"""The table of outgoing messages (pMediator §4.1): who has been sent what, and who has it.

A core: it takes `now` and returns packets to send and deliveries that changed. The host asks for
what is `due`, sends it and reports it as `sent`; it passes on the recipients' answers, and who
connects and disconnects.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from mercury.mediator.dispatch import (
    DUE,
    FIRST_SENT,
    REASON,
    SETTLED,
    STATE,
    TRIES,
    WAITING,
    Completed,
    Dispatch,
    Rows,
)
from mercury.mediator.peers import Numbers, Peers, TopicStatistics
from mercury.mediator.policy import Policy, RepeatRateLimiter
from mercury.mediator.room import Room
from mercury.model.delivery import DeliveryState, Reason

_FEW = 1000
_AT_A_TIME = 200  # messages that are looked through for recipients that are gone
_AGAIN_S = 0.1  # until what could not be sent is retried
_RECENT = 8
_TOPICS, _OTHER = 1000, "other"  # topics that are counted by themselves, and the rest
_OPEN = int(DeliveryState.WAITING)
_RECEIVED = {int(DeliveryState.ACKNOWLEDGED), int(DeliveryState.REFUSED)}


class Outgoing:
    """Sends each message to each recipient until its outcome is known."""

    def __init__(
        self,
        rng: random.Random,
        *,
        resends_per_s: float = 5000.0,
        max_copies: int = 5_000_000,
        max_messages: int = 1_000_000,
        max_messages_per_client: int = 1_000_000,
        forget_peers: bool = False,
        remember_s: float = math.inf,
        on_removed: Callable[[Any], None] | None = None,
        now: float = 0.0,
    ) -> None:
        self.peers = Peers()
        self.repeat_rate = RepeatRateLimiter(resends_per_s, now)
        self.topics: dict[str, TopicStatistics] = {}
        self.ended: Counter[DeliveryState] = Counter()  # copies, by how they ended
        self.copies = 0  # ever made
        self.shed = 0  # messages given up because the table was full
        self.recent: deque[Completed] = deque(maxlen=_RECENT)
        self._rng = np.random.default_rng(rng.getrandbits(64))
        self._max_copies = max_copies
        self._forget_peers = forget_peers  # when they are disconnected and not in the table
        self._remember_s = remember_s  # that a disconnected one has a message
        self._to_sweep: Iterator[Dispatch] = iter(())
        self._on_removed = on_removed  # called with the id of what leaves the table
        self._dispatches: dict[Hashable, Dispatch] = {}  # the oldest first
        # Of these, those for few recipients, by these; and those for many that somebody has.
        self._for_few: dict[int, dict[Hashable, Dispatch]] = {}
        self._for_many: dict[Hashable, Dispatch] = {}
        self.held = 0  # copies in the table
        self._room = Room(max_messages, max_messages_per_client)
        self._with_changes: dict[Hashable, Dispatch] = {}
        # Out of the table; who takes the changes of the first still needs the names of their peers.
        self._retired: list[Dispatch] = []
        self._leaving: list[Dispatch] = []
        self._heap: list[tuple[float, int, Dispatch]] = []
        self._pushed = 0
        self._posted = 0
        self._reasons: list[str] = [Reason.NONE]
        self._reason_numbers: dict[str, int] = {Reason.NONE: 0}
        # By stream and peer: what must arrive in this order, one at a time. That is the order of
        # posting, also for a peer that is added to an earlier message late.
        self._streams: dict[tuple[str, int], deque[Dispatch]] = {}

    def __len__(self) -> int:
        return len(self._dispatches)

    def __iter__(self) -> Iterator[Dispatch]:
        return iter(self._dispatches.values())

    def get(self, id: Hashable) -> Dispatch | None:
        return self._dispatches.get(id)

    def of(self, peer: int) -> list[Dispatch]:
        """The messages of which a peer has a copy."""
        many = (one for one in self._for_many.values() if one.row(peer) is not None)
        return [*self._for_few.get(peer, {}).values(), *many]

    @property
    def waiting(self) -> int:
        return self.copies - sum(self.ended.values())

    # Sending

    def post(
        self,
        id: Hashable,
        content: Any,
        peers: Numbers,
        now: float,
        *,
        policy: Policy,
        source: str = "",
        topic: str = "",
        priority: int = 4,
        expires: float = math.inf,
        ordered: bool = False,
        final: bool = False,
        awaited: str = "",
        sole: bool = False,
        room_of: tuple[str, int] | None = None,
    ) -> Dispatch:
        """Take a message for these peers; those that have a copy get no second one.

        A `final` one has no further recipients, and leaves the table when they are settled. One
        with a `sole` recipient leaves it when that has it. A peer that is `awaited` and does not
        connect until the message ends was away. It takes the room of its source and priority, or
        that given; what there is no room for ends at once.
        """
        shed: list[Hashable] = []
        dispatch = self._dispatches.get(id)
        if dispatch is None:
            self._posted += 1
            dispatch = Dispatch(
                id,
                content,
                policy,
                source=source,
                topic=topic,
                priority=priority,
                posted=now,
                expires=expires,
                stream=source if ordered else None,
                number=self._posted,
                final=final,
                awaited=awaited,
                sole=sole,
                for_few=sole or final,
            )
            self._dispatches[id] = dispatch
            shed = self._room.add(id, *(room_of or (source, priority)))
            if topic not in self.topics:
                # Senders choose topics freely: those above a limit are counted together.
                counted = topic if len(self.topics) < _TOPICS else _OTHER
                self.topics.setdefault(counted, TopicStatistics(now, policy.acknowledge))
        self.add(dispatch, peers, now)
        for one in shed:
            self._shed(one, now)
        return dispatch

    def add(self, dispatch: Dispatch, peers: Numbers, now: float) -> Numbers:
        """Address a message to further peers; returns those that had no copy."""
        peers = dispatch.without_copy(peers)
        if len(peers):
            self._make_room(len(peers), dispatch, now)
            due = np.where(self.peers.present[peers], now, math.inf)
            dispatch.add(peers, due, now)
            if dispatch.for_few:
                for peer in peers.tolist():
                    self._for_few.setdefault(peer, {})[dispatch.id] = dispatch
            else:
                self._for_many[dispatch.id] = dispatch
            self._with_changes[dispatch.id] = dispatch
            self.peers.held[peers] += 1
            self.peers.waiting[peers] += 1
            self.copies += len(peers)
            self.held += len(peers)
            self._statistics_of(dispatch).add(self.peers, peers)
            if dispatch.stream is not None:
                self._queue_up(dispatch, dispatch.stream, peers)
        self._look_at(dispatch, min(now, dispatch.expires) if len(peers) else dispatch.expires)
        return peers

    def due(self, now: float) -> list[tuple[Dispatch, Numbers]]:
        """The copies to send now, the most urgent first; not due again until `sent`."""
        ready: list[tuple[Dispatch, Rows]] = []
        while self._heap and self._heap[0][0] <= now:
            at, _, dispatch = heapq.heappop(self._heap)
            if at != dispatch.scheduled:
                continue  # there is a later entry
            dispatch.scheduled = math.inf
            if now >= dispatch.expires:
                self._expire(dispatch, now)
                continue
            rows = self._ready_rows(dispatch, now)
            if len(rows):
                ready.append((dispatch, rows))
            else:
                self._schedule(dispatch)
        ready.sort(key=lambda one: (-one[0].priority, one[0].posted))
        to_send = []
        for dispatch, rows in ready:
            rows = self._within_repeat_rate(dispatch, rows, now)
            if len(rows):
                dispatch.due[rows] = math.inf  # being sent
                to_send.append((dispatch, dispatch.peers[rows]))
            # What the rate limiter held back is due again a little later, not in a busy loop.
            self._schedule(dispatch, not_before=now + max(self.repeat_rate.next_s(), 0.01))
        return to_send

    def sent(self, dispatch: Dispatch, peers: Numbers, now: float) -> None:
        """Copies that were due were sent."""
        rows = dispatch.rows(peers)
        rows = rows[dispatch.state[rows] == WAITING]
        if not len(rows):
            return
        peers = dispatch.peers[rows]
        again = dispatch.tries[rows] > 0
        dispatch.first_sent[rows[~again]] = now
        dispatch.tries[rows] += np.uint16(1)
        self.peers.sent[peers[~again]] += 1
        self.peers.resent[peers[again]] += 1
        resent = int(again.sum())
        statistics = self._statistics_of(dispatch)
        statistics.sent += len(rows) - resent
        statistics.resent += resent
        if dispatch.policy.acknowledge:
            waits = dispatch.policy.waits_s(dispatch.tries[rows], self._rng)
            due = now + np.maximum(waits, self.peers.least_waits_s(peers))
            dispatch.due[rows] = due
            self._look_at(dispatch, float(due.min()))
        elif math.isinf(dispatch.expires):
            # No answer will come, and it is not kept for reconnecting peers.
            self._settle(dispatch, rows, DeliveryState.EXPIRED, Reason.NOT_ASKED, now)

    def unsent(self, dispatch: Dispatch, peers: Numbers, now: float) -> None:
        """Copies that were due could not be sent."""
        rows = dispatch.rows(peers)
        rows = rows[dispatch.state[rows] == WAITING]
        # Disconnected peers get it when they reconnect.
        there = self.peers.present[dispatch.peers[rows]]
        dispatch.due[rows] = np.where(there, now + _AGAIN_S, math.inf)
        if dispatch.stream is not None:
            for row in rows.tolist():
                if self._is_held_up(dispatch, int(dispatch.peers[row])):
                    dispatch.due[row] = math.inf
        self._schedule(dispatch)

    def next_timer(self) -> float | None:
        """When to call `due` next."""
        while self._heap and self._heap[0][0] != self._heap[0][2].scheduled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    # Answers and presence of recipients

    def acknowledged(self, peer: int, id: Hashable, now: float) -> bool:
        """A recipient acknowledged it; False if that was known, or it was not sent.

        It may have refused it before, when it was not concerned.
        """
        dispatch = self._dispatches.get(id)
        row = None if dispatch is None else dispatch.row(peer)
        if dispatch is None or row is None:
            return False
        state, tries = int(dispatch.numbers[STATE, row]), int(dispatch.numbers[TRIES, row])
        if state == _OPEN:
            if tries == 1:
                self.peers.measure(peer, now - float(dispatch.times[FIRST_SENT, row]))
            elif tries > 1:
                self.repeat_rate.answered()
        elif state == DeliveryState.ACKNOWLEDGED:
            return False
        self._settle_one(dispatch, row, DeliveryState.ACKNOWLEDGED, Reason.NONE, now)
        return True

    def refused(self, peer: int, id: Hashable, reason: str, now: float) -> bool:
        """A recipient refused it."""
        dispatch = self._dispatches.get(id)
        row = None if dispatch is None else dispatch.row(peer)
        if dispatch is None or row is None or int(dispatch.state[row]) in _RECEIVED:
            return False
        self._settle_one(dispatch, row, DeliveryState.REFUSED, reason, now)
        return True

    def arrived(self, peer: int, now: float, seen: Collection[Hashable] = ()) -> None:
        """A peer is connected; it gets what waits for it, except what it has seen."""
        self.peers.present[peer] = True
        if not self.peers.waiting[peer]:
            return
        for dispatch in self.of(peer):
            row = dispatch.row(peer)
            if row is None or dispatch.state[row] != WAITING:
                continue
            if dispatch.id in seen:
                self.acknowledged(peer, dispatch.id, now)
            elif not self._is_held_up(dispatch, peer):
                dispatch.due[row] = now
                self._look_at(dispatch, now)

    def known(self, dispatch: Dispatch, peer: int, state: DeliveryState, now: float) -> None:
        """Take over what an earlier incarnation, or another table, found out; no changes."""
        row = dispatch.row(peer)
        if row is None:
            peers = np.array([peer], np.int32)
            changes, dispatch.changes = dispatch.changes, []
            self.add(dispatch, peers, now)
            dispatch.changes = changes
            row = dispatch.row(peer)
            assert row is not None
        if state in _RECEIVED and int(dispatch.state[row]) not in _RECEIVED:
            self._settle_one(dispatch, row, state, Reason.NONE, now)
            dispatch.changed.pop()

    def close(self, dispatch: Dispatch) -> None:
        """A message needs no further recipients."""
        dispatch.final = True
        self._with_changes[dispatch.id] = dispatch

    def left(self, peer: int) -> None:
        """A peer is disconnected."""
        self.peers.present[peer] = False
        if self._forget_peers:
            self.peers.release(peer)

    # Outcomes

    def take_changes(self, now: float) -> list[tuple[Dispatch, Numbers]]:
        """The peers whose copies were made or settled since the last call, by message.

        What is complete and can have no further recipients leaves the table; its peers keep their
        names until the next call.
        """
        for dispatch in self._leaving:
            self._release(dispatch.peers)
        self._leaving, self._retired = self._retired, []
        changes = [(dispatch, dispatch.take_changes()) for dispatch in self._with_changes.values()]
        for dispatch in self._with_changes.values():
            if dispatch.is_over(now) and self._dispatches.get(dispatch.id) is dispatch:
                self._remove(dispatch)
                self._leaving.append(dispatch)
        self._with_changes = {}
        if self._forget_peers:
            self._forget_absent(now)
        return changes

    def reason_text(self, number: int) -> str:
        """The text of a reason's number."""
        return self._reasons[number]

    # Inside

    def _statistics_of(self, dispatch: Dispatch) -> TopicStatistics:
        return self.topics.get(dispatch.topic) or self.topics[_OTHER]

    def _ready_rows(self, dispatch: Dispatch, now: float) -> Rows:
        rows = np.flatnonzero(dispatch.is_waiting() & (dispatch.due <= now))
        there = self.peers.present[dispatch.peers[rows]]
        dispatch.due[rows[~there]] = math.inf  # until they reconnect
        rows = rows[there]
        max_tries = dispatch.policy.max_tries
        if dispatch.policy.acknowledge and max_tries is not None:
            spent = dispatch.tries[rows] > max_tries
            if spent.any():
                self._settle(dispatch, rows[spent], DeliveryState.UNREACHABLE, Reason.GAVE_UP, now)
                rows = rows[~spent]
        return rows

    def _within_repeat_rate(self, dispatch: Dispatch, rows: Rows, now: float) -> Rows:
        again = dispatch.tries[rows] > 0
        repeats = int(again.sum())
        if not repeats:
            return rows
        allowed = self.repeat_rate.take(repeats, now)
        if allowed == repeats:
            return rows
        return np.concatenate([rows[~again], rows[again][:allowed]])

    def _settle_one(
        self, dispatch: Dispatch, row: int, state: DeliveryState, reason: str, now: float
    ) -> None:
        """Settle one copy that was answered, without the cost of arrays."""
        numbers, times = dispatch.numbers, dispatch.times
        before = DeliveryState(int(numbers[STATE, row]))
        was_lost = numbers[REASON, row] != self._reason_number(Reason.NOT_ASKED)
        peer = int(dispatch.peers[row])
        numbers[STATE, row] = state
        numbers[REASON, row] = self._reason_number(reason)
        times[SETTLED, row] = now
        times[DUE, row] = math.inf
        dispatch.changed.append(peer)
        self._with_changes[dispatch.id] = dispatch
        self.ended[state] += 1
        if before is DeliveryState.WAITING:
            dispatch.waiting -= 1
            self.peers.waiting[peer] -= 1
        elif before is DeliveryState.REFUSED:
            self.ended[before] -= 1
            self.peers.refused[peer] -= 1
        else:  # a late answer, after it was given up
            self.ended[before] -= 1
            self.peers.dropped[peer] -= was_lost
        tally = (
            self.peers.acknowledged if state is DeliveryState.ACKNOWLEDGED else self.peers.refused
        )
        tally[peer] += 1
        self.recent.append(
            Completed(now, dispatch.id, self.peers.name(peer), state, now - dispatch.posted)
        )
        if dispatch.stream is not None:
            self._let_next_go(dispatch.stream, dispatch, [peer], now)

    def _settle(
        self, dispatch: Dispatch, rows: Rows, state: DeliveryState, reason: str, now: float
    ) -> None:
        """Settle waiting copies without an answer."""
        peers = dispatch.peers[rows]
        dispatch.state[rows] = state
        dispatch.reason[rows] = self._reason_number(reason)
        dispatch.settled[rows] = now
        dispatch.due[rows] = math.inf
        dispatch.changes.append(peers)
        self._with_changes[dispatch.id] = dispatch
        dispatch.waiting -= len(rows)
        self.peers.waiting[peers] -= 1
        self.ended[state] += len(rows)
        # Fire-and-forget copies that were sent do not count as lost.
        is_lost = reason != Reason.NOT_ASKED
        self.peers.dropped[peers] += is_lost
        if len(rows) == 1 and is_lost:
            name = self.peers.name(int(peers[0]))
            self.recent.append(Completed(now, dispatch.id, name, state, now - dispatch.posted))
        if dispatch.stream is not None:
            self._let_next_go(dispatch.stream, dispatch, peers.tolist(), now)

    def _expire(self, dispatch: Dispatch, now: float) -> None:
        if dispatch.awaited and not len(dispatch):
            self._await_in_vain(dispatch)
        rows = np.flatnonzero(dispatch.is_waiting())
        there = self.peers.present[dispatch.peers[rows]]
        tried = dispatch.tries[rows] > 0
        answer = Reason.NOT_ACKNOWLEDGED if dispatch.policy.acknowledge else Reason.NOT_ASKED
        # Fire-and-forget ends when it is sent; of others, absent peers were unreachable.
        done = tried & (there | (not dispatch.policy.acknowledge))
        ends = (
            (done, DeliveryState.EXPIRED, answer),
            (there & ~tried, DeliveryState.EXPIRED, Reason.NOT_SENT),
            (~there & ~done, DeliveryState.UNREACHABLE, Reason.AWAY),
        )
        for those, state, reason in ends:
            if those.any():
                self._settle(dispatch, rows[those], state, reason, now)
        self._with_changes[dispatch.id] = dispatch  # so that it leaves the table

    def _remove(self, dispatch: Dispatch) -> None:
        del self._dispatches[dispatch.id]
        self.held -= len(dispatch)
        self._for_many.pop(dispatch.id, None)
        if dispatch.for_few:
            self._forget_copies(dispatch, dispatch.peers)
        self._room.remove(dispatch.id)
        dispatch.scheduled = math.nan  # no entry of the heap is right
        if self._on_removed is not None:
            self._on_removed(dispatch.id)

    def _forget_copies(self, dispatch: Dispatch, peers: Numbers) -> None:
        for peer in peers.tolist():
            of_peer = self._for_few[peer]
            del of_peer[dispatch.id]
            if not of_peer:
                del self._for_few[peer]

    def _release(self, peers: Numbers) -> None:
        """Release peers whose copies have left the table."""
        self.peers.held[peers] -= 1
        if not self._forget_peers:
            return
        gone = ~self.peers.present[peers] & (self.peers.held[peers] == 0)
        for peer in peers[gone].tolist():
            self.peers.release(peer)

    def _forget_absent(self, now: float) -> None:
        """Forget recipients that have a message and are long gone, of some messages at a time."""
        for _ in range(_AT_A_TIME):
            dispatch = next(self._to_sweep, None)
            if dispatch is None:
                self._to_sweep = iter(list(self._dispatches.values()))
                return
            if not len(dispatch) or dispatch.changes or dispatch.changed:
                continue
            gone = dispatch.received_before(now - self._remember_s)
            gone &= ~self.peers.present[dispatch.peers]
            if gone.any() and self._dispatches.get(dispatch.id) is dispatch:
                peers = dispatch.peers[gone]
                dispatch.remove(gone)
                if dispatch.for_few:
                    self._forget_copies(dispatch, peers)
                self.held -= len(peers)
                self._release(peers)

    def _make_room(self, wanted: int, new: Dispatch, now: float) -> None:
        while self.held + wanted > self._max_copies:
            candidates = chain(self._room.least_urgent(), self._dispatches)
            found = (one for one in candidates if one != new.id and len(self._dispatches[one]))
            least = next(found, None)
            if least is None:
                return
            self._shed(least, now)

    def _shed(self, id: Hashable, now: float) -> None:
        """Give up a message, for want of room."""
        dispatch = self._dispatches.get(id)
        if dispatch is None:
            return
        self.shed += 1
        if dispatch.awaited and not len(dispatch):
            self._await_in_vain(dispatch)
        rows = np.flatnonzero(dispatch.is_waiting())
        if len(rows):
            self._settle(dispatch, rows, DeliveryState.UNREACHABLE, Reason.NO_ROOM, now)
        self._remove(dispatch)
        self._retired.append(dispatch)

    def _await_in_vain(self, dispatch: Dispatch) -> None:
        """Make the copy of a recipient that did not come."""
        awaited = np.array([self.peers.number(dispatch.awaited)], np.int32)
        self.add(dispatch, awaited, dispatch.posted)

    def _schedule(self, dispatch: Dispatch, not_before: float = -math.inf) -> None:
        self._look_at(dispatch, max(dispatch.next_due(), not_before))

    def _look_at(self, dispatch: Dispatch, at: float) -> None:
        if at < dispatch.scheduled:
            dispatch.scheduled = at
            self._pushed += 1
            heapq.heappush(self._heap, (at, self._pushed, dispatch))
            # An entry that is overtaken by another stays until its time, and with it the message.
            if len(self._heap) > 2 * len(self._dispatches) + _FEW:
                self._heap = [entry for entry in self._heap if entry[0] == entry[2].scheduled]
                heapq.heapify(self._heap)

    def _reason_number(self, reason: str) -> int:
        number = self._reason_numbers.get(reason)
        if number is None:
            if len(self._reasons) >= 1000:  # recipients choose them freely
                return self._reason_number("other")
            number = self._reason_numbers[reason] = len(self._reasons)
            self._reasons.append(reason)
        return number

    # Order

    def _queue_up(self, dispatch: Dispatch, stream: str, peers: Numbers) -> None:
        for peer in peers.tolist():
            queue = self._streams.setdefault((stream, peer), deque())
            at = len(queue)
            while at and queue[at - 1].number > dispatch.number:
                at -= 1
            queue.insert(at, dispatch)
            if len(queue) > 1:
                waits = queue[max(at, 1)]  # it, or the one that was first
                row = waits.row(peer)
                assert row is not None
                if waits.tries[row] == 0:
                    waits.due[row] = math.inf

    def _is_held_up(self, dispatch: Dispatch, peer: int) -> bool:
        if dispatch.stream is None:
            return False
        return self._streams[(dispatch.stream, peer)][0] is not dispatch

    def _let_next_go(self, stream: str, done: Dispatch, peers: list[int], now: float) -> None:
        for peer in peers:
            queue = self._streams.get((stream, peer))
            if queue is None or done not in queue:
                continue  # settled a second time
            was_first = queue[0] is done
            queue.remove(done)
            if not queue:
                del self._streams[(stream, peer)]
            elif was_first:
                row = queue[0].row(peer)
                assert row is not None
                if self.peers.present[peer]:
                    queue[0].due[row] = now
                    self._look_at(queue[0], now)
