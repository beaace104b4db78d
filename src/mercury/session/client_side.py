"""The client's side of a session (Mercury §4.6): packets and time in, events and packets out."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from mercury.model.declarations import Matches
from mercury.model.errors import NotConnectedError, PacketError
from mercury.model.message import Address, Attributes, Grant, Kind, Message, Priority, Telemetry
from mercury.session.both_sides import ReplayWindow, SessionSettings, session_body
from mercury.wire import mercury_pb2
from mercury.wire.codec import decode, encode, parse
from mercury.wire.packet import (
    CARRIES_RECEIPTS,
    HEADER_BYTES,
    NO_TOKEN,
    pack,
    read_header,
    wants_receipt,
)

# A client that reconnects lists the alerts it saw last: the others are sent again.
SEEN_ALERTS = 64

_WHY_IN_WORDS = {
    "silent": "the adapter has not answered for {:g} s",
    "unknown-session": "the adapter does not know it any more",
    "adapter-stops": "the adapter stops",
    "displaced": "another client is connected under this name",
    "stale-init": "another client is connected under this name",
}

_MAX_CHALLENGES = 3  # that are answered between two tries by the clock
_FROM_ADAPTER = frozenset({Kind.ALERT, Kind.REPLY, Kind.CONTENT, Kind.RECEIPT})
_ANY_ADAPTER = Address.adapter("any")


class SessionState(StrEnum):
    """The state of a client's session."""

    IDLE = "idle"
    CONNECTING = "connecting"
    ESTABLISHED = "established"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Established:
    """The adapter granted a session."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class Lost:
    """The session ended; a new one is being opened."""

    reason: str  # "silent", or what the adapter said


@dataclass(frozen=True, slots=True)
class Refused:
    """The adapter refused a session; the client retries."""

    reason: str


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message came for the application."""

    message: Message
    body: bytes
    wants_receipt: bool = False


@dataclass(frozen=True, slots=True)
class AdapterAnswered:
    """The adapter acknowledged or refused messages."""

    received: tuple[bytes, ...]
    refused: tuple[tuple[bytes, str], ...]  # ids and reasons


ClientEvent = Established | Lost | Refused | Delivered | AdapterAnswered


class ClientSession:
    """Opens a session, keeps it alive and opens it again when it is lost.

    `outbox` collects packets for the adapter, `events` what happened, and `dropped` counts what
    was not accepted, by reason.
    """

    def __init__(
        self,
        identity: str,
        settings: SessionSettings,
        rng: random.Random,
        *,
        telemetry: Telemetry | None = None,
        epoch_us: int = 0,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.telemetry = telemetry  # of the next report
        self.state = SessionState.IDLE
        self.outbox: list[bytes] = []
        self.events: deque[ClientEvent] = deque()
        self.dropped: Counter[str] = Counter()
        self.token = NO_TOKEN
        self.incarnation = 0  # grows with every session that is sought
        self.sessions_opened = 0
        self._address = Address.client(identity)
        self._rng = rng
        self._epoch_us = epoch_us  # wall clock at now = 0, for time stamps
        self._attempts = 0  # INITs sent in a row without an answer
        self._cookie = NO_TOKEN  # what the adapter wants to see in an INIT
        self._challenges = 0  # since the last INIT that was sent by the clock
        self._sequence = 0
        self._replay = ReplayWindow()
        self._silence_s = settings.missed_heartbeats * settings.heartbeat_interval_s
        self._report_interval_s = settings.report_interval_s
        self._next_init: float | None = None
        self._next_report: float | None = None
        self._silent_at: float | None = None  # when the adapter counts as lost
        self.heard_at = 0.0  # when the adapter was last heard in a session
        self._seen: deque[bytes] = deque(maxlen=SEEN_ALERTS)
        self.groups: set[str] = set()  # those the client is in
        # Returns the receipts that wait to be piggybacked, encoded.
        self.piggybacked: Callable[[], bytes] | None = None

    def start(self, now: float) -> None:
        if self.state is SessionState.IDLE:
            self._connect(now)

    def receive(self, data: bytes, now: float) -> None:
        """Take one packet; never raises, whatever it holds."""
        try:
            kind, _priority, token, sequence = read_header(data)
            if kind == Kind.ACKNOWLEDGE:
                self._acknowledged(decode(data[HEADER_BYTES:]), token, now)
                return
            if kind == Kind.REFUSE:
                self._refused(data[HEADER_BYTES:], token, sequence, now)
                return
            if kind == Kind.CHALLENGE:
                self._challenged(token, sequence, now)
                return
            if self.state is not SessionState.ESTABLISHED or token != self.token:
                raise PacketError("unknown-session")
            if not self._replay.accept(sequence):
                raise PacketError("replayed")
            self._heard(now)
            if kind == Kind.HEARTBEAT:
                return
            body = data[HEADER_BYTES:]
            if kind == Kind.RECEIPT:
                envelope = parse(body, kind)
                if not envelope.HasField("deliveries"):  # not receipts of other clients
                    refused = tuple((one.id, one.reason) for one in envelope.refused)
                    self.events.append(AdapterAnswered(tuple(envelope.received), refused))
                    return
            if kind not in _FROM_ADAPTER:
                raise PacketError("not-allowed")
            message = decode(body)
            if message.kind != kind:
                raise PacketError("malformed")
        except PacketError as error:
            self.dropped[error.reason] += 1
            return
        # In a new session matches are sent anew, and subscriptions say what content they heard.
        is_alert = kind == Kind.ALERT or not (
            isinstance(message.payload, Matches) or message.is_for_subscribers
        )
        if is_alert and (kind == Kind.ALERT or wants_receipt(data)):
            self.remember_seen(message.id.bytes)
        self.events.append(Delivered(message, body, wants_receipt(data)))

    def remember_seen(self, id: bytes) -> None:
        """List this message as seen when the next session opens."""
        self._seen.append(id)

    def forget_seen(self, id: bytes) -> None:
        """Do not list a copy that does not concern the client yet."""
        with suppress(ValueError):
            self._seen.remove(id)

    def send(self, message: Message) -> None:
        """Send a message to the adapter; raises NotConnectedError without a session."""
        self.send_body(message.kind, message.priority, encode(message))

    def send_body(self, kind: int, priority: int, body: bytes, flags: int = 0) -> None:
        """Send an encoded Envelope to the adapter."""
        if self.state is not SessionState.ESTABLISHED:
            raise NotConnectedError(f"{self.identity} has no session now")
        self._sequence += 1
        self.outbox.append(pack(kind, priority, self.token, self._sequence, body, flags))

    def send_receipts(self, receipts: bytes, now: float) -> None:
        """Acknowledge what arrived, in a packet of its own."""
        # Two encoded Envelopes in a row are one.
        body = self._body(Kind.RECEIPT, None, now) + receipts
        self.send_body(Kind.RECEIPT, Priority.REPLY, body, CARRIES_RECEIPTS)

    def report(self, now: float) -> None:
        """Send a report at once; the next one by itself is due an interval later."""
        body = self._body(Kind.REPORT, self.telemetry, now)
        receipts = b"" if self.piggybacked is None else self.piggybacked()
        flags = CARRIES_RECEIPTS if receipts else 0
        self.send_body(Kind.REPORT, Priority.NORMAL, body + receipts, flags)
        self._next_report = now + self._report_interval_s

    def close(self, now: float) -> None:
        if self.state is SessionState.ESTABLISHED:
            self.send_body(Kind.CLOSE, Priority.NORMAL, self._body(Kind.CLOSE, None, now))
        self.state = SessionState.CLOSED
        self._next_init = self._next_report = self._silent_at = None

    def in_words(self, reason: str) -> str:
        """The sentence on why the session was lost or refused."""
        return _WHY_IN_WORDS[reason].format(self._silence_s) if reason in _WHY_IN_WORDS else reason

    def next_timer(self) -> float | None:
        """When to call `handle_timer` next."""
        times = (self._next_init, self._next_report, self._silent_at)
        return min((at for at in times if at is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Do what is due: retry INIT, report, end the session with a silent adapter."""
        if self._next_init is not None and now >= self._next_init:
            self._send_init(now)
        if self._silent_at is not None and now >= self._silent_at:
            self.events.append(Lost("silent"))
            self._connect(now)
        if self._next_report is not None and now >= self._next_report:
            self.report(now)

    def _connect(self, now: float, *, anew: bool = True) -> None:
        self.state = SessionState.CONNECTING
        self.token = NO_TOKEN
        if anew:  # otherwise the newer client that has this identity keeps it until it leaves
            self.incarnation = max(self.incarnation + 1, self._epoch_us + int(now * 1e6))
        self._attempts = 0
        self._next_report = self._silent_at = None
        self._send_init(now)

    def _send_init(self, now: float) -> None:
        self._attempts += 1
        self._challenges = 0
        self._put_init(now)
        # Mercury §4.6: linear back-off with jitter, so that clients do not come back in step.
        settings = self.settings
        wait_s = min(self._attempts * settings.init_retry_s, settings.init_retry_max_s)
        self._next_init = now + wait_s * (1.0 + settings.jitter * self._rng.uniform(-1.0, 1.0))

    def _put_init(self, now: float) -> None:
        rows = mercury_pb2.Envelope(seen=self._seen, groups=sorted(self.groups))
        # Two encoded Envelopes in a row are one.
        body = self._body(Kind.INIT, self.telemetry, now) + rows.SerializeToString()
        self.outbox.append(pack(Kind.INIT, Priority.NORMAL, self._cookie, self.incarnation, body))

    def _challenged(self, cookie: bytes, incarnation: int, now: float) -> None:
        """Send the INIT again, with the token that the adapter wants to see."""
        if self.state is not SessionState.CONNECTING or incarnation != self.incarnation:
            raise PacketError("unknown-session")
        # It is sent more than once if the adapter restarts, or if somebody forges challenges.
        if cookie in (self._cookie, NO_TOKEN) or self._challenges == _MAX_CHALLENGES:
            raise PacketError("repeated-challenge")
        self._challenges += 1
        self._cookie = cookie
        self._put_init(now)

    def _acknowledged(self, message: Message, token: bytes, now: float) -> None:
        grant = message.payload
        if not isinstance(grant, Grant) or grant.token != token or token == NO_TOKEN:
            raise PacketError("malformed")
        if not (grant.heartbeat_interval_s > 0 and grant.report_interval_s > 0):
            raise PacketError("malformed")
        if self.state is not SessionState.CONNECTING or grant.incarnation != self.incarnation:
            raise PacketError("repeated-acknowledge")
        self.state = SessionState.ESTABLISHED
        self.token = token
        self.sessions_opened += 1
        self._sequence = 0
        self._replay = ReplayWindow()
        self._next_init = None
        self._silence_s = self.settings.missed_heartbeats * grant.heartbeat_interval_s
        # Reporting more rarely than the adapter expects would end the session.
        self._report_interval_s = min(self.settings.report_interval_s, grant.report_interval_s)
        # Mercury §4.6: the first report is spread over the interval, later ones keep that phase.
        self._next_report = now + self._report_interval_s * self._rng.random()
        self._heard(now)
        self.events.append(Established(grant))

    def _refused(self, body: bytes, token: bytes, sequence: int, now: float) -> None:
        reason: object = "unknown-session"  # without a body, which would make the answer longer
        if body:
            payload = decode(body).payload
            reason = payload.values.get("reason") if isinstance(payload, Attributes) else None
        if not isinstance(reason, str):
            raise PacketError("malformed")
        if self.state is SessionState.ESTABLISHED and token == self.token:
            self.events.append(Lost(reason))
            self._connect(now, anew=reason != "displaced")
        elif self.state is SessionState.CONNECTING and sequence == self.incarnation:
            self.events.append(Refused(reason))
        else:
            raise PacketError("unknown-session")

    def _heard(self, now: float) -> None:
        self.heard_at = now
        self._silent_at = now + self._silence_s

    def _body(self, kind: Kind, payload: Telemetry | None, now: float) -> bytes:
        now_us = self._epoch_us + int(now * 1e6)
        return session_body(kind, self._address, _ANY_ADAPTER, payload, now_us)
