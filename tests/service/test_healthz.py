"""`/healthz` of a service that runs: ok only while it does its work."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import time
from contextlib import closing
from pathlib import Path

import pytest
from live import connect, http_get, in_loop, iterate, live, until

from mercury.adapter import Adapter
from mercury.bus import Bus, catch_up, open_bus
from mercury.model import topics
from mercury.model.errors import BusAwayError, BusUnavailableError, JobFailedError
from mercury.model.message import Address
from mercury.service import Service, Statistics
from mercury.service.clock import now
from mercury.service.service import STATUS_INTERVAL_S
from mercury.service.status import Status, read_status


class Part(Service):
    """A service that does nothing of its own."""

    part = "part"
    opens: asyncio.Event | None = None
    wrong = ""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, Address.service("part-1"), metrics=("127.0.0.1", 0))

    def statistics(self) -> Statistics:
        return Statistics({"gauge": 1})

    def trouble(self) -> str:
        return self.wrong

    async def _start(self) -> None:
        if self.opens is not None:
            await self.opens.wait()

    async def _stop(self) -> None:
        pass


async def page(service: Service, path: str) -> tuple[int, str]:
    assert service.metrics is not None
    return await http_get(service.metrics.port, path)


async def health(service: Service) -> tuple[int, dict[str, str]]:
    code, text = await page(service, "/healthz")
    return code, json.loads(text)


def reports(bus: Bus) -> list[Status]:
    consumer = bus.subscribe((topics.STATUS,), start="earliest")
    found = [read_status(one) for some in catch_up(consumer) for one in some]
    consumer.close()
    return [one for one in found if one is not None]


@pytest.mark.parametrize(("kind", "lines"), [(BusUnavailableError, 1), (BusAwayError, 0)])
@in_loop
async def test_that_nothing_can_be_reported_is_logged_unless_the_bus_has_done_so(
    kind: type[BusUnavailableError],
    lines: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with closing(open_bus(f"embedded:{tmp_path / 'bus.db'}")) as bus:
        service = Part(bus)

        async def flush() -> None:
            raise kind("it is away")

        monkeypatch.setattr(bus, "flush", flush)
        await service.start()
        await until(lambda: service.health.bus_fails(now()))
        await service.stop()
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == (
        ["cannot report status: it is away"] * lines
    )


@in_loop
async def test_a_bus_that_takes_nothing_is_told_at_once(tmp_path: Path) -> None:
    async with live(f"embedded:{tmp_path / 'bus.db'}") as world:
        adapter: Adapter = await world.adapter(metrics_port=0)
        async with connect(adapter, "car") as car:
            assert (await health(adapter))[0] == 200
            await car.publish("news", {"text": "taken"})
            await until(lambda: "content.news" in world.bus.topics())
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
            try:
                await car.publish("news", {"text": "lost"})
                # Before the next report, which would fail as well.
                await until(lambda: adapter.problem(), STATUS_INTERVAL_S / 2)
                code, said = await health(adapter)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert (code, said["status"]) == (503, "failing")
            assert said["reason"].startswith("the bus does not take what is appended: no space")
            # The bus takes it again: the reports go on, and say for a while what happened.
            told = len(reports(world.bus))
            await until(lambda: len(reports(world.bus)) > told)
            assert "no space is left" in reports(world.bus)[-1].problem


@in_loop
async def test_it_is_not_ok_before_it_has_started_nor_when_something_is_wrong() -> None:
    bus = open_bus("memory:")
    service = Part(bus)
    service.opens = asyncio.Event()
    starting = asyncio.create_task(service.start())
    await until(lambda: reports(bus))
    assert (await health(service))[0] == 503
    assert (await health(service))[1]["status"] == "starting"
    service.opens.set()
    await starting
    code, said = await health(service)
    assert (code, said) == (200, {"status": "ok", "part": "part", "gauge": 1})
    service.wrong = "Spark has not answered for 12 s"
    code, said = await health(service)
    assert (code, said["reason"]) == (503, "Spark has not answered for 12 s")
    # Who restarts what hangs must let it be.
    assert await page(service, "/livez") == (200, "alive\n")
    await service.stop()
    bus.close()


@in_loop
async def test_metrics_say_whether_it_is_well_and_show_losses_from_0() -> None:
    bus = open_bus("memory:")
    service = Part(bus)
    await service.start()
    lines = (await page(service, "/metrics"))[1].splitlines()
    assert "mercury_healthy 1.0" in lines
    assert 'mercury_part_dropped_total{reason="bus-full"} 0.0' in lines
    assert 'mercury_part_dropped_total{reason="bus-unavailable"} 0.0' in lines
    service.wrong = "Spark has not answered for 12 s"
    assert "mercury_healthy 0.0" in (await page(service, "/metrics"))[1].splitlines()
    await service.stop()
    bus.close()


@in_loop
async def test_a_loop_that_stood_still_is_told() -> None:
    bus = open_bus("memory:")
    service = Part(bus)
    await service.start()
    await iterate(2)  # the meter has begun
    time.sleep(1.2)  # noqa: ASYNC251 - really blocks the loop, which is what is measured
    await until(lambda: service.stalls.longest_s > 1.0)
    code, said = await health(service)
    assert code == 503
    assert said["reason"].startswith("the event loop stood still for 1.")
    await service.stop()
    bus.close()


@in_loop
async def test_a_consumer_that_falls_behind_is_told() -> None:
    bus = open_bus("memory:")
    service = Part(bus)
    await service.start()
    consumer = bus.subscribe(("work",))
    bus.append("work", b"1")
    assert len(await service.read(consumer)) == 1
    assert (await health(service))[0] == 200
    service.health.took(consumer, time.monotonic() - 9.0, 0.0)  # it has worked on that for 9 s
    code, said = await health(service)
    assert (code, said["reason"]) == (503, "it is 9 s behind what is on the bus")
    await service.stop()
    bus.close()


@in_loop
async def test_who_stops_says_goodbye_and_who_fails_says_why() -> None:
    bus = open_bus("memory:")
    service = Part(bus)
    await service.start()
    await until(lambda: "running" in [one.state for one in reports(bus)])
    await service.stop()
    states = [one.state for one in reports(bus)]
    assert states == ["running", "stopped"]  # it had started before it was its turn to report
    assert reports(bus)[-1].problem == ""

    async def end() -> None:
        raise JobFailedError("Spark does not answer")

    service = Part(bus)
    running = asyncio.create_task(service.run())
    await service.has_started.wait()
    service.spawn(end())
    with pytest.raises(JobFailedError):
        await running
    assert (reports(bus)[-1].state, reports(bus)[-1].problem) == (
        "stopped",
        "Spark does not answer",
    )
    bus.close()
