"""What a client and its adapter exchange about publications and subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mercury.model.matching import Match, NearSubscription, Publication, Side

# Requests to an adapter, by the topic that they bear; one that knows none of them refuses them.
DECLARE = "moving.declare"
WITHDRAW = "moving.withdraw"
ASK = "moving.ask"
REQUESTS = frozenset({DECLARE, WITHDRAW, ASK})

MAX_ASKED = 200  # matches in the answer to a query: it is one packet


@dataclass(frozen=True, slots=True)
class Declaration:
    """A publication or subscription of a client; its id is the one the client gave it."""

    what: Publication | NearSubscription


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Something that the client declared is no more."""

    side: Side
    id: str


@dataclass(frozen=True, slots=True)
class NearQuery:
    """What is near, or inside a polygon, at the moment."""

    subscription: NearSubscription
    limit: int


class NumberedMatch(NamedTuple):
    """A match, and its number among those of its subscription.

    All that matters is numbered from 1; an `inside` bears the number of the last before it.
    """

    incarnation: int  # grows when the subscription is declared anew, and the numbers begin again
    number: int
    match: Match


@dataclass(frozen=True, slots=True)
class Matches:
    """What happened near a client, or what it asked for."""

    rows: tuple[NumberedMatch, ...]
