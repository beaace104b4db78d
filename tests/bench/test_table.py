"""Tables of benchmarks: whole in a pipe, with as many digits as mean something."""

from __future__ import annotations

import pytest

from mercury.cli.lab import bench


def test_a_table_in_a_pipe_is_neither_cut_nor_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    columns = [f"a_long_name_of_column_{number}" for number in range(8)]
    bench._table(columns, [dict.fromkeys(columns, 1234567.0), dict.fromkeys(columns, "critical")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == columns
    assert [line.split() for line in lines[1:]] == [["1,234,567"] * 8, ["critical"] * 8]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        ("kafka", "kafka"),
        (0, "0"),
        (80_000, "80,000"),
        (80_000.4, "80,000"),
        (0.22213, "0.2221"),
        (12.3456, "12.35"),
        (1.0, "1"),
        (0.999998, "0.999998"),
    ],
)
def test_numbers_have_sensible_digits(value: float | str | None, shown: str) -> None:
    assert bench._cell(value) == shown
