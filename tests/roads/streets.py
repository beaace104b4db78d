"""Small roads for tests."""

from __future__ import annotations

import heapq

import numpy as np

from mercury.roads.network import RoadNetwork, build

STEP_DEG = 0.001  # 111 m to the north


def tangle(nodes: int, seed: int, lon: float = 11.0) -> RoadNetwork:
    """Nodes at random with one-way streets of different speeds, and some bends."""
    rng = np.random.default_rng(seed)
    lats = 44.0 + rng.random(nodes) * 0.05
    lons = lon + rng.random(nodes) * 0.05
    ring = np.arange(nodes)
    sources = np.concatenate([ring, rng.integers(0, nodes, 3 * nodes)])
    targets = np.concatenate([np.roll(ring, -1), rng.integers(0, nodes, 3 * nodes)])
    speeds = rng.uniform(5.0, 30.0, len(sources))
    lat_lines, lon_lines, firsts = [], [], [0]
    for begin, end in zip(sources, targets, strict=True):
        bends = rng.integers(0, 3)
        lat_lines += [lats[begin], *(44.0 + rng.random(bends) * 0.05), lats[end]]
        lon_lines += [lons[begin], *(lon + rng.random(bends) * 0.05), lons[end]]
        firsts.append(len(lat_lines))
    wrapped = (np.array(lons) + 180.0) % 360.0 - 180.0
    lines = (np.array(lon_lines) + 180.0) % 360.0 - 180.0
    return build(lats, wrapped, sources, targets, speeds, firsts, lat_lines, lines)


def square() -> RoadNetwork:
    """Four corners, one-way around: 0 (south-west), 1 (north-west), 2 (north-east), 3."""
    lats, lons = [0.0, STEP_DEG, STEP_DEG, 0.0], [0.0, 0.0, STEP_DEG, STEP_DEG]
    sources, targets = [0, 1, 2, 3], [1, 2, 3, 0]
    ends = [corner for pair in zip(sources, targets, strict=True) for corner in pair]
    lat_lines, lon_lines = [lats[at] for at in ends], [lons[at] for at in ends]
    return build(lats, lons, sources, targets, [10.0] * 4, [0, 2, 4, 6, 8], lat_lines, lon_lines)


def seconds_between(roads: RoadNetwork, begin: int) -> dict[int, float]:
    """Dijkstra's algorithm in a dozen lines: how long from a node to each other."""
    times_s = roads.edge_time_s
    found: dict[int, float] = {}
    heap = [(0.0, begin)]
    while heap:
        time_s, node = heapq.heappop(heap)
        if node in found:
            continue
        found[node] = time_s
        for edge in np.flatnonzero(roads.edge_from == node):
            heapq.heappush(heap, (time_s + times_s[edge], int(roads.edge_to[edge])))
    return found
