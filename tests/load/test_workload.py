"""What the load is made of."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from roads.streets import tangle

import mercury.load
from mercury.load.counters import TimeHistogram
from mercury.load.workload import Workload, WorkloadSettings, price_limits
from mercury.model.errors import LoadError
from mercury.model.filter import compile_filter
from mercury.model.matching import NearSubscription, Publication

ROADS = tangle(40, 1)
SETTINGS = WorkloadSettings(entities=400, topics=4, publications=0.25)


def test_declarations_are_what_was_asked_for() -> None:
    declared = list(Workload(ROADS, SETTINGS).declarations())
    publications = [one for one in declared if isinstance(one, Publication)]
    subscriptions = [one for one in declared if isinstance(one, NearSubscription)]
    assert (len(publications), len(subscriptions)) == (100, 300)
    assert {one.topic for one in declared} == {f"topic-{number}" for number in range(4)}
    assert len({one.id for one in declared}) == 400
    assert all(50.0 <= (one.radius_m or 0.0) <= 500.0 for one in subscriptions)
    prices = [one.values["price"] for one in publications]
    assert min(prices) >= 0
    assert max(prices) <= 100
    assert {one.where for one in subscriptions} == {f"price <= {n}" for n in range(10, 101, 10)}


@pytest.mark.parametrize("selectivity", [0.1, 0.55, 0.9])
def test_filters_let_a_share_pass(selectivity: float) -> None:
    passed = [
        compile_filter(f"price <= {limit}").matches({"price": price})
        for limit in price_limits(selectivity)
        for price in range(101)
    ]
    assert np.mean(passed) == pytest.approx(selectivity, abs=0.015)


def test_without_a_filter_all_pass() -> None:
    workload = Workload(ROADS, replace(SETTINGS, selectivity=1.0, publications=0.0))
    assert {one.where for one in workload.declarations()} == {""}  # type: ignore[union-attr]


def test_the_seed_decides_and_the_rate_does_not() -> None:
    one, same, other, faster = (
        Workload(ROADS, replace(SETTINGS, **change))  # type: ignore[arg-type]
        for change in ({}, {}, {"seed": 2}, {"rate_hz": 10.0})
    )
    everybody = np.arange(400)
    assert list(one.declarations()) == list(same.declarations())
    assert list(one.declarations()) != list(other.declarations())
    place = one.movement.positions(everybody, 7.0)
    assert np.array_equal(place, same.movement.positions(everybody, 7.0))
    assert not np.array_equal(place, other.movement.positions(everybody, 7.0))
    assert np.array_equal(place, faster.movement.positions(everybody, 7.0))
    assert faster.phases_s == pytest.approx(one.phases_s / 10.0)


def test_entities_say_how_inaccurate_they_are() -> None:
    for noise_m in (8.0, 0.0):
        workload = Workload(ROADS, replace(SETTINGS, noise_m=noise_m))
        assert workload.accuracy_m == workload.movement.noise_m == noise_m


def test_slow_entities_are_remembered_long_enough() -> None:
    assert Workload(ROADS, SETTINGS).ttl_s == 60.0
    assert Workload(ROADS, replace(SETTINGS, rate_hz=0.01)).ttl_s == 500.0


@pytest.mark.parametrize(
    "change",
    [
        {"publications": 1.1},
        {"radius_m": (0.0, 10.0)},
        {"radius_m": (20.0, 10.0)},
        {"topics": 0},
        {"selectivity": 0.0},
        {"seed": -1},
        {"rate_hz": 0.0},
    ],
)
def test_impossible_workloads_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(LoadError):
        replace(SETTINGS, **change)  # type: ignore[arg-type]


def test_it_needs_no_event_loop() -> None:
    folder = Path(mercury.load.__file__).parent
    for path in folder.glob("*.py"):
        if path.stem in ("generator", "sessions"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong = ("asyncio", "mercury.load.drivers", "mercury.load.generator")
            assert not any(name.startswith(wrong) for name in names), path.name


def test_a_histogram_knows_percentiles() -> None:
    times_us = np.random.default_rng(1).lognormal(7.0, 1.5, 20_000)
    histogram = TimeHistogram()
    for part in np.array_split(times_us, 7):
        histogram.add(part)
    histogram.add([])
    assert len(histogram) == 20_000
    for percent in (1, 50, 99):
        exact_us = np.percentile(times_us, percent)
        assert histogram.percentile_us(percent) == pytest.approx(exact_us, rel=0.015)
    assert histogram.percentile_us(100) == pytest.approx(times_us.max())
    assert TimeHistogram().to_json() == {"p50_ms": None, "p99_ms": None, "max_ms": None}


def test_impossible_times_break_no_histogram() -> None:
    histogram = TimeHistogram()
    histogram.add([-5.0, 0.0, 1e30])
    assert len(histogram) == 3
