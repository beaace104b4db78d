"""Matches, and what is said to have them, between the model and Protocol Buffers."""

from __future__ import annotations

from mercury.model.declarations import Declaration, Matches, NearQuery, NumberedMatch, Withdrawal
from mercury.model.errors import FilterError, MatchingError, PacketError
from mercury.model.matching import EventReason, EventType, Match, Publication, Side
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import (
    publication_from_pb,
    publication_to_pb,
    subscription_from_pb,
    subscription_to_pb,
)
from mercury.wire.values import values_from_pb, values_to_pb

_E7 = 1e7
_ROW_BYTES = 40  # at most, but for the first mention of a publication and a subscription

# Number, event type, reason, time, latitude and longitude in 1e-7 degrees, distance in metres.
MatchRow = tuple[int, int, int, int, int, int, float]
# The same in columns, after the indexes of subscription and publication.
_COLUMNS = ("subscription", "publication", "number", "event_type", "reason", "time_us", "lat_e7",
            "lon_e7", "distance_m")  # fmt: skip


class MatchesWriter:
    """Puts matches of one client into one payload, while there is room for more."""

    def __init__(self, limit_bytes: int) -> None:
        self._message = pb.Matches()
        self._left = limit_bytes
        self._subscriptions: dict[str, int] = {}
        self._publications: dict[str, int] = {}
        self._rows: list[tuple[float, ...]] = []

    def add(
        self, subscription: tuple[str, int], publication: pb.MovingPublication, match_row: MatchRow
    ) -> bool:
        """Take a match of a subscription, by id and incarnation; False if it must go into another.

        The first always has room: what is too large for a packet is found out when it is packed.
        """
        id, incarnation = subscription
        subscription_index = self._subscriptions.get(id)
        one = self._publications.get(publication.id)
        size = _ROW_BYTES
        if subscription_index is None:
            size += len(id) * 4 + 20
        if one is None:
            size += publication.ByteSize() + 5
        if size > self._left and self._rows:
            return False
        self._left -= size
        if subscription_index is None:
            subscription_index = self._subscriptions[id] = len(self._subscriptions)
            self._message.subscriptions.add(id=id, incarnation=incarnation)
        if one is None:
            one = self._publications[publication.id] = len(self._publications)
            self._message.publications.append(publication)
        self._rows.append((subscription_index, one, *match_row))
        return True

    def finish(self) -> pb.Matches:
        """The payload; asked for once, when there is a match."""
        _extend(self._message, self._rows)
        return self._message


def matches_to_pb(matches: Matches, target: pb.Matches) -> None:
    """Write matches."""
    target.SetInParent()
    subscriptions: dict[tuple[str, int], int] = {}
    publications: list[pb.MovingPublication] = []
    rows: list[tuple[float, ...]] = []
    for incarnation, number, match in matches.rows:
        subscription_index = subscriptions.setdefault(
            (match.subscription, incarnation), len(subscriptions)
        )
        if subscription_index == len(target.subscriptions):
            target.subscriptions.add(id=match.subscription, incarnation=incarnation)
        described = pb.MovingPublication(id=match.publication, topic=match.topic)
        values_to_pb(match.values, described.values)
        if described not in publications:
            publications.append(described)
            target.publications.add().CopyFrom(described)
        one = subscription_index, publications.index(described), number
        what = match.event_type, match.reason, match.time_us
        where = round(match.lat * _E7), round(match.lon * _E7), match.distance_m
        rows.append((*one, *what, *where))
    _extend(target, rows)


def _extend(target: pb.Matches, rows: list[tuple[float, ...]]) -> None:
    for name, column in zip(_COLUMNS, zip(*rows, strict=True), strict=False):  # of no rows, none
        getattr(target, name).extend(column)


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


def request_to_pb(said: Declaration | Withdrawal | NearQuery, envelope: pb.Envelope) -> None:
    """Write what a client says or asks."""
    match said:
        case Declaration(Publication() as publication):
            publication_to_pb(publication, envelope.declaration.publication)
        case Declaration(subscription):
            assert not isinstance(subscription, Publication)
            subscription_to_pb(subscription, envelope.declaration.subscription)
        case Withdrawal():
            envelope.withdrawal.publication = said.side == "publication"
            envelope.withdrawal.id = said.id
        case NearQuery():
            subscription_to_pb(said.subscription, envelope.query.subscription)
            envelope.query.limit = said.limit


def request_from_pb(envelope: pb.Envelope) -> Declaration | Withdrawal | NearQuery:
    """Read what a client says or asks; raises PacketError where it cannot be."""
    try:
        match envelope.WhichOneof("payload"):
            case "withdrawal":
                side: Side = "publication" if envelope.withdrawal.publication else "subscription"
                return Withdrawal(side, envelope.withdrawal.id)
            case "query":
                query = envelope.query
                return NearQuery(subscription_from_pb(query.subscription), query.limit)
        declaration = envelope.declaration
        if declaration.HasField("publication"):
            return Declaration(publication_from_pb(declaration.publication))
        return Declaration(subscription_from_pb(declaration.subscription))
    except (MatchingError, FilterError):
        raise PacketError("bad-declaration") from None
