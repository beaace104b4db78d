"""The settings of mediated delivery: the policy for each kind of message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, field_validator

from mercury.config.section import Section, over_defaults, setting
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
    resend_after_s: float | None = setting(
        None, "Time after which it is sent again; none is the policy's own", gt=0
    )
    max_tries: int | None = setting(None, "Most repetitions; none is the policy's own", ge=0)
    backoff: float | None = setting(
        None, "Factor from each wait to the next; none is the policy's own", ge=1
    )
    max_wait_s: float | None = setting(None, "Longest wait; none is the policy's own", gt=0)
    jitter: float | None = setting(
        None, "Share by which waits vary; none is the policy's own", ge=0, lt=1
    )

    def rule(self) -> tuple[DeliveryPolicy, Policy]:
        strength = NAMES[self.policy]
        said = self.model_dump(exclude={"policy"}, exclude_none=True)
        return strength, replace(BY_STRENGTH[strength], **said)


class MediatorSettings(Section):
    ack_after_s: float = setting(
        0.02, "Time that an acknowledgement waits for a packet to be piggybacked on", ge=0
    )
    resends_per_s: float = setting(
        5000.0, "Most repetitions of an adapter; fewer while most are unanswered", gt=0
    )
    max_copies: int = setting(
        5_000_000, "Copies an adapter keeps track of; above, the least urgent are given up", ge=1
    )
    max_messages: int = setting(
        200_000,
        "Messages an adapter keeps until they end or their only recipient has them; above, the "
        "least urgent are given up, of those who have the most, and no emergency",
        ge=1,
    )
    max_messages_per_client: int = setting(
        5000,
        "Messages of one client among them, and receipts for it; above, its own are given up",
        ge=1,
    )
    max_standing: int = setting(
        10_000,
        "Messages to areas among them that also reach those who enter; above as with max_messages",
        ge=1,
    )
    max_validity_s: float = setting(
        86400.0, "Time after which an adapter gives up what is valid for longer", gt=0
    )
    remember_s: float = setting(
        600.0, "Time for which an adapter knows that a client that left has a message", gt=0
    )
    max_area_m: float = setting(
        100_000.0, "Radius around the largest area to which a client may send", gt=0
    )
    max_ids: int = setting(
        1_000_000,
        "Ids of messages of clients that an adapter remembers, so that it passes each on once; "
        "above, those of clients that have left are forgotten",
        ge=1,
    )
    max_ids_per_client: int = setting(
        5000, "Ids of one client among them; above, what is older than a minute is forgotten", ge=1
    )
    groups: dict[str, list[str]] = setting(
        {}, "Members of groups by name, besides those that join by themselves"
    )
    rules: dict[str, RuleSettings] = Field(
        default_factory=dict,
        validate_default=True,
        description="How hard to try to deliver it, by kind (alert, event, content) or topic",
    )

    @field_validator("rules", mode="before")
    @classmethod
    def _over_the_defaults(cls, value: Any) -> Any:
        return over_defaults(_DEFAULTS, value)

    def policies(self) -> Policies:
        return Policies({name: rule.rule() for name, rule in self.rules.items()})
