"""Every example runs as its reader would run it, against a live adapter and broker."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from live import HERE, in_loop, live
from matching.bus_twin import bus_twin

from mercury import ServiceEndpoint
from mercury.net import bind_udp

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
LIMIT_S = 30.0
HERE_TEXT = f"--position={HERE.lat},{HERE.lon}"


@asynccontextmanager
async def running(name: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """An example as a process that does not outlive the test."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / f"{name}.py"),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().rstrip("\n")


async def ended_well(process: asyncio.subprocess.Process) -> str:
    """What it still wrote to stdout; nothing may stand on stderr."""
    output, errors = await process.communicate()
    assert errors.decode() == ""
    assert process.returncode == 0
    return output.decode()


@in_loop
async def test_echo() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        options = ("--adapter", f"udp://127.0.0.1:{adapter.port}", "--count=3", "--every=0.01")
        async with running("echo", *options) as echo:
            lines = (await ended_well(echo)).splitlines()
        assert [re.sub(r"[\d.]+ ms", "T", line) for line in lines] == [
            "1: T", "2: T", "3: T", "median T of 3",
        ]  # fmt: skip


@in_loop
async def test_alert_display() -> None:
    async with live() as world:
        adapter = await world.adapter()
        uri = f"udp://127.0.0.1:{adapter.port}"
        service = ServiceEndpoint(world.bus, "police")
        async with running("alert_display", "--adapter", uri, HERE_TEXT, "--count=2") as display:
            assert await line_of(display) == "alert-display is connected and waits for alerts"
            await service.alert(HERE, kind="emergency", text="crash ahead")
            await service.alert((0.0, 0.0), text="elsewhere")
            await service.alert(HERE, kind="notice", text="road works")
            lines = (await ended_well(display)).splitlines()
        assert [line.partition(" ")[2] for line in lines] == [
            "emergency: crash ahead",
            "notice: road works",
        ]


@in_loop
async def test_an_example_ends_by_itself_and_at_ctrl_c() -> None:
    async with live() as world:
        adapter = await world.adapter()
        uri = f"udp://127.0.0.1:{adapter.port}"
        async with running("alert_display", "--adapter", uri, "--for=0.1") as display:
            assert "is connected" in await ended_well(display)
        async with running("alert_display", "--adapter", uri) as display:
            await line_of(display)
            display.send_signal(signal.SIGINT)
            assert await ended_well(display) == ""


@in_loop
async def test_fuel_service_and_subscriber(tmp_path: Path) -> None:
    async with live(f"embedded:{tmp_path / 'bus.db'}") as world:
        adapter = await world.adapter()
        await world.broker()
        uri = f"udp://127.0.0.1:{adapter.port}"
        subscription = ("--brand=X", "--below=1.9", "--near=3000", "--count=2")
        async with running("fuel_subscriber", "--adapter", uri, *subscription) as subscriber:
            assert await line_of(subscriber) == (
                'subscribed: fuel_price < 1.9 and brand == "X", within 3000 m'
            )
            async with running("fuel_service", "--bus", world.uri, "--count=1") as service:
                prices = (await ended_well(service)).splitlines()
            offers = (await ended_well(subscriber)).splitlines()
        assert [line.split(" (")[0] for line in prices] == [
            "State Street", "Temple Square", "Sugar House", "Airport",
        ]  # fmt: skip
        assert sorted(offers) == sorted(
            line.replace(" (X)", "") for line in prices if "(X)" in line
        )


@in_loop
async def test_near_me() -> None:
    async with live() as world, bus_twin(world.bus):
        adapter = await world.adapter()
        uri = f"udp://127.0.0.1:{adapter.port}"
        async with running("near_me", "--adapter", uri, "--every=0.05", "--seats=2") as example:
            lines = (await ended_well(example)).splitlines()
        assert lines[0] == "waiting for 2 seats within 500 m"
        # The nearer begins nearer, and each comes and goes once.
        assert sorted(lines[1:]) == [
            "enter taxi-2 (2 seats)", "enter taxi-3 (3 seats)",
            "exit taxi-2 (2 seats)", "exit taxi-3 (3 seats)",
        ]  # fmt: skip
        for name in ("taxi-2 (2 seats)", "taxi-3 (3 seats)"):
            assert lines.index(f"enter {name}") < lines.index(f"exit {name}")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fuel_service"])
@in_loop
async def test_a_wrong_address_is_one_clear_sentence(name: str) -> None:
    with bind_udp("127.0.0.1", 0):
        async with running(name, "--adapter", "http://nowhere") as example:
            output, errors = await example.communicate()
    assert example.returncode == 1
    assert output == b""
    sentence = f"{name}: 'http://nowhere' is no adapter address, expected udp://HOST:PORT"
    assert errors.decode().strip() == sentence


def test_every_example_is_listed_and_explains_itself() -> None:
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for name in NAMES:
        assert f"]({name}.py)" in listed
        assert "python examples/" + name in (EXAMPLES / f"{name}.py").read_text("utf-8")
