"""What the README shows in Python runs as it stands there."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from live import in_loop, live

README = Path(__file__).parents[1] / "README.md"


@in_loop
async def test_the_python_of_the_tour() -> None:
    [code] = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
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
    assert "ALERT: Collision" in output.decode()
    assert "'fuel_price': 1.55" in output.decode()
    assert "'kind': 'emergency'" in output.decode()
