"""What docs/how-to/web.md shows runs as it stands there."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from live import in_loop
from matcher.gateway_client import World, world

from mercury.config import GatewaySettings
from mercury.matcher.gateway.descriptions import OPENAPI

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "web.md"
SECTION = PAGE.read_text(encoding="utf-8")
PORT = "127.0.0.1:7480"


def shown(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)


async def output_of(here: World, code: str, *command: str, lines: int | None = None) -> list[str]:
    """Run some code against the gateway; with `lines` until it has printed so many."""
    assert PORT in code
    process = await asyncio.create_subprocess_exec(
        *command,
        code.replace(PORT, f"127.0.0.1:{here.gateway.port}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            if lines is not None:
                return [(await process.stdout.readline()).decode() for _ in range(lines)]
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert errors.decode() == ""
    return output.decode().splitlines()


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
@in_loop
async def test_the_curl_example_runs() -> None:
    (code,) = shown("sh")
    async with world() as here:
        declared, near, area, gone = await output_of(here, code, "bash", "-ec")
    assert json.loads(declared) == json.loads(gone) == {"ok": True}
    for answer in (near, area):
        (found,) = json.loads(answer)["found"]
        assert found["publication"] == "taxi-1"


@in_loop
async def test_the_python_example_runs() -> None:
    people, rows = shown("python")
    async with world() as here:
        output = await output_of(here, people, sys.executable, "-c")
        assert output == ['{"ok":true}', "enter taxi-7 222 m", "exit taxi-7 1112 m"]
        for line in output:
            assert f"`{line}`" in SECTION
        output = await output_of(here, rows, sys.executable, "-c")
        assert output == ["100 cabs introduced", "100 events of type 2"]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")
@in_loop
async def test_the_javascript_example_runs() -> None:
    (code,) = shown("js")
    async with world() as here:
        # From version 22 on it needs no flag, and takes it.
        command = ("node", "--experimental-websocket", "-e")
        (answers, event) = await output_of(here, code, *command, lines=2)
    assert json.loads(answers) == [{"ok": True}, {"ok": True}]
    assert json.loads(event)["publication"] == "taxi-8"


def test_every_setting_and_path_that_is_named_is_there() -> None:
    for name in ("low_mark_bytes", "high_mark_bytes", "max_ahead_s"):
        assert f"`{name}`" in SECTION
        assert name in GatewaySettings.model_fields
    for path in set(re.findall(r"7480(/[a-z0-9/.]*)", SECTION)) - {"/v1/match"}:
        assert path.replace("publications/taxi", "publications/{id}") in OPENAPI["paths"], path
