"""What a device loads: the client alone, without what matching, roads and the pipeline need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = ("llvmlite", "numba", "pandas", "pyarrow", "pyproj", "pyspark", "scipy", "shapely")


def run(program: str) -> str:
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_the_client_and_what_it_stands_on_load_no_heavy_package() -> None:
    packages = "mercury mercury.client mercury.geo mercury.model.area mercury.net mercury.wire"
    program = f"import sys, {packages.replace(' ', ', ')}\nprint(*sorted(sys.modules))"
    assert not set(run(program).split()) & set(HEAVY)


def test_a_client_hears_alerts_for_areas_where_heavy_packages_are_not_installed() -> None:
    missing = ("llvmlite", "numba", "pandas", "pyarrow", "pyspark", "scipy")
    program = f"""
import asyncio, sys
sys.modules.update(dict.fromkeys({missing!r}))  # an import of them fails from now on
sys.path.insert(0, {str(Path(__file__).parent)!r})
from live import FAR, HERE, NEAR, connect, first, live
from mercury import Area, Circle, Corridor, Polygon, Position
from mercury.model import topics
from mercury.model.message import Address, Event, Kind, Message

async def main():
    corners = (Position(40.7, -112.0), Position(40.7, -111.8), Position(40.8, -111.89))
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "car") as car:
            for shape in (Circle(HERE, 100.0), Corridor((FAR, NEAR), 500.0), Polygon(corners)):
                to = Address.to_area(Area(shape))
                event = Event(type(shape).__name__)
                said = Message(
                    kind=Kind.ALERT, source=Address.broker("b"), destination=to, payload=event
                )
                world.append(topics.ALERTS_NORMAL, said)
                print((await first(car)).event.kind)
asyncio.run(main())
"""
    assert run(program).split() == ["Circle", "Corridor", "Polygon"]
