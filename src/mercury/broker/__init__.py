"""The broker: immediate decisions."""

from mercury.broker.broker import Broker

__all__ = ["Broker"]
