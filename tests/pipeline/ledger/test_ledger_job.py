"""The ledger over stored tables: held against brute force, each message once, and it adds up."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pipeline.ledger import ledger_world
from pipeline.whole_bus import store_batch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from mercury.cli.data import stored_tables
from mercury.cli.main import app
from mercury.model.errors import ConfigurationError, JobFailedError, PipelineError
from mercury.pipeline.history.compaction import compact
from mercury.pipeline.history.files import HistoryFolder
from mercury.pipeline.ledger import transforms
from mercury.pipeline.ledger.job import Entered, LedgerJob, newest_stored_us
from mercury.pipeline.ledger.reading import (
    stored_ledger,
    stored_message,
    stored_outcomes,
)

SEED = 7
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
STATES = ("acknowledged", "expired", "refused", "unreachable")


@pytest.fixture(scope="module")
def world() -> ledger_world.World:
    return ledger_world.random_world(SEED)


@pytest.fixture(scope="module")
def history(
    spark: SparkSession, world: ledger_world.World, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What was stored, without a ledger."""
    root = tmp_path_factory.mktemp("world")
    world.put_on(root / "bus.db")
    store_batch(spark, f"embedded:{root / 'bus.db'}", root / "history")
    return root / "history"


@pytest.fixture(scope="module")
def kept(spark: SparkSession, history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with one."""
    folder = tmp_path_factory.mktemp("kept") / "history"
    shutil.copytree(history, folder)
    # Small batches: a client's reports come in several.
    spark.conf.set(BATCH_ROWS, "50")
    try:
        entered = run(spark, folder, messages_at_once=150)
    finally:
        spark.conf.unset(BATCH_ROWS)
    assert [one.messages for one in entered] == [150, 90]
    return folder


def run(spark: SparkSession, folder: Path, until_us: int = 0, **options: Any) -> list[Entered]:
    """Enter all that is over."""
    job = LedgerJob(folder, **options)
    job.start()
    done = []
    try:
        while True:
            one = job.run(spark, until_us or ledger_world.LONG_AFTER_US)
            if not one.messages:
                return done
            done.append(one)
    finally:
        job.stop()


def rows(folder: Path, table: str = "ledger") -> list[dict[str, Any]]:
    if not (folder / table).exists():
        return []
    found = ds.dataset(folder / table, format="parquet", partitioning="hive").to_table()
    listed: list[dict[str, Any]] = found.drop_columns(["day", "tile"]).to_pylist()
    return sorted(listed, key=lambda row: (row["message"], row.get("client", "")))


def test_it_is_what_brute_force_says(world: ledger_world.World, kept: Path) -> None:
    print(f"seed {SEED}")
    expected = sorted(
        ledger_world.brute_force(world), key=lambda row: (row["message"], row["client"])
    )
    found = rows(kept)
    assert [(row["message"], row["client"]) for row in found] == [
        (row["message"], row["client"]) for row in expected
    ]
    for row, twin in zip(found, expected, strict=True):
        assert row == twin | {"late_s": pytest.approx(twin["late_s"])}
    # The dice gave all that matters.
    reasons = Counter(row["reason"] for row in found)
    for reason in ("never-addressed", "away", "not-acknowledged", "not-sent"):
        assert reasons[reason], reason
    assert {row["state"] for row in found} == set(STATES)
    assert sum(row["inside_us"] is not None for row in found) > 100


def test_the_sums_of_all_messages(world: ledger_world.World, kept: Path) -> None:
    sums = rows(kept, "outcomes")
    ids = {str(message.id) for _, message in world.messages}
    assert [one["message"] for one in sums] == sorted(ids)  # also those that were for nobody
    assert any(one["recipients"] == 0 for one in sums)
    by_message = Counter((row["message"], row["state"]) for row in rows(kept))
    for one in sums:
        assert {state: one[state] for state in STATES} == {
            state: by_message[one["message"], state] for state in STATES
        }
        assert sum(one[state] for state in STATES) == one["recipients"]
    assert sum(one["tries"] for one in sums) == sum(row["tries"] for row in rows(kept))
    answered = [one for one in sums if one["acknowledged"] == 1]
    late_s = {row["message"]: row["late_s"] for row in rows(kept) if row["late_s"] is not None}
    assert answered
    for one in answered:
        assert one["late_p50_s"] == one["late_p99_s"] == late_s[one["message"]]


def test_a_message_enters_once(spark: SparkSession, kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept, tmp_path / "h")
    folder = HistoryFolder(tmp_path / "h")
    before, sums = rows(folder.path), rows(folder.path, "outcomes")
    assert run(spark, folder.path) == []
    compact(spark, folder)
    (folder.path / "_offsets.json").unlink()  # not even how far it got is known
    assert run(spark, folder.path) == []
    assert rows(folder.path) == before
    assert rows(folder.path, "outcomes") == sums


@pytest.mark.parametrize("step", [1, 3])
def test_a_crash_at_any_step_counts_nothing_twice(
    spark: SparkSession,
    history: Path,
    kept: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:
    class Died(BaseException):
        """Stands for `kill -9`: nothing may clean up after it."""

    shutil.copytree(history, tmp_path / "h")
    job = LedgerJob(tmp_path / "h")
    job.start()
    left, rename, replace = step, os.rename, os.replace

    def dies(real: Any) -> Any:
        def do(*arguments: Any) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise Died
            real(*arguments)

        return do

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", dies(rename))  # of a file to its place
        patched.setattr(os, "replace", dies(replace))  # of the journal, which makes it count
        with pytest.raises(Died):
            job.run(spark, ledger_world.LONG_AFTER_US)
    job.stop()
    run(spark, tmp_path / "h")
    assert rows(tmp_path / "h") == rows(kept)
    assert rows(tmp_path / "h", "outcomes") == rows(kept, "outcomes")
    assert list((tmp_path / "h" / "_staging").iterdir()) == []


def test_it_fails_loudly_if_it_does_not_add_up(
    spark: SparkSession, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(history, tmp_path / "h")
    real = transforms.ledger
    hit = {row["message"] for row in ledger_world.brute_force(ledger_world.random_world(SEED))
           if row["client"] == "car-3"}  # fmt: skip

    def loses(*arguments: Any) -> DataFrame:
        return real(*arguments).where(F.col("client") != "car-3")

    def doubles(*arguments: Any) -> DataFrame:
        whole = real(*arguments)
        return whole.unionByName(whole.where(F.col("client") == "car-3"))

    for wrong in (loses, doubles):
        monkeypatch.setattr(transforms, "ledger", wrong)
        with pytest.raises(JobFailedError, match="does not add up") as caught:
            run(spark, tmp_path / "h", messages_at_once=1000)
        for message in hit:
            assert message in str(caught.value)
        assert rows(tmp_path / "h") == rows(tmp_path / "h", "outcomes") == []


def test_one_job_a_folder(history: Path, tmp_path: Path) -> None:
    shutil.copytree(history, tmp_path / "h")
    job = LedgerJob(tmp_path / "h")
    job.start()
    with pytest.raises(PipelineError, match="another job keeps the ledger"):
        LedgerJob(tmp_path / "h").start()
    job.stop()
    LedgerJob(tmp_path / "h").start()


def test_only_what_is_over_enters(
    spark: SparkSession, world: ledger_world.World, history: Path, kept: Path, tmp_path: Path
) -> None:
    shutil.copytree(history, tmp_path / "h")
    middle_us = ledger_world.BEGIN_US + 200 * ledger_world.SECOND_US
    (done,) = run(spark, tmp_path / "h", middle_us, messages_at_once=1000)
    sums = rows(tmp_path / "h", "outcomes")
    over_us = {one["message"]: max(one["ends_us"], one["time_us"]) + 10_000_000
               for one in rows(kept, "outcomes")}  # fmt: skip
    early = [one for one in sums if over_us[one["message"]] > middle_us]
    over = {message for message, time_us in over_us.items() if time_us <= middle_us}
    assert {one["message"] for one in sums if one not in early} == over
    # Before its end a message enters only when all who will ever be addressed have answered.
    assert early
    for one in early:
        assert one["recipients"] == one["acknowledged"] + one["refused"] + sum(
            row["reason"] == "never-addressed" for row in rows(tmp_path / "h")
            if row["message"] == one["message"]
        )  # fmt: skip
    assert done.waiting == 240 - len(sums)
    # The rest enters later, and all together is the same, but for what was answered early: of
    # that, what came later is not looked at any more.
    run(spark, tmp_path / "h")
    ids = {one["message"] for one in early}
    assert [row for row in rows(tmp_path / "h") if row["message"] not in ids] == [
        row for row in rows(kept) if row["message"] not in ids
    ]


def test_one_message_is_read_without_spark(world: ledger_world.World, kept: Path) -> None:
    found = {}
    for row in rows(kept):
        found.setdefault(row["message"], []).append(row)
    for _, message in world.messages[:20]:
        id = str(message.id)
        assert stored_ledger(kept, message.id.hex) == found.get(id, [])
        [outcome] = [one for one in stored_outcomes(kept) if one["message"] == id]
        assert outcome["recipients"] == len(found.get(id, []))
        said = stored_message(kept, id)
        assert said is not None
        assert (said["source"], said["sent_us"]) == (str(message.source), message.sent_us)
        assert (said["area"] is not None) == (message.destination.area is not None)
        assert said["text"] == ("hi" if said["message_kind"] == "content" else "Stay away")
    assert stored_ledger(kept, "00" * 16) == []
    assert stored_message(kept, "ff" * 16) is None
    assert stored_outcomes(kept / "nowhere") == []
    with pytest.raises(ConfigurationError, match="no id of a message"):
        stored_ledger(kept, "soon")
    middle_us = ledger_world.BEGIN_US + 200 * ledger_world.SECOND_US
    halves = stored_outcomes(kept, None, middle_us), stored_outcomes(kept, middle_us)
    assert [one for half in halves for one in half] == sorted(
        rows(kept, "outcomes"), key=lambda one: (one["time_us"], one["message"])
    )


def test_the_command_prints_a_line_for_each_message(
    spark: SparkSession, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def session(settings: object) -> Iterator[SparkSession]:
        yield spark

    shutil.copytree(history, tmp_path / "h")
    monkeypatch.setattr(stored_tables, "session", session)
    monkeypatch.setenv("COLUMNS", "220")
    arguments = ["history", "ledger", "--folder", str(tmp_path / "h")]
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    answer = json.loads(result.stdout)
    until_us = newest_stored_us(HistoryFolder(tmp_path / "h"))
    assert len(answer["messages"]) + answer["waiting"] == 240
    assert len(answer["messages"]) > 100
    for one in answer["messages"]:
        assert sum(one[state] for state in STATES) == one["recipients"]
        assert one["time_us"] <= until_us
    # Again, and while another has the ledger: what is there is shown, and nothing is added.
    monkeypatch.setattr(stored_tables, "session", None)
    shown = CliRunner().invoke(
        app, [*arguments, "--to", "2026-03-01T23:57"], catch_exceptions=False
    )
    assert shown.stdout.count("service:office") > 20
    assert "unreachable" in shown.stdout
    job = LedgerJob(tmp_path / "h")
    job.start()
    again = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert json.loads(again.stdout) == answer | {"waiting": None}
    job.stop()


def test_nobody_is_lost_who_was_there(spark: SparkSession, tmp_path: Path) -> None:
    """No receipt at all: the ledger still says who should have heard it."""
    world = ledger_world.World()
    place, at_us = ledger_world.PLACES[1], ledger_world.BEGIN_US
    west = ledger_world.Position(place.lat, 179.999)
    for name, where in (("car-a", place), ("car-b", west), ("far", ledger_world.PLACES[0])):
        world.reports.append((at_us + 5, (name, where, None)))
    area = ledger_world.Area(ledger_world.Circle(place, 500.0))
    message = ledger_world.Message(
        kind=ledger_world.Kind.ALERT,
        source=ledger_world.Address.service("office"),
        destination=ledger_world.Address.to_area(area),
        sent_us=at_us,
        expires_us=at_us + 1000,
        payload=ledger_world.Event("flood"),
    )
    world.messages.append((at_us, message))
    world.put_on(tmp_path / "bus.db")
    store_batch(spark, f"embedded:{tmp_path / 'bus.db'}", tmp_path / "h")
    run(spark, tmp_path / "h", tasks=1)
    found = stored_ledger(tmp_path / "h", message.id.hex)
    columns = ("client", "state", "reason", "inside_us")
    assert [tuple(one[name] for name in columns) for one in found] == [
        ("car-a", "unreachable", "never-addressed", at_us + 5),
        ("car-b", "unreachable", "never-addressed", at_us + 5),
    ]
