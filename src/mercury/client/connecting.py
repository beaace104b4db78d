"""The front gateway: a client by its adapter's address."""

from __future__ import annotations

from collections.abc import Iterable

from mercury.client.client import Client
from mercury.client.composing import PositionLike
from mercury.config.mediator import MediatorSettings
from mercury.net import Link
from mercury.session import SessionSettings


def connect(
    uri: str,
    *,
    identity: str,
    position: PositionLike | None = None,
    heading_deg: float | None = None,
    speed_mps: float | None = None,
    settings: SessionSettings | None = None,
    relay_port: int | None = None,
    connect_timeout_s: float = 10.0,
    mediator: MediatorSettings | None = None,
    groups: Iterable[str] = (),
    link: Link | str | None = None,
) -> Client:
    """Connect to an adapter, or to a client's relay: `async with connect(...) as client`.

    Arguments:
        uri: the adapter, `udp://host:port`.
        identity: the client's name, unique among all clients.
        position: where it is, a Position or (lat, lon). An application behind a relay has none.
        relay_port: listen there on loopback for local applications; 0 takes a free port.
        mediator: how much trouble which message is worth.
        groups: the groups it is in; `join` and `leave` change them.
        link: for trials, a lossy link that everything goes through, such as "cellular,loss=0.1".
    """
    return Client(
        uri,
        identity=identity,
        position=position,
        heading_deg=heading_deg,
        speed_mps=speed_mps,
        settings=settings,
        relay_port=relay_port,
        connect_timeout_s=connect_timeout_s,
        mediator=mediator,
        groups=groups,
        link=link,
    )
