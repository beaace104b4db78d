from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mercury.model.area import (
    HALF_MERIDIAN_M,
    LAST_INSTANT_US,
    Area,
    Circle,
    Corridor,
    Ellipse,
    HeadingSector,
    Polygon,
    Position,
    Rectangle,
    Shape,
)
from mercury.model.errors import AreaError
from mercury.model.geojson import area_from_geojson, area_to_geojson

lats, lons = st.floats(-90, 90), st.floats(-180, 180)
lengths_m = st.floats(1e-3, HALF_MERIDIAN_M)
positions = st.builds(Position, lats, lons)


def _built(shape: type[Any], *parts: Any) -> Any:
    try:
        return shape(*parts)
    except AreaError:
        assume(False)


rings = st.lists(positions, min_size=3, max_size=6).map(tuple)
shapes: st.SearchStrategy[Shape] = st.one_of(
    st.builds(Circle, positions, lengths_m),
    st.builds(_built, st.just(Ellipse), positions, lengths_m, lengths_m, st.floats(-360, 360)),
    st.builds(_built, st.just(Rectangle), lats, lons, lats, lons),
    st.builds(_built, st.just(Polygon), rings, st.lists(rings, max_size=2)),
    st.builds(Corridor, st.lists(positions, min_size=2, max_size=6).map(tuple), lengths_m),
)
instants = st.none() | st.integers(0, LAST_INSTANT_US)
headings = st.none() | st.builds(HeadingSector, st.floats(-360, 360), st.floats(0, 180))
areas = st.builds(_built, st.just(Area), shapes, headings, instants, instants)


@given(areas)
def test_reading_back_gives_an_equal_area(area: Area) -> None:
    feature = area_to_geojson(area)
    assert area_from_geojson(feature) == area
    assert area_from_geojson(json.dumps(feature, allow_nan=False)) == area


def test_a_circle_is_a_point_with_a_radius() -> None:
    area = Area(
        Circle(Position(52.5, 13.4), 250.0), HeadingSector(90, 45), 0, 1_700_000_000_000_001
    )
    assert area_to_geojson(area) == {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [13.4, 52.5]},
        "properties": {
            "shape": "circle",
            "radius_m": 250.0,
            "heading": {"center_deg": 90.0, "half_width_deg": 45.0},
            "valid_from": "1970-01-01T00:00:00.000000Z",
            "valid_until": "2023-11-14T22:13:20.000001Z",
        },
    }


def test_a_rectangle_across_the_antimeridian_keeps_west_above_east() -> None:
    feature = area_to_geojson(Area(Rectangle(-1, 170, 1, -170)))
    assert feature["bbox"] == [170.0, -1.0, -170.0, 1.0]
    assert feature["geometry"]["coordinates"][0][0] == feature["geometry"]["coordinates"][0][-1]


def test_a_bare_polygon_is_an_area() -> None:
    ring = [[0, 0], [10, 0, 99.5], [0, 10], [0, 0]]
    area = area_from_geojson({"type": "Polygon", "coordinates": [ring]})
    assert area == Area(Polygon((Position(0, 0), Position(0, 10), Position(10, 0))))


def test_times_may_come_from_other_zones() -> None:
    feature = area_to_geojson(Area(Circle(Position(0, 0), 1.0)))
    feature["properties"]["valid_from"] = "1970-01-01t02:00:00.5+02:00"
    assert area_from_geojson(feature).valid_from_us == 500_000


def _feature(geometry: object, **properties: object) -> dict[str, object]:
    return {"type": "Feature", "geometry": geometry, "properties": properties}


POINT = {"type": "Point", "coordinates": [1, 2]}
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}


@pytest.mark.parametrize(
    ("given_json", "sentence"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("1" * 5000, "not JSON"),
        ("[]", "must be an object"),
        ("null", "must be an object, not nothing"),
        ({}, "must be a Feature or a Polygon, not nothing"),
        ({"type": ["Feature"]}, "must be a Feature or a Polygon, not a list"),
        ({"type": "FeatureCollection", "features": []}, "not 'FeatureCollection'"),
        (_feature(None), "geometry must be an object, not nothing"),
        (_feature({"type": "MultiPolygon", "coordinates": []}), "not 'MultiPolygon'"),
        (_feature(POINT), "Point needs radius_m"),
        (POINT, "Point needs radius_m"),
        (_feature(POINT, radius_m="5"), "radius_m must be a number, not str"),
        (_feature(POINT, radius_m=-5), "radius_m -5.0 is not between"),
        (_feature(POINT, shape="ellipse", semi_major_m=2), "ellipse needs semi_minor_m"),
        (_feature(POINT, shape="blob"), "unknown shape 'blob'"),
        (_feature(POINT, shape={}), "unknown shape a dict"),
        (_feature(POINT, shape="corridor"), "shape corridor needs a LineString"),
        (_feature({"type": "Point", "coordinates": [1]}, radius_m=1), "not 1 numbers"),
        (_feature({"type": "Point", "coordinates": "12"}, radius_m=1), "must be a list"),
        (_feature({"type": "Point", "coordinates": [1, None]}, radius_m=1), "latitude must be"),
        (
            _feature({"type": "LineString", "coordinates": [[0, 0], [1, 1]]}),
            "LineString needs width_m",
        ),
        ({"type": "Polygon"}, "must be a list, not nothing"),
        ({"type": "Polygon", "coordinates": []}, "at least one ring"),
        ({"type": "Polygon", "coordinates": [[[0, 0]]]}, "at least 3 distinct"),
        (_feature(SQUARE, shape="rectangle"), "needs a bbox"),
        (
            {**_feature(SQUARE, shape="rectangle"), "bbox": [0, 0, 1, 2]},
            "does not have the corners of its bbox",
        ),
        ({**_feature(SQUARE, shape="rectangle"), "bbox": [0, 0, 0, 1, 1, 1]}, "4 numbers, not 6"),
        (_feature(POINT, radius_m=1, heading=90), "heading must be an object"),
        (_feature(POINT, radius_m=1, heading={}), "heading needs center_deg"),
        (_feature(POINT, radius_m=1, valid_from=5), "valid_from must be an RFC 3339 time"),
        (_feature(POINT, radius_m=1, valid_from="2024-01-01T00:00:00"), "with its zone"),
        (_feature(POINT, radius_m=1, valid_until="2024-13-01T00:00:00Z"), "not a time that exists"),
        (_feature(POINT, radius_m=1, valid_until="1969-01-01T00:00:00Z"), "1970 and 9999"),
        ({"type": "Feature", "geometry": POINT, "properties": 5}, "properties must be an object"),
        ('{"type": "Polygon", "coordinates": [[[NaN, 0], [1, 1], [2, 0]]]}', "longitude nan"),
    ],
)
def test_what_is_no_area_is_refused_with_a_sentence(given_json: Any, sentence: str) -> None:
    with pytest.raises(AreaError) as caught:
        area_from_geojson(given_json)
    assert sentence in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@given(st.data())
def test_damaged_geojson_never_raises_anything_else(data: st.DataObject) -> None:
    feature = area_to_geojson(data.draw(areas))
    # Walk to some place in the document and put something else there.
    place: Any = feature
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(json_values)
    with contextlib.suppress(AreaError):
        assert isinstance(area_from_geojson(feature), Area)
