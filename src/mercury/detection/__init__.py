"""Detection as cores without clocks or I/O: bins of sensed events, and slow-down from telemetry."""

from mercury.detection.bin import MEASURES, Observation
from mercury.detection.bins import KindBins
from mercury.detection.bins_state import restore_bins, snapshot_bins
from mercury.detection.congestion import Congestion
from mercury.detection.congestion_state import restore_congestion, snapshot_congestion
from mercury.detection.rules import DEFAULT_RULES, KindRule
from mercury.detection.slowdown import CellSpeed, CongestionRule
from mercury.detection.verdict import DetectedCondition, Verdict

__all__ = [
    "DEFAULT_RULES",
    "MEASURES",
    "CellSpeed",
    "Congestion",
    "CongestionRule",
    "DetectedCondition",
    "KindBins",
    "KindRule",
    "Observation",
    "Verdict",
    "restore_bins",
    "restore_congestion",
    "snapshot_bins",
    "snapshot_congestion",
]
