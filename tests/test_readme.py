"""What the README and the page on delivery show in Python runs as it stands there."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from live import in_loop, live

ROOT = Path(__file__).parents[1]


async def output_of(page: str, number: int = 0) -> str:
    """Run some Python of a page against an adapter, a broker and a matcher."""
    text = (ROOT / page).read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[number]
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        await world.matcher()
        assert "udp://127.0.0.1:7400" in code
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            code.replace("udp://127.0.0.1:7400", f"udp://127.0.0.1:{adapter.port}"),
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
    return output.decode()


@in_loop
async def test_the_python_of_the_tour() -> None:
    output = await output_of("README.md")
    assert "ALERT: Collision" in output
    assert "'fuel_price': 1.55" in output
    assert "'kind': 'emergency'" in output


@in_loop
async def test_the_python_of_who_is_near() -> None:
    assert re.fullmatch(r"ENTER cab-1/taxi 43\d m\n", await output_of("README.md", 1))


@in_loop
async def test_the_python_of_delivery() -> None:
    output = await output_of("docs/delivery.md")
    task, ben, sensed = output.splitlines()
    assert (task, sensed) == ("survey", "acknowledged")
    assert re.fullmatch(r"ben acknowledged after \d tries", ben)
