"""What both sides of a session share: its settings, its messages, and the window of replays."""

from __future__ import annotations

from dataclasses import dataclass

from mercury.model.identity import new_uuid
from mercury.model.message import Address, Kind, Message, Payload
from mercury.wire.codec import encode

WINDOW = 256
_MASK = (1 << WINDOW) - 1


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Intervals and bounds of a session (Mercury §4.5, §4.6)."""

    report_interval_s: float = 1.0
    heartbeat_interval_s: float = 5.0
    missed_reports: int = 3  # report intervals without a report until the adapter prunes
    missed_heartbeats: int = 3  # heartbeat intervals of silence until the client starts anew
    init_retry_s: float = 0.5  # the wait grows by this with every try
    init_retry_max_s: float = 10.0
    jitter: float = 0.2  # share by which waits are spread, so that clients do not synchronise
    max_sessions: int = 200_000
    flood_rate_per_s: float = 1000.0  # messages a client may send for long
    flood_burst: float = 2000.0  # and at once
    require_telemetry: bool = True  # a relay for local applications does not


@dataclass(slots=True, eq=False)
class ReplayWindow:
    """Remembers which of the last sequence numbers have been seen (RFC 4303 §3.4.3)."""

    highest: int = 0  # the greatest sequence number seen
    seen: int = 1  # bit i stands for `highest - i`

    def accept(self, sequence: int) -> bool:
        """Record a sequence number; False if it was seen before or is too old."""
        ahead = sequence - self.highest
        if ahead == 1:  # nearly always
            self.highest = sequence
            self.seen = ((self.seen << 1) | 1) & _MASK
            return True
        if ahead > 0:
            self.highest = sequence
            self.seen = ((self.seen << min(ahead, WINDOW)) | 1) & _MASK
            return True
        if ahead <= -WINDOW:
            return False
        bit = 1 << -ahead
        if self.seen & bit:
            return False
        self.seen |= bit
        return True


def session_body(
    kind: Kind, source: Address, destination: Address, payload: Payload, now_us: int
) -> bytes:
    """The Envelope of a message about the session itself."""
    return encode(
        Message(
            kind=kind,
            source=source,
            destination=destination,
            payload=payload,
            id=new_uuid(now_us),
            sent_us=now_us,
        )
    )
