"""Open loop: updates are offered when they are due, whatever the other side does."""

from __future__ import annotations

import csv
import gzip
import time
from pathlib import Path

import numpy as np
import pytest
from live import in_loop
from roads.streets import tangle

from mercury.load.drivers.api import Batch, open_driver
from mercury.load.drivers.local import NullDriver
from mercury.load.generator import Generator
from mercury.load.workload import Workload, WorkloadSettings
from mercury.model.errors import LoadError

ROADS = tangle(40, 1)


def workload(entities: int = 500, rate_hz: float = 2.0) -> Workload:
    return Workload(ROADS, WorkloadSettings(entities=entities, rate_hz=rate_hz, topics=2))


class Recording(NullDriver):
    """Remembers what it got; stands still at the batches given."""

    def __init__(self, stalls: dict[int, float] | None = None) -> None:
        super().__init__()
        self.batches: list[Batch] = []
        self._stalls = stalls or {}

    def send(self, batch: Batch) -> None:
        super().send(batch)
        self.batches.append(batch)
        time.sleep(self._stalls.get(len(self.batches), 0.0))


@in_loop
async def test_every_update_is_sent_with_the_time_it_was_due() -> None:
    driver, load = Recording(), workload()
    result = await Generator(load, driver, seconds=1.0).run()
    assert result.offered == driver.counters.sent == 1_000
    entities = np.concatenate([batch.entities for batch in driver.batches])
    times_us = np.concatenate([batch.times_us for batch in driver.batches])
    assert np.all(np.bincount(entities) == 2)
    begun_us = times_us[0] - round(load.phases_s[0] * 1e6)
    first_us = np.rint(load.phases_s[entities[:500]] * 1e6)
    assert np.max(np.abs(times_us[:500] - begun_us - first_us)) <= 1
    assert np.max(np.abs(times_us[500:] - times_us[:500] - 500_000)) <= 1
    # Where it says they are is where they are then.
    batch = driver.batches[-1]
    lats, lons = load.movement.positions(batch.entities, batch.times_s)
    assert np.array_equal(batch.lats, lats)
    assert np.array_equal(batch.lons, lons)


@in_loop
async def test_a_driver_that_stalls_takes_nothing_from_the_load() -> None:
    smooth = await Generator(workload(), Recording(), seconds=1.0).run()
    stalled = await Generator(workload(), Recording({5: 0.4}), seconds=1.0).run()
    assert stalled.offered == smooth.offered == 1_000
    assert stalled.counters.sent == 1_000
    assert stalled.missed == 0
    late_us = stalled.lag.percentile_us(100)
    assert late_us is not None
    assert 400_000 <= late_us < 1_500_000
    assert not stalled.kept_up


@in_loop
async def test_a_generator_that_can_never_keep_up_ends_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mercury.load.generator._AT_ONCE", 10)
    monkeypatch.setattr("mercury.load.generator._GRACE_S", 0.3)
    driver = Recording(dict.fromkeys(range(10_000), 0.05))
    result = await Generator(workload(), driver, seconds=0.5).run()
    assert result.offered == 500
    assert result.missed == 500 - driver.counters.sent > 0
    found = result.to_json()
    assert found["unsent"] == result.missed
    assert found["kept_up"] is False


@in_loop
async def test_it_can_be_stopped() -> None:
    driver = Recording()
    generator = Generator(workload(), driver, seconds=60.0, say=lambda _: generator.stop())
    result = await generator.run()  # it says something each second
    assert 1.0 <= result.seconds < 5.0
    assert result.offered == driver.counters.sent


@in_loop
async def test_a_trace_is_written(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    load = workload(50)
    await Generator(load, open_driver(f"file:{path}"), seconds=1.0).run()
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 100
    assert list(rows[0]) == ["time_us", "id", "side", "lat", "lon"]
    sides = {row["id"]: row["side"] for row in rows}
    assert sides == {load.id_of(number): load.side_of(number) for number in range(50)}
    assert all(43.9 < float(row["lat"]) < 44.1 for row in rows)


@pytest.mark.parametrize(
    "uri",
    ["nowhere", "http://x:1", "ws://", "ws://host", "udp://host:0", "redis://h:1/x", "file:a.csv"],
)
def test_impossible_addresses_are_one_sentence(uri: str) -> None:
    with pytest.raises(LoadError):
        open_driver(uri)


@in_loop
async def test_a_trace_that_cannot_be_written(tmp_path: Path) -> None:
    driver = open_driver(f"file:{tmp_path}/missing/trace.csv.gz")
    with pytest.raises(LoadError, match="cannot write"):
        await Generator(workload(10), driver, seconds=1.0).run()
