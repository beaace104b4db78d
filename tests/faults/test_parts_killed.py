"""Brokers and adapters are killed while clients sense emergencies: all hear of all, once."""

from __future__ import annotations

import functools
import random
from pathlib import Path

from faults.alert_path import SETTINGS, AlertPath
from integration.processes import starting
from live import in_loop

KILLED = (["broker"], ["adapter"], ["broker", "adapter"])


@functools.partial(in_loop, timeout_s=100.0)
async def test_killed_at_random_moments(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    (tmp_path / "mercury.toml").write_text(SETTINGS)
    with starting(tmp_path) as starter:
        path = AlertPath(starter, random.Random(seed), mortal_adapter=True)
        await path.start("adapter", "broker")
        async with path.load():
            for parts in KILLED:
                await path.a_while()
                await path.kill(*parts)
                await path.a_while()
                await path.start(*parts)
            await path.a_while()
        path.check(seed)
        assert len(path.on_bus) > 20
