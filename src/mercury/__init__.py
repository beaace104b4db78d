"""Geo-aware messaging and alerting for things that move."""

from mercury.client import (
    Client,
    ContentStream,
    MatchStream,
    MovingPublication,
    Receipts,
    ServiceEndpoint,
    connect,
)
from mercury.model.area import (
    Area,
    Circle,
    Corridor,
    Ellipse,
    HeadingSector,
    Polygon,
    Position,
    Rectangle,
)
from mercury.model.errors import MercuryError
from mercury.model.matching import EventReason, EventType, Match
from mercury.model.message import Address, DeliveryPolicy, EventKind, Kind, Message, Priority
from mercury.session import SessionSettings

__version__ = "0.1.0"

__all__ = [
    "Address",
    "Area",
    "Circle",
    "Client",
    "ContentStream",
    "Corridor",
    "DeliveryPolicy",
    "Ellipse",
    "EventKind",
    "EventReason",
    "EventType",
    "HeadingSector",
    "Kind",
    "Match",
    "MatchStream",
    "MercuryError",
    "Message",
    "MovingPublication",
    "Polygon",
    "Position",
    "Priority",
    "Receipts",
    "Rectangle",
    "ServiceEndpoint",
    "SessionSettings",
    "connect",
]
