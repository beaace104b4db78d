"""Endpoints: clients on things that move, services on the bus."""

from mercury.client.client import Client
from mercury.client.connecting import connect
from mercury.client.endpoint import ServiceEndpoint
from mercury.client.near import MatchStream, MovingPublication
from mercury.client.subscriptions import ContentStream

__all__ = [
    "Client",
    "ContentStream",
    "MatchStream",
    "MovingPublication",
    "ServiceEndpoint",
    "connect",
]
