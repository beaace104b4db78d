"""Matches and what is said to have them: everything comes back, nothing senseless gets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.strategies import TEXT, U64, values
from wire.test_match_frames import publications, subscriptions

from mercury.model.declarations import Declaration, Matches, NearQuery, NumberedMatch, Withdrawal
from mercury.model.errors import PacketError
from mercury.model.matching import EventReason, EventType, Match, Publication
from mercury.model.message import Address, Kind, Message
from mercury.wire import decode, encode, parse
from mercury.wire import mercury_pb2 as pb
from mercury.wire.declarations import MatchesWriter, matches_from_pb, publication_to_pb

U32 = st.integers(0, 2**32 - 1)
rows = st.builds(
    NumberedMatch,
    U64,
    U32,
    st.builds(
        Match,
        st.sampled_from(EventType),
        st.sampled_from(EventReason),
        TEXT,
        TEXT,
        TEXT,
        values,
        st.integers(-900_000_000, 900_000_000).map(lambda e7: e7 / 1e7),
        st.integers(-1_800_000_000, 1_800_000_000).map(lambda e7: e7 / 1e7),
        st.floats(0.0, 1e7, width=32),
        U64,
    ),
)
payloads = st.one_of(
    st.builds(Declaration, publications | subscriptions()),
    st.builds(Withdrawal, st.sampled_from(["publication", "subscription"]), TEXT),
    st.builds(NearQuery, subscriptions(), U32),
    st.builds(Matches, st.lists(rows, max_size=8).map(tuple)),
)


@given(payloads)
def test_payloads_are_the_same_after_encoding(payload: object) -> None:
    client = Address.client("car")
    message = Message(kind=Kind.REQUEST, source=client, destination=client, payload=payload)
    assert decode(encode(message)) == message


def reason_of(envelope: pb.Envelope) -> str:
    client = Address.client("car")
    plain = parse(encode(Message(kind=Kind.CONTENT, source=client, destination=client)))
    plain.MergeFrom(envelope)
    with pytest.raises(PacketError) as error:
        decode(plain.SerializeToString())
    return error.value.reason


def test_what_makes_no_sense_has_a_reason() -> None:
    matches = pb.Matches(subscription=[0], publication=[0])
    assert reason_of(pb.Envelope(matches=matches)) == "malformed"  # columns that do not fit
    whole = {"number": [1], "event_type": [1], "reason": [1], "time_us": [1], "lat_e7": [1]}
    matches.MergeFrom(pb.Matches(**whole, lon_e7=[1], distance_m=[1.0]))
    assert reason_of(pb.Envelope(matches=matches)) == "malformed"  # of nobody
    matches.subscriptions.add(id="me", incarnation=1)
    matches.publications.add(id="cab")
    assert len(matches_from_pb(matches).rows) == 1
    matches.event_type[0] = 99
    assert reason_of(pb.Envelope(matches=matches)) == "malformed"
    nameless = pb.Declaration(publication=pb.MovingPublication(topic="taxi"))
    assert reason_of(pb.Envelope(declaration=nameless)) == "bad-declaration"
    subscription = pb.NearSubscription(id="me", topic="taxi", radius_m=5.0, where="seats >")
    assert (
        reason_of(pb.Envelope(query=pb.NearQuery(subscription=subscription))) == "bad-declaration"
    )
    assert reason_of(pb.Envelope(declaration=pb.Declaration())) == "bad-declaration"


@given(st.lists(st.tuples(st.integers(0, 3), publications), min_size=1, max_size=40))
def test_packets_are_filled_and_no_fuller(met: list[tuple[int, Publication]]) -> None:
    packets = []
    writer = MatchesWriter(1000)
    for subscription, publication in met:
        described = pb.MovingPublication()
        publication_to_pb(publication, described)
        match_row = (2**32 - 1, 1, 1, 2**62, -1, -1, 1.0)
        row = ((f"subscription-{subscription}", 2**60), described, match_row)
        if not writer.add(*row):
            packets.append(writer.finish())
            writer = MatchesWriter(1000)
            assert writer.add(*row)
    packets.append(writer.finish())
    assert sum(len(packet.number) for packet in packets) == len(met)
    for packet in packets:
        assert packet.ByteSize() <= 1000 or len(packet.number) == 1
    read = [row.match for packet in packets for row in matches_from_pb(packet).rows]
    assert [one.publication for one in read] == [publication.id for _, publication in met]
    assert [one.subscription for one in read] == [
        f"subscription-{subscription}" for subscription, _ in met
    ]
