"""The settings of matching: which rules hold, and how the work is shared."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from mercury.config.section import Section
from mercury.model.matching import MAX_RADIUS_M, MAX_TTL_S
from mercury.model.topics import valid_name


# Defaults are those of `matching.MatchingRules`; that package compiles itself, which no other
# command should wait for.
class MatcherSettings(Section):
    id: str = Field(
        default="matcher-1", min_length=1, description="Name of this matcher, unique on the bus"
    )
    shared: bool = Field(
        default=False,
        description="Share the work with other matchers over the bus",
    )
    gateway: bool = Field(default=True, description="Whether the gateway is open; see [gateway]")
    overlap: bool = Field(
        default=False,
        description="Whether scopes that overlap match, not a publication's centre alone",
    )
    hysteresis_m: float = Field(
        default=10.0,
        ge=0,
        le=MAX_RADIUS_M,
        description="So far outside is out, for subscriptions that do not say",
    )
    ttl_s: float = Field(
        default=60.0,
        gt=0,
        le=MAX_TTL_S,
        description="What says nothing for so long is forgotten, unless it said otherwise",
    )
    max_radius_m: float = Field(
        default=50_000.0,
        gt=0,
        le=MAX_RADIUS_M,
        description="Widest scope of a subscription",
    )
    max_publication_radius_m: float = Field(
        default=5_000.0,
        ge=0,
        le=MAX_RADIUS_M,
        description="Widest scope of a publication, where scopes that overlap match",
    )
    topics: list[str] | None = Field(
        default=None, description="Topics that may be used; none allows any"
    )
    snapshot_interval_s: float = Field(
        default=5.0,
        gt=0,
        description="A shared matcher puts what it knows on the bus so often; "
        "who takes over repeats the work since",
    )
    tile_m: float = Field(
        default=4000.0,
        ge=500.0,
        le=100_000.0,
        description="Shared work is cut into tiles so wide; the same for all",
    )
    split_above: int = Field(
        default=20_000,
        ge=100,
        description="A tile with more publications of a topic is shared by several matchers",
    )
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="TCP port of metrics and health; none serves neither",
    )

    @field_validator("topics")
    @classmethod
    def _are_names(cls, names: list[str] | None) -> list[str] | None:
        for name in names or ():
            if not valid_name(name):
                context = {"message": f"{name!r} is no name for a topic", "keys": (name,)}
                raise PydanticCustomError("topic", "{message}", context)
        return names
