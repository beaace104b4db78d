"""Detection as cores without clocks or I/O: bins of sensed events, and slow-down from telemetry."""

from mercury.detection.bin import MEASURES, Observation
from mercury.detection.bins import Counters, KindBins
from mercury.detection.bins_state import restore_bins, snapshot_bins
from mercury.detection.rules import DEFAULT_RULES, KindRule
from mercury.detection.verdict import Condition, Finding, Verdict

__all__ = [
    "DEFAULT_RULES",
    "MEASURES",
    "Condition",
    "Counters",
    "Finding",
    "KindBins",
    "KindRule",
    "Observation",
    "Verdict",
    "restore_bins",
    "snapshot_bins",
]
