"""What a broker says of messages whose times nobody checked."""

from __future__ import annotations

from mercury.broker.explanations import _utc


def test_a_time_is_told_in_utc() -> None:
    assert _utc(1_700_000_000_250_000) == "22:13:20.250 UTC"


def test_a_time_beyond_every_calendar_ends_no_broker() -> None:
    assert _utc(2**63).endswith(" UTC")
