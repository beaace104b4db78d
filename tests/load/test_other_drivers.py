"""Redis, where there is one."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from live import eventually, in_loop
from load.test_websocket_drivers import SETTINGS, by_brute_force
from roads.streets import tangle

from mercury.load.drivers.api import open_driver
from mercury.load.generator import Generator
from mercury.load.workload import Workload
from mercury.model.errors import LoadError

ROADS = tangle(40, 1)


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder: Path = tmp_path_factory.mktemp("redis")
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen(
        [binary, *options, "--dir", str(folder)], stdout=subprocess.DEVNULL
    ) as process:
        try:
            client = redis.Redis("127.0.0.1", port)

            def answers() -> bool:
                with contextlib.suppress(redis.RedisError):
                    return bool(client.ping())
                return False

            eventually(answers, what="Redis answers")
            client.close()
            yield port
        finally:
            process.terminate()


def test_redis_brings_about_what_mercury_does(redis_port: int) -> None:
    load = Workload(ROADS, replace(SETTINGS, inside=True))

    @in_loop
    async def drive() -> None:
        driver = open_driver(f"redis://127.0.0.1:{redis_port}/3")
        result = await Generator(load, driver, seconds=1.0).run()
        found = result.to_json()
        assert (found["offered"], found["taken"], found["dropped"]) == (480, 480, 0)
        wanted = by_brute_force(1.0, inside=True)
        # Redis keeps places to about half a metre, and its Earth is a little larger.
        for what in ("enter", "exit"):
            assert wanted[what] > 0
            assert found["matches"][what] == pytest.approx(wanted[what], abs=2)
        assert found["matches"]["inside"] == pytest.approx(wanted["inside"], rel=0.03)
        assert 0.0 < found["latency"]["p50_ms"] < 20_000.0
        assert re.fullmatch(r"Redis itself worked \d+\.\d µs for each update", found["notes"][0])

    drive()
    client = redis.Redis("127.0.0.1", redis_port, 3)
    assert client.dbsize() == 0  # nothing is left
    client.close()


@in_loop
async def test_no_redis_is_one_sentence() -> None:
    driver = open_driver("redis://127.0.0.1:1")
    with pytest.raises(LoadError, match="cannot reach redis://127.0.0.1:1/0"):
        await Generator(Workload(ROADS, SETTINGS), driver, seconds=1.0).run()
