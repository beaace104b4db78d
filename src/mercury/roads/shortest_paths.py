"""Shortest ways by time, from a node to all around it or from all around to a node.

Dijkstra's algorithm with a binary heap, as machine code: it stops as soon as the wanted nodes are
settled, which SciPy's cannot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mercury.geo.arrays import FloatArray
from mercury.roads.compiling import compiled
from mercury.roads.network import Numbers, RoadNetwork

Edges = NDArray[np.int32]

NONE = -1


class ShortestWays:
    """Trees of shortest ways; one tree at a time, in memory that is used again.

    A tree is an array: for each node the edge by which it is reached from the root, or, in a tree
    towards the root, by which it is left.
    """

    def __init__(self, roads: RoadNetwork) -> None:
        self._time_s = roads.edge_time_s
        self._from, self._to = roads.edge_from, roads.edge_to
        self._out = roads.first_edge, np.arange(roads.edges)
        arriving = np.argsort(roads.edge_to, kind="stable")
        firsts = np.searchsorted(roads.edge_to[arriving], np.arange(roads.nodes + 1))
        self._in = firsts, arriving
        self._best_s = np.empty(roads.nodes)
        # Each edge puts a node on the heap at most once.
        self._heap_s, self._heap_node = (
            np.empty(roads.edges + 1),
            np.empty(roads.edges + 1, np.int64),
        )

    def tree(self, root: int, wanted: NDArray[np.bool_], *, towards: bool = False) -> Edges:
        """The tree of a node; what is not wanted may be missing."""
        edge_by = np.empty(len(self._best_s), np.int32)
        firsts, edges = self._in if towards else self._out
        ends = self._from if towards else self._to
        _grow(
            root, wanted, firsts, edges, ends, self._time_s,
            self._best_s, edge_by, self._heap_s, self._heap_node,
        )  # fmt: skip
        return edge_by

    def ways(self, tree: Edges, nodes: Numbers, *, towards: bool = False) -> tuple[Edges, Numbers]:
        """The edges between the root and each node, in driving order, and how many of each."""
        counts = np.empty(len(nodes), np.int64)
        back = self._to if towards else self._from
        total = _count(tree, nodes, back, counts)
        edges = np.empty(total, np.int32)
        _collect(tree, nodes, back, counts, towards, edges)
        return edges, counts

    def seconds(self, nodes: Numbers) -> FloatArray:
        """How long the ways of the last tree take."""
        found: FloatArray = self._best_s[nodes]
        return found


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
    heap_s: FloatArray,
    heap_node: Numbers,
) -> None:
    left = 0
    for node in range(len(best_s)):
        best_s[node] = np.inf
        edge_by[node] = NONE
        left += wanted[node]
    best_s[root] = 0.0
    heap_s[0], heap_node[0] = 0.0, root
    size = 1
    while size and left:
        second, node = heap_s[0], heap_node[0]
        # The last goes to the top and sinks to its place.
        size -= 1
        last_s, last_node = heap_s[size], heap_node[size]
        at = 0
        while True:
            child = 2 * at + 1
            if child >= size:
                break
            if child + 1 < size and heap_s[child + 1] < heap_s[child]:
                child += 1
            if heap_s[child] >= last_s:
                break
            heap_s[at], heap_node[at] = heap_s[child], heap_node[child]
            at = child
        heap_s[at], heap_node[at] = last_s, last_node
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
                at = size
                size += 1
                while at and heap_s[(at - 1) // 2] > there_s:
                    heap_s[at], heap_node[at] = heap_s[(at - 1) // 2], heap_node[(at - 1) // 2]
                    at = (at - 1) // 2
                heap_s[at], heap_node[at] = there_s, end


@compiled
def _count(tree: Edges, nodes: Numbers, back: Numbers, counts: Numbers) -> int:
    total = 0
    for row in range(len(nodes)):
        count = 0
        edge = tree[nodes[row]]
        while edge != NONE:
            count += 1
            edge = tree[back[edge]]
        counts[row] = count
        total += count
    return total


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
