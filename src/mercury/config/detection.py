"""The settings of detection: kinds of events and their predicates are configuration, not code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self, TypeVar

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from mercury.config.section import Section
from mercury.detection import DEFAULT_RULES, CongestionRule, KindRule
from mercury.model.errors import DetectionError
from mercury.model.topics import valid_name

_KIND = KindRule("any", "count >= 1")
_JAM = CongestionRule()

Rule = TypeVar("Rule", KindRule, CongestionRule)


class KindSettings(Section):
    enabled: bool = Field(default=True, description="Whether this kind is judged at all")
    predicate: str = Field(description="When a bin is told of; see docs/detection.md for the names")
    every_s: float = Field(
        default=_KIND.every_s,
        description="Bins are judged and emptied so often; 0 judges each observation as it comes",
    )
    reach_m: float = Field(
        default=_KIND.reach_m,
        description="An observation so near to the centre of a bin belongs to it",
    )
    memory_s: float = Field(
        default=_KIND.memory_s,
        description="With every_s = 0: a bin that heard nothing for so long is emptied",
    )
    lateness_s: float = Field(
        default=_KIND.lateness_s,
        description="An observation may come so much later than the newest, and still count",
    )
    margin_m: float = Field(
        default=_KIND.margin_m, description="The alerted area reaches so far beyond the bin"
    )
    min_radius_m: float = Field(
        default=_KIND.min_radius_m, description="Smallest radius that is alerted"
    )
    max_radius_m: float = Field(
        default=_KIND.max_radius_m, description="Largest radius that is alerted"
    )
    validity_s: float = Field(
        default=_KIND.validity_s,
        description="An alert holds so long, and meanwhile the incident is not told again",
    )
    priority: int = Field(default=_KIND.priority, description="Priority of the alert, 0 to 9")
    text: str = Field(default=_KIND.text, description="What the alert says")

    @model_validator(mode="after")
    def _make_a_rule(self) -> Self:
        self.rule("any")
        return self

    def rule(self, kind: str) -> KindRule:
        """The rule for a kind of this name."""
        return _rule(KindRule, {"kind": kind, **self.model_dump(exclude={"enabled"})})


class CongestionSettings(Section):
    enabled: bool = Field(default=True, description="Whether jams are looked for in telemetry")
    cell_m: float = Field(default=_JAM.cell_m, description="Width of the cells that are compared")
    window_s: float = Field(default=_JAM.window_s, description="Speeds are averaged over so long")
    lateness_s: float = Field(
        default=_JAM.lateness_s, description="A window is judged so long after its end"
    )
    min_vehicles: int = Field(
        default=_JAM.min_vehicles, description="Fewer in a window neither confirm nor clear a jam"
    )
    slow_share: float = Field(
        default=_JAM.slow_share, description="Slow is below this share of the usual speed"
    )
    free_share: float = Field(
        default=_JAM.free_share, description="Free is from this share of the usual speed on"
    )
    on_after_s: float = Field(
        default=_JAM.on_after_s, description="Slow for so long is a jam; longer than a red light"
    )
    off_after_s: float = Field(
        default=_JAM.off_after_s, description="Free for so long, the jam is over"
    )
    forget_s: float = Field(
        default=_JAM.forget_s, description="A jam nothing is heard of for so long is over"
    )
    learn_s: float = Field(
        default=_JAM.learn_s, description="Traffic is watched so long before it is judged"
    )
    learn_share: float = Field(
        default=_JAM.learn_share, description="Weight of a window in the usual speed after that"
    )
    relearn_s: float = Field(
        default=_JAM.relearn_s, description="What has not been free for so long is usual"
    )
    min_usual_mps: float = Field(
        default=_JAM.min_usual_mps, description="Where traffic is never faster there is no jam"
    )
    approach_m: float = Field(
        default=_JAM.approach_m, description="Who drives towards the jam is told so far ahead"
    )
    grown_m: float = Field(
        default=_JAM.grown_m, description="A jam that grew by so much is told again"
    )
    validity_s: float = Field(default=_JAM.validity_s, description="An alert holds so long")
    priority: int = Field(default=_JAM.priority, description="Priority of the alert, 0 to 9")
    text: str = Field(default=_JAM.text, description="What the alert says")

    @model_validator(mode="after")
    def _make_a_rule(self) -> Self:
        self.rule()
        return self

    def rule(self) -> CongestionRule:
        return _rule(CongestionRule, self.model_dump(exclude={"enabled"}))


class DetectionSettings(Section):
    kinds: dict[str, KindSettings] = Field(
        default_factory=dict, validate_default=True, description="Sensed events, by kind"
    )
    congestion: CongestionSettings = Field(
        default_factory=CongestionSettings, description="Jams that nobody reported"
    )

    @field_validator("kinds", mode="before")
    @classmethod
    def _start_from_the_defaults(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        kinds: dict[str, Any] = {str(kind): _table(rule) for kind, rule in DEFAULT_RULES.items()}
        for kind, table in given.items():
            if not valid_name(kind):
                context = {"message": f"{kind!r} is no name for a kind", "keys": (kind,)}
                raise PydanticCustomError("kind", "{message}", context)
            known = kinds.get(kind, {})
            kinds[kind] = known | table if isinstance(table, Mapping) else table
        return kinds

    def rules(self) -> list[KindRule]:
        """The rules of the kinds that are judged."""
        return [kind.rule(name) for name, kind in self.kinds.items() if kind.enabled]

    def congestion_rule(self) -> CongestionRule | None:
        """The rule of congestion, if it is looked for."""
        return self.congestion.rule() if self.congestion.enabled else None


def _table(rule: KindRule) -> dict[str, object]:
    return {
        field.name: getattr(rule, field.name)
        for field in fields(rule)
        if field.init and field.name != "kind"
    }


def _rule(rule: type[Rule], values: dict[str, Any]) -> Rule:
    try:
        return rule(**values)
    except DetectionError as error:
        # One source of what a rule may be: the rule.
        context = {"message": str(error), "keys": error.keys}
        raise PydanticCustomError("rule", "{message}", context) from None
