"""State as bytes: columns one after the other, guarded by a version and a checksum."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from mercury.model.errors import SnapshotError

_HEADER = struct.Struct("<4sHI")  # which state, version, CRC-32 of the rest
_LENGTH = struct.Struct("<I")


class Packer:
    """Writes columns."""

    def __init__(self, magic: bytes, version: int) -> None:
        self._magic, self._version = magic, version
        self._parts: list[bytes] = []

    def ints(self, values: Sequence[int]) -> None:
        self._column(np.array(values, dtype="<i8").tobytes())

    def floats(self, values: Sequence[float]) -> None:
        self._column(np.array(values, dtype="<f8").tobytes())

    def blobs(self, values: Sequence[bytes]) -> None:
        self._column(np.array([len(value) for value in values], dtype="<u4").tobytes())
        self._column(b"".join(values))

    def texts(self, values: Iterable[str]) -> None:
        self.blobs([value.encode("utf-8", "surrogatepass") for value in values])

    def finish(self) -> bytes:
        body = b"".join(self._parts)
        return _HEADER.pack(self._magic, self._version, zlib.crc32(body)) + body

    def _column(self, data: bytes) -> None:
        self._parts += [_LENGTH.pack(len(data)), data]


class Unpacker:
    """Reads columns in the order they were written, or raises SnapshotError."""

    def __init__(self, data: bytes, magic: bytes, version: int) -> None:
        if len(data) < _HEADER.size:
            raise SnapshotError(f"a snapshot has at least {_HEADER.size} bytes, not {len(data)}")
        found, found_version, checksum = _HEADER.unpack_from(data)
        if found != magic:
            raise SnapshotError(f"the snapshot starts with {found!r}, not {magic!r}")
        if found_version != version:
            raise SnapshotError(f"the snapshot is of version {found_version}, this reads {version}")
        self._body = memoryview(data)[_HEADER.size :]
        if zlib.crc32(self._body) != checksum:
            raise SnapshotError("the snapshot is damaged: its checksum does not fit")
        self._at = 0

    def ints(self, count: int | None = None) -> list[int]:
        values: list[int] = self._numbers("<i8").tolist()
        return _counted(values, count)

    def floats(self, count: int | None = None) -> list[float]:
        values: list[float] = self._numbers("<f8").tolist()
        return _counted(values, count)

    def blobs(self, count: int | None = None) -> list[bytes]:
        lengths = self._numbers("<u4")
        joined = bytes(self._column())
        ends: list[int] = np.cumsum(lengths, dtype=np.int64).tolist()
        if (ends[-1] if ends else 0) != len(joined):
            raise SnapshotError("the snapshot is damaged: its texts do not fit their lengths")
        values = [
            joined[end - size : end] for end, size in zip(ends, lengths.tolist(), strict=True)
        ]
        return _counted(values, count)

    def texts(self, count: int | None = None) -> list[str]:
        try:
            return [value.decode("utf-8", "surrogatepass") for value in self.blobs(count)]
        except UnicodeDecodeError as error:
            raise SnapshotError("the snapshot is damaged: a text is no UTF-8") from error

    def finish(self) -> None:
        if self._at != len(self._body):
            raise SnapshotError(f"the snapshot has {len(self._body) - self._at} bytes too many")

    def _column(self) -> memoryview:
        start = self._at + _LENGTH.size
        if start > len(self._body):
            raise SnapshotError("the snapshot ends too early")
        (size,) = _LENGTH.unpack_from(self._body, self._at)
        if start + size > len(self._body):
            raise SnapshotError("the snapshot ends too early")
        self._at = start + size
        return self._body[start : self._at]

    def _numbers(self, dtype: str) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
        column = self._column()
        if len(column) % np.dtype(dtype).itemsize:
            raise SnapshotError("the snapshot is damaged: a column ends within a number")
        return np.frombuffer(column, dtype=dtype)


def _counted(values: list, count: int | None) -> list:  # type: ignore[type-arg]
    if count is not None and len(values) != count:
        raise SnapshotError(f"the snapshot has {len(values)} values where {count} belong")
    return values
