"""Whenever the process dies: a change is there whole or not at all, and no row twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from mercury.model.errors import PipelineError
from mercury.pipeline.history.files import HistoryFolder, Partition
from mercury.pipeline.history.journal import Offsets, locked

TILES = ("tile=a", "tile=b", "tile=c")
STEPS = ("rename", "replace", "unlink", "link", "fsync")


class Died(BaseException):
    """Stands for `kill -9`: nothing may clean up after it."""


@pytest.fixture
def dies_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the process die at its n-th change of the file system."""
    real = {name: getattr(os, name) for name in STEPS}

    def arm(left: int) -> None:
        def step(name: str) -> Callable[..., Any]:
            def do(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    raise Died
                if left < 0:
                    raise Died  # the dead do nothing more
                return real[name](*arguments, **options)

            return do

        for name in STEPS:
            monkeypatch.setattr(os, name, step(name) if left else real[name])

    return arm


def write(path: Path, numbers: range) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": list(numbers)}), path)


def staged(folder: HistoryFolder, first: int) -> Path:
    staging = folder.new_staging("batch")
    for at, tile in enumerate(TILES):
        begin = first + at * 10
        write(
            staging / "reports" / "day=2026-03-01" / tile / "part.parquet", range(begin, begin + 10)
        )
    return staging


def add(folder: HistoryFolder, staging: Path, label: str, offsets: Offsets) -> None:
    names = [str(path.relative_to(staging)) for path in staging.glob("*/*/*/*.parquet")]
    folder.add(staging, names, label, offsets)


def numbers(folder: HistoryFolder) -> list[int]:
    """What any Parquet tool sees in the whole folder."""
    found = ds.dataset(
        folder.path, format="parquet", partitioning="hive", exclude_invalid_files=False
    )
    return sorted(found.to_table(columns=["n"])["n"].to_pylist()) if found.files else []


def partitions(folder: HistoryFolder) -> list[Partition]:
    return list(folder.partitions("reports"))


def test_a_batch_is_there_whole_or_not_at_all(
    tmp_path: Path, dies_at: Callable[[int], None]
) -> None:
    outcomes = set()
    for step in range(1, 100):
        folder = HistoryFolder(tmp_path / str(step))
        add(folder, staged(folder, 0), "000-x", {"reports/0": (1, 10)})
        staging = staged(folder, 100)
        dies_at(step)
        try:
            add(folder, staging, "001-x", {"reports/0": (2, 20)})
            died = False
        except Died:
            died = True
        dies_at(0)
        assert set(numbers(folder)) <= {*range(30), *range(100, 130)}
        assert len(numbers(folder)) == len(set(numbers(folder)))
        again = HistoryFolder(folder.path)
        again.drop_staging("batch")
        whole = again.offsets() == {"reports/0": (2, 20)}
        assert numbers(again) == [*range(30), *(range(100, 130) if whole else ())]
        assert list((folder.path / "_staging").iterdir()) == []
        outcomes.add(whole)
        if not died:
            break
    assert not died
    assert outcomes == {True, False}


def test_merged_files_take_the_place_of_others(
    tmp_path: Path, dies_at: Callable[[int], None]
) -> None:
    outcomes = set()
    for step in range(1, 100):
        folder = HistoryFolder(tmp_path / str(step))
        for batch in range(3):
            add(folder, staged(folder, batch * 100), f"{batch:03}-x", {})
        before = partitions(folder)
        merging = [one._replace(files=one.files[:2]) for one in before[:2]]
        staging = folder.new_staging("compacted")
        for at, one in enumerate(merging):
            both = [*range(at * 10, at * 10 + 10), *range(100 + at * 10, 110 + at * 10)]
            target = staging / one.place / "part.parquet"
            target.parent.mkdir(parents=True)
            pq.write_table(pa.table({"n": both}), target)
        expected = numbers(folder)
        dies_at(step)
        try:
            assert folder.replace(staging, merging) == 2
            died = False
        except Died:
            died = True
        dies_at(0)
        assert len(numbers(folder)) == len(set(numbers(folder)))  # no row twice, also now
        again = HistoryFolder(folder.path)
        again.drop_staging("compacted")
        assert numbers(again) == expected
        sizes = [len(one.files) for one in partitions(again)]
        assert sizes in ([2, 2, 3], [3, 3, 3])
        outcomes.add(sizes[0])
        if not died:
            break
    assert not died
    assert outcomes == {2, 3}


def test_a_day_deleted_meanwhile_stays_deleted(tmp_path: Path) -> None:
    folder = HistoryFolder(tmp_path)
    add(folder, staged(folder, 0), "000-x", {})
    merging = partitions(folder)[:1]
    staging = folder.new_staging("compacted")
    write(staging / merging[0].place / "part.parquet", range(10))
    merging[0].files[0].unlink()
    assert folder.replace(staging, merging) == 0
    assert numbers(folder) == list(range(10, 30))


def test_files_that_come_while_others_are_merged_stay(tmp_path: Path) -> None:
    folder = HistoryFolder(tmp_path)
    add(folder, staged(folder, 0), "000-x", {})
    merging = partitions(folder)[:1]
    staging = folder.new_staging("compacted")
    write(staging / merging[0].place / "part.parquet", range(10))
    add(folder, staged(folder, 100), "001-x", {})
    assert folder.replace(staging, merging) == 1
    assert numbers(folder) == [*range(30), *range(100, 130)]


def test_offsets_of_other_topics_stay(tmp_path: Path) -> None:
    folder = HistoryFolder(tmp_path)
    add(folder, staged(folder, 0), "0-x", {"reports/0": (5, 50), "events.a/1": (7, 70)})
    add(folder, staged(folder, 100), "1-x", {"reports/0": (6, 60)})
    assert folder.offsets() == {"reports/0": (6, 60), "events.a/1": (7, 70)}


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    with (
        locked(tmp_path, "history", refusal="taken"),
        pytest.raises(PipelineError, match="taken"),
        locked(tmp_path, "history", refusal="taken"),
    ):
        pass
    with locked(tmp_path, "history", refusal="taken"):
        pass
