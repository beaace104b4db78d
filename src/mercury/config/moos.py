"""The settings of the MOOS bridge: the names of pMediator (§6), and where its datagrams go."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator

from mercury.config.section import Section, setting


class MoosSettings(Section):
    vname: str | None = setting(
        None, "Name of this vehicle in messages; none is the community's", min_length=1
    )
    community: str | None = setting(
        None, "Name of the MOOS community; none is the vehicle's", min_length=1
    )
    group: str | None = setting(
        None, "Group of this vehicle; its members are the mates", min_length=1
    )
    mates: str = setting("", "Vehicles of our group, comma-separated; empty is all with a route")
    mate: str = setting("", "The same as mates, for one more")
    no_ack_vars: str = setting("", "Variables, comma-separated, that are sent once and never again")
    no_ack_var: str = setting("", "The same as no_ack_vars, for one more")
    max_tries: int = setting(5, "Repetitions before a message is given up", ge=1)
    resend_thresh: float = setting(
        2.0, "Seconds without an acknowledgement until it is sent again", gt=0
    )
    listen: str = setting(
        "9300",
        "[HOST:]PORT for datagrams of the own pShare and of mates; 0 takes a free one",
        min_length=1,
    )
    local: str = setting(
        "127.0.0.1:9200", "HOST:PORT where the pShare of the own community listens", min_length=1
    )
    routes: dict[str, str] = setting({}, "HOST:PORT of each mate; * stands for all that have none")
    adapter: str | None = setting(
        None, "udp://HOST:PORT of a Mercury adapter; none bridges vehicles only", min_length=1
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
