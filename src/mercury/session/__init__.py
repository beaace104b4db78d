"""Sessions between clients and adapters, as cores without sockets or clocks."""

from mercury.session.adapter_side import (
    AdapterSessions,
    Answered,
    Closed,
    Opened,
    Received,
    Reported,
)
from mercury.session.both_sides import SessionSettings
from mercury.session.client_side import (
    AdapterAnswered,
    ClientEvent,
    ClientSession,
    Delivered,
    Established,
    Lost,
    Refused,
    SessionState,
)
from mercury.session.table import Session, SessionTable

__all__ = [
    "AdapterAnswered",
    "AdapterSessions",
    "Answered",
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
    "SessionSettings",
    "SessionState",
    "SessionTable",
]
