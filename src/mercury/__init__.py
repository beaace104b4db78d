"""Geo-aware messaging and alerting for things that move."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Where the names above are defined, those that are imported fast first.
_MODULES = ("model.errors", "model.area", "model.message", "model.matching", "session", "client")


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the command line must not wait for all of them."""
    if name in __all__:
        for module in _MODULES:
            found = getattr(import_module(f"mercury.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module 'mercury' has no attribute {name!r}")
