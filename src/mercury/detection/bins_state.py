"""The state of one kind's bins as bytes, and back."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from mercury.detection.alerts_in_force import Alert
from mercury.detection.bin import Bin, Member, Observation
from mercury.detection.bins import Counters, KindBins
from mercury.detection.rules import KindRule
from mercury.detection.snapshot import pack, unpack
from mercury.model.errors import SnapshotError

_MAGIC = b"MBIN"


def snapshot_bins(state: KindBins) -> bytes:
    """All state that decisions depend on, exactly."""
    document = {
        "kind": state.rule.kind,
        "frontier_us": state.newest_us,
        "closed_us": state.closed_us,
        "counters": astuple(state.counters),
        "waiting": state.waiting,
        "bins": [_bin_to_json(bin) for bin in state.bins],
        "alerts": [
            (alert.point, alert.rank, alert.until_us, alert.incident_id) for alert in state.alerts
        ],
    }
    return pack(_MAGIC, document)


def restore_bins(rule: KindRule, data: bytes) -> KindBins:
    """Restore the bins, under a rule of the same kind, or raise SnapshotError.

    The rule may have changed meanwhile, except its kind; the new one applies from now on.
    """

    def read(document: dict[str, Any]) -> KindBins:
        if document["kind"] != rule.kind:
            raise SnapshotError(f"the snapshot is of kind {document['kind']!r}, not {rule.kind!r}")
        state = KindBins(rule)
        state.newest_us, state.closed_us = document["frontier_us"], document["closed_us"]
        state.counters = Counters(*document["counters"])
        state.waiting = [
            Observation(time_us, bytes.fromhex(id), *rest)
            for time_us, id, *rest in document["waiting"]
        ]
        for fields in document["bins"]:
            state.put(_bin_from_json(**fields))
        for point, rank, until_us, incident_id in document["alerts"]:
            incident = bytes.fromhex(incident_id)
            state.alerts.put(Alert(tuple(point), _rank(*rank), until_us, incident))
        return state

    return unpack(_MAGIC, data, read)


def _bin_to_json(bin: Bin) -> dict[str, Any]:
    return {
        "members": [(reporter, *member) for reporter, member in bin.members.items()],
        "total": bin.total,
        "rank": bin.rank,
        "times_us": (bin.last_us, bin.heard_us),
        "counts": (bin.reports, bin.alerted),
        "incident_id": bin.incident_id,
    }


def _bin_from_json(
    members: list[Any], total: Any, rank: Any, times_us: Any, counts: Any, incident_id: str
) -> Bin:
    own = {
        reporter: Member(time_us, bytes.fromhex(id), tuple(point), *rest)
        for reporter, time_us, id, point, *rest in members
    }
    if len(own) != len(members) or not own:
        raise SnapshotError("the snapshot is damaged: a bin has no or doubled reporters")
    bin = Bin(*next(iter(own.items())))
    bin.members, bin.total = own, tuple(total)
    bin.recentre()
    bin.rank = _rank(*rank)
    bin.last_us, bin.heard_us = times_us
    bin.reports, bin.alerted = counts
    bin.incident_id = bytes.fromhex(incident_id)
    return bin


def _rank(time_us: int, id: str) -> tuple[int, bytes]:
    return time_us, bytes.fromhex(id)
