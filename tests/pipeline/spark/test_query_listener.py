"""What Spark reports of its queries, as the jobs read it; no Spark is needed for that."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from mercury.pipeline.spark.query_listener import QueryListener, await_source

TIME, TIME_US = "2026-03-01T23:30:00.250Z", 1_772_407_800_250_000
RUN = {"id": str(uuid.uuid4()), "runId": str(uuid.uuid4()), "timestamp": TIME}


def progress(end: str, latest: str) -> QueryProgressEvent:
    source = {
        "description": "", "startOffset": "{}", "endOffset": end, "latestOffset": latest,
        "numInputRows": 7, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0,
    }  # fmt: skip
    values: dict[str, Any] = {
        **RUN, "name": "events", "batchId": 3, "batchDuration": 100, "durationMs": {},
        "eventTime": {}, "stateOperators": [], "sources": [source], "numInputRows": 7,
        "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0,
        "sink": {"description": "", "numOutputRows": -1}, "observedMetrics": {},
    }  # fmt: skip
    return QueryProgressEvent.fromJson({"progress": values})


@pytest.fixture
def listener() -> QueryListener:
    listener = QueryListener()
    listener.onQueryStarted(QueryStartedEvent.fromJson({**RUN, "name": "events", "jobTags": []}))
    return listener


def test_a_batch_and_a_trigger_that_found_nothing(listener: QueryListener) -> None:
    state = listener.state(RUN["runId"])
    assert (state.name, state.idle_us, state.batch_us) == ("events", 0, 0)
    listener.onQueryProgress(progress('{"a": 10, "b": {"0": 5, "1": 6}}', '{"a": 12, "b": null}'))
    assert (state.batch_us, state.batch_rows) == (TIME_US, 7)
    assert (state.position, state.lag) == (21, 0)
    listener.onQueryProgress(progress('{"a": 10}', '{"a": 12}'))
    assert (state.position, state.lag) == (10, 2)
    listener.onQueryIdle(QueryIdleEvent.fromJson(RUN))
    assert state.idle_us == TIME_US
    assert not state.ended


@pytest.mark.parametrize(
    ("exception", "failed"), [(None, None), ("no disk left\n\tat java.io.File", "events")]
)
def test_an_end_with_and_without_an_error(
    listener: QueryListener, exception: str | None, failed: str | None
) -> None:
    ended = {**RUN, "exception": exception, "errorClassOnException": None}
    listener.onQueryTerminated(QueryTerminatedEvent.fromJson(ended))
    assert listener.state(RUN["runId"]).ended
    assert listener.failed_query == failed
    assert listener.failure == ("no disk left" if failed else "")


class Query:
    """A query as it starts: at each look, whether a trigger is at work."""

    def __init__(self, active: Iterable[bool], *, runs: bool = True) -> None:
        self._active = iter(active)
        self.isActive = runs

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": next(self._active)}

    @property
    def looks_left(self) -> int:
        return len(list(self._active))


def test_a_source_is_open_when_the_first_trigger_is_at_work(listener: QueryListener) -> None:
    query: Any = Query([False, False, True, True])
    await_source(query, listener.state(RUN["runId"]))
    assert query.looks_left == 1


def test_a_source_is_open_when_a_trigger_has_ended(listener: QueryListener) -> None:
    query: Any = Query([False, False])
    listener.onQueryIdle(QueryIdleEvent.fromJson(RUN))
    await_source(query, listener.state(RUN["runId"]))
    assert query.looks_left == 1


def test_a_source_that_does_not_open_is_not_waited_for(listener: QueryListener) -> None:
    query: Any = Query([False, False], runs=False)
    await_source(query, listener.state(RUN["runId"]))
    assert query.looks_left == 1
