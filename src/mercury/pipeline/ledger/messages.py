"""Which messages enter the ledger now: those that expired, and those that all answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mercury.model.area import Area
from mercury.model.delivery import Delivery, DeliveryState
from mercury.model.geojson import area_from_geojson

SECOND_US = 1_000_000
# How long a message without an end is tried, by adapters as by this ledger.
ENDLESS_US = 24 * 3600 * SECOND_US
# Greatest accepted error of senders' clocks: an earlier send time is replaced by this.
_ON_THE_WAY_US = 60 * SECOND_US
# Adapters write receipts ten times a second; after this time all are written.
GRACE_US = 10 * SECOND_US
# A client without a report for this time is gone.
PRESENT_US = 15 * SECOND_US

# The columns of an alert that decide whether it is due.
TIMES = ("id", "time_us", "sent_us", "ends_us", "expires_us", "destination", "area")
# The further columns of one that enters the ledger.
PARTICULARS = ("source", "kind", "message_kind", "subject", "priority", "policy")

_LAST_WORDS = (DeliveryState.ACKNOWLEDGED, DeliveryState.REFUSED)


class Addressed(NamedTuple):
    """A message, its recipients and its validity."""

    id: str
    time_us: int  # when it came to the bus
    sent_us: int
    begin_us: int  # from then until just before its end, clients that enter are recipients
    end_us: int
    to: str  # area, client, group, everyone
    name: str = ""  # of the client or group
    area: Area | None = None
    standing: bool = True  # else only for clients inside when it comes
    sought: bool = True  # whether reports are needed
    about: Mapping[str, Any] = {}

    @property
    def destination(self) -> str:
        """As the table of alerts has it."""
        return f"{self.to}:{self.name}" if self.name else self.to

    @property
    def sender(self) -> str | None:
        """The client that sent it, which is no recipient."""
        source = self.about.get("source") or ""
        return source.removeprefix("client:") if source.startswith("client:") else None

    @property
    def look_from_us(self) -> int:
        """Reports before that do not matter."""
        return self.begin_us if self.standing else self.begin_us - PRESENT_US

    @property
    def look_until_us(self) -> int:
        """Nor do those from then on."""
        return self.end_us if self.standing else self.begin_us + 1

    @property
    def may_be_early(self) -> bool:
        """Whether all recipients are known before its end."""
        return self.to == "client" or not self.standing


def addressed(row: Mapping[str, Any]) -> Addressed:
    """Read a row of the table of alerts."""
    time_us = row["time_us"]
    sent_us = row["sent_us"] or time_us
    sent_us = min(max(sent_us, time_us - _ON_THE_WAY_US), time_us)
    to, _, name = (row["destination"] or "").partition(":")
    end_us = row["ends_us"] or row["expires_us"] or 0
    area = None
    begin_us, standing = sent_us, True
    # An area in force is looked at only when its message is over: there may be very many.
    if row["area"] and not end_us:
        area = area_from_geojson(row["area"])
        begin_us = max(sent_us, area.valid_from_us or 0)
        end_us = begin_us + ENDLESS_US if begin_us > time_us else 0
        standing = bool(end_us)
        if not standing:
            # As adapters do: for those who are there now; delivery may take a while.
            begin_us = max(begin_us, time_us)
    return Addressed(
        id=row["id"],
        time_us=time_us,
        sent_us=sent_us,
        begin_us=begin_us,
        end_us=end_us or time_us + ENDLESS_US,
        to=to,
        name=name,
        area=area,
        standing=standing,
    )


def in_full(message: Addressed, row: Mapping[str, Any]) -> Addressed:
    """The same with all columns."""
    area, begin_us = message.area, message.begin_us
    if area is None and row["area"]:
        area = area_from_geojson(row["area"])
        begin_us = max(begin_us, area.valid_from_us or 0)
    about = {
        "source": row["source"],
        "kind": row["message_kind"],
        "topic": row["subject"] or row["kind"],  # as adapters name it in their receipts
        "priority": row["priority"],
        "policy": row["policy"],
        "time_us": message.time_us,
        "sent_us": message.sent_us,
        "ends_us": message.end_us,
    }
    return message._replace(area=area, begin_us=begin_us, about=about)


def is_over(message: Addressed, stored_until_us: int) -> bool:
    """Whether it is finished, with all records until then stored."""
    return max(message.end_us, message.time_us) + GRACE_US <= stored_until_us


def is_answered(message: Addressed, answers: Mapping[str, Delivery], stored_until_us: int) -> bool:
    """Whether all its recipients have answered for good before its end.

    Arguments:
        answers: the receipts, by client.
    """
    return (
        message.may_be_early
        and message.time_us + GRACE_US <= stored_until_us
        and bool(answers)
        and (message.to != "client" or message.name in answers)
        and all(row.state in _LAST_WORDS for row in answers.values())
    )


def first_of_each(rows: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """By message: a repeated one counts from its first record."""
    found: dict[str, Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["time_us"]):
        found.setdefault(row["id"], row)
    return found
