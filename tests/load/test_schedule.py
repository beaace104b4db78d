"""Who is due when, to the update."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mercury.load.workload import Schedule


def expected(phases_s: list[float], rate_hz: float, until_s: float) -> list[tuple[int, float]]:
    """Entity by entity."""
    due = []
    for entity, phase_s in enumerate(phases_s):
        k = 0
        while phase_s + k / rate_hz < until_s:
            due.append((phase_s + k / rate_hz, entity))
            k += 1
    return [(entity, time_s) for time_s, entity in sorted(due)]


@example([0, 1, 40], 4.0, [1.6], 1)  # one is due at 1.6 s, and so not before it
@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=8, unique=True),
    st.sampled_from([0.5, 1.0, 4.0]),
    st.lists(st.floats(0.0, 5.0), min_size=1, max_size=12),
    st.integers(1, 5),
)
def test_each_update_is_handed_out_once_and_in_order(
    hundredths: list[int], rate_hz: float, times_s: list[float], limit: int
) -> None:
    phases_s = np.sort(np.array(hundredths) / 100.0) / rate_hz
    schedule = Schedule(phases_s, rate_hz)
    got: list[tuple[int, float]] = []
    for until_s in sorted(times_s):
        while len(due := schedule.take(until_s, limit)):
            assert len(due) <= limit
            got += zip(due.entities.tolist(), due.times_s.tolist(), strict=True)
        assert schedule.offered == len(got) == schedule.due_by(until_s)
        assert all(time_s < until_s for _, time_s in got)
    wanted = expected(phases_s.tolist(), rate_hz, max(times_s))
    # At the very moment, rounding decides.
    assert abs(len(got) - len(wanted)) <= 1
    for (entity, time_s), (wanted_entity, wanted_s) in zip(got, wanted, strict=False):
        assert entity == wanted_entity
        assert time_s == pytest.approx(wanted_s, abs=1e-9)


def test_what_was_not_asked_for_in_time_is_still_due() -> None:
    schedule = Schedule(np.linspace(0.0, 0.99, 100), 1.0)
    assert len(schedule.take(0.5, 10_000)) == 50
    late = schedule.take(30.0, 10_000)  # nobody asked for half a minute
    assert len(late) == 3_000 - 50
    assert late.times_s[0] < 0.6
    assert np.all(np.diff(late.times_s) >= 0.0)
