"""The settings of the gateway: where it listens, and how much it lets one client have."""

from __future__ import annotations

from mercury.config.section import Section, setting

MIB = 1024**2


class GatewaySettings(Section):
    host: str = setting("127.0.0.1", "Address to serve HTTP and websockets on", min_length=1)
    port: int = setting(7480, "TCP port to serve on; 0 takes a free one", ge=0, le=65535)
    max_connections: int = setting(1000, "Websockets and streams; further ones are refused", ge=1)
    max_entities: int = setting(
        200_000, "Publications and subscriptions that one websocket may declare", ge=1
    )
    max_rows: int = setting(65_536, "Updates in one binary frame", ge=1, le=65536)
    max_text_bytes: int = setting(
        2 * MIB, "Length of a text frame, or of a request's body", ge=1024
    )
    max_found: int = setting(1000, "Most matches in the answer to a query", ge=1)
    low_mark_bytes: int = setting(
        4 * MIB,
        "When this much waits for a client that reads slowly, it is not notified of inside",
        ge=1024,
    )
    high_mark_bytes: int = setting(
        32 * MIB,
        "When this much waits for it, it is closed; halfway there, dwell is left out",
        ge=1024,
    )
    ping_interval_s: float = setting(20.0, "Interval of pings to a websocket", gt=0)
    ping_timeout_s: float = setting(
        20.0, "Time without an answer to a ping after which a websocket is closed", gt=0
    )
    close_timeout_s: float = setting(5.0, "Time for the closing handshake of a websocket", gt=0)
    max_ahead_s: float = setting(
        60.0, "Updates whose time is further ahead of ours are dropped", ge=0
    )

    ascending = (("low_mark_bytes", "high_mark_bytes"),)
