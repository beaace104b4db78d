"""A newcomer's first hour: what the README and the tutorial say, done as it is written."""

from __future__ import annotations

from pathlib import Path

from docs.walkthrough import walking


def test_the_readme(tmp_path: Path) -> None:
    with walking(tmp_path) as walk:
        walk.run("README.md")
        walk.terminals["Terminal 2"].must_show("… notice: Road flooded\n… emergency: Collision")
        why = walk.shown("Terminal 3")
        assert "car-7 acknowledged it" in why
        assert "ALERT: Collision" in walk.shown("Python")
        assert "'kind': 'emergency'" in walk.shown("Python")
        assert "{'price': 1.55}" in walk.shown("Python")


def test_the_tutorial(tmp_path: Path) -> None:
    with walking(tmp_path) as walk:
        walk.run("docs/tutorial.md")
        # Who was near was warned, and nobody else.
        couriers = walk.terminals["Terminal 2"].text
        assert "ben is warned: Courier down" in couriers
        assert "anna is warned: Courier down" not in couriers
        for once in ("ben brings cake", "dora brings rolls"):
            assert couriers.count(once) == 1
