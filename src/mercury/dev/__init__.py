"""Real components for development and tests, fetched and run on this machine."""

from mercury.dev.kafka import KafkaBroker
from mercury.dev.spark import SparkCluster

__all__ = ["KafkaBroker", "SparkCluster"]
