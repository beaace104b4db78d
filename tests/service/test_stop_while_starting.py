"""A service that is told to stop before it is up: it ends, and leaves nothing open."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from mercury.bus import Bus, open_bus
from mercury.model.errors import BusUnavailableError, ConfigurationError
from mercury.model.message import Address
from mercury.service import Service, Statistics


class Slow(Service):
    """Takes for ever to start, or fails at it."""

    part = "slow"
    stopped = False
    error: Exception | None = None

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, Address.service("slow"))
        self.begun = asyncio.Event()

    def statistics(self) -> Statistics:
        return Statistics()

    async def _start(self) -> None:
        self.begun.set()
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()

    async def _stop(self) -> None:
        self.stopped = True


def test_a_signal_while_it_starts_ends_it() -> None:
    async def scenario() -> None:
        bus = open_bus("memory:")
        service = Slow(bus)
        running = asyncio.create_task(service.run())
        await service.begun.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 5.0)
        assert service.stopped
        assert not service.has_started.is_set()
        bus.close()

    asyncio.run(scenario())


def test_a_task_that_fails_meanwhile_is_no_clean_end() -> None:
    async def fail() -> None:
        raise ConfigurationError("boom")

    async def scenario() -> None:
        bus = open_bus("memory:")
        service = Slow(bus)
        running = asyncio.create_task(service.run())
        await service.begun.wait()
        service.spawn(fail())
        with pytest.raises(ConfigurationError, match="boom"):
            await asyncio.wait_for(running, 5.0)
        bus.close()

    asyncio.run(scenario())


class Quick(Slow):
    async def _start(self) -> None: ...


@pytest.mark.parametrize("known", [False, True])
def test_a_bus_that_takes_nothing_does_not_keep_it(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits a little for its goodbye, and hardly at all if the bus failed before."""
    monkeypatch.setattr("mercury.service.service._GOODBYE_S", 30.0 if known else 0.2)

    async def scenario() -> None:
        bus = open_bus("memory:")
        service = Quick(bus)
        await service.start()
        monkeypatch.setattr(bus, "flush", asyncio.Event().wait)
        if known:
            service.bus_failed(BusUnavailableError("away"))
        await asyncio.wait_for(service.stop(), 5.0)
        assert service.stopped
        bus.close()

    asyncio.run(scenario())


def test_what_goes_wrong_at_the_start_is_raised() -> None:
    async def scenario() -> None:
        bus = open_bus("memory:")
        service = Slow(bus)
        service.error = ConfigurationError("no")
        with pytest.raises(ConfigurationError, match="no"):
            await service.run()
        assert service.stopped
        bus.close()

    asyncio.run(scenario())
