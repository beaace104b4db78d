"""Structured logs on stderr: for people by default, one JSON object a line for programs."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TYPE_CHECKING, TextIO

from mercury.model.printable import printable_lines
from mercury.service import supervisor_link

if TYPE_CHECKING:
    _Handler = logging.StreamHandler[TextIO]
else:
    _Handler = logging.StreamHandler


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "part": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _Lines(logging.Formatter):
    """A line for people; names and texts of others may be in it."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


class _Stderr(_Handler):
    """Writes to the current sys.stderr: a live display redirects it while shown."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def set_up_logs(level: str, *, json_lines: bool = False) -> None:
    """Send the package's logs to stderr."""
    handler = _Stderr(sys.stderr)
    whose = supervisor_link.part or "%(name)s"
    text = _Lines(f"%(asctime)s %(levelname)-7s {whose}: %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonLines() if json_lines else text)
    root = logging.getLogger("mercury")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
