"""`mercury down`: end what a `mercury up` started."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from mercury.cli.common import command
from mercury.cli.common.spinner import waiting
from mercury.service.claim import holder_of

_STOP_S = 60.0  # each part may take a while to finish
_LOOK_EVERY_S = 0.1


def down(config: command.ConfigOption = None, bus: command.BusOption = None) -> None:
    """End the `mercury up` of a bus and all its parts; exit code 1 if none runs."""
    uri = command.settings_for(config, bus__uri=bus).bus.uri
    holder = holder_of(uri)
    if holder is None:
        command.fail(f"no mercury up runs on {uri} here; --bus names another bus")
    parts = ", ".join(holder.parts) or "no parts yet"
    how = "ended"
    with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
        os.kill(holder.process, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    with waiting(f"ending process {holder.process}"):
        while (one := holder_of(uri)) is not None and one.process == holder.process:
            if time.monotonic() > deadline and how == "ended":
                how = "killed"
                os.kill(holder.process, signal.SIGKILL)  # its parts notice, and end
            time.sleep(_LOOK_EVERY_S)
    print(f"{how} mercury up, process {holder.process}, on {uri} ({parts})")
