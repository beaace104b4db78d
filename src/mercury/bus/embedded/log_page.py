"""How far a topic's records go: a page of memory that all processes share.

The page has two slots. A writer, who holds the topic's lock, fills the one that is not in use and
then switches to it, so that readers need no lock, and the death of a writer changes nothing.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mercury.model.errors import BusCorruptError

_MAGIC = b"MERCLOG1"
_PAGE_BYTES = mmap.PAGESIZE
# The first word counts the switches, the second says which files are known to be on the disk.
_VERSION, _SYNCED = 0, 1
_MAGIC_AT, _BOOT_AT, _BOOT_BYTES = 16, 24, 36
_SLOT_AT = (64, 128)
_SLOT = struct.Struct("<QQQQQ")
_CHECK_BYTES = 4
_TRIES = 1000  # a reader meets a writer in the same slot only if two switches pass meanwhile


class LogState(NamedTuple):
    """How far a topic goes, at one moment."""

    oldest: int  # offset of the oldest record that is kept
    next: int  # offset of the record to come
    segment: int  # the file being written, named after its first offset
    size: int  # how many bytes of it are good
    last_us: int  # time of the newest record


@cache
def _boot_id() -> bytes:
    """Differs after each start of the machine, where that can be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        boot = b""
    return boot[:_BOOT_BYTES].ljust(_BOOT_BYTES, b"\0")


class LogPage:
    def __init__(self, path: Path, access: int = mmap.ACCESS_WRITE) -> None:
        self.path = path
        try:
            with path.open("rb" if access == mmap.ACCESS_READ else "rb+") as file:
                self._memory = mmap.mmap(file.fileno(), _PAGE_BYTES, access=access)
        except (FileNotFoundError, ValueError) as error:
            raise BusCorruptError(f"the bus file {path} is missing or damaged") from error
        self._words = memoryview(self._memory).cast("Q")
        if self._memory[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] != _MAGIC:
            self.close()
            raise BusCorruptError(f"the bus file {path} is damaged")

    @staticmethod
    def create(path: Path, state: LogState) -> None:
        page = bytearray(_PAGE_BYTES)
        page[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] = _MAGIC
        page[_BOOT_AT : _BOOT_AT + _BOOT_BYTES] = _boot_id()
        _fill_slot(page, 0, state)
        path.write_bytes(page)

    def state(self) -> LogState:
        """Where the log begins and ends now."""
        memory, words = self._memory, self._words
        for _ in range(_TRIES):
            at = _SLOT_AT[words[_VERSION] & 1]
            slot = memory[at : at + _SLOT.size]
            check = memory[at + _SLOT.size : at + _SLOT.size + _CHECK_BYTES]
            if zlib.crc32(slot) == int.from_bytes(check, "little"):
                return LogState._make(_SLOT.unpack(slot))
        raise BusCorruptError(f"the bus file {self.path} is damaged")

    def publish_end(self, state: LogState) -> None:
        """Let everybody see a new state; for the holder of the topic's lock."""
        version = self._words[_VERSION] + 1
        _fill_slot(self._memory, version, state)
        self._words[_VERSION] = version

    @property
    def synced(self) -> int:
        """All files before the one of this name are known to be on the disk."""
        return self._words[_SYNCED]

    @synced.setter
    def synced(self, segment: int) -> None:
        self._words[_SYNCED] = segment

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine has run ever since the page was last checked."""
        return self._memory[_BOOT_AT : _BOOT_AT + _BOOT_BYTES] == _boot_id()

    def trust(self) -> None:
        """Note that the files were checked since the machine started."""
        self._memory[_BOOT_AT : _BOOT_AT + _BOOT_BYTES] = _boot_id()

    def close(self) -> None:
        self._words.release()
        self._memory.close()


def _fill_slot(memory: bytearray | mmap.mmap, version: int, state: LogState) -> None:
    slot = _SLOT.pack(*state)
    at = _SLOT_AT[version & 1]
    check = zlib.crc32(slot).to_bytes(_CHECK_BYTES, "little")
    memory[at : at + _SLOT.size + _CHECK_BYTES] = slot + check
