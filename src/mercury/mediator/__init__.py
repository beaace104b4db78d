"""Delivery over lossy links: acknowledge, retry, remove duplicates, measure (pMediator)."""

from mercury.mediator.dispatch import Dispatch
from mercury.mediator.incoming import Arrival, Incoming
from mercury.mediator.outgoing import Outgoing
from mercury.mediator.peers import Numbers
from mercury.mediator.policy import BY_STRENGTH, CRITICAL, NAMES, Policies, Policy
from mercury.mediator.report import Report
from mercury.mediator.room import Room

__all__ = [
    "BY_STRENGTH",
    "CRITICAL",
    "NAMES",
    "Arrival",
    "Dispatch",
    "Incoming",
    "Numbers",
    "Outgoing",
    "Policies",
    "Policy",
    "Report",
    "Room",
]
