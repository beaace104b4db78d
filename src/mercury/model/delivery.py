"""What becomes of a message, for each of those it was addressed to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from uuid import UUID

KEPT_US = 24 * 3600 * 1_000_000  # how long a message without expiry is kept

# A request of a client to its adapter: what became of messages, whose ids are in this value.
RECEIPTS = "receipts"
ASKED = "messages"
MAX_ASKED = 64  # in one packet


class DeliveryState(IntEnum):
    """Every addressed message ends, per recipient, in exactly one of the last four."""

    WAITING = 0
    ACKNOWLEDGED = 1
    EXPIRED = 2
    REFUSED = 3
    UNREACHABLE = 4

    @property
    def label(self) -> str:
        """The word people read."""
        return self.name.lower()


class Reason(StrEnum):
    """Why a message ended as it did; a recipient that refuses gives a reason of its own."""

    NONE = ""
    NOT_ACKNOWLEDGED = "not-acknowledged"  # sent, and it ended without an answer
    NOT_ASKED = "not-asked"  # fire-and-forget: sent, without a receipt asked for
    NOT_SENT = "not-sent"  # the link was too busy for it until it ended
    AWAY = "away"  # had no session until it ended
    GAVE_UP = "gave-up"  # repeated as often as the policy says, without an answer
    NO_ROOM = "no-room"  # too many were waiting
    NEVER_ADDRESSED = "never-addressed"  # was there, and no adapter sent it


@dataclass(frozen=True, slots=True)
class Delivery:
    """The delivery of a message to one recipient."""

    client: str
    state: DeliveryState
    reason: str = ""
    tries: int = 0
    addressed_us: int = 0
    first_sent_us: int = 0  # 0: not sent
    settled_us: int = 0  # 0: not settled
    acks: int = 0  # receipts that the client has sent so far, for all messages
    acks_again: int = 0  # and those for copies that it had already


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The deliveries of one message to some of its recipients."""

    message: UUID  # its id
    source: str
    rows: tuple[Delivery, ...]
    topic: str = ""
    kind: int = 0
    priority: int = 0
    policy: int = 0
    sent_us: int = 0
    expires_us: int = 0
