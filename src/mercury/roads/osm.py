"""The roads of an OpenStreetMap extract (`.osm.pbf`, `.osm`, `.osm.gz`).

Ways are cut at the nodes that they share. Turn restrictions and times of day are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from mercury.model.errors import RoadsError
from mercury.roads.network import RoadNetwork, build, firsts_of, ranges

# km/h where no limit is given: what drivers reach on average, not what the law allows.
SPEEDS_KMH = {
    "motorway": 110.0,
    "trunk": 90.0,
    "primary": 60.0,
    "secondary": 50.0,
    "tertiary": 45.0,
    "unclassified": 40.0,
    "residential": 30.0,
    "living_street": 10.0,
    "service": 20.0,
    "motorway_link": 60.0,
    "trunk_link": 50.0,
    "primary_link": 45.0,
    "secondary_link": 40.0,
    "tertiary_link": 35.0,
    "road": 40.0,
}
_NO_LIMIT_KMH, _WALK_KMH, _FASTEST_KMH = 130.0, 7.0, 200.0
_MPH = 1.609344
_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(km/h|kmh|kph|mph)?")
# From the general to the particular: the last one that is given counts.
_ACCESS = ("access", "vehicle", "motor_vehicle", "motorcar")
_CLOSED = {"no", "private", "agricultural", "forestry", "military", "emergency"}
_FORWARD, _BACKWARD = {"yes", "true", "1"}, {"-1", "reverse"}


def read_extract(path: Path) -> RoadNetwork:
    """The streets on which cars may drive."""
    import osmium

    ways = _Ways()
    try:
        entities = osmium.osm.NODE | osmium.osm.WAY
        processor = osmium.FileProcessor(str(path), entities).with_locations()
        for way in processor.with_filter(osmium.filter.KeyFilter("highway")):
            if isinstance(way, osmium.osm.Way):
                ways.add(way)
    except (RuntimeError, OSError, ValueError) as error:
        raise RoadsError(f"the file cannot be read: {error}") from None
    return ways.roads()


def speed_kmh(tags: Mapping[str, str]) -> float | None:
    """How fast cars drive on a way with these tags; None if it is not for them."""
    usual = SPEEDS_KMH.get(tags.get("highway", ""))
    if usual is None or tags.get("area") == "yes":
        return None
    access = [tags[key] for key in _ACCESS if key in tags]
    if access and access[-1] in _CLOSED:
        return None
    text = tags.get("maxspeed", "").strip().lower()
    if text == "none":
        return _NO_LIMIT_KMH
    if text == "walk":
        return _WALK_KMH
    limit = _LIMIT.fullmatch(text.partition(";")[0])
    if limit is None:
        return usual
    given = float(limit[1]) * (_MPH if limit[2] == "mph" else 1.0)
    return min(given, _FASTEST_KMH) if given > 0.0 else usual


def directions(tags: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether cars may drive along a way, and against it."""
    one_way = tags.get("oneway", "")
    if one_way in _FORWARD:
        return True, False
    if one_way in _BACKWARD:
        return False, True
    implied = tags.get("junction") in ("roundabout", "circular") or (
        tags.get("highway") == "motorway"
    )
    return True, not implied or one_way == "no"


class _Ways:
    """Ways as they come, one after the other, in columns."""

    def __init__(self) -> None:
        self._refs: list[int] = []
        self._lats: list[float] = []
        self._lons: list[float] = []
        self._pieces: list[tuple[int, float, bool, bool]] = []  # nodes, m/s, forward, backward

    def add(self, way: Any) -> None:
        tags = {tag.k: tag.v for tag in way.tags}
        kmh = speed_kmh(tags)
        if kmh is None:
            return
        # A way is cut off where it leaves the extract.
        for inside, group in groupby(way.nodes, lambda node: node.location.valid()):
            nodes = [(node.ref, node.lat, node.lon) for node in group] if inside else []
            if len(nodes) > 1:
                refs, lats, lons = zip(*nodes, strict=True)
                self._refs += refs
                self._lats += lats
                self._lons += lons
                self._pieces.append((len(nodes), kmh / 3.6, *directions(tags)))

    def roads(self) -> RoadNetwork:
        """Edges from each shared node to the next, in the directions that are allowed."""
        if not self._pieces:
            raise RoadsError("there is no road for cars")
        nodes, speeds, along, against = map(np.array, zip(*self._pieces, strict=True))
        lats, lons = np.array(self._lats), np.array(self._lons)
        _, first_seen, number = np.unique(
            np.array(self._refs, np.int64), return_index=True, return_inverse=True
        )
        ends = np.cumsum(nodes)
        way = np.repeat(np.arange(len(ends)), nodes)
        cut = np.bincount(number)[number] > 1
        cut[ends - 1] = cut[ends - nodes] = True
        cuts = np.flatnonzero(cut)
        pieces = way[cuts[:-1]] == way[cuts[1:]]
        begins, finishes = cuts[:-1][pieces], cuts[1:][pieces]

        forward, backward = along[way[begins]], against[way[begins]]
        sources = np.concatenate([begins[forward], finishes[backward]])
        targets = np.concatenate([finishes[forward], begins[backward]])
        counts = np.abs(targets - sources) + 1
        points = ranges(sources, counts, np.where(targets >= sources, 1, -1))
        return build(
            lats[first_seen], lons[first_seen], number[sources], number[targets],
            speeds[way[sources]], firsts_of(counts), lats[points], lons[points],
        )  # fmt: skip
