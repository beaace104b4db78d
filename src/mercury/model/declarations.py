"""What a client and its adapter exchange about publications and subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mercury.model.matching import Match, NearSubscription, Publication, Side

# Requests to an adapter, by topic; an adapter that does not know them refuses them.
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
    """The withdrawal of a client's declaration."""

    side: Side
    id: str


@dataclass(frozen=True, slots=True)
class NearQuery:
    """A query of what is near, or inside a polygon, now."""

    subscription: NearSubscription
    limit: int


class NumberedMatch(NamedTuple):
    """A match, and its number among those of its subscription.

    Events are numbered from 1, except `inside`, which has the number of the one before it.
    """

    incarnation: int  # grows when the subscription is declared anew, which restarts the numbers
    number: int
    match: Match


@dataclass(frozen=True, slots=True)
class Matches:
    """Matches for a client: events of its subscriptions, or the answer to a query."""

    rows: tuple[NumberedMatch, ...]
