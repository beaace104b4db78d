"""Delivery over links that lose: acknowledge, repeat, remove doubles, measure (pMediator)."""

from mercury.mediator.dispatch import Dispatch, Shipment
from mercury.mediator.incoming import Arrival, Incoming
from mercury.mediator.mediator import Copy, Mediator
from mercury.mediator.outgoing import Outgoing
from mercury.mediator.peers import Numbers, Peers
from mercury.mediator.policy import (
    BY_STRENGTH,
    CRITICAL,
    FIRE_AND_FORGET,
    NAMES,
    REPEAT,
    Policies,
    Policy,
)
from mercury.mediator.report import Report

__all__ = [
    "BY_STRENGTH",
    "CRITICAL",
    "FIRE_AND_FORGET",
    "NAMES",
    "REPEAT",
    "Arrival",
    "Copy",
    "Dispatch",
    "Incoming",
    "Mediator",
    "Numbers",
    "Outgoing",
    "Peers",
    "Policies",
    "Policy",
    "Report",
    "Shipment",
]
