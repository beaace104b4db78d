"""The settings of matching: which rules hold, and how the work is shared."""

from __future__ import annotations

from pydantic import field_validator

from mercury.config.section import ServiceSection, mistake, setting
from mercury.model.matching import MAX_RADIUS_M, MAX_TTL_S
from mercury.model.topics import valid_name


# Defaults are those of `matching.MatchingRules`; that package compiles itself, which no other
# command should wait for.
class MatcherSettings(ServiceSection):
    id: str = setting("matcher-1", "Name of this matcher, unique on the bus", min_length=1)
    shared: bool = setting(False, "Share the work with other matchers over the bus")
    gateway: bool = setting(True, "Whether the gateway is open; see [gateway]")
    overlap: bool = setting(
        False, "Whether scopes that overlap match, not a publication's centre alone"
    )
    hysteresis_m: float = setting(
        10.0,
        "Distance outside a scope at which a match ends, unless the subscription says otherwise",
        ge=0,
        le=MAX_RADIUS_M,
    )
    ttl_s: float = setting(
        60.0,
        "Silence after which an entity is forgotten, unless it said otherwise",
        gt=0,
        le=MAX_TTL_S,
    )
    max_radius_m: float = setting(50_000.0, "Widest scope of a subscription", gt=0, le=MAX_RADIUS_M)
    max_publication_radius_m: float = setting(
        5_000.0,
        "Widest scope of a publication, where scopes that overlap match",
        ge=0,
        le=MAX_RADIUS_M,
    )
    topics: list[str] | None = setting(None, "Topics that may be used; none allows any")
    snapshot_interval_s: float = setting(
        5.0,
        "Interval of a shared matcher's snapshots; who takes over repeats the work since the last",
        gt=0,
    )
    tile_m: float = setting(
        4000.0,
        "Width of the tiles that shared work is cut into; the same for all matchers",
        ge=500.0,
        le=100000.0,
    )
    split_above: int = setting(
        20_000, "A tile with more publications of a topic is shared by several matchers", ge=100
    )

    @field_validator("topics")
    @classmethod
    def _are_names(cls, names: list[str] | None) -> list[str] | None:
        for name in names or ():
            if not valid_name(name):
                raise mistake(f"{name!r} is no name for a topic", name)
        return names
