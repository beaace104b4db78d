"""Adapter and brokers as separate processes on one bus: crashes, restarts, clean ends."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from integration.processes import Process, Starter, free_udp_port, starting
from live import HERE, NEAR, first, in_loop, until

import mercury
from mercury import ServiceEndpoint
from mercury.session import SessionSettings

QUICK = SessionSettings(report_interval_s=0.3, init_retry_s=0.1, init_retry_max_s=0.3)


def connect(port: int, identity: str, position: mercury.Position = HERE) -> mercury.Client:
    return mercury.connect(
        f"udp://127.0.0.1:{port}",
        identity=identity,
        position=position,
        settings=QUICK,
        connect_timeout_s=20.0,
    )


async def start(starter: Starter, port: int) -> tuple[Process, Process]:
    adapter = starter("adapter", "--port", str(port), "--id", "adapter-1")
    broker = starter("broker", "--id", "broker-1")
    await asyncio.gather(adapter.ready(), broker.ready())
    return adapter, broker


@in_loop
async def test_echo_and_emergency_and_a_clean_end(tmp_path: Path) -> None:
    port = free_udp_port()
    with starting(tmp_path) as starter:
        adapter, broker = await start(starter, port)
        async with connect(port, "car") as car, connect(port, "near", NEAR) as near:
            assert await car.echo() > 0
            sent = await car.sense("emergency", text="crash")
            for client in (car, near):
                assert (await first(client)).correlation == sent.id
            second = starter("adapter", "--port", str(port), "--id", "adapter-2")
            assert await second.ended() != 0
            [line] = second.log.strip().splitlines()
            assert line.startswith(
                f"mercury: UDP port {port} on 127.0.0.1 is in use by process"
                f" {adapter.process.pid} (mercury adapter --bus embedded:"
            )
            assert await car.echo() > 0
        assert await broker.end(signal.SIGTERM) == 0
        assert await adapter.end(signal.SIGTERM) == 0
        assert "broker:broker-1 stopped" in broker.log
        assert "adapter:adapter-1 stopped" in adapter.log


@in_loop
async def test_no_request_is_lost_when_a_broker_is_killed(tmp_path: Path) -> None:
    port = free_udp_port()
    with starting(tmp_path) as starter:
        _, broker = await start(starter, port)
        async with connect(port, "car") as car:
            assert await car.echo() > 0
            assert await broker.end(signal.SIGKILL) == -signal.SIGKILL
            # These reach the bus while no broker is there.
            waiting = [
                asyncio.create_task(car.request("echo", {"n": number}, timeout_s=30.0))
                for number in range(20)
            ]
            await until(lambda: car.counters["sent"] == 21)
            another = starter("broker", "--id", "broker-2")
            await another.ready()
            replies = await asyncio.gather(*waiting)
            assert [reply.values["n"] for reply in replies] == list(range(20))
            assert {str(reply.source) for reply in replies} == {"broker:broker-2"}
            assert await another.end(signal.SIGINT) == 0


@in_loop
async def test_clients_come_back_after_the_adapter_was_killed(tmp_path: Path) -> None:
    port = free_udp_port()
    with starting(tmp_path) as starter:
        adapter, _ = await start(starter, port)
        async with (
            connect(port, "car") as car,
            ServiceEndpoint(starter.bus, "police") as police,
        ):
            fuel = await car.subscribe("fuel")
            alert = await police.alert(HERE, text="stands", validity_s=120.0)
            assert (await first(car)).id == alert.id
            assert await adapter.end(signal.SIGKILL) == -signal.SIGKILL
            missed = await police.alert(HERE, text="missed", validity_s=120.0)
            again = starter("adapter", "--port", str(port), "--id", "adapter-1")
            await again.ready()
            await until(lambda: car.session.sessions_opened == 2, timeout_s=20.0)
            assert (await first(car)).id == missed.id
            async with connect(port, "newcomer") as newcomer:
                heard = {(await first(newcomer)).id for _ in range(2)}
                assert heard == {alert.id, missed.id}
            assert await car.echo(timeout_s=20.0) > 0
            await police.publish("fuel", {"price": 1.5})
            assert (await first(fuel)).values == {"price": 1.5}
            # The restarted adapter heard that the first alert was seen, and did not repeat it.
            assert car.dropped["repeated"] == 0
            assert len(car.inbox) == 0
            assert await again.end(signal.SIGTERM) == 0
