"""Durable topics behind one interface, chosen by URI."""

from mercury.bus.api import Bus, Consumer, FromTime, Headers, Record, Retention, Start, catch_up
from mercury.bus.registry import open_bus

__all__ = [
    "Bus",
    "Consumer",
    "FromTime",
    "Headers",
    "Record",
    "Retention",
    "Start",
    "catch_up",
    "open_bus",
]
