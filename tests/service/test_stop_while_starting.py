"""A service that is told to stop before it is up: it ends, and leaves nothing open."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from mercury.bus import open_bus
from mercury.model.errors import ConfigurationError
from mercury.model.message import Address
from mercury.service import Service, Statistics


class Slow(Service):
    """Takes for ever to start, or fails at it."""

    part = "slow"
    stopped = False
    begun = False
    error: Exception | None = None

    def statistics(self) -> Statistics:
        return Statistics()

    async def _start(self) -> None:
        self.begun = True
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()

    async def _stop(self) -> None:
        self.stopped = True


def test_a_signal_while_it_starts_ends_it() -> None:
    async def scenario() -> None:
        bus = open_bus("memory:")
        service = Slow(bus, Address.service("slow"))
        running = asyncio.create_task(service.run())
        while not service.begun:
            await asyncio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 5.0)
        assert service.stopped
        assert not service.started
        bus.close()

    asyncio.run(scenario())


def test_what_goes_wrong_at_the_start_is_raised() -> None:
    async def scenario() -> None:
        bus = open_bus("memory:")
        service = Slow(bus, Address.service("slow"))
        service.error = ConfigurationError("no")
        with pytest.raises(ConfigurationError, match="no"):
            await service.run()
        assert service.stopped
        bus.close()

    asyncio.run(scenario())
