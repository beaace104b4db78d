from __future__ import annotations

import pickle

import pytest
from detection.observations import observation

from mercury.detection import DEFAULT_RULES, MEASURES, KindBins, KindRule
from mercury.model.errors import DetectionError
from mercury.model.message import EventKind


def test_all_kinds_but_the_emergency_have_a_rule() -> None:
    # An emergency is obvious from one message, so the broker decides it.
    assert set(DEFAULT_RULES) == set(EventKind) - {EventKind.EMERGENCY}


def test_each_measure_can_be_asked_for() -> None:
    for name in MEASURES:
        bins = KindBins(KindRule("x", f"{name} >= 0"))
        assert bins.add([observation(1, 1, speed_mps=1.0, heading_deg=1.0)]), name


@pytest.mark.parametrize(
    ("changes", "sentence", "key"),
    [
        (
            {"predicate": "cuont >= 3"},
            "the predicate asks for 'cuont', known are count, reports, spread_m, speed_mps, "
            "slowest_mps, fastest_mps, heading_deg, alignment, duration_s",
            "predicate",
        ),
        (
            {"predicate": "count >="},
            "the predicate 'count >=' cannot be read: expected a value after '>=' at column 9",
            "predicate",
        ),
        ({"predicate": " "}, "the predicate is empty", "predicate"),
        ({"kind": "no name"}, "'no name' is no name for an event kind", "kind"),
        ({"every_s": -1.0}, "every_s -1 is not between 0 and 3.16224e+08", "every_s"),
        ({"every_s": 1e-9}, "every_s is 0 or at least 0.001", "every_s"),
        ({"reach_m": 0.0}, "reach_m 0 is not between 1 and 100000", "reach_m"),
        ({"memory_s": float("nan")}, "memory_s should be a number, not nan", "memory_s"),
        ({"validity_s": "60"}, "validity_s should be a number, not '60'", "validity_s"),
        ({"priority": 10}, "priority 10 is not between 0 and 9", "priority"),
        ({"priority": 1.5}, "priority should be a number, not 1.5", "priority"),
        ({"priority": True}, "priority should be a number, not True", "priority"),
        (
            {"min_radius_m": 20.0, "max_radius_m": 10.0},
            "min_radius_m 20 is above max_radius_m 10",
            "min_radius_m",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], sentence: str, key: str) -> None:
    with pytest.raises(DetectionError) as caught:
        KindRule(**({"kind": "x", "predicate": "count >= 1"} | changes))  # type: ignore[arg-type]
    assert (str(caught.value), caught.value.keys[0]) == (sentence, key)


def test_a_rule_travels_to_another_process() -> None:
    rule = DEFAULT_RULES["blocked"]
    again = pickle.loads(pickle.dumps(rule))
    assert again == rule
    assert KindBins(again).add([observation(1, i) for i in range(3)]) == []


def test_the_alerted_radius_has_a_margin_and_bounds() -> None:
    rule = KindRule("x", "count >= 1", margin_m=100.0, min_radius_m=150.0, max_radius_m=400.0)
    assert [rule.alert_radius_m(spread_m) for spread_m in (0.0, 80.0, 900.0)] == [150, 180, 400]
