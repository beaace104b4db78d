"""What Mercury's own tests stand on, for the tests of its users too."""

from mercury.testing.clock import SteppableClock
from mercury.testing.network import Datagram, HostileNetwork, NetworkStatistics

__all__ = ["Datagram", "HostileNetwork", "NetworkStatistics", "SteppableClock"]
