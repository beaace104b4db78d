"""Where load goes to, chosen by URI: one small Protocol, one file for each."""

from mercury.load.drivers.api import Batch, Driver
from mercury.load.drivers.registry import open_driver

__all__ = ["Batch", "Driver", "open_driver"]
