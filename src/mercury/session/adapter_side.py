"""The adapter's side of sessions (Mercury §4.5): packets and time in, events and packets out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mercury.model.errors import PacketError
from mercury.model.message import Address, Attributes, Grant, Kind, Payload, Priority
from mercury.session.both_sides import SessionSettings, session_body
from mercury.session.cookies import Cookies
from mercury.session.table import Session, SessionTable
from mercury.wire import mercury_pb2 as pb
from mercury.wire.codec import parse
from mercury.wire.packet import (
    CARRIES_RECEIPTS,
    FLAGS_AT,
    HEADER_BYTES,
    NO_TOKEN,
    pack,
    read_header,
    wants_receipt,
)
from mercury.wire.records import MAX_HEADING_DEG, MAX_SPEED_MPS, fix_header, on_earth, within

MAX_IDENTITY_BYTES = 128
MAX_PRUNED = 1000  # sessions per call: each has much state to remove

# What a client may send within a session; only adapters send alerts and replies.
_FROM_CLIENTS = frozenset(
    {Kind.EVENT, Kind.REQUEST, Kind.CONTENT, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, Kind.GROUPS}
)
_EVERYONE = Address.everyone()
_INIT, _REPORT, _CLOSE = int(Kind.INIT), int(Kind.REPORT), int(Kind.CLOSE)
_RECEIPT = int(Kind.RECEIPT)
# A packet of an unknown session is refused, so that its client may start anew; up to this rate.
_MAX_REFUSALS_PER_S = 1000.0
_MAX_CHALLENGES_PER_S = 10_000.0


@dataclass(slots=True)
class Opened:
    """A client opened a session; its INIT carries the first report."""

    session: Session
    envelope: pb.Envelope
    body: bytes
    replaced: Session | None = None  # the session of its earlier incarnation, which this one ends


@dataclass(slots=True)
class Reported:
    """A client sent a report; its columns in the table are up to date."""

    session: Session
    envelope: pb.Envelope
    body: bytes


@dataclass(slots=True)
class Received:
    """A client sent a message for the system, not about the session."""

    session: Session
    envelope: pb.Envelope
    body: bytes
    wants_receipt: bool = False


@dataclass(slots=True)
class Closed:
    """A session ended."""

    session: Session
    reason: str  # "closed" or "silent"


@dataclass(slots=True)
class Answered:
    """A client acknowledged or refused messages."""

    session: Session
    received: tuple[bytes, ...]
    refused: tuple[tuple[bytes, str], ...]  # ids and reasons
    sent: int = 0  # receipts that the client has sent so far
    resent: int = 0  # of which for copies that it had already


SessionEvent = Opened | Reported | Received | Closed


class Allowance:
    """How often something may be done, up to a second's worth at once."""

    def __init__(self, per_s: float) -> None:
        self._per_s = self._left = per_s
        self._time = 0.0

    def take(self, now: float) -> bool:
        """Do it once more; False if it was done too often."""
        elapsed = max(0.0, now - self._time)
        self._time = now
        self._left = min(self._per_s, self._left + elapsed * self._per_s)
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class AdapterSessions:
    """Processes the packets of all clients.

    `outbox` collects packets to send as (packet, address), `answers` the clients'
    acknowledgements and refusals; `dropped` counts what was not accepted, by reason.
    """

    def __init__(
        self,
        adapter: str,
        settings: SessionSettings,
        new_token: Callable[[], bytes],
        *,
        epoch_us: int = 0,
    ) -> None:
        self.settings = settings
        self.table = SessionTable()
        self.outbox: list[tuple[bytes, bytes]] = []
        self.answers: list[Answered] = []
        self.dropped: Counter[str] = Counter()
        self.address_changes = 0
        self.challenges = 0
        self._adapter = Address.adapter(adapter)
        self._new_token = new_token
        self._flood_rate = settings.flood_rate_per_s
        self._flood_burst = settings.flood_burst
        self._epoch_us = epoch_us  # wall clock at now = 0, for time stamps
        self._cookies = Cookies(new_token())
        self._refusals = Allowance(_MAX_REFUSALS_PER_S)
        self._challenges = Allowance(_MAX_CHALLENGES_PER_S)

    def receive(self, data: bytes, address: bytes, now: float) -> SessionEvent | None:
        """Take one packet; never raises, whatever it holds."""
        try:
            kind, _priority, token, sequence = read_header(data)
            if kind == _INIT:
                # Before anything is read or kept: does it come from where it says?
                if token == NO_TOKEN or not self._cookies.is_good(token, address, now):
                    self._challenge(sequence, address, now)
                    return None
                return self._init(data, address, sequence, now)
            session = self.table.by_token.get(token)
            if session is None:
                # No reason is given: the answer must not be longer than the packet.
                raise self._refused(token, sequence, address, "unknown-session", b"", now)
            replay = session.replay
            newest = sequence > replay.highest
            if not replay.accept(sequence):
                raise PacketError("replayed")
            # A bucket of tokens, refilled with time.
            level = session.flood_level + (now - session.flood_time) * self._flood_rate
            session.flood_time = now
            if level < 1.0:
                session.flood_level = level
                raise PacketError("flood")
            session.flood_level = (level if level < self._flood_burst else self._flood_burst) - 1.0
            body = data[HEADER_BYTES:]
            envelope = parse(body, kind)
            if envelope.source.client != session.identity:
                raise PacketError("forged-source")
            if len(envelope.id) != 16:
                raise PacketError("malformed")
        except PacketError as error:
            self.dropped[error.reason] += 1
            return None

        if newest and address != session.address:
            # Only the newest packet changes the address: a late one has an earlier one.
            self.table.set_address(session, address)
            self.address_changes += 1
        session.last_message = now
        if data[FLAGS_AT] & CARRIES_RECEIPTS:
            body = self._take_answers(session, envelope)
        if kind == _REPORT:
            if not self._apply_telemetry(session, envelope, now):
                self.dropped["bad-coordinates"] += 1
                return None
            return Reported(session, envelope, body)
        if kind in _FROM_CLIENTS:
            return Received(session, envelope, body, wants_receipt(data))
        if kind == _RECEIPT:
            return None
        if kind == _CLOSE:
            self.table.remove(session)
            return Closed(session, "closed")
        self.dropped["not-allowed"] += 1
        return None

    def _take_answers(self, session: Session, envelope: pb.Envelope) -> bytes:
        """Take piggybacked receipts off their packet; returns the rest of it."""
        refused = tuple((one.id, one.reason) for one in envelope.refused)
        sent, resent = envelope.receipts_sent, envelope.receipts_resent
        self.answers.append(Answered(session, tuple(envelope.received), refused, sent, resent))
        for field in ("received", "refused", "receipts_sent", "receipts_resent"):
            envelope.ClearField(field)
        return envelope.SerializeToString()

    def handle_timer(self, now: float) -> list[Closed]:
        """Prune silent sessions (Mercury §4.5: three report intervals without a report).

        When a whole network falls silent, at most `MAX_PRUNED` are pruned per call.
        """
        settings = self.settings
        deadline = now - settings.missed_reports * settings.report_interval_s
        closed = []
        silent = self.table.active & (self.table.last_report < deadline)
        for slot in np.flatnonzero(silent)[:MAX_PRUNED]:
            session = self.table.at(int(slot))
            assert session is not None
            self.table.remove(session)
            closed.append(Closed(session, "silent"))
        return closed

    def heartbeats_due(self, now: float) -> NDArray[np.intp]:
        """Slots of the sessions that were sent nothing for a heartbeat interval."""
        table = self.table
        quiet = table.last_sent <= now - self.settings.heartbeat_interval_s
        return np.flatnonzero(table.active & quiet)

    def heartbeat_body(self, now: float) -> bytes:
        return self._body(Kind.HEARTBEAT, now)

    def refusal_body(self, reason: str, now: float) -> bytes:
        return self._body(Kind.REFUSE, now, Attributes({"reason": reason}))

    def receipt_body(
        self, received: Sequence[bytes], refused: Sequence[tuple[bytes, str]], now: float
    ) -> bytes:
        rows = pb.Envelope(
            received=received,
            refused=[pb.Refusal(id=id, reason=reason) for id, reason in refused],
        )
        return self._body(Kind.RECEIPT, now) + rows.SerializeToString()

    def packet(self, session: Session, kind: int, priority: int, body: bytes, now: float) -> bytes:
        """Return the packet that takes a body to one client."""
        table, slot = self.table, session.slot
        sequence = int(table.sequence[slot]) + 1
        table.sequence[slot] = sequence
        table.last_sent[slot] = now
        return pack(kind, priority, session.token, sequence, body)

    def _init(
        self, data: bytes, address: bytes, incarnation: int, now: float
    ) -> SessionEvent | None:
        envelope = parse(data[HEADER_BYTES:])
        identity = envelope.source.client
        if envelope.kind != _INIT or not 0 < len(identity.encode()) <= MAX_IDENTITY_BYTES:
            raise PacketError("bad-identity")
        table = self.table
        session = table.by_identity.get(identity)
        if session is not None:
            if incarnation < session.incarnation:  # a late packet, or another client
                raise self._init_refused("stale-init", incarnation, address, now)
            if incarnation == session.incarnation:
                # The ACKNOWLEDGE was lost or is under way: the same answer again.
                self.dropped["repeated-init"] += 1
                self._grant(session, address, now)
                return None
        elif len(table) >= self.settings.max_sessions:
            raise self._init_refused("sessions-full", incarnation, address, now)
        has_telemetry = envelope.WhichOneof("payload") == "telemetry"
        if self.settings.require_telemetry and not has_telemetry:
            raise self._init_refused("no-telemetry", incarnation, address, now)
        if has_telemetry and not on_earth(envelope.telemetry.lat, envelope.telemetry.lon):
            raise self._init_refused("bad-coordinates", incarnation, address, now)
        if session is not None:
            if address != session.address:  # there may be another client there now
                body = self.refusal_body("displaced", now)
                packet = self.packet(session, Kind.REFUSE, Priority.REPLY, body, now)
                self.outbox.append((packet, session.address))
            table.remove(session)
        opened = table.add(identity, self._new_token(), incarnation, address, now)
        if has_telemetry:
            self._apply_telemetry(opened, envelope, now)
        self._grant(opened, address, now)
        return Opened(opened, envelope, data[HEADER_BYTES:], replaced=session)

    def _grant(self, session: Session, address: bytes, now: float) -> None:
        settings = self.settings
        grant = Grant(
            token=session.token,
            incarnation=session.incarnation,
            heartbeat_interval_s=settings.heartbeat_interval_s,
            report_interval_s=settings.report_interval_s,
            adapter=self._adapter.name,
        )
        body = self._body(Kind.ACKNOWLEDGE, now, grant, Address.client(session.identity))
        # Sequence 0: an ACKNOWLEDGE opens the session, the replay window begins behind it.
        packet = pack(Kind.ACKNOWLEDGE, Priority.REPLY, session.token, 0, body)
        self.outbox.append((packet, address))

    def _challenge(self, incarnation: int, address: bytes, now: float) -> None:
        """Ask for the INIT again, with a token that only who is at the address can know."""
        if not self._challenges.take(now):
            self.dropped["init-flood"] += 1
            return
        self.challenges += 1
        cookie = self._cookies.make(address, now)
        packet = pack(Kind.CHALLENGE, Priority.REPLY, cookie, incarnation, b"")
        self.outbox.append((packet, address))

    def _init_refused(
        self, reason: str, incarnation: int, address: bytes, now: float
    ) -> PacketError:
        body = self.refusal_body(reason, now)
        return self._refused(NO_TOKEN, incarnation, address, reason, body, now)

    def _refused(
        self, token: bytes, sequence: int, address: bytes, reason: str, body: bytes, now: float
    ) -> PacketError:
        """Tell a client that it is refused, up to a rate; returns what to raise."""
        if self._refusals.take(now):
            # The token and sequence come back, so that only who saw the packet can forge this.
            self.outbox.append((pack(Kind.REFUSE, Priority.REPLY, token, sequence, body), address))
        return PacketError(reason)

    def _body(
        self, kind: Kind, now: float, payload: Payload = None, to: Address = _EVERYONE
    ) -> bytes:
        return session_body(kind, self._adapter, to, payload, self._epoch_us + int(now * 1e6))

    def _apply_telemetry(self, session: Session, envelope: pb.Envelope, now: float) -> bool:
        if not envelope.HasField("telemetry"):
            # A relay's clients have no position of their own; their reports just say "alive".
            if self.settings.require_telemetry:
                return False
            self.table.last_report[session.slot] = now
            return True
        telemetry = envelope.telemetry
        lat, lon = telemetry.lat, telemetry.lon
        if not on_earth(lat, lon):
            return False
        heading = speed = math.nan
        if telemetry.HasField("heading_deg"):
            heading = within(telemetry.heading_deg, MAX_HEADING_DEG)
        if telemetry.HasField("speed_mps"):
            speed = within(telemetry.speed_mps, MAX_SPEED_MPS)
        table, slot = self.table, session.slot
        session.fix = (lat, lon, heading, speed)
        session.fix_header = fix_header(lat, lon, heading, speed)
        table.lat[slot] = lat
        table.lon[slot] = lon
        table.heading[slot] = heading
        table.speed[slot] = speed
        table.moved[slot] = True
        table.last_report[slot] = now
        return True
