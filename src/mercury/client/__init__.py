"""Endpoints: clients on things that move, services on the bus."""

from mercury.client.client import Client
from mercury.client.declaring import MatchStream, MovingPublication
from mercury.client.endpoint import ServiceEndpoint
from mercury.client.receipts import Receipts
from mercury.client.reception import ContentStream

connect = Client  # as it reads best: `async with connect(...) as client`

__all__ = [
    "Client",
    "ContentStream",
    "MatchStream",
    "MovingPublication",
    "Receipts",
    "ServiceEndpoint",
    "connect",
]
