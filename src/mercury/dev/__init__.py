"""Real components for development and tests, fetched and run on this machine."""

from mercury.dev.kafka import KafkaBroker

__all__ = ["KafkaBroker"]
