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
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops(number: signal.Signals) -> None:
    async def scenario() -> None:
        stop = asyncio.Event()
        on_stop_signal(stop.set)
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 5.0)

    asyncio.run(scenario())


def test_an_interrupt_counts_also_in_the_background_of_a_shell() -> None:
    async def scenario() -> None:
        stop = asyncio.Event()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `command &` in a script leaves it
        on_stop_signal(stop.set)
        os.kill(os.getpid(), signal.SIGINT)
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
