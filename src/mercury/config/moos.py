"""The settings of the MOOS bridge: the names of pMediator (§6), and where its datagrams go."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from mercury.config.section import Section


class MoosSettings(Section):
    vname: str | None = Field(
        default=None,
        min_length=1,
        description="Name of this vehicle in messages; none is the community's",
    )
    community: str | None = Field(
        default=None, min_length=1, description="Name of the MOOS community; none is the vehicle's"
    )
    group: str | None = Field(
        default=None, min_length=1, description="Group of this vehicle; its members are the mates"
    )
    mates: str = Field(
        default="", description="Vehicles of our group, comma-separated; empty is all with a route"
    )
    mate: str = Field(default="", description="The same as mates, for one more")
    no_ack_vars: str = Field(
        default="", description="Variables, comma-separated, that are sent once and never again"
    )
    no_ack_var: str = Field(default="", description="The same as no_ack_vars, for one more")
    max_tries: int = Field(
        default=5, ge=1, description="A message is sent again so often before it is given up"
    )
    resend_thresh: float = Field(
        default=2.0, gt=0, description="Seconds without an acknowledgement until it is sent again"
    )
    listen: str = Field(
        default="9300",
        min_length=1,
        description="[HOST:]PORT for datagrams of the own pShare and of mates; 0 takes a free one",
    )
    local: str = Field(
        default="127.0.0.1:9200",
        min_length=1,
        description="HOST:PORT where the pShare of the own community listens",
    )
    routes: dict[str, str] = Field(
        default={}, description="HOST:PORT of each mate; * stands for all that have none"
    )
    adapter: str | None = Field(
        default=None,
        min_length=1,
        description="udp://HOST:PORT of a Mercury adapter; none bridges vehicles only",
    )

    @field_validator("mates", "mate", "no_ack_vars", "no_ack_var", mode="before")
    @classmethod
    def _join_a_list(cls, value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            return ",".join(value)
        return value

    @field_validator("listen", mode="before")
    @classmethod
    def _port_alone(cls, value: Any) -> Any:
        is_port = isinstance(value, int) and not isinstance(value, bool)
        return str(value) if is_port else value
