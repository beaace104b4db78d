"""Ctrl-C, SIGTERM and a closed terminal ask for a clean stop; `nohup` is heeded."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from mercury.service.stop_signals import on_stop_signal


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops(number: signal.Signals) -> None:
    async def scenario() -> None:
        stop = asyncio.Event()
        on_stop_signal(stop.set)
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 5.0)

    asyncio.run(scenario())


def test_what_is_ignored_stays_ignored() -> None:
    async def scenario() -> None:
        stop = asyncio.Event()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        on_stop_signal(stop.set)
        os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.1)

    asyncio.run(scenario())
