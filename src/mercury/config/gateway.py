"""The settings of the gateway: where it listens, and how much it lets one client have."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from mercury.config.section import Section

MIB = 1024**2


class GatewaySettings(Section):
    host: str = Field(
        default="127.0.0.1", min_length=1, description="Address to serve HTTP and websockets on"
    )
    port: int = Field(
        default=7480, ge=0, le=65535, description="TCP port to serve on; 0 takes a free one"
    )
    max_connections: int = Field(
        default=1000, ge=1, description="Websockets and streams; further ones are refused"
    )
    max_entities: int = Field(
        default=200_000,
        ge=1,
        description="Publications and subscriptions that one websocket may declare",
    )
    max_rows: int = Field(
        default=65_536, ge=1, le=65_536, description="Updates in one binary frame"
    )
    max_text_bytes: int = Field(
        default=2 * MIB, ge=1024, description="Length of a text frame, or of a request's body"
    )
    max_found: int = Field(
        default=1000, ge=1, description="Answers to one question; who asks for more gets as many"
    )
    low_mark_bytes: int = Field(
        default=4 * MIB,
        ge=1024,
        description="When so much waits for a client that reads slowly, it is not told of inside",
    )
    high_mark_bytes: int = Field(
        default=32 * MIB,
        ge=1024,
        description="When so much waits for it, it is closed; halfway there, dwell is left out",
    )
    ping_interval_s: float = Field(
        default=20.0, gt=0, description="A websocket is asked for a sign of life so often"
    )
    ping_timeout_s: float = Field(
        default=20.0, gt=0, description="A websocket without a sign of life for so long is closed"
    )
    close_timeout_s: float = Field(
        default=5.0, gt=0, description="Who does not take its leave within this time is cut off"
    )
    max_ahead_s: float = Field(
        default=60.0, ge=0, description="Updates whose time is so far ahead of ours are dropped"
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        self._refuse_above("low_mark_bytes", "high_mark_bytes")
        return self
