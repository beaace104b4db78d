"""How a session behaves; the same settings serve both sides."""

from __future__ import annotations

from dataclasses import dataclass


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
