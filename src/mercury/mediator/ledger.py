"""The ledger: what became of each message, for each of those it was addressed to.

Receipts come from several adapters and at several times; the ledger makes of them one row for each
message and recipient. Spark jobs and commands alike fold receipts with these functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from mercury.model.delivery import Deliveries, Delivery, DeliveryState, Reason

# Which of two receipts about the same copy has precedence: the recipient's own answer first, then
# any ended state before an open one.
_WORTH = {
    DeliveryState.ACKNOWLEDGED: 4,
    DeliveryState.REFUSED: 3,
    DeliveryState.EXPIRED: 2,
    DeliveryState.UNREACHABLE: 1,
    DeliveryState.WAITING: 0,
}


def merged(one: Delivery, other: Delivery) -> Delivery:
    """Merge two receipts about the same message and recipient."""
    better, worse = (one, other) if _worth(one) >= _worth(other) else (other, one)
    starts = [row.addressed_us for row in (one, other) if row.addressed_us]
    sends = [row.first_sent_us for row in (one, other) if row.first_sent_us]
    return replace(
        better,
        tries=max(better.tries, worse.tries),
        addressed_us=min(starts, default=0),
        first_sent_us=min(sends, default=0),
    )


def _worth(row: Delivery) -> tuple[int, bool, int, int]:
    # Adapters that never had the client report it as away, too.
    return _WORTH[row.state], row.reason != Reason.AWAY, row.settled_us, row.tries


def final(row: Delivery, end_us: int, *, asked: bool = True) -> Delivery:
    """The outcome of a copy whose message has ended, also if no adapter reported it.

    Whether an answer was `asked` for depends on the message's policy.
    """
    if row.state is not DeliveryState.WAITING:
        return row
    if row.tries:
        state = DeliveryState.EXPIRED
        reason = Reason.NOT_ACKNOWLEDGED if asked else Reason.NOT_ASKED
    else:
        state, reason = DeliveryState.UNREACHABLE, Reason.AWAY
    return replace(row, state=state, reason=reason, settled_us=end_us)


def never_addressed(client: str, seen_us: int, end_us: int) -> Delivery:
    """The row of a client that should have received it and that no adapter addressed."""
    return Delivery(
        client,
        DeliveryState.UNREACHABLE,
        Reason.NEVER_ADDRESSED,
        addressed_us=seen_us,
        settled_us=end_us,
    )


@dataclass(slots=True)
class Entry:
    """The ledger of one message."""

    about: Deliveries  # without rows
    rows: dict[str, Delivery] = field(default_factory=dict)  # by client

    def states(self) -> Counter[DeliveryState]:
        """The number of recipients in each state."""
        return Counter(row.state for row in self.rows.values())


class Ledger:
    """One row for each message and recipient, from receipts in any order, also repeated ones."""

    def __init__(self) -> None:
        self._entries: dict[UUID, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, message: UUID) -> Entry | None:
        return self._entries.get(message)

    def add(self, receipts: Deliveries) -> None:
        """Add an adapter's receipts about some recipients of a message."""
        entry = self._entries.get(receipts.message)
        if entry is None:
            entry = self._entries[receipts.message] = Entry(replace(receipts, rows=()))
        for row in receipts.rows:
            known = entry.rows.get(row.client)
            entry.rows[row.client] = row if known is None else merged(known, row)

    def summary(self, entries: Iterable[Entry] | None = None) -> LedgerSummary:
        total = LedgerSummary()
        for entry in self if entries is None else entries:
            total.messages += 1
            total.recipients += len(entry.rows)
            total.states.update(entry.states())
            for row in entry.rows.values():
                total.tries += row.tries
                if row.state is DeliveryState.REFUSED:
                    total.refusals[row.reason] += 1
                if row.state is DeliveryState.ACKNOWLEDGED and row.addressed_us:
                    total.delays_s.append((row.settled_us - row.addressed_us) / 1e6)
        assert sum(total.states.values()) == total.recipients
        return total


@dataclass(slots=True)
class LedgerSummary:
    """Sums over messages."""

    messages: int = 0
    recipients: int = 0
    states: Counter[DeliveryState] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)  # by reason
    tries: int = 0
    delays_s: list[float] = field(default_factory=list)  # from addressed to acknowledged

    def delay_s(self, share: float) -> float | None:
        """The time within which this share of the answers came."""
        if not self.delays_s:
            return None
        ordered = sorted(self.delays_s)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "recipients": self.recipients,
            **{state.label: self.states[state] for state in DeliveryState},
            "refusals": dict(self.refusals),
            "tries": self.tries,
            "p50_s": self.delay_s(0.5),
            "p99_s": self.delay_s(0.99),
        }
