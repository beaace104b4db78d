"""The client's side on its own: retry, jitter, reports, loss and goodbye."""

from __future__ import annotations

import random

import pytest
from session.invariants import check_client
from wire.packets import unpack

from mercury.model.area import Position
from mercury.model.errors import NotConnectedError
from mercury.model.message import Address, Event, Grant, Kind, Message, Telemetry
from mercury.session import (
    ClientSession,
    Delivered,
    Established,
    Lost,
    Refused,
    SessionSettings,
    SessionState,
)
from mercury.wire import NO_TOKEN, encode, pack

TOKEN = b"0123456789abcdef"
SETTINGS = SessionSettings(
    report_interval_s=1.0, heartbeat_interval_s=2.0, init_retry_s=1.0, init_retry_max_s=4.0
)


def client(settings: SessionSettings = SETTINGS, seed: int = 1) -> ClientSession:
    telemetry = Telemetry(Position(1.0, 2.0))
    return ClientSession("car", settings, random.Random(seed), telemetry=telemetry)


def from_adapter(kind: Kind, payload: object = None) -> bytes:
    message = Message(
        kind=kind,
        source=Address.adapter("a"),
        destination=Address.client("car"),
        payload=payload,  # type: ignore[arg-type]
    )
    return encode(message)


def acknowledge(core: ClientSession, now: float, token: bytes = TOKEN) -> None:
    grant = Grant(token, core.incarnation, 2.0, 1.0)
    core.receive(pack(Kind.ACKNOWLEDGE, 5, token, 0, from_adapter(Kind.ACKNOWLEDGE, grant)), now)


def established(now: float = 0.0, **settings: float) -> ClientSession:
    core = client(SessionSettings(**settings)) if settings else client()  # type: ignore[arg-type]
    core.start(now)
    acknowledge(core, now)
    core.outbox.clear()
    core.events.clear()
    return core


def test_init_is_retried_with_linear_back_off_and_jitter() -> None:
    core = client()
    core.start(0.0)
    waits, now = [], 0.0
    for _ in range(8):
        due = core.next_timer()
        assert due is not None
        waits.append(due - now)
        now = due
        core.handle_timer(now)
    assert [unpack(packet).kind for packet in core.outbox] == [Kind.INIT] * 9
    for attempt, wait in enumerate(waits, start=1):
        expected = min(attempt, 4)
        assert 0.8 * expected <= wait <= 1.2 * expected
        assert wait != expected  # jittered
    assert len({unpack(packet).sequence for packet in core.outbox}) == 1  # the same incarnation


def challenge(core: ClientSession, cookie: bytes, now: float = 0.0) -> None:
    core.receive(pack(Kind.CHALLENGE, 5, cookie, core.incarnation, b""), now)


def test_a_challenge_is_answered_at_once_with_its_cookie() -> None:
    core = client()
    core.start(0.0)
    due = core.next_timer()
    challenge(core, b"c" * 16, 0.1)
    first, second = map(unpack, core.outbox)
    assert (first.token, second.token) == (NO_TOKEN, b"c" * 16)
    assert first.sequence == second.sequence
    assert core.next_timer() == due  # the next try by the clock stays where it is
    assert due is not None
    core.handle_timer(due)
    assert unpack(core.outbox[-1]).token == b"c" * 16
    check_client(core)


def test_challenges_make_no_storm() -> None:
    core = client()
    core.start(0.0)
    for number in range(100):
        challenge(core, bytes([number + 1]) * 16)
    assert len(core.outbox) == 1 + 3
    challenge(core, unpack(core.outbox[-1]).token)
    assert core.dropped == {"repeated-challenge": 98}
    due = core.next_timer()
    assert due is not None
    core.handle_timer(due)
    challenge(core, b"d" * 16, due)  # the adapter was started again
    assert unpack(core.outbox[-1]).token == b"d" * 16


def test_a_challenge_that_is_not_for_me_is_dropped() -> None:
    core = client()
    core.start(0.0)
    core.receive(pack(Kind.CHALLENGE, 5, b"c" * 16, core.incarnation + 1, b""), 0.0)
    acknowledge(core, 0.0)
    challenge(core, b"c" * 16)
    assert len(core.outbox) == 1
    assert core.dropped == {"unknown-session": 2}
    assert core.state is SessionState.ESTABLISHED


def test_two_clients_do_not_retry_in_step() -> None:
    first, second = client(seed=1), client(seed=2)
    first.start(0.0)
    second.start(0.0)
    assert first.next_timer() != second.next_timer()


def test_acknowledge_establishes_and_reports_begin_within_an_interval() -> None:
    core = client()
    core.start(0.0)
    acknowledge(core, 0.5)
    assert core.state is SessionState.ESTABLISHED
    assert isinstance(core.events[0], Established)
    due = core.next_timer()
    assert due is not None
    assert 0.5 <= due <= 1.5
    core.outbox.clear()
    core.handle_timer(due)
    [packet] = core.outbox
    assert unpack(packet)[0::2] == (Kind.REPORT, TOKEN)
    assert core.next_timer() == due + 1.0
    check_client(core)


def test_an_acknowledge_of_another_life_is_not_taken() -> None:
    core = client()
    core.start(0.0)
    core.incarnation += 1
    grant = Grant(TOKEN, core.incarnation - 1, 2.0, 1.0)
    core.receive(pack(Kind.ACKNOWLEDGE, 5, TOKEN, 0, from_adapter(Kind.ACKNOWLEDGE, grant)), 0.1)
    assert core.state is SessionState.CONNECTING
    assert core.dropped == {"repeated-acknowledge": 1}


def test_three_silent_heartbeat_intervals_start_anew() -> None:
    core = established()
    first_life = core.incarnation
    core.receive(pack(Kind.HEARTBEAT, 1, TOKEN, 1, from_adapter(Kind.HEARTBEAT)), 3.0)
    while (due := core.next_timer()) is not None and due < 9.0:
        core.handle_timer(due)
        assert core.state is SessionState.ESTABLISHED
    core.handle_timer(9.0)
    assert core.state is SessionState.CONNECTING
    assert list(core.events) == [Lost("silent")]
    assert core.in_words("silent") == "the adapter has not answered for 6 s"
    assert core.incarnation > first_life
    assert unpack(core.outbox[-1]).kind == Kind.INIT
    check_client(core)


def test_a_refusal_with_my_token_starts_anew_at_once() -> None:
    from mercury.model.message import Attributes

    core = established()
    body = from_adapter(Kind.REFUSE, Attributes({"reason": "unknown-session"}))
    core.receive(pack(Kind.REFUSE, 5, b"x" * 16, 1, body), 1.0)
    assert core.state is SessionState.ESTABLISHED
    core.receive(pack(Kind.REFUSE, 5, TOKEN, 1, body), 1.0)
    assert core.state is SessionState.CONNECTING
    assert list(core.events) == [Lost("unknown-session")]
    assert core.in_words("unknown-session") == "the adapter does not know it any more"


def test_who_is_displaced_does_not_displace_again() -> None:
    from mercury.model.message import Attributes

    core = established()
    incarnation = core.incarnation
    body = from_adapter(Kind.REFUSE, Attributes({"reason": "displaced"}))
    core.receive(pack(Kind.REFUSE, 5, TOKEN, 1, body), 1.0)
    assert list(core.events) == [Lost("displaced")]
    now, waits = 1.0, []
    for _ in range(6):
        due = core.next_timer()
        assert due is not None
        waits.append(due - now)
        core.handle_timer(now := due)
    # The newer one keeps the session.
    assert {unpack(packet).sequence for packet in core.outbox} == {incarnation}
    assert all(0.8 * min(n, 4) <= wait <= 1.2 * min(n, 4) for n, wait in enumerate(waits, 1))
    acknowledge(core, now)
    assert core.state is SessionState.ESTABLISHED
    check_client(core)


def test_a_refused_init_is_told_and_tried_again() -> None:
    from mercury.model.message import Attributes

    core = client()
    core.start(0.0)
    body = from_adapter(Kind.REFUSE, Attributes({"reason": "sessions-full"}))
    core.receive(pack(Kind.REFUSE, 5, NO_TOKEN, core.incarnation, body), 0.1)
    assert list(core.events) == [Refused("sessions-full")]
    assert core.next_timer() is not None
    check_client(core)


def test_messages_are_delivered_once_and_only_with_my_token() -> None:
    core = established()
    body = from_adapter(Kind.ALERT, Event("emergency"))
    core.receive(pack(Kind.ALERT, 9, TOKEN, 1, body), 0.1)
    core.receive(pack(Kind.ALERT, 9, TOKEN, 1, body), 0.2)
    core.receive(pack(Kind.ALERT, 9, b"x" * 16, 2, body), 0.3)
    assert [type(event) for event in core.events] == [Delivered]
    assert core.dropped == {"replayed": 1, "unknown-session": 1}


def test_nothing_is_sent_without_a_session() -> None:
    core = client()
    core.start(0.0)
    with pytest.raises(NotConnectedError):
        core.send_body(Kind.EVENT, 4, b"")


def test_close_says_goodbye_and_stops() -> None:
    core = established()
    core.close(1.0)
    assert [unpack(packet).kind for packet in core.outbox] == [Kind.CLOSE]
    assert core.next_timer() is None
    acknowledge(core, 2.0, token=b"y" * 16)
    assert core.state is SessionState.CLOSED
    check_client(core)


def test_a_client_never_reports_more_rarely_than_the_adapter_expects() -> None:
    core = client(SessionSettings(report_interval_s=60.0))
    core.start(0.0)
    acknowledge(core, 0.0)
    due = core.next_timer()
    assert due is not None
    assert due <= 1.0
