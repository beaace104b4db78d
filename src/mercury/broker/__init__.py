"""The broker: decisions that need one message alone."""

from mercury.broker.broker import Broker

__all__ = ["Broker"]
