"""What moves and who wants to know of it, between the model and Protocol Buffers."""

from __future__ import annotations

from typing import NamedTuple

from mercury.model.errors import AreaError, FilterError, MatchingError
from mercury.model.matching import NearSubscription, Publication, Side, entity_key
from mercury.wire import mercury_pb2 as pb
from mercury.wire.mapped import Mapped


class Refusal(NamedTuple):
    """Why a declaration does not hold."""

    key: int
    reason: str  # one word, as MatchingError has it
    sentence: str


class KeyedDeclaration(NamedTuple):
    """An entity that is new, or another than before.

    What cannot be was refused by whoever read it; the declarations beside it are not lost.
    """

    side: Side
    key: int
    time_us: int
    what: Publication | NearSubscription | Refusal


_PUBLICATION = Mapped(Publication, pb.MovingPublication)
_SUBSCRIPTION = Mapped(NearSubscription, pb.NearSubscription)
publication_to_pb, subscription_to_pb = _PUBLICATION.write, _SUBSCRIPTION.write
# They raise MatchingError, FilterError or AreaError for what cannot be.
publication_from_pb, subscription_from_pb = _PUBLICATION.read, _SUBSCRIPTION.read


def declaration_to_pb(
    what: Publication | NearSubscription, time_us: int, target: pb.Declaration
) -> None:
    """Write a declaration."""
    target.time_us = time_us
    if isinstance(what, Publication):
        target.key = entity_key("publication", what.id)
        publication_to_pb(what, target.publication)
    else:
        target.key = entity_key("subscription", what.id)
        subscription_to_pb(what, target.subscription)


def declaration_from_pb(source: pb.Declaration) -> KeyedDeclaration:
    """Read a declaration; one that cannot be holds its refusal."""
    side: Side = "publication" if source.HasField("publication") else "subscription"
    what: Publication | NearSubscription | Refusal
    try:
        if side == "publication":
            what = publication_from_pb(source.publication)
        else:
            what = subscription_from_pb(source.subscription)
        if entity_key(side, what.id) != source.key:
            raise MatchingError(f"the key is not that of {what.id!r}", "key")
    except (MatchingError, FilterError, AreaError) as error:
        what = refusal(source.key, error)
    return KeyedDeclaration(side, source.key, source.time_us, what)


def refusal(key: int, error: MatchingError | FilterError | AreaError) -> Refusal:
    """An error as whoever declared is notified of it."""
    if isinstance(error, MatchingError):
        return Refusal(key, error.reason, str(error))
    reason = "where" if isinstance(error, FilterError) else "scope"
    return Refusal(key, reason, str(error))
