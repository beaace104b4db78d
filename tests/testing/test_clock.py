from __future__ import annotations

import pytest

from mercury.testing import SteppableClock


def test_stands_still_until_told() -> None:
    clock = SteppableClock(100.0)
    assert clock() == clock() == clock.now == 100.0
    assert SteppableClock()() == 0.0


def test_a_steppable_clock_moves_only_when_advanced() -> None:
    clock = SteppableClock(100.0)
    assert clock.advance(2.5) == 102.5
    assert clock() == 102.5
    assert clock.advance_to(200.0) == 200.0
    assert clock() == clock.now == 200.0
    clock.advance(0)
    clock.advance_to(200.0)
    assert clock() == 200.0
    assert repr(clock) == "SteppableClock(200.0)"


def test_does_not_go_back() -> None:
    clock = SteppableClock(100.0)
    with pytest.raises(ValueError, match=r"does not go back from 100\.0 to 99\.0"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance_to(99.9)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance_to(float("nan"))
    assert clock() == 100.0
