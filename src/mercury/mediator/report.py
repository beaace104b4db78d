"""The report of a mediator (pMediator §8): what was sent to whom, how often, and what was lost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from mercury.mediator.incoming import Incoming
from mercury.mediator.outgoing import Outgoing
from mercury.model.delivery import DeliveryState


@dataclass(frozen=True, slots=True)
class MateRow:
    """What was sent to one mate."""

    mate: str
    sent: int
    resent: int
    resent_per_message: float
    first_try_s: float | None  # mean time to the answer, where the first try was enough
    acknowledged: int
    dropped: int
    waiting: int


@dataclass(frozen=True, slots=True)
class TopicRow:
    """What was sent under one topic, or as one variable."""

    topic: str
    sent: int
    resent: int
    acknowledge: bool
    per_minute: float
    mates: list[str]


@dataclass(frozen=True, slots=True)
class AckRow:
    """What one mate was answered."""

    mate: str
    received: int
    acks_sent: int
    acks_resent: int
    resent_per_ack: float


@dataclass(frozen=True, slots=True)
class HeardRow:
    """What one sender had for this client."""

    source: str
    messages: int
    copies: int  # sent, first times and repeats
    acknowledged: int
    refused: int
    dropped: int
    waiting: int
    mean_s: float | None  # from addressed to acknowledged


@dataclass(frozen=True, slots=True)
class EventRow:
    """How one copy ended."""

    time_s: float  # on the mediator's clock, or since the epoch
    id: str
    mate: str
    state: str
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a mediator can say about its work."""

    name: str
    sent: int
    resent: int
    acknowledged: int
    received: int
    repeated: int
    resends_per_s: float | None  # allowed now
    mates: list[MateRow] = field(default_factory=list)
    topics: list[TopicRow] = field(default_factory=list)
    acks: list[AckRow] = field(default_factory=list)
    heard: list[HeardRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)


def report(name: str, outgoing: Outgoing, incoming: Incoming, now: float) -> Report:
    """Sum up both sides of a mediator."""
    peers = outgoing.peers
    mates = []
    for number in sorted(peers, key=peers.name):
        sent, resent = int(peers.sent[number]), int(peers.resent[number])
        tries = int(peers.first_tries[number])
        mates.append(
            MateRow(
                mate=peers.name(number),
                sent=sent,
                resent=resent,
                resent_per_message=resent / sent if sent else 0.0,
                first_try_s=float(peers.first_tries_s[number]) / tries if tries else None,
                acknowledged=int(peers.acknowledged[number]),
                dropped=int(peers.dropped[number]),
                waiting=int(peers.waiting[number]),
            )
        )
    topics = [
        TopicRow(
            topic=topic,
            sent=one.sent,
            resent=one.resent,
            acknowledge=one.acknowledge,
            per_minute=one.per_minute(now),
            mates=sorted(one.mates),
        )
        for topic, one in sorted(outgoing.topics.items())
    ]
    acks = [
        AckRow(
            mate=mate,
            received=one.received,
            acks_sent=one.acks_sent,
            acks_resent=one.acks_resent,
            resent_per_ack=one.acks_resent / one.acks_sent if one.acks_sent else 0.0,
        )
        for mate, one in sorted(incoming.statistics.items())
    ]
    events = [
        EventRow(one.time, str(one.id), one.peer, one.state.label, one.elapsed_s)
        for one in reversed(outgoing.recent)
    ]
    return Report(
        name=name,
        sent=sum(one.sent for one in mates),
        resent=sum(one.resent for one in mates),
        acknowledged=outgoing.ended[DeliveryState.ACKNOWLEDGED],
        received=sum(one.received for one in acks),
        repeated=sum(one.repeated for one in incoming.statistics.values()),
        resends_per_s=outgoing.pace.per_s,
        mates=mates,
        topics=topics,
        acks=acks,
        events=events,
    )
