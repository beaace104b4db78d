"""Shortest ways by time, from a node to all around it or from all around to a node.

Dijkstra's algorithm with a binary heap, as machine code: it stops as soon as the wanted nodes are
settled, which SciPy's cannot.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import FloatArray
from mercury.geo.machine_code import compiled
from mercury.roads.network import Numbers, RoadNetwork

Edges = NDArray[np.int32]

NONE = -1


class ShortestWays:
    """Finds shortest ways, in memory that is used again."""

    def __init__(self, roads: RoadNetwork) -> None:
        self._time_s = roads.edge_time_s
        self._from, self._to = roads.edge_from, roads.edge_to
        self._out = roads.first_edge, np.arange(roads.edges)
        arriving = np.argsort(roads.edge_to, kind="stable")
        firsts = np.searchsorted(roads.edge_to[arriving], np.arange(roads.nodes + 1))
        self._in = firsts, arriving
        self._best_s = np.empty(roads.nodes)

    def ways(self, root: int, nodes: Numbers, *, towards: bool) -> tuple[Edges, Numbers]:
        """The edges of the ways from a root to nodes, or back, as they are driven; and how many."""
        wanted = np.zeros(len(self._best_s), np.bool_)
        wanted[nodes] = True
        firsts, edges = self._in if towards else self._out
        ends, back = (self._from, self._to) if towards else (self._to, self._from)
        # For each node the edge by which it is reached from the root, or left towards it.
        tree = np.empty(len(self._best_s), np.int32)
        _grow(root, wanted, firsts, edges, ends, self._time_s, self._best_s, tree)
        counts = np.empty(len(nodes), np.int64)
        _count(tree, nodes, back, counts)
        found = np.empty(int(counts.sum()), np.int32)
        _collect(tree, nodes, back, counts, towards, found)
        return found, counts


@compiled
def _grow(
    root: int,
    wanted: NDArray[np.bool_],
    firsts: Numbers,
    edges: Numbers,
    ends: Numbers,
    time_s: FloatArray,
    best_s: FloatArray,
    edge_by: Edges,
) -> None:
    left = 0
    for node in range(len(best_s)):
        best_s[node] = np.inf
        edge_by[node] = NONE
        left += wanted[node]
    best_s[root] = 0.0
    heap = [(0.0, root)]
    while heap and left:
        second, node = heapq.heappop(heap)
        if second > best_s[node]:
            continue  # a shorter way was found meanwhile
        left -= wanted[node]
        for row in range(firsts[node], firsts[node + 1]):
            edge = edges[row]
            end = ends[edge]
            there_s = second + time_s[edge]
            if there_s < best_s[end]:
                best_s[end] = there_s
                edge_by[end] = edge
                heapq.heappush(heap, (there_s, end))


@compiled
def _count(tree: Edges, nodes: Numbers, back: Numbers, counts: Numbers) -> None:
    for row in range(len(nodes)):
        count = 0
        edge = tree[nodes[row]]
        while edge != NONE:
            count += 1
            edge = tree[back[edge]]
        counts[row] = count


@compiled
def _collect(
    tree: Edges, nodes: Numbers, back: Numbers, counts: Numbers, towards: bool, edges: Edges
) -> None:
    begin = 0
    for row in range(len(nodes)):
        end = begin + counts[row]
        at = begin if towards else end - 1
        edge = tree[nodes[row]]
        while edge != NONE:
            edges[at] = edge
            at += 1 if towards else -1
            edge = tree[back[edge]]
        begin = end
