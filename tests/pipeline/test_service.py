"""The pipeline fails with the ledger, in one sentence, and not when it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mercury.bus import open_bus
from mercury.config.settings import PipelineSettings
from mercury.model.errors import JobFailedError
from mercury.pipeline.ledger.job import Entered
from mercury.pipeline.service import Pipeline
from mercury.service import now


class Ledger:
    """Enters two portions, then says or raises what it is told to."""

    def __init__(self, then: Exception) -> None:
        self.seen: list[int] = []
        self._then = then

    def run(self, spark: Any, stored_until_us: int) -> Entered:
        self.seen.append(stored_until_us)
        if len(self.seen) == 4:
            raise self._then
        return Entered(2 if len(self.seen) < 3 else 0, 5, 0)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    settings = PipelineSettings(ledger_interval_s=0.001, checkpoint=tmp_path)
    pipeline = Pipeline(open_bus("memory:"), "memory:", settings, ())
    context = SimpleNamespace(setLocalProperty=lambda *_: None, setJobGroup=lambda *_, **__: None)
    pipeline._spark = SimpleNamespace(sparkContext=context)  # type: ignore[assignment]
    yield pipeline
    pipeline.bus.close()


def keep(pipeline: Pipeline, ledger: Ledger) -> None:
    history = SimpleNamespace(stored_until_us=lambda: 7)
    asyncio.run(pipeline._keep_ledger(ledger, history))  # type: ignore[arg-type]


def test_a_ledger_that_does_not_add_up_ends_the_pipeline(pipeline: Pipeline) -> None:
    ledger = Ledger(JobFailedError("the ledger does not add up: m (1 of 2)"))
    with pytest.raises(JobFailedError, match=r"does not add up: m \(1 of 2\)"):
        keep(pipeline, ledger)
    assert ledger.seen == [7] * 4  # until nothing was left, and once more after the interval


def test_whatever_else_ends_it_is_said_in_a_line(pipeline: Pipeline) -> None:
    with pytest.raises(JobFailedError) as caught:
        keep(pipeline, Ledger(OSError("no disk\nat Java.lang")))
    details = f"the details are in {pipeline.spark_log}"
    assert str(caught.value) == f"the ledger job ended: no disk; {details}"


def test_what_was_cut_short_on_the_way_out_is_no_failure(pipeline: Pipeline) -> None:
    class Cut(Ledger):
        def run(self, spark: Any, stored_until_us: int) -> Entered:
            pipeline._leaving.set()
            raise OSError("the job was cancelled")

    keep(pipeline, Cut(OSError()))


def test_a_job_that_failed_is_logged_without_a_traceback(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(error: Exception) -> None:
        raise error

    async def scenario() -> None:
        pipeline.spawn(fail(JobFailedError("the ledger job ended")))
        pipeline.spawn(fail(RuntimeError("a mistake of ours")))
        await asyncio.gather(*pipeline._tasks, return_exceptions=True)

    with caplog.at_level("INFO", "mercury"):
        asyncio.run(scenario())
    said, bug = caplog.records
    assert (said.levelname, said.exc_info) == ("INFO", None)  # the command ends with its sentence
    assert said.getMessage() == "service:pipeline fails: the ledger job ended"
    assert bug.exc_info


def test_a_spark_that_does_not_answer_is_told(pipeline: Pipeline) -> None:
    assert pipeline.problem() == ""  # it starts
    pipeline._tended_at = now() - 1
    assert pipeline.problem() == ""
    pipeline._tended_at = now() - 12
    assert pipeline.problem() == "Spark has not answered for 12 s"
