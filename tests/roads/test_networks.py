"""Roads from files that the test writes, and from the city that needs none."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import osmium
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mercury.geo import haversine_m
from mercury.model.area import Position
from mercury.model.errors import RoadsError
from mercury.roads.network import RoadNetwork, open_roads
from mercury.roads.osm import directions, speed_kmh

PLACES = {
    1: (60.00, 24.00),
    2: (60.01, 24.00),
    3: (60.01, 24.02),
    4: (60.00, 24.02),
    5: (60.005, 24.001),
    6: (60.02, 24.02),
}
WAYS: list[tuple[list[int], dict[str, str]]] = [
    ([1, 5, 2], {"highway": "residential"}),  # bent
    ([2, 3], {"highway": "primary", "oneway": "yes"}),
    ([3, 4, 1], {"highway": "tertiary", "maxspeed": "36"}),
    ([3, 6], {"highway": "primary", "oneway": "yes"}),  # leads nowhere
    ([1, 3], {"highway": "footway"}),
    ([2, 4], {"highway": "service", "access": "private"}),
    ([1, 99], {"highway": "primary"}),  # beyond the border of the extract
]


def _osm() -> str:
    nodes = [
        f'<node id="{number}" version="1" lat="{lat}" lon="{lon}"/>'
        for number, (lat, lon) in PLACES.items()
    ]
    ways = []
    for number, (refs, tags) in enumerate(WAYS, 1):
        inside = "".join(f'<nd ref="{ref}"/>' for ref in refs)
        inside += "".join(f'<tag k="{key}" v="{value}"/>' for key, value in tags.items())
        ways.append(f'<way id="{number}" version="1">{inside}</way>')
    return f'<osm version="0.6">{"".join(nodes + ways)}</osm>'


NET = """<net version="1.20">
 <location netOffset="-500000.00,-4900000.00" convBoundary="0,0,1,1" origBoundary="0,0,1,1"
  projParameter="+proj=utm +zone=32 +ellps=WGS84 +datum=WGS84 +units=m +no_defs"/>
 <edge id=":b_0" function="internal"><lane id=":b_0_0" speed="1" shape="0,0 1,1"/></edge>
 <edge id="ab" from="a" to="b">
  <lane id="ab_0" index="0" allow="bus" speed="33" length="90" shape="5,0 95,0"/>
  <lane id="ab_1" index="1" speed="13.89" length="90" shape="5,3 50,20 95,3"/></edge>
 <edge id="bc" from="b" to="c"><lane id="bc_0" speed="10" shape="100,5 100,95"/></edge>
 <edge id="ca" from="c" to="a">
  <lane id="ca_0" disallow="bus tram" speed="20" shape="95,95 5,5"/></edge>
 <edge id="ac" from="a" to="c"><lane id="ac_0" allow="bus" speed="20" shape="5,5 95,95"/></edge>
 <junction id="a" type="priority" x="0" y="0"/>
 <junction id="b" type="priority" x="100" y="0"/>
 <junction id="c" type="priority" x="100" y="100"/>
 <junction id=":b_0" type="internal" x="1" y="1"/>
</net>"""


def streets(roads: RoadNetwork) -> set[tuple[float, float, float, float]]:
    """Where edges begin and end, to four decimals."""
    ends = (
        roads.node_lat[roads.edge_from],
        roads.node_lon[roads.edge_from],
        roads.node_lat[roads.edge_to],
        roads.node_lon[roads.edge_to],
    )
    return {tuple(round(float(one), 4) for one in edge) for edge in zip(*ends, strict=True)}


def check_lines(roads: RoadNetwork) -> None:
    """Each edge's line begins where the edge does and ends where it does."""
    for ends, points in (
        (roads.edge_from, roads.first_point[:-1]),
        (roads.edge_to, roads.first_point[1:] - 1),
    ):
        off_m = haversine_m(
            roads.node_lat[ends],
            roads.node_lon[ends],
            roads.point_lat[points],
            roads.point_lon[points],
        )
        assert off_m.max() < 0.01


def write_osm(folder: Path, ending: str) -> Path:
    plain = folder / "small.osm"
    plain.write_text(_osm(), encoding="utf-8")
    if ending == ".osm":
        return plain
    path = folder / f"small{ending}"
    if ending == ".osm.gz":
        path.write_bytes(gzip.compress(plain.read_bytes()))
    else:
        with osmium.SimpleWriter(str(path)) as writer:
            for one in osmium.FileProcessor(str(plain)):
                writer.add(one)
    return path


@pytest.mark.parametrize("ending", [".osm", ".osm.gz", ".osm.pbf"])
def test_an_extract_of_openstreetmap(ending: str, tmp_path: Path) -> None:
    roads = open_roads(str(write_osm(tmp_path, ending)))
    # What is one-way has one edge, what leads nowhere or is not for cars has none, and the bend
    # and the point on the street that no other shares are no nodes.
    assert streets(roads) == {
        (60.0, 24.0, 60.01, 24.0),
        (60.01, 24.0, 60.0, 24.0),
        (60.01, 24.0, 60.01, 24.02),
        (60.01, 24.02, 60.0, 24.0),
        (60.0, 24.0, 60.01, 24.02),
    }
    limit = {
        (round(float(roads.node_lat[begin]), 4), round(float(roads.node_lon[begin]), 4)): speed
        for begin, speed in zip(roads.edge_from, roads.edge_speed_mps, strict=True)
    }
    assert limit[(60.01, 24.02)] == pytest.approx(10.0)
    check_lines(roads)
    straight_m = haversine_m(60.0, 24.0, 60.01, 24.0)
    bent_m = haversine_m(60.0, 24.0, 60.005, 24.001) + haversine_m(60.005, 24.001, 60.01, 24.0)
    assert bent_m > straight_m
    assert np.min(np.abs(roads.edge_length_m - bent_m)) < 0.1


@pytest.mark.parametrize(
    ("tags", "kmh"),
    [
        ({"highway": "residential"}, 30.0),
        ({"highway": "residential", "maxspeed": "20 mph"}, 32.19),
        ({"highway": "primary", "maxspeed": "80;60"}, 80.0),
        ({"highway": "primary", "maxspeed": "FI:urban"}, 60.0),
        ({"highway": "motorway", "maxspeed": "none"}, 130.0),
        ({"highway": "primary", "maxspeed": "0"}, 60.0),
        ({"highway": "primary", "maxspeed": "99999"}, 200.0),
        ({"highway": "cycleway"}, None),
        ({"highway": "service", "area": "yes"}, None),
        ({"highway": "service", "access": "no"}, None),
        ({"highway": "service", "access": "no", "motorcar": "yes"}, 20.0),
        ({"highway": "service", "access": "yes", "motor_vehicle": "private"}, None),
        ({"building": "yes"}, None),
    ],
)
def test_how_fast_cars_drive(tags: dict[str, str], kmh: float | None) -> None:
    found = speed_kmh(tags)
    assert found is None if kmh is None else found == pytest.approx(kmh, abs=0.01)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({}, (True, True)),
        ({"oneway": "yes"}, (True, False)),
        ({"oneway": "-1"}, (False, True)),
        ({"oneway": "no", "highway": "motorway"}, (True, True)),
        ({"highway": "motorway"}, (True, False)),
        ({"junction": "roundabout"}, (True, False)),
    ],
)
def test_which_way_cars_drive(tags: dict[str, str], expected: tuple[bool, bool]) -> None:
    assert directions(tags) == expected


@pytest.mark.parametrize("ending", [".net.xml", ".net.xml.gz"])
def test_a_network_of_sumo(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"small{ending}"
    path.write_bytes(gzip.compress(NET.encode()) if ending.endswith(".gz") else NET.encode())
    roads = open_roads(str(path))
    check_lines(roads)
    assert (roads.nodes, roads.edges) == (3, 3)  # a→c is for buses, b's inside is no street
    assert sorted(roads.edge_speed_mps) == pytest.approx([10.0, 13.89, 20.0])
    # UTM 32 at easting 500,000 is the meridian of 9° east, northing 4,900,000 is 44.25° north;
    # its scale there is 0.9996.
    assert roads.node_lon.min() == pytest.approx(9.0, abs=1e-6)
    assert roads.node_lat.min() == pytest.approx(44.25, abs=0.01)
    along_m = roads.edge_length_m[np.argmin(np.abs(roads.edge_speed_mps - 10.0))]
    assert along_m == pytest.approx(100.0, rel=0.005)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.net.xml", b"<fcd-export/>", "the file is a <fcd-export>, not a network of SUMO"),
        ("a.net.xml", b"<!DOCTYPE net><net/>", "the file declares a document type"),
        ("a.net.xml", b"<net><edge", "not well-formed"),
        ("a.net.xml", b"<net></net>", "there is no road for cars"),
        ("a.net.xml.gz", b"no gzip", "not well-formed"),
        ("a.net.xml.gz", gzip.compress(NET.encode())[:-40], "not well-formed"),
        ("a.net.xml", NET.replace("+proj=utm", "!").encode(), "where on the Earth it is"),
        ("a.net.xml", NET.replace('to="b"', 'to="x"').encode(), "are not both there"),
        ("a.net.xml", NET.replace("13.89", "fast").encode(), "'fast' is no number"),
        ("a.net.xml", NET.replace("50,20", "50").encode(), "'50' is no point"),
        ("a.osm.pbf", b"not a pbf at all", "the file cannot be read"),
        ("a.osm", b"<osm version='0.6'><way", "the file cannot be read"),
        ("a.osm", b"<osm version='0.6'></osm>", "there is no road for cars"),
        ("a.txt", b"", "the ending of a.txt tells no roads"),
    ],
)
def test_bad_files_are_one_sentence(
    name: str, content: bytes, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(RoadsError, match=sentence) as caught:
        open_roads(str(path))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(RoadsError, match="there is no file nowhere.osm"):
        open_roads("nowhere.osm")


def test_the_city_is_the_same_for_a_seed_and_whole() -> None:
    origin = Position(48.0, 11.0)
    one, same, other = (
        open_roads("city", seed=seed, size_m=(6_000.0, 4_000.0), origin=origin)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one.node_lat, same.node_lat)
    assert np.array_equal(one.edge_to, same.edge_to)
    assert not np.array_equal(one.point_lat[:100], other.point_lat[:100])
    check_lines(one)
    graph = coo_array((np.ones(one.edges), (one.edge_from, one.edge_to)))
    assert connected_components(graph, directed=True, connection="strong")[0] == 1
    corners_m = haversine_m(48.0, 11.0, [one.node_lat.min(), 48.0], [11.0, one.node_lon.max()])
    assert corners_m == pytest.approx([2_000.0, 3_000.0], rel=0.05)
    assert len(np.unique(one.edge_speed_mps)) == 4  # streets, arterials, ramps and motorways
    there = set(zip(one.edge_from.tolist(), one.edge_to.tolist(), strict=True))
    one_way = sum((end, begin) not in there for begin, end in there)
    assert 0 < one_way < one.edges / 2


def test_a_city_without_a_size_is_refused() -> None:
    with pytest.raises(RoadsError, match="a city of 0.1 km is none"):
        open_roads("city", size_m=(100.0, 4_000.0))
