"""What always holds of the table of outgoing messages."""

from __future__ import annotations

import math

import numpy as np

from mercury.mediator import Outgoing


def check_outgoing(outgoing: Outgoing) -> None:
    """Check that the table adds up, with what it says of its peers."""
    peers = outgoing.peers
    waiting, held = np.zeros_like(peers.waiting), np.zeros_like(peers.held)
    for dispatch in outgoing:
        open_rows = dispatch.is_waiting()
        assert np.all(np.diff(dispatch.peers) > 0)
        assert dispatch.waiting == int(open_rows.sum())
        assert np.all(np.isnan(dispatch.settled) == open_rows)
        assert dispatch.scheduled <= dispatch.next_due() or math.isinf(dispatch.next_due())
        if dispatch.policy.acknowledge and dispatch.policy.max_tries is not None:
            assert np.all(dispatch.tries <= dispatch.policy.max_tries + 1)
        waiting[dispatch.peers[open_rows]] += 1
        held[dispatch.peers] += 1
    for peer in peers:
        found = {one.id for one in outgoing if one.row(peer) is not None}
        assert {one.id for one in outgoing.of(peer)} == found
    assert outgoing.held == int(held.sum())
    for dispatch in (*outgoing._retired, *outgoing._leaving):
        assert not dispatch.waiting
        held[dispatch.peers] += 1
    assert np.array_equal(held, peers.held)
    assert np.array_equal(waiting, peers.waiting)
    assert outgoing.waiting == int(waiting.sum())
