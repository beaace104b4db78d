"""Rows for people: as wide as they are, so that what is piped can be used."""

from __future__ import annotations

import pytest

from mercury.cli.data.stored_tables import rounded, show

ID = "0198c0de-7e1a-7c3b-9a55-0123456789ab"


def test_nothing_is_cut_or_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = "Collision on the bridge,\nkeep to the right and drive slowly"
    rows = [
        {"time": "2026-03-01T08:00:00.123456+00:00", "id": ID, "count": 12345, "text": text},
        {"time": "2026-03-01T08:00:01.000000+00:00", "id": ID, "count": None, "text": None},
    ]
    show({}, rows, False, "none")
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["time", "id", "count", "text"]
    said = "Collision on the bridge, keep to the right and drive slowly"
    assert first == f"2026-03-01 08:00:00.123  {ID}  12,345  {said}"
    assert second == f"2026-03-01 08:00:01.000  {ID}"


def test_digits_that_were_measured() -> None:
    values = {"lat": 40.123456789, "speed_mps": 13.88888, "count": 3, "text": None}
    assert rounded(values) == {"lat": 40.1234568, "speed_mps": 13.89, "count": 3, "text": None}
