"""Publications, subscriptions and match events as Protocol Buffers."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

from mercury.model.declarations import Declaration, Matches, NearQuery, NumberedMatch, Withdrawal
from mercury.model.errors import AreaError, FilterError, MatchingError, PacketError
from mercury.model.matching import (
    EventReason,
    EventType,
    Match,
    NearSubscription,
    Publication,
    Side,
    entity_key,
)
from mercury.wire import mercury_pb2 as pb
from mercury.wire.fields import PayloadFields, mapped, values_from_pb, values_to_pb

_E7 = 1e7
_ROW_BYTES = 40  # at most, but for the first mention of a publication and a subscription

# Number, event type, reason, time, latitude and longitude in 1e-7 degrees, distance in metres.
MatchRow = tuple[int, int, int, int, int, int, float]
# The same in columns, after the indexes of subscription and publication.
_COLUMNS = ("subscription", "publication", "number", "event_type", "reason", "time_us", "lat_e7",
            "lon_e7", "distance_m")  # fmt: skip


class Refusal(NamedTuple):
    """Why a declaration is refused."""

    key: int
    reason: str  # one word, as MatchingError has it
    sentence: str


class KeyedDeclaration(NamedTuple):
    """An entity that is new, or another than before.

    An invalid one holds its refusal; the others in the message are valid.
    """

    side: Side
    key: int
    time_us: int
    what: Publication | NearSubscription | Refusal


# The readers raise MatchingError, FilterError or AreaError if invalid.
publication_to_pb, publication_from_pb = mapped(Publication, pb.MovingPublication)
subscription_to_pb, subscription_from_pb = mapped(NearSubscription, pb.NearSubscription)


def declaration_to_pb(
    what: Publication | NearSubscription, time_us: int, target: pb.Declaration
) -> None:
    target.time_us = time_us
    side: Side = "publication" if isinstance(what, Publication) else "subscription"
    target.key = entity_key(side, what.id)
    _entity_to_pb(what, target)


def declaration_from_pb(source: pb.Declaration) -> KeyedDeclaration:
    """Read a declaration; an invalid one holds its refusal."""
    side: Side = "publication" if source.HasField("publication") else "subscription"
    what: Publication | NearSubscription | Refusal
    try:
        what = _entity_from_pb(source)
        if entity_key(side, what.id) != source.key:
            raise MatchingError(f"the key is not that of {what.id!r}", "key")
    except (MatchingError, FilterError, AreaError) as error:
        what = refusal(source.key, error)
    return KeyedDeclaration(side, source.key, source.time_us, what)


def refusal(key: int, error: MatchingError | FilterError | AreaError) -> Refusal:
    """An error as a refusal to the client that declared."""
    if isinstance(error, MatchingError):
        return Refusal(key, error.reason, str(error))
    reason = "where" if isinstance(error, FilterError) else "scope"
    return Refusal(key, reason, str(error))


def _declared_to_pb(declaration: Declaration, target: pb.Declaration) -> None:
    _entity_to_pb(declaration.what, target)


def _declared_from_pb(source: pb.Declaration) -> Declaration:
    return Declaration(_entity_from_pb(source))


def _withdrawal_to_pb(withdrawal: Withdrawal, target: pb.Withdrawal) -> None:
    target.publication = withdrawal.side == "publication"
    target.id = withdrawal.id


def _withdrawal_from_pb(source: pb.Withdrawal) -> Withdrawal:
    return Withdrawal("publication" if source.publication else "subscription", source.id)


def _query_to_pb(query: NearQuery, target: pb.NearQuery) -> None:
    subscription_to_pb(query.subscription, target.subscription)
    target.limit = query.limit


def _query_from_pb(source: pb.NearQuery) -> NearQuery:
    return NearQuery(subscription_from_pb(source.subscription), source.limit)


def _entity_to_pb(what: Publication | NearSubscription, target: pb.Declaration) -> None:
    if isinstance(what, Publication):
        publication_to_pb(what, target.publication)
    else:
        subscription_to_pb(what, target.subscription)


def _entity_from_pb(source: pb.Declaration) -> Publication | NearSubscription:
    if source.HasField("publication"):
        return publication_from_pb(source.publication)
    return subscription_from_pb(source.subscription)


class MatchesWriter:
    """Packs matches of one client into one payload, up to the size of a packet."""

    def __init__(self, limit_bytes: float = math.inf, message: pb.Matches | None = None) -> None:
        self._message = pb.Matches() if message is None else message
        self._left = limit_bytes
        self._subscriptions: dict[tuple[str, int], int] = {}
        self._publications: dict[Hashable, int] = {}
        self._rows: list[tuple[float, ...]] = []

    def add(
        self,
        subscription: tuple[str, int],
        publication: pb.MovingPublication,
        match_row: MatchRow,
        key: Hashable = None,
    ) -> bool:
        """Take a match of a subscription, by id and incarnation; False if it must go into another.

        The first always has room: what is too large for a packet is found out when it is packed.
        Publications of one key, which is else their id, are written once.
        """
        key = publication.id if key is None else key
        subscribed = self._subscriptions.get(subscription)
        published = self._publications.get(key)
        size = _ROW_BYTES
        if subscribed is None:
            size += len(subscription[0]) * 4 + 20
        if published is None:
            size += publication.ByteSize() + 5
        if size > self._left and self._rows:
            return False
        self._left -= size
        if subscribed is None:
            subscribed = self._subscriptions[subscription] = len(self._subscriptions)
            self._message.subscriptions.add(id=subscription[0], incarnation=subscription[1])
        if published is None:
            published = self._publications[key] = len(self._publications)
            self._message.publications.append(publication)
        self._rows.append((subscribed, published, *match_row))
        return True

    def finish(self) -> pb.Matches:
        """The payload; call it once."""
        columns = zip(*self._rows, strict=True)
        for name, column in zip(_COLUMNS, columns, strict=False):  # of no rows, none
            getattr(self._message, name).extend(column)
        return self._message


def matches_to_pb(matches: Matches, target: pb.Matches) -> None:
    target.SetInParent()
    writer = MatchesWriter(message=target)
    for incarnation, number, match in matches.rows:
        described = pb.MovingPublication(id=match.publication, topic=match.topic)
        values_to_pb(match.values, described.values)
        what = match.event_type, match.reason, match.time_us
        where = round(match.lat * _E7), round(match.lon * _E7), match.distance_m
        # Values may change from one match to the next.
        key = described.SerializeToString(deterministic=True)
        writer.add((match.subscription, incarnation), described, (number, *what, *where), key)
    writer.finish()


def matches_from_pb(source: pb.Matches) -> Matches:
    """Read matches; raises PacketError where the columns do not fit together."""
    values = [values_from_pb(one.values) for one in source.publications]
    rows = []
    try:
        columns = (getattr(source, name) for name in _COLUMNS)
        for subscribed, published, number, event_type, reason, time_us, lat, lon, distance_m in zip(
            *columns, strict=True
        ):
            subscription = source.subscriptions[subscribed]
            publication = source.publications[published]
            match = Match(
                EventType(event_type),
                EventReason(reason),
                subscription.id,
                publication.id,
                publication.topic,
                values[published],
                lat / _E7,
                lon / _E7,
                distance_m,
                time_us,
            )
            rows.append(NumberedMatch(subscription.incarnation, number, match))
    except (ValueError, IndexError):
        raise PacketError("malformed") from None
    return Matches(tuple(rows))


MOVING_PAYLOADS: PayloadFields = {
    "declaration": (Declaration, _declared_to_pb, _declared_from_pb),
    "withdrawal": (Withdrawal, _withdrawal_to_pb, _withdrawal_from_pb),
    "query": (NearQuery, _query_to_pb, _query_from_pb),
    "matches": (Matches, matches_to_pb, matches_from_pb),
}
