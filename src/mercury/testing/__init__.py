"""A clock and a network for tests: of Mercury itself, and of its users."""

from mercury.testing.clock import SteppableClock
from mercury.testing.network import Datagram, HostileNetwork, NetworkStatistics

__all__ = ["Datagram", "HostileNetwork", "NetworkStatistics", "SteppableClock"]
