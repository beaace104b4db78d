"""The settings of detection: kinds of events and their predicates are configuration, not code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from mercury.config.section import Section, mistake, over_defaults, setting
from mercury.detection import DEFAULT_RULES, CongestionRule, KindRule
from mercury.model.errors import DetectionError
from mercury.model.topics import valid_name

_KIND = KindRule("any", "count >= 1")
_JAM = CongestionRule()

Rule = TypeVar("Rule", KindRule, CongestionRule)


class KindSettings(Section):
    enabled: bool = setting(True, "Whether this kind is judged at all")
    predicate: str = Field(description="When a bin is reported; see docs/how-to/detection-rule.md")
    every_s: float = setting(
        _KIND.every_s,
        "Interval at which bins are judged and emptied; 0 judges each observation as it comes",
    )
    reach_m: float = setting(
        _KIND.reach_m, "Distance from the centre of a bin within which an observation belongs to it"
    )
    memory_s: float = setting(
        _KIND.memory_s, "With every_s = 0: silence after which a bin is emptied"
    )
    lateness_s: float = setting(
        _KIND.lateness_s, "Lateness against the newest observation up to which one counts"
    )
    margin_m: float = setting(
        _KIND.margin_m, "Distance by which the alerted area reaches beyond the bin"
    )
    min_radius_m: float = setting(_KIND.min_radius_m, "Smallest radius that is alerted")
    max_radius_m: float = setting(_KIND.max_radius_m, "Largest radius that is alerted")
    validity_s: float = setting(
        _KIND.validity_s, "Validity of an alert; meanwhile the incident is not reported again"
    )
    priority: int = setting(_KIND.priority, "Priority of the alert, 0 to 9")
    text: str = setting(_KIND.text, "What the alert says")

    @model_validator(mode="after")
    def _make_a_rule(self) -> Self:
        self.rule("any")
        return self

    def rule(self, kind: str) -> KindRule:
        return _rule(KindRule, {"kind": kind, **self.model_dump(exclude={"enabled"})})


class CongestionSettings(Section):
    enabled: bool = setting(True, "Whether jams are looked for in telemetry")
    cell_m: float = setting(_JAM.cell_m, "Width of the cells that are compared")
    window_s: float = setting(_JAM.window_s, "Length of the windows over which speeds are averaged")
    lateness_s: float = setting(
        _JAM.lateness_s, "Delay from the end of a window until it is judged"
    )
    min_vehicles: int = setting(
        _JAM.min_vehicles, "Fewer in a window neither confirm nor clear a jam"
    )
    slow_share: float = setting(_JAM.slow_share, "Slow is below this share of the usual speed")
    free_share: float = setting(_JAM.free_share, "Free is from this share of the usual speed on")
    on_after_s: float = setting(
        _JAM.on_after_s, "Time of slow traffic that makes a jam; longer than a red light"
    )
    off_after_s: float = setting(_JAM.off_after_s, "Time of free traffic that ends a jam")
    forget_s: float = setting(_JAM.forget_s, "Silence that ends a jam")
    learn_s: float = setting(_JAM.learn_s, "Time that traffic is watched before it is judged")
    learn_share: float = setting(
        _JAM.learn_share, "Weight of a window in the usual speed after that"
    )
    relearn_s: float = setting(
        _JAM.relearn_s, "Time without free traffic after which its speed is the usual one"
    )
    min_usual_mps: float = setting(
        _JAM.min_usual_mps, "Where traffic is never faster there is no jam"
    )
    approach_m: float = setting(
        _JAM.approach_m, "Distance ahead of a jam at which those who drive towards it are alerted"
    )
    grown_m: float = setting(_JAM.grown_m, "Growth of a jam that is reported again")
    validity_s: float = setting(_JAM.validity_s, "Validity of an alert")
    priority: int = setting(_JAM.priority, "Priority of the alert, 0 to 9")
    text: str = setting(_JAM.text, "What the alert says")

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
        for kind in given if isinstance(given, Mapping) else ():
            if not valid_name(kind):
                raise mistake(f"{kind!r} is no name for a kind", kind)
        names = KindSettings.model_fields.keys() - {"enabled"}
        defaults = {
            str(kind): {name: getattr(rule, name) for name in names}
            for kind, rule in DEFAULT_RULES.items()
        }
        return over_defaults(defaults, given)

    def rules(self) -> list[KindRule]:
        return [kind.rule(name) for name, kind in self.kinds.items() if kind.enabled]

    def congestion_rule(self) -> CongestionRule | None:
        """The rule of congestion, if it is looked for."""
        return self.congestion.rule() if self.congestion.enabled else None


def _rule(rule: type[Rule], values: dict[str, Any]) -> Rule:
    try:
        return rule(**values)
    except DetectionError as error:
        raise mistake(str(error), *error.keys) from None  # one source of what a rule may be
