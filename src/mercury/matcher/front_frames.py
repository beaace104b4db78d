"""What a front says in one turn of the loop, and the records that this makes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercury.model.matching import NearSubscription, Publication
from mercury.wire.match_frames import (
    MOVES,
    WITHDRAWALS,
    FrameWriter,
    Rows,
    bucket_key,
    buckets_of,
    by_bucket,
    rows,
    to_e7,
)

Said = tuple[Publication | NearSubscription, int]  # and the time of its declaration


class FrontRecord(NamedTuple):
    """A record for `moving`, and what would be lost without it."""

    key: bytes
    value: bytes
    declared: list[int]  # keys
    rows: int  # moves and withdrawals


class FrontFrames:
    """Collects a turn; of each bucket it goes out as: what is no more, what is new, what moved."""

    def __init__(self) -> None:
        self._withdrawn: list[tuple[int, int]] = []
        self._declared: dict[int, Said] = {}
        self._moves: list[Rows] = []
        self._sequence = 0

    def __bool__(self) -> bool:
        return bool(self._withdrawn or self._declared or self._moves)

    def withdraw(self, key: int, time_us: int) -> None:
        self._withdrawn.append((key, time_us))

    def declare(self, key: int, what: Publication | NearSubscription, time_us: int) -> None:
        self._declared[key] = (what, time_us)

    def is_declared(self, key: int) -> bool:
        """Whether it is declared in this turn."""
        return key in self._declared

    def move(
        self,
        keys: NDArray[np.uint64],
        lats: NDArray[np.float64],
        lons: NDArray[np.float64],
        times_us: NDArray[np.int64],
        accuracy_m: NDArray[np.float64],
    ) -> None:
        sequence = np.arange(self._sequence, self._sequence + len(keys)) & 0xFFFF_FFFF
        self._sequence += len(keys)
        self._moves.append(
            rows(
                MOVES, len(keys), key=keys, time_us=times_us, lat_e7=to_e7(lats),
                lon_e7=to_e7(lons), accuracy_m=accuracy_m, sequence=sequence,
            )
        )  # fmt: skip

    def take(self) -> list[FrontRecord]:
        """One record for each bucket that something was said of; the next turn begins."""
        withdrawn = by_bucket(np.array(self._withdrawn, WITHDRAWALS))
        moves = by_bucket(np.concatenate(self._moves)) if self._moves else {}
        declared: dict[int, dict[int, Said]] = {}
        keys = np.fromiter(self._declared, np.uint64, len(self._declared))
        for bucket, (key, said) in zip(
            buckets_of(keys).tolist(), self._declared.items(), strict=True
        ):
            declared.setdefault(bucket, {})[key] = said
        self._withdrawn, self._declared, self._moves = [], {}, []
        records = []
        for bucket in sorted({*withdrawn, *declared, *moves}):
            frame = FrameWriter()
            if bucket in withdrawn:
                frame.withdraw(withdrawn[bucket])
            if bucket in declared:
                frame.declare(declared[bucket].values())
            if bucket in moves:
                frame.move(moves[bucket])
            records.append(
                FrontRecord(
                    bucket_key(bucket),
                    frame.to_bytes(),
                    list(declared.get(bucket, ())),
                    len(moves.get(bucket, ())) + len(withdrawn.get(bucket, ())),
                )
            )
        return records
