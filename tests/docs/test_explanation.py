"""The Python of the explanations and of the reference runs as it stands there."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from docs.walkthrough import blocks
from live import in_loop, live


async def output_of(code: str, folder: Path | None = None) -> str:
    """What some Python prints; nothing may stand on stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(30):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert errors.decode() == ""
    assert process.returncode == 0
    return output.decode()


def python_of(page: str) -> list[str]:
    return [block.text for block in blocks(page) if block.language == "python"]


@in_loop
async def test_the_python_of_delivery() -> None:
    [code] = python_of("docs/explanation/delivery.md")
    assert "udp://127.0.0.1:7400" in code
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        output = await output_of(code.replace(":7400", f":{adapter.port}"))
    task, ben, sensed = output.splitlines()
    assert (task, sensed) == ("survey", "acknowledged")
    assert re.fullmatch(r"ben acknowledged after \d tries", ben)


@in_loop
async def test_the_python_of_matching_on_the_bus(tmp_path: Path) -> None:
    _client, on_bus = python_of("docs/explanation/matching.md")
    assert await output_of(on_bus, tmp_path) == ""
    assert (tmp_path / "mercury.db").exists()


@pytest.mark.parametrize("number", [0, 1])
@in_loop
async def test_the_python_of_links(number: int) -> None:
    code = python_of("docs/reference/links.md")[number]
    # A client is made within an event loop.
    lines = "".join(f"    {line}\n" for line in code.splitlines())
    assert await output_of(f"import asyncio\nasync def main():\n{lines}asyncio.run(main())") == ""
