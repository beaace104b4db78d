"""What all services share: clocks, statistics, metrics, logging, start and stop."""

from mercury.service.clock import epoch_us, instant, now, now_us
from mercury.service.service import Service
from mercury.service.statistics import Statistics

__all__ = ["Service", "Statistics", "epoch_us", "instant", "now", "now_us"]
