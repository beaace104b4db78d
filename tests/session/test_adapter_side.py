"""The adapter's side on its own: every rule, packet by packet."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from session.invariants import check_adapter
from wire.packets import unpack

from mercury.model.area import Position
from mercury.model.message import Address, Attributes, Event, Kind, Message, Telemetry
from mercury.session import AdapterSessions, Closed, Opened, Received, Reported, SessionSettings
from mercury.session.adapter_side import MAX_PRUNED
from mercury.wire import HEADER_BYTES, NO_TOKEN, decode, encode, pack, parse

HERE, THERE = b"h" * 16, b"t" * 16
TELEMETRY = Telemetry(Position(40.0, -111.0), heading_deg=90.0, speed_mps=12.5)


class Bench:
    """An adapter core and a hand that makes packets."""

    def __init__(self, **settings: float) -> None:
        counter = itertools.count(1)
        self.core = AdapterSessions(
            "adapter-1",
            SessionSettings(**settings),  # type: ignore[arg-type]
            lambda: next(counter).to_bytes(16, "big"),
        )
        self.sequence = 0

    def message(self, kind: Kind, identity: str, payload: object = None) -> bytes:
        return encode(
            Message(
                kind=kind,
                source=Address.client(identity),
                destination=Address.broker(),
                payload=payload,  # type: ignore[arg-type]
            )
        )

    def init(
        self, identity: str = "car", incarnation: int = 1, now: float = 0.0, address: bytes = HERE,
        payload: object = TELEMETRY,
    ) -> object:  # fmt: skip
        body = self.message(Kind.INIT, identity, payload)
        return self.init_with(body, incarnation, now, address)

    def init_with(
        self, body: bytes, incarnation: int = 1, now: float = 0.0, address: bytes = HERE
    ) -> object:
        """An INIT with a cookie, as the adapter asks for."""
        cookie = self.cookie(address, now)
        return self.core.receive(pack(Kind.INIT, 4, cookie, incarnation, body), address, now)

    def cookie(self, address: bytes = HERE, now: float = 0.0) -> bytes:
        assert self.core.receive(pack(Kind.INIT, 4, NO_TOKEN, 7, b""), address, now) is None
        challenge, to_whom = self.core.outbox.pop()
        kind, _, cookie, incarnation = unpack(challenge)[:4]
        assert (kind, incarnation, to_whom) == (Kind.CHALLENGE, 7, address)
        return bytes(cookie)

    def token(self, identity: str = "car") -> bytes:
        return self.core.table.by_identity[identity].token

    def send(
        self, kind: Kind, payload: object = None, now: float = 0.0, *, identity: str = "car",
        token: bytes | None = None, sequence: int | None = None, address: bytes = HERE,
    ) -> object:  # fmt: skip
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        token = self.token() if token is None else token
        body = self.message(kind, identity, payload)
        return self.core.receive(pack(kind, 4, token, sequence, body), address, now)


def test_init_with_telemetry_is_acknowledged_with_a_token() -> None:
    bench = Bench()
    event = bench.init()
    assert isinstance(event, Opened)
    [(packet, address)] = bench.core.outbox
    assert address == HERE
    header = unpack(packet)
    assert header.kind == Kind.ACKNOWLEDGE
    grant = decode(packet[HEADER_BYTES:]).payload
    assert grant.token == header.token == bench.token() != NO_TOKEN  # type: ignore[union-attr]
    table = bench.core.table
    slot = event.session.slot
    assert (table.lat[slot], table.lon[slot]) == (40.0, -111.0)
    assert (table.heading[slot], table.speed[slot]) == (90.0, 12.5)
    check_adapter(bench.core)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "no-telemetry"),
        (Attributes({"a": 1}), "no-telemetry"),
    ],
)
def test_init_without_telemetry_is_refused(payload: object, reason: str) -> None:
    bench = Bench()
    assert bench.init(payload=payload) is None
    assert bench.core.dropped == {reason: 1}
    [(packet, _)] = bench.core.outbox
    assert unpack(packet).kind == Kind.REFUSE
    assert decode(packet[HEADER_BYTES:]).values["reason"] == reason


def test_an_init_without_a_cookie_is_asked_for_one_and_leaves_nothing() -> None:
    bench = Bench()
    body = bench.message(Kind.INIT, "car", TELEMETRY)
    theirs = bench.cookie(THERE)
    for cookie in (NO_TOKEN, b"\xff" * 16, theirs):
        packet = pack(Kind.INIT, 4, cookie, 3, body)
        assert bench.core.receive(packet, HERE, 0.0) is None
        [(answer, address)] = bench.core.outbox
        bench.core.outbox.clear()
        assert (unpack(answer).kind, address) == (Kind.CHALLENGE, HERE)
        assert len(answer) == HEADER_BYTES < len(packet)
    assert len(bench.core.table) == 0
    assert bench.core.dropped == {}
    assert bench.core.challenges == 4
    check_adapter(bench.core)


@pytest.mark.parametrize(("later_s", "is_good"), [(0.0, True), (59.0, True), (121.0, False)])
def test_a_cookie_holds_for_a_while(later_s: float, is_good: bool) -> None:
    bench = Bench()
    cookie = bench.cookie(now=30.0)
    body = bench.message(Kind.INIT, "car", TELEMETRY)
    event = bench.core.receive(pack(Kind.INIT, 4, cookie, 1, body), HERE, 30.0 + later_s)
    assert isinstance(event, Opened) == is_good


def test_challenges_are_limited() -> None:
    bench = Bench()
    packet = pack(Kind.INIT, 4, NO_TOKEN, 1, b"")
    for number in range(15_000):
        bench.core.receive(packet, number.to_bytes(16, "big"), 1.0)
    assert len(bench.core.outbox) == 10_000
    assert bench.core.dropped == {"init-flood": 5000}


def test_no_answer_to_a_stranger_is_longer_than_what_came() -> None:
    bench = Bench()
    bench.init()
    bench.core.outbox.clear()
    for kind in Kind:
        for token in (NO_TOKEN, b"\xff" * 16):
            packet = pack(kind, 4, token, 1, b"")
            bench.core.receive(packet, THERE, 0.0)
            assert sum(len(answer) for answer, _ in bench.core.outbox) <= len(packet)
            bench.core.outbox.clear()


def test_a_repeated_init_gets_the_same_grant() -> None:
    bench = Bench()
    bench.init()
    bench.init()
    first, second = (packet for packet, _ in bench.core.outbox)
    assert unpack(first).token == unpack(second).token
    assert len(bench.core.table) == 1


def test_a_new_life_replaces_and_an_old_one_is_stale() -> None:
    bench = Bench()
    bench.init(incarnation=5)
    old = bench.token()
    assert isinstance(bench.init(incarnation=6), Opened)
    assert bench.token() != old
    assert bench.init(incarnation=5) is None
    assert bench.core.dropped["stale-init"] == 1
    assert bench.send(Kind.REPORT, TELEMETRY, token=old) is None
    assert bench.core.dropped["unknown-session"] == 1
    check_adapter(bench.core)


def test_a_client_whose_identity_is_taken_over_from_elsewhere_is_told() -> None:
    bench = Bench()
    bench.init(incarnation=5)
    old = bench.token()
    bench.core.outbox.clear()
    bench.init(incarnation=6, address=THERE)
    (refusal, to_whom), (granted, _) = bench.core.outbox
    assert (unpack(refusal)[0::2], to_whom) == ((Kind.REFUSE, old), HERE)
    assert decode(refusal[HEADER_BYTES:]).values == {"reason": "displaced"}
    assert unpack(granted).kind == Kind.ACKNOWLEDGE
    bench.core.outbox.clear()
    bench.init(incarnation=5)
    [(refusal, to_whom)] = bench.core.outbox
    assert (unpack(refusal)[0::3], to_whom) == ((Kind.REFUSE, 5), HERE)
    assert decode(refusal[HEADER_BYTES:]).values == {"reason": "stale-init"}
    bench.core.outbox.clear()
    bench.init(incarnation=7, address=THERE)  # the same client again: there is nobody to tell
    assert [unpack(packet).kind for packet, _ in bench.core.outbox] == [Kind.ACKNOWLEDGE]
    check_adapter(bench.core)


def test_a_report_updates_where_the_client_is() -> None:
    bench = Bench()
    bench.init()
    event = bench.send(Kind.REPORT, Telemetry(Position(41.0, -112.0)), now=1.0)
    assert isinstance(event, Reported)
    table, slot = bench.core.table, event.session.slot
    assert (table.lat[slot], table.lon[slot]) == (41.0, -112.0)
    assert np.isnan(table.heading[slot])
    assert table.moved[slot]


@pytest.mark.parametrize("wrong", [1e25, -1e25, float("inf"), float("nan"), 1001.0])
def test_a_motion_that_cannot_be_is_unknown_and_its_place_holds(wrong: float) -> None:
    bench = Bench()
    bench.init()
    event = bench.send(Kind.REPORT, Telemetry(Position(41.0, -112.0), wrong, wrong), now=1.0)
    assert isinstance(event, Reported)
    table, slot = bench.core.table, event.session.slot
    assert (table.lat[slot], table.lon[slot]) == (41.0, -112.0)
    assert np.isnan(table.heading[slot])
    assert np.isnan(table.speed[slot])


@pytest.mark.parametrize("sequence_gap", [0, 1, 100, 255])
def test_a_replayed_packet_is_dropped(sequence_gap: int) -> None:
    bench = Bench()
    bench.init()
    bench.send(Kind.REPORT, TELEMETRY, sequence=1)
    for number in range(2, 2 + sequence_gap):
        bench.send(Kind.REPORT, TELEMETRY, sequence=number)
    assert bench.send(Kind.REPORT, TELEMETRY, sequence=1) is None
    assert bench.core.dropped == {"replayed": 1}


def test_who_does_not_know_the_token_is_refused() -> None:
    bench = Bench()
    bench.init()
    bench.core.outbox.clear()
    forged = b"\xff" * 16
    assert bench.send(Kind.REPORT, TELEMETRY, token=forged) is None
    assert bench.core.dropped == {"unknown-session": 1}
    [(packet, _)] = bench.core.outbox
    assert unpack(packet)[0::2] == (Kind.REFUSE, forged)


def test_a_client_cannot_speak_as_another() -> None:
    bench = Bench()
    bench.init()
    assert bench.send(Kind.EVENT, Event("emergency"), identity="police") is None
    assert bench.core.dropped == {"forged-source": 1}


@pytest.mark.parametrize("kind", [Kind.ALERT, Kind.REPLY, Kind.HEARTBEAT, Kind.ACKNOWLEDGE])
def test_a_client_cannot_send_what_only_others_may(kind: Kind) -> None:
    bench = Bench()
    bench.init()
    assert bench.send(kind) is None
    assert bench.core.dropped == {"not-allowed": 1}


def test_only_the_newest_packet_moves_the_address() -> None:
    bench = Bench()
    bench.init()
    bench.send(Kind.REPORT, TELEMETRY, sequence=5, address=THERE)
    session = bench.core.table.by_identity["car"]
    assert session.address == THERE
    assert isinstance(bench.send(Kind.REPORT, TELEMETRY, sequence=4, address=HERE), Reported)
    assert session.address == THERE
    check_adapter(bench.core)


def test_silence_of_three_intervals_prunes_and_close_ends_at_once() -> None:
    bench = Bench(report_interval_s=1.0, missed_reports=3)
    bench.init()
    bench.send(Kind.REPORT, TELEMETRY, now=1.0)
    assert bench.core.handle_timer(4.0) == []
    [closed] = bench.core.handle_timer(4.1)
    assert closed.reason == "silent"
    bench.init(incarnation=2, now=5.0)
    closed = bench.send(Kind.CLOSE, now=5.0)
    assert isinstance(closed, Closed)
    assert closed.reason == "closed"
    assert len(bench.core.table) == 0
    check_adapter(bench.core)


def test_when_all_fall_silent_they_are_pruned_bit_by_bit() -> None:
    bench = Bench(report_interval_s=1.0)
    for number in range(MAX_PRUNED + 10):
        bench.init(f"car-{number}")
    assert len(bench.core.handle_timer(10.0)) == MAX_PRUNED
    assert len(bench.core.handle_timer(10.1)) == 10
    assert bench.core.handle_timer(10.2) == []
    check_adapter(bench.core)


def test_other_messages_do_not_count_as_reports() -> None:
    bench = Bench(report_interval_s=1.0)
    bench.init()
    assert isinstance(bench.send(Kind.REQUEST, Attributes(), now=2.9), Received)
    assert len(bench.core.handle_timer(3.1)) == 1


def test_a_flood_is_cut_and_others_are_served() -> None:
    bench = Bench(flood_rate_per_s=10.0, flood_burst=20.0)
    bench.init("car")
    bench.init("calm")
    accepted = sum(bench.send(Kind.REPORT, TELEMETRY, now=1.0) is not None for _ in range(100))
    assert accepted == 20
    assert bench.core.dropped == {"flood": 80}
    calm = bench.send(
        Kind.REPORT, TELEMETRY, now=1.0, identity="calm", token=bench.token("calm"), sequence=1
    )
    assert isinstance(calm, Reported)
    later = sum(bench.send(Kind.REPORT, TELEMETRY, now=2.0) is not None for _ in range(100))
    assert later == 10


def test_the_number_of_sessions_is_bounded() -> None:
    bench = Bench(max_sessions=2)
    assert [bench.init(f"car-{n}") is not None for n in range(3)] == [True, True, False]
    assert bench.core.dropped == {"sessions-full": 1}


@pytest.mark.parametrize("identity", ["", "x" * 129])
def test_an_identity_has_a_sensible_length(identity: str) -> None:
    bench = Bench()
    envelope = parse(bench.message(Kind.INIT, "x", TELEMETRY))
    envelope.source.client = identity
    body = envelope.SerializeToString()
    assert bench.init_with(body) is None
    assert bench.core.dropped == {"bad-identity": 1}


def test_heartbeats_go_to_those_who_heard_nothing() -> None:
    bench = Bench(heartbeat_interval_s=5.0)
    bench.init("quiet")
    bench.init("busy")
    busy = bench.core.table.by_identity["busy"]
    bench.core.packet(busy, Kind.REPLY, 5, b"", 4.0)
    due = bench.core.heartbeats_due(5.0)
    assert [bench.core.table.at(int(slot)).identity for slot in due] == ["quiet"]  # type: ignore[union-attr]


def test_refusals_are_limited() -> None:
    bench = Bench()
    for _ in range(5000):
        bench.send(Kind.REPORT, TELEMETRY, token=b"\xff" * 16, now=1.0)
    assert len(bench.core.outbox) <= 1001
    assert bench.core.dropped["unknown-session"] == 5000
