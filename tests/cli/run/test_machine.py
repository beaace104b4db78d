"""Waiting for the parts of one machine."""

from __future__ import annotations

import asyncio
import gc

import pytest
from live import in_loop, iterate

from mercury.bus import open_bus
from mercury.cli.run.machine import Machine, Parts
from mercury.model.errors import MercuryError
from mercury.service.supervisor import Part, Supervisor


@in_loop  # which fails for what asyncio would print
async def test_a_wait_that_ends_early_leaves_nothing_behind() -> None:
    bus = open_bus("memory:")
    part = Part("adapter", [])
    machine = Machine(bus, Parts([part], None, None, None), Supervisor())
    with pytest.raises(MercuryError, match="adapter did not come up within 0.01 s"):
        await machine.ready(part, timeout_s=0.01)
    waiting = asyncio.create_task(machine.ready(part))
    await iterate()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    machine.stop.set()
    assert not await machine.ready(part)
    await iterate()
    gc.collect()
    machine.close()
    bus.close()
