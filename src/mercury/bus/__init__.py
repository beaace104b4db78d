"""Durable topics behind one interface, chosen by URI."""

from mercury.bus.api import (
    Bus,
    Consumer,
    FromOffset,
    FromTime,
    Headers,
    Record,
    Retention,
    Start,
)
from mercury.bus.registry import open_bus

__all__ = [
    "Bus",
    "Consumer",
    "FromOffset",
    "FromTime",
    "Headers",
    "Record",
    "Retention",
    "Start",
    "open_bus",
]
