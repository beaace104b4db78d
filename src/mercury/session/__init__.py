"""Sessions between clients and adapters, as cores without sockets or clocks."""

from mercury.session.adapter_side import (
    AdapterSessions,
    Closed,
    Opened,
    Received,
    Reported,
    SessionEvent,
)
from mercury.session.client_side import (
    ClientEvent,
    ClientSession,
    Delivered,
    Established,
    Lost,
    Refused,
    SessionState,
)
from mercury.session.settings import SessionSettings
from mercury.session.table import Session, SessionTable

__all__ = [
    "AdapterSessions",
    "ClientEvent",
    "ClientSession",
    "Closed",
    "Delivered",
    "Established",
    "Lost",
    "Opened",
    "Received",
    "Refused",
    "Reported",
    "Session",
    "SessionEvent",
    "SessionSettings",
    "SessionState",
    "SessionTable",
]
