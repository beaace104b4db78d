"""The demo where there is no Java: an emergency, the ledger, and commands that work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from cli.commands import mercury
from integration.processes import free_udp_port

from mercury.cli.run.demo import _crowded, _reach_m
from mercury.detection import DEFAULT_RULES, KindBins, Observation
from mercury.model.area import Position
from mercury.model.message import EventKind
from mercury.roads.plane import Plane, PlaneFrame


def test_without_java_the_broker_still_judges_an_emergency(tmp_path: Path) -> None:
    bus = f"embedded:{tmp_path / 'demo.db'}"
    port = str(free_udp_port())
    done = mercury(
        "demo", "--vehicles", "800", "--port", port, "--bus", bus, folder=tmp_path,
        JAVA_HOME=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "without the pipeline: " in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Starting broker-1, adapter, matcher …"
    assert lines[1] == "Mercury is up, and 800 vehicles drive in a city of 4 × 4 km."
    assert re.fullmatch(
        r"The broker judged an emergency: the first vehicle knew after \d+\.\d ms\.", lines[3]
    )
    assert "  Emergency at (2000 m, 2000 m): 4 vehicles sensed it." in lines
    assert "  Nobody outside was told." in lines
    assert re.search(r"^It took \d+ s. Ledger: 1 messages? to \d+ recipients: ", done.stdout, re.M)

    tries = [line for line in lines[lines.index("Try next:") + 1 :] if "# " not in line]
    assert len(tries) == 2  # there is no history without the pipeline
    why = shlex.split(tries[0])
    assert why[-5:-3] == ["mercury", "why"]
    answer = mercury(*why[-4:], folder=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "acknowledged it" in answer.stdout
    assert shlex.split(tries[1])[-1] == "up"


@pytest.mark.parametrize("seed", range(20))
def test_one_collision_is_found_from_any_of_its_witnesses_first(seed: int) -> None:
    plane = Plane.scatter(800, 4000.0, 4000.0, np.random.default_rng(seed))
    x_m, y_m = _crowded(plane, (0.8, 0.2))
    witnesses = plane.inside_circle(x_m, y_m, _reach_m(plane, x_m, y_m))
    assert len(witnesses) >= 4
    lats, lons = PlaneFrame(Position(40.76, -111.89)).to_wgs84(
        plane.x_m[witnesses], plane.y_m[witnesses]
    )
    seen = [
        Observation(1, bytes([number]) * 16, f"car-{number}", *place)
        for number, place in enumerate(zip(lats.tolist(), lons.tolist(), strict=True))
    ]
    for turned in range(len(seen)):
        bins = KindBins(DEFAULT_RULES[EventKind.COLLISION])
        alerts = [one for e in seen[turned:] + seen[:turned] for one in bins.add([e])]
        assert len(alerts) == 1
