"""The state of one kind's bins as bytes, and back."""

from __future__ import annotations

from dataclasses import fields
from itertools import islice

from mercury.detection.alerts_in_force import Alert
from mercury.detection.bin import Bin, Member, Observation
from mercury.detection.bins import MAX_BINS, MAX_REPORTERS, Counters, KindBins
from mercury.detection.rules import KindRule
from mercury.detection.snapshot import Packer, Unpacker
from mercury.geo.space import Point
from mercury.model.errors import SnapshotError

_MAGIC = b"MBIN"
_VERSION = 1


def snapshot_bins(state: KindBins) -> bytes:
    """Everything that a decision can depend on, to the last digit."""
    packer = Packer(_MAGIC, _VERSION)
    packer.texts([state.rule.kind])
    packer.ints([state.frontier_us, state.closed_us])
    packer.ints(state.counters.values())

    waiting = state.waiting
    packer.ints([one.time_us for one in waiting])
    packer.blobs([one.id for one in waiting])
    packer.texts(one.reporter for one in waiting)
    packer.floats([number for one in waiting for number in one[3:]])

    bins = list(state.bins)
    packer.ints([number for bin in bins for number in _numbers(bin)])
    packer.blobs([bin.rank[1] for bin in bins])
    packer.blobs([bin.incident_id for bin in bins])
    packer.floats([number for bin in bins for number in bin.total])

    packer.texts(reporter for bin in bins for reporter in bin.members)
    members = [member for bin in bins for member in bin.members.values()]
    packer.ints([member.time_us for member in members])
    packer.blobs([member.id for member in members])
    packer.floats([n for m in members for n in (*m.point, m.speed_mps, m.heading_deg)])

    alerts = list(state.alerts)
    packer.ints([number for alert in alerts for number in (alert.rank[0], alert.until_us)])
    packer.blobs([alert.rank[1] for alert in alerts])
    packer.blobs([alert.incident_id for alert in alerts])
    packer.floats([number for alert in alerts for number in alert.point])
    return packer.finish()


def restore_bins(
    rule: KindRule,
    data: bytes,
    *,
    max_bins: int = MAX_BINS,
    max_reporters: int = MAX_REPORTERS,
) -> KindBins:
    """The bins as they were, to go on under a rule of the same kind, or SnapshotError.

    All but the kind may have changed in the rule meanwhile; it then holds from now on.
    """
    state = KindBins(rule, max_bins=max_bins, max_reporters=max_reporters)
    unpacker = Unpacker(data, _MAGIC, _VERSION)
    (kind,) = unpacker.texts(1)
    if kind != rule.kind:
        raise SnapshotError(f"the snapshot is of kind {kind!r}, not {rule.kind!r}")
    state.frontier_us, state.closed_us = unpacker.ints(2)
    state.counters = Counters(*unpacker.ints(len(fields(Counters))))
    state.waiting = _read_waiting(unpacker)
    for bin in _read_bins(unpacker):
        state.put(bin)
    for alert in _read_alerts(unpacker):
        state.alerts.put(alert)
    unpacker.finish()
    return state


def _numbers(bin: Bin) -> tuple[int, ...]:
    return (bin.since_us, bin.last_us, bin.heard_us, bin.reports, bin.alerted, len(bin.members))


def _read_waiting(unpacker: Unpacker) -> list[Observation]:
    times_us = unpacker.ints()
    size = len(times_us)
    ids, reporters = unpacker.blobs(size), unpacker.texts(size)
    numbers = _rows(unpacker.floats(4 * size), 4)
    return [
        Observation(time_us, id, reporter, *row)
        for time_us, id, reporter, row in zip(times_us, ids, reporters, numbers, strict=True)
    ]


def _read_bins(unpacker: Unpacker) -> list[Bin]:
    numbers = unpacker.ints()
    if len(numbers) % 6:
        raise SnapshotError("the snapshot is damaged: a bin is not whole")
    size = len(numbers) // 6
    firsts, incidents = unpacker.blobs(size), unpacker.blobs(size)
    totals = unpacker.floats(3 * size)
    members = iter(_read_members(unpacker, sum(numbers[5::6])))
    bins = []
    for i in range(size):
        since_us, last_us, heard_us, reports, alerted, count = numbers[6 * i : 6 * i + 6]
        own = dict(islice(members, count))
        if len(own) != count or not own:
            raise SnapshotError("the snapshot is damaged: a bin has no or doubled reporters")
        total: Point = (totals[3 * i], totals[3 * i + 1], totals[3 * i + 2])
        rank = (since_us, firsts[i])
        bins.append(
            Bin.restored(own, total, rank, (last_us, heard_us), (reports, alerted), incidents[i])
        )
    return bins


def _read_members(unpacker: Unpacker, size: int) -> list[tuple[str, Member]]:
    reporters, times_us = unpacker.texts(size), unpacker.ints(size)
    ids, rows = unpacker.blobs(size), _rows(unpacker.floats(5 * size), 5)
    return [
        (reporter, Member(time_us, id, (row[0], row[1], row[2]), row[3], row[4]))
        for reporter, time_us, id, row in zip(reporters, times_us, ids, rows, strict=True)
    ]


def _read_alerts(unpacker: Unpacker) -> list[Alert]:
    numbers = unpacker.ints()
    size = len(numbers) // 2
    ids, incidents = unpacker.blobs(size), unpacker.blobs(size)
    places = _rows(unpacker.floats(3 * size), 3)
    return [
        Alert((x, y, z), (numbers[2 * i], ids[i]), numbers[2 * i + 1], incidents[i])
        for i, (x, y, z) in enumerate(places)
    ]


def _rows(numbers: list[float], width: int) -> list[tuple[float, ...]]:
    return list(zip(*(numbers[i::width] for i in range(width)), strict=True))
