"""`mercury client --near` and `--moving`: what the options mean, and what is shown."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from cli.commands import mercury
from live import HERE, in_loop, live
from matching.bus_twin import bus_twin

from mercury.cli.run.client import read_moving, read_near
from mercury.model.errors import ConfigurationError, FilterError, MatchingError
from mercury.model.matching import NearSubscription, Publication


def test_what_the_options_mean() -> None:
    assert read_near("taxi:500") == NearSubscription("near", "taxi", 500.0)
    named = NearSubscription("near", "taxi", 1000.0, where='name == "a:b"')
    assert read_near('taxi:1e3:name == "a:b"') == named
    assert read_moving("taxi") == Publication("moving", "taxi", {})
    assert read_moving("taxi:seats=4,price=1.5,free=true,name='X 1'") == Publication(
        "moving", "taxi", {"seats": 4, "price": 1.5, "free": True, "name": "X 1"}
    )


@pytest.mark.parametrize("text", ["taxi", "taxi:", "taxi:near", ":"])
def test_a_query_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not TOPIC:RADIUS\[:WHERE\]"):
        read_near(text)


def test_what_cannot_be_is_said_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(MatchingError, match="no name for a topic"):
        read_near("no topic:500")
    with pytest.raises(FilterError):
        read_near("taxi:500:seats >")
    with pytest.raises(ConfigurationError, match="is not TOPIC:key=value"):
        read_moving("taxi:seats")
    result = mercury("client", "--position=1,2", "--near=taxi:-5", folder=tmp_path)
    assert result.returncode != 0
    assert "radius_m -5 is not more than 0" in result.stderr


async def command(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mercury.cli.main", "client", *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


@in_loop
async def test_two_clients_are_notified_of_each_other() -> None:
    async with live() as world, bus_twin(world.bus):
        adapter = await world.adapter()
        to = ("--adapter", f"udp://127.0.0.1:{adapter.port}", f"--position={HERE.lat},{HERE.lon}")
        listener = await command(*to, "--identity=me", "--near=taxi:500:seats > 2", "--json")
        assert listener.stdout is not None
        assert listener.stderr is not None
        while b"listening for taxi within 500 m" not in await listener.stderr.readline():
            assert not listener.stderr.at_eof()
        cab = await command(*to, "--identity=cab", "--moving=taxi:seats=4", "--for=0.3")
        try:
            async with asyncio.timeout(30.0):
                lines = [json.loads(await listener.stdout.readline()) for _ in range(2)]
                await cab.communicate()
        finally:
            for process in (listener, cab):
                if process.returncode is None:
                    process.terminate()
                await process.communicate()
        assert [line["event"] for line in lines] == ["enter", "exit"]
        assert lines[0]["publication"] == "cab/taxi"
        assert lines[0]["values"] == {"seats": 4}
        assert lines[0]["distance_m"] == pytest.approx(0.0, abs=0.1)
        assert lines[1]["reason"] == "withdrawn"
