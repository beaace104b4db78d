"""The roads of a SUMO network (`.net.xml`).

Which lane leads where at a junction is not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import numpy as np
from pyproj import Transformer
from pyproj.exceptions import ProjError

from mercury.model.errors import RoadsError
from mercury.roads.network import RoadNetwork, build, firsts_of
from mercury.roads.sumo_xml import SumoFile

_CAR = "passenger"

Point = tuple[float, float]


def read_network(path: Path) -> RoadNetwork:
    """The streets on which cars may drive."""
    network = _Network()
    try:
        for _ in network.read(path):
            pass
    except OSError as error:
        raise RoadsError(f"it cannot be read: {error.strerror}") from None
    return network.roads()


class _Network(SumoFile):
    root, kind, error = "net", "a network of SUMO", RoadsError

    def __init__(self) -> None:
        self._location: dict[str, str] | None = None
        self._junctions: dict[str, Point] = {}
        self._edge: dict[str, str] | None = None  # the open one
        self._lane: tuple[float, str] | None = None  # its fastest lane for cars
        self._edges: list[tuple[str, str, float, list[Point]]] = []

    def roads(self) -> RoadNetwork:
        """Everything, on the Earth."""
        number = {name: at for at, name in enumerate(self._junctions)}
        sources, targets, speeds, lines = [], [], [], []
        for begin, end, speed_mps, shape in self._edges:
            if begin not in number or end not in number:
                raise RoadsError(f"{begin!r} and {end!r}, which an edge joins, are not both there")
            sources.append(number[begin])
            targets.append(number[end])
            speeds.append(speed_mps)
            # Lanes end at the border of a junction; cars go on to its middle.
            lines.append([self._junctions[begin], *shape, self._junctions[end]])
        if not sources:
            raise RoadsError("there is no road for cars")
        nodes, points = self._to_wgs84(self._junctions.values()), self._to_wgs84(chain(*lines))
        firsts = firsts_of([len(line) for line in lines])
        return build(*nodes, sources, targets, speeds, firsts, *points)

    def _to_wgs84(self, places: Iterable[Point]) -> tuple[list[float], list[float]]:
        location = self._location or {}
        projection = location.get("projParameter", "!")
        try:
            offset = _point(location.get("netOffset", "0,0"))
            transformer = Transformer.from_crs(projection, "EPSG:4326", always_xy=True)
        except ProjError:
            raise RoadsError(
                f"the network does not say where on the Earth it is (projection {projection!r})"
            ) from None
        xs, ys = np.array(list(places), np.float64).T
        lons, lats = transformer.transform(xs - offset[0], ys - offset[1])
        if not (np.all(np.abs(lats) <= 90.0) and np.all(np.abs(lons) <= 360.0)):
            raise RoadsError("by its projection and offset the network is not on the Earth")
        return lats.tolist(), lons.tolist()

    def begin(self, name: str, values: dict[str, str]) -> None:
        if name == "location":
            self._location = values
        elif name == "edge" and values.get("function", "normal") == "normal":
            self._edge, self._lane = values, None
        elif name == "lane" and self._edge is not None and _for_cars(values):
            speed_mps = _number(values.get("speed", ""))
            if speed_mps > (self._lane[0] if self._lane is not None else 0.0):
                self._lane = speed_mps, values.get("shape", "")
        elif name == "junction" and values.get("type") != "internal":
            place = _number(values.get("x", "")), _number(values.get("y", ""))
            self._junctions[values.get("id", "")] = place

    def end(self, name: str) -> None:
        if name != "edge" or self._edge is None:
            return
        get = self._edge.get
        if self._lane is not None:
            speed_mps, lane_shape = self._lane
            line = [_point(text) for text in (lane_shape or get("shape", "")).split()]
            self._edges.append((get("from", ""), get("to", ""), speed_mps, line))
        self._edge = None


def _for_cars(lane: dict[str, str]) -> bool:
    if "allow" in lane:
        return not {_CAR, "all"}.isdisjoint(lane["allow"].split())
    return {_CAR, "all"}.isdisjoint(lane.get("disallow", "").split())


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise RoadsError(f"{text!r} is no number")
    return found


def _point(text: str) -> Point:
    x, comma, rest = text.partition(",")
    if not comma:
        raise RoadsError(f"{text!r} is no point")
    return _number(x), _number(rest.partition(",")[0])  # a height may follow
