"""What moves and who wants to know of it, between the model and Protocol Buffers."""

from __future__ import annotations

from typing import NamedTuple

from mercury.model.errors import AreaError, FilterError, MatchingError
from mercury.model.matching import NearSubscription, Publication, Side, entity_key
from mercury.wire import mercury_pb2 as pb
from mercury.wire.areas import polygon_from_pb, polygon_to_pb
from mercury.wire.values import values_from_pb, values_to_pb


class Refusal(NamedTuple):
    """Why a declaration does not hold."""

    key: int
    reason: str  # one word, as MatchingError has it
    sentence: str


class Declaration(NamedTuple):
    """An entity that is new, or another than before.

    What cannot be was refused by whoever read it; the declarations beside it are not lost.
    """

    side: Side
    key: int
    time_us: int
    what: Publication | NearSubscription | Refusal


def publication_to_pb(publication: Publication, target: pb.MovingPublication) -> None:
    """Write a publication."""
    target.id = publication.id
    target.topic = publication.topic
    values_to_pb(publication.values, target.values)
    target.radius_m = publication.radius_m
    if publication.ttl_s is not None:
        target.ttl_s = publication.ttl_s


def publication_from_pb(source: pb.MovingPublication) -> Publication:
    """Read a publication; raises MatchingError where it cannot be."""
    return Publication(
        id=source.id,
        topic=source.topic,
        values=values_from_pb(source.values),
        radius_m=source.radius_m,
        ttl_s=source.ttl_s if source.HasField("ttl_s") else None,
    )


def subscription_to_pb(subscription: NearSubscription, target: pb.NearSubscription) -> None:
    """Write a subscription."""
    target.id = subscription.id
    target.topic = subscription.topic
    if subscription.radius_m is not None:
        target.radius_m = subscription.radius_m
    if subscription.polygon is not None:
        polygon_to_pb(subscription.polygon, target.polygon)
    target.where = subscription.where
    target.inside = subscription.inside
    if subscription.dwell_s is not None:
        target.dwell_s = subscription.dwell_s
    if subscription.hysteresis_m is not None:
        target.hysteresis_m = subscription.hysteresis_m
    if subscription.ttl_s is not None:
        target.ttl_s = subscription.ttl_s


def subscription_from_pb(source: pb.NearSubscription) -> NearSubscription:
    """Read a subscription; raises MatchingError, FilterError or AreaError where it cannot be."""
    return NearSubscription(
        id=source.id,
        topic=source.topic,
        radius_m=source.radius_m if source.HasField("radius_m") else None,
        polygon=polygon_from_pb(source.polygon) if source.HasField("polygon") else None,
        where=source.where,
        inside=source.inside,
        dwell_s=source.dwell_s if source.HasField("dwell_s") else None,
        hysteresis_m=source.hysteresis_m if source.HasField("hysteresis_m") else None,
        ttl_s=source.ttl_s if source.HasField("ttl_s") else None,
    )


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


def declaration_from_pb(source: pb.Declaration) -> Declaration:
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
    return Declaration(side, source.key, source.time_us, what)


def refusal(key: int, error: MatchingError | FilterError | AreaError) -> Refusal:
    """An error as it is told to whoever declared."""
    if isinstance(error, MatchingError):
        return Refusal(key, error.reason, str(error))
    reason = "where" if isinstance(error, FilterError) else "scope"
    return Refusal(key, reason, str(error))
