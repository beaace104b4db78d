"""How each kind of event is judged: its predicate, its schedule, and whom its alert concerns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import get_type_hints

from mercury.detection.bin import MEASURES, US_PER_S, Bin
from mercury.model.area import HALF_MERIDIAN_M
from mercury.model.errors import DetectionError, FilterError
from mercury.model.filter import Filter, compile_filter
from mercury.model.message import EventKind, Priority
from mercury.model.topics import valid_name

MAX_SPAN_S = 10 * 366 * 86_400.0  # longer than any state is kept; keeps sums of times in 64 bits
MAX_REACH_M = 100_000.0  # beyond this a straight line through the Earth is no distance on it


@dataclass(frozen=True)
class KindRule:
    """One kind of event: when its bins are true, and what the alert then says (Mercury §4.1)."""

    kind: str
    predicate: str
    every_s: float = 0.0  # 0: judged at each observation; else at the end of each interval
    reach_m: float = 150.0  # greatest distance of an observation from its bin's centre
    memory_s: float = 60.0  # with every_s = 0: timeout after which a silent bin is emptied
    lateness_s: float = 2.0  # an observation may come so much later than the newest
    margin_m: float = 300.0  # how far the alert's area reaches beyond the bin
    min_radius_m: float = 300.0
    max_radius_m: float = 5000.0
    validity_s: float = 120.0
    priority: int = Priority.WARNING
    text: str = ""
    _filter: Filter = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not valid_name(self.kind):
            raise DetectionError(f"{self.kind!r} is no name for an event kind", "kind")
        object.__setattr__(self, "_filter", compile_predicate(self.predicate))
        for name in ("every_s", "lateness_s"):
            check_number(self, name, 0.0, MAX_SPAN_S)
        for name in ("memory_s", "validity_s"):
            check_number(self, name, 0.001, MAX_SPAN_S)
        check_number(self, "reach_m", 1.0, MAX_REACH_M)
        check_number(self, "margin_m", 0.0, HALF_MERIDIAN_M)
        check_number(self, "min_radius_m", 1.0, HALF_MERIDIAN_M)
        check_number(self, "max_radius_m", 1.0, HALF_MERIDIAN_M)
        check_number(self, "priority", 0, 9)
        if 0.0 < self.every_s < 0.001:
            raise DetectionError("every_s is 0 or at least 0.001", "every_s")
        if self.min_radius_m > self.max_radius_m:
            raise DetectionError(
                f"min_radius_m {self.min_radius_m:g} is above max_radius_m {self.max_radius_m:g}",
                "min_radius_m",
                "max_radius_m",
            )

    def holds(self, bin: Bin) -> bool:
        """Whether the predicate is true of a bin."""
        return self._filter.matches(bin.measures(self._filter.keys))

    def alert_radius_m(self, spread_m: float) -> float:
        """The radius of the area to alert about a bin of this size."""
        return min(max(spread_m + self.margin_m, self.min_radius_m), self.max_radius_m)

    @property
    def every_us(self) -> int:
        return in_us(self.every_s)


def compile_predicate(text: str) -> Filter:
    """Compile a predicate over the measures of a bin, or raise DetectionError."""
    try:
        predicate = compile_filter(text)
    except FilterError as error:
        raise DetectionError(
            f"the predicate {text!r} cannot be read: {error}", "predicate"
        ) from None
    unknown = sorted(predicate.keys - MEASURES.keys())
    if unknown:
        raise DetectionError(
            f"the predicate asks for {unknown[0]!r}, known are {', '.join(MEASURES)}", "predicate"
        )
    if not predicate.keys:
        raise DetectionError("the predicate is empty", "predicate")
    return predicate


def check_number(rule: object, name: str, low: float, high: float) -> None:
    """Raise unless the value is a number between these."""
    value = getattr(rule, name)
    wanted = get_type_hints(type(rule))[name]
    number = isinstance(value, int) or (wanted is float and isinstance(value, float))
    if isinstance(value, bool) or not number or not math.isfinite(value):
        raise DetectionError(f"{name} should be a number, not {value!r}", name)
    if not low <= value <= high:
        raise DetectionError(f"{name} {value:g} is not between {low:g} and {high:g}", name)


def in_us(seconds: float) -> int:
    return round(seconds * US_PER_S)


DEFAULT_RULES: dict[str, KindRule] = {
    rule.kind: rule
    for rule in (
        # One airbag or telephone misfires; three at one place within a minute do not.
        KindRule(
            EventKind.COLLISION, "count >= 3", min_radius_m=500.0, validity_s=300.0,
            lateness_s=5.0, priority=Priority.EMERGENCY, text="Collision ahead",
        ),
        # It does not move, so a delay of ten seconds is harmless, and two witnesses agree.
        KindRule(
            EventKind.OBSTACLE, "count >= 2", every_s=10.0, validity_s=300.0,
            text="Obstacle on the road",
        ),
        # An animal or a ball has crossed before an interval ends: at once, and soon forgotten.
        KindRule(
            EventKind.MOVING_OBJECT, "count >= 2", memory_s=15.0, validity_s=30.0,
            text="Something is crossing the road",
        ),
        # Many must say so, and who drives fast is in no jam; half a minute outlasts one braking.
        KindRule(
            EventKind.CONGESTION, "count >= 5 and not speed_mps >= 10", every_s=30.0,
            reach_m=250.0, min_radius_m=500.0, validity_s=180.0, priority=Priority.NORMAL,
            text="Congestion ahead",
        ),
        # A road that a vehicle still passes at more than a walk is not blocked.
        KindRule(
            EventKind.BLOCKED, "count >= 3 and not fastest_mps > 3", every_s=20.0,
            min_radius_m=500.0, validity_s=600.0, text="Road blocked",
        ),
    )
}  # fmt: skip
