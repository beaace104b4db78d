"""The picture of the area-of-interest experiment."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from mercury.model.area import Area, Circle, Position
from mercury.model.errors import ConfigurationError
from mercury.sim.figure import draw
from mercury.sim.incident import Incident, Traffic
from mercury.sim.paper import ExperimentResult, seeded


@pytest.fixture
def result() -> ExperimentResult:
    places = seeded(5)
    x, y = (np.array([getattr(place, axis) * 100.0 for place in places]) for axis in ("x", "y"))
    heading = np.array([place.heading_deg for place in places])
    traffic = Traffic(x, y, y, x, heading, heading)
    incident = Incident("emergency", 500.0, 200.0, 200.0, [str(n) for n in range(10)], traffic)
    incident.sensed = [0, 1, 2, 3]
    incident.at_alert = traffic
    incident.area = Area(Circle(Position(40.0, -111.0), 350.0))
    incident.inside = [0, 1, 2, 7]
    incident.notified_ms = {0: 1.0, 1: 1.0, 2: 1.2, 7: 1.5}
    return ExperimentResult(incident, (5.1, 2.1, 3.5))


def test_a_png_of_sensible_size(result: ExperimentResult, tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    draw(result, path)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert 1000 <= width <= 2500
    assert 600 <= height <= 1500
    assert 30_000 < len(data) < 500_000


def test_where_it_cannot_be_written(result: ExperimentResult, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot write .*No such file"):
        draw(result, tmp_path / "missing" / "figure.png")
    with pytest.raises(ConfigurationError, match=r"cannot write .*'xyz' is not supported"):
        draw(result, tmp_path / "figure.xyz")


def test_without_matplotlib_one_sentence_says_what_to_install(
    result: ExperimentResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'mercury-messaging\[plot\]'"):
        draw(result, tmp_path / "figure.png")
