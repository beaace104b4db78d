"""How far a topic's records go: a page of memory that all processes share.

The page has two slots. A writer, who holds the topic's lock, fills the one that is not in use and
then switches to it, so that readers need no lock, and the death of a writer changes nothing. A
page that is damaged can always be made anew from the topic's files.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mercury.bus.embedded.lock import open_shared
from mercury.model.errors import BusCorruptError

_MAGIC = b"MERCLOG2"
_PAGE_BYTES = mmap.PAGESIZE
# The first word counts the switches, the second says which files are known to be on the disk.
_VERSION, _SYNCED = 0, 1
_MAGIC_AT, _BOOT_AT, _BOOT_BYTES = 16, 24, 36
_SLOT_AT = (64, 128)
_SLOT = struct.Struct("<QQQQQQQ")  # the switch it was filled for, and the state
_CHECK_BYTES = 4
_TRIES = 1000  # a reader meets a writer in the same slot only if two switches pass meanwhile


class PageDamagedError(BusCorruptError):
    """The page is missing or damaged; the topic's files say what was in it."""


class LogState(NamedTuple):
    """How far a topic goes, at one moment."""

    oldest: int  # offset of the oldest record that is kept
    next: int  # offset of the record to come
    segment: int  # the file being written, named after its first offset
    size: int  # how many bytes of it are good
    last_us: int  # time of the newest record
    uptime_us: int = 0  # when that was appended, by a clock that nobody sets


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
                self._inode = os.fstat(file.fileno()).st_ino
        except (FileNotFoundError, ValueError) as error:
            raise PageDamagedError(f"the bus file {path} is missing or damaged") from error
        self._words = memoryview(self._memory).cast("Q")

    @staticmethod
    def create(path: Path, state: LogState, *, is_checked: bool = True) -> None:
        """Make a page; one that is not checked is made from the files when it is opened."""
        page = bytearray(_PAGE_BYTES)
        page[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] = _MAGIC
        if is_checked:
            page[_BOOT_AT : _BOOT_AT + _BOOT_BYTES] = _boot_id()
        _fill_slot(page, 0, state)
        # In place: who has it in memory must not find it shorter meanwhile.
        file = open_shared(path, os.O_WRONLY, like=path.parent)
        try:
            os.write(file, page)
        finally:
            os.close(file)

    def state(self) -> LogState:
        """Where the log begins and ends now."""
        words = self._words
        for _ in range(_TRIES):
            version = words[_VERSION]
            slot = self._slot(_SLOT_AT[version & 1])
            if slot is not None and slot[0] == version:
                return LogState._make(slot[1:])
        raise PageDamagedError(f"the bus file {self.path} is damaged")

    def _slot(self, at: int) -> tuple[int, ...] | None:
        """What is in a slot, if it is whole."""
        slot = self._memory[at : at + _SLOT.size]
        check = self._memory[at + _SLOT.size : at + _SLOT.size + _CHECK_BYTES]
        return _SLOT.unpack(slot) if zlib.crc32(slot) == int.from_bytes(check, "little") else None

    def newest_whole(self) -> LogState | None:
        """The last state that is not damaged; the page may have seen one after it."""
        if self._memory[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] != _MAGIC:
            return None
        slots = [slot for at in _SLOT_AT if (slot := self._slot(at)) is not None]
        return LogState._make(max(slots)[1:]) if slots else None

    def restore(self, state: LogState) -> None:
        """Publish a state that was made from the files; for the holder of the topic's lock."""
        self._memory[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] = _MAGIC
        self._memory[_BOOT_AT : _BOOT_AT + _BOOT_BYTES] = _boot_id()
        slots = [slot for at in _SLOT_AT if (slot := self._slot(at)) is not None]
        self._words[_VERSION] = max(slots)[0] if slots else 0
        self.publish_end(state)

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
    def is_current(self) -> bool:
        """Whether other processes that open the page now see the same one."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            return False

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine has run ever since the page was last checked."""
        return self._memory[_BOOT_AT : _BOOT_AT + _BOOT_BYTES] == _boot_id()

    def close(self) -> None:
        self._words.release()
        self._memory.close()


def _fill_slot(memory: bytearray | mmap.mmap, version: int, state: LogState) -> None:
    slot = _SLOT.pack(version, *state)
    at = _SLOT_AT[version & 1]
    check = zlib.crc32(slot).to_bytes(_CHECK_BYTES, "little")
    memory[at : at + _SLOT.size + _CHECK_BYTES] = slot + check
