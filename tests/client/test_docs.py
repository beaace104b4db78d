"""What docs/explanation/matching.md shows of the client runs as it stands there."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from live import in_loop, live
from matching.bus_twin import bus_twin

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "matching.md"


@in_loop
async def test_the_example_prints_what_the_page_says() -> None:
    section = PAGE.read_text("utf-8").partition("## From a client\n")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    async with live() as world, bus_twin(world.bus):
        adapter = await world.adapter()
        code = code.replace("udp://127.0.0.1:7400", f"udp://127.0.0.1:{adapter.port}")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, errors = await process.communicate()
    assert errors.decode() == ""
    said = section.partition("It prints ")[2].partition(". ")[0]
    lines = [part for index, part in enumerate(said.split("`")) if index % 2]
    assert output.decode().splitlines() == lines
