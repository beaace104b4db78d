"""The settings of mediated delivery: how much trouble which message is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from mercury.config.section import Section
from mercury.mediator import BY_STRENGTH, NAMES, Policies, Policy
from mercury.model.message import DeliveryPolicy

PolicyName = Literal["fire-and-forget", "repeat", "critical"]

_DEFAULTS: dict[str, dict[str, Any]] = {
    "alert": {"policy": "critical"},
    "event": {"policy": "repeat"},
    "content": {"policy": "fire-and-forget"},
}


class RuleSettings(Section):
    policy: PolicyName = Field(description="fire-and-forget, repeat or critical")
    resend_after_s: float | None = Field(
        default=None, gt=0, description="It is sent again after so long; none is the policy's own"
    )
    max_tries: int | None = Field(
        default=None,
        ge=0,
        description="It is repeated so often at most; none is the policy's own",
    )
    backoff: float | None = Field(
        default=None, ge=1, description="Each wait is so many times the last; none as the policy"
    )
    max_wait_s: float | None = Field(
        default=None, gt=0, description="No wait is longer than this; none as the policy"
    )
    jitter: float | None = Field(
        default=None, ge=0, lt=1, description="Share by which waits vary; none as the policy"
    )

    def rule(self) -> tuple[DeliveryPolicy, Policy]:
        """How much trouble it is worth, and how."""
        strength = NAMES[self.policy]
        usual = BY_STRENGTH[strength]
        said = self.model_dump(exclude={"policy"}, exclude_none=True)
        fields = {name: getattr(usual, name) for name in Policy.__dataclass_fields__}
        return strength, Policy(**{**fields, **said})


class MediatorSettings(Section):
    ack_after_s: float = Field(
        default=0.02,
        ge=0,
        description="A receipt waits so long for a packet to ride on",
    )
    resends_per_s: float = Field(
        default=5000.0,
        gt=0,
        description="An adapter repeats no more than this, and less where it is in vain",
    )
    max_copies: int = Field(
        default=5_000_000,
        ge=1,
        description="Copies an adapter keeps track of; above, the oldest are given up",
    )
    groups: dict[str, list[str]] = Field(
        default={}, description="Members of groups by name, besides those that join by themselves"
    )
    rules: dict[str, RuleSettings] = Field(
        default_factory=dict,
        validate_default=True,
        description="By kind (alert, event, content) or topic: what delivery is worth",
    )

    @field_validator("rules", mode="before")
    @classmethod
    def _over_the_defaults(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        rules: dict[str, Any] = {name: dict(table) for name, table in _DEFAULTS.items()}
        for name, table in value.items():
            known = rules.get(name, {})
            rules[name] = known | dict(table) if isinstance(table, Mapping) else table
        return rules

    def policies(self) -> Policies:
        """What the rules say."""
        return Policies({name: rule.rule() for name, rule in self.rules.items()})
