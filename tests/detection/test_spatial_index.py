"""The index of places against looking at everything."""

from __future__ import annotations

import math
import random

from detection.observations import ORIGINS, at, indexed
from hypothesis import given
from hypothesis import strategies as st

from mercury.detection.spatial_index import Located, SpatialIndex
from mercury.geo.space import to_space

offsets_m = st.floats(-700, 700)


@given(st.sampled_from(ORIGINS), st.lists(st.tuples(offsets_m, offsets_m), max_size=30),
       offsets_m, offsets_m, st.floats(5, 400), st.randoms(use_true_random=False))  # fmt: skip
def test_finds_the_nearest_of_all(
    origin: tuple[float, float],
    around_m: list[tuple[float, float]],
    north_m: float,
    east_m: float,
    reach_m: float,
    rng: random.Random,
) -> None:
    places: SpatialIndex[Located] = SpatialIndex(reach_m)
    items = [
        Located(to_space(*at(origin, *offset)), (0, bytes([number])))
        for number, offset in enumerate(around_m)
    ]
    for item in items:
        places.put(item)
    for item in rng.sample(items, len(items) // 2):  # half of them move
        item.point = to_space(*at(origin, rng.uniform(-700, 700), rng.uniform(-700, 700)))
        places.put(item)
    gone = items[: len(items) // 4]
    for item in gone:
        places.remove(item)
    left = items[len(gone) :]
    assert indexed(places) == set(left)

    here = to_space(*at(origin, north_m, east_m))
    within = [item for item in left if math.dist(item.point, here) <= reach_m]
    found = places.nearest(here)
    assert (found is None) == (not within)
    if found is not None:
        assert math.dist(found.point, here) == min(math.dist(t.point, here) for t in within)
    besides = places.nearest(here, besides=found)
    assert besides is None or besides is not found


def test_of_equally_near_ones_the_first_in_rank_is_found() -> None:
    for order in ([b"a", b"b"], [b"b", b"a"]):
        places: SpatialIndex[Located] = SpatialIndex(10.0)
        for id in order:
            places.put(Located((1.0, 2.0, 3.0), (0, id)))
        found = places.nearest((1.0, 2.0, 3.0))
        assert found is not None
        assert found.rank == (0, b"a")
