"""The table of outgoing messages: what leaves it, and what must not be lost with it."""

from __future__ import annotations

import random

import numpy as np
from mediator.invariants import check_outgoing

from mercury.mediator import CRITICAL, Outgoing
from mercury.mediator.dispatch import Dispatch
from mercury.mediator.peers import Numbers
from mercury.model.delivery import DeliveryState


def table(**options: object) -> Outgoing:
    return Outgoing(random.Random(1), forget_peers=True, **options)  # type: ignore[arg-type]


def post(outgoing: Outgoing, id: str, *names: str, expires: float = 10.0) -> Dispatch:
    peers = np.array([outgoing.peers.number(name) for name in names], np.int32)
    return outgoing.post(id, "x", peers, 0.0, policy=CRITICAL, expires=expires)


def told(
    outgoing: Outgoing, changes: list[tuple[Dispatch, Numbers]]
) -> list[tuple[object, str, str]]:
    return [
        (dispatch.id, name, DeliveryState(int(state)).label)
        for dispatch, peers in changes
        for name, state in zip(
            outgoing.peers.names(peers), dispatch.state[dispatch.rows(peers)], strict=True
        )
    ]


def test_who_was_away_has_its_name_in_the_news_and_is_forgotten_afterwards() -> None:
    outgoing = table()
    post(outgoing, "alert", "away")
    assert told(outgoing, outgoing.take_changes(0.0)) == [("alert", "away", "waiting")]
    outgoing.due(10.0)
    assert told(outgoing, outgoing.take_changes(10.0)) == [("alert", "away", "unreachable")]
    assert len(outgoing) == 0
    check_outgoing(outgoing)
    assert outgoing.take_changes(11.0) == []
    assert outgoing.peers.find("away") is None
    check_outgoing(outgoing)


def test_above_the_limit_the_oldest_is_given_up_and_told() -> None:
    outgoing = table(max_copies=2)
    post(outgoing, "first", "a")
    post(outgoing, "second", "b")
    outgoing.take_changes(0.0)
    post(outgoing, "third", "c")
    check_outgoing(outgoing)
    changes = told(outgoing, outgoing.take_changes(0.0))
    assert changes == [("first", "a", "unreachable"), ("third", "c", "waiting")]
    outgoing.take_changes(0.0)
    check_outgoing(outgoing)
    assert outgoing.get("first") is None
    assert outgoing.peers.find("a") is None


def test_a_number_is_nobody_elses_while_the_table_speaks_of_it() -> None:
    outgoing = table()
    first = outgoing.peers.number("first")
    outgoing.arrived(first, 0.0)
    dispatch = post(outgoing, "alert", "first")
    outgoing.acknowledged(first, "alert", 0.1)
    outgoing.left(first)
    second = outgoing.peers.number("second")
    assert second != first
    outgoing.arrived(second, 0.2)
    assert len(outgoing.add(dispatch, np.array([second], np.int32), 0.2)) == 1
    check_outgoing(outgoing)


def test_what_is_posted_again_while_it_leaves_is_not_lost() -> None:
    outgoing = table()
    peer = outgoing.peers.number("a")
    outgoing.arrived(peer, 0.0)
    post(outgoing, "x", "a", expires=float("inf"))
    outgoing.acknowledged(peer, "x", 0.1)
    outgoing.take_changes(0.2)
    post(outgoing, "x", "b", expires=float("inf"))
    outgoing.take_changes(0.3)
    outgoing.take_changes(0.4)
    assert outgoing.waiting == 1
    assert outgoing.get("x") is not None
    check_outgoing(outgoing)


def test_what_is_final_leaves_when_its_recipient_has_it() -> None:
    outgoing = table()
    for id, final in (("final", True), ("open", False)):
        peers = np.array([outgoing.peers.number("a")], np.int32)
        outgoing.post(id, "x", peers, 0.0, policy=CRITICAL, expires=10.0, final=final)
    peer = outgoing.peers.number("a")
    outgoing.arrived(peer, 0.0)
    for dispatch, peers in outgoing.due(0.0):
        outgoing.sent(dispatch, peers, 0.0)
    outgoing.take_changes(0.0)
    assert len(outgoing) == 2  # neither is answered
    for id in ("final", "open"):
        assert outgoing.acknowledged(peer, id, 0.1)
    assert len(told(outgoing, outgoing.take_changes(0.1))) == 2
    assert outgoing.get("final") is None
    assert outgoing.get("open") is not None  # somebody may still come for it
    assert not outgoing.acknowledged(peer, "final", 0.2)
    assert [one.dispatch.id for one in outgoing.due(5.0)] == []
    check_outgoing(outgoing)


def test_who_is_awaited_and_does_not_come_was_away() -> None:
    outgoing = table()
    nobody = np.empty(0, np.int32)
    outgoing.post("alert", "x", nobody, 0.0, policy=CRITICAL, expires=10.0, awaited="nobody")
    assert told(outgoing, outgoing.take_changes(9.0)) == []
    assert "nobody" not in outgoing.peers  # nothing is kept of a name while it does not matter
    assert outgoing.due(10.0) == []
    [(dispatch, peers)] = outgoing.take_changes(10.0)
    assert told(outgoing, [(dispatch, peers)]) == [("alert", "nobody", "unreachable")]
    assert (dispatch.addressed[0], dispatch.settled[0]) == (0.0, 10.0)
    assert len(outgoing) == 0
    outgoing.take_changes(11.0)
    assert "nobody" not in outgoing.peers
    check_outgoing(outgoing)


def test_who_is_awaited_and_comes_has_a_copy_of_its_own() -> None:
    outgoing = table()
    nobody = np.empty(0, np.int32)
    dispatch = outgoing.post(
        "alert", "x", nobody, 0.0, policy=CRITICAL, expires=10.0, awaited="late"
    )
    late = outgoing.peers.number("late")
    outgoing.arrived(late, 5.0)
    outgoing.add(dispatch, np.array([late], np.int32), 5.0)
    outgoing.due(5.0)
    outgoing.sent(dispatch, np.array([late], np.int32), 5.0)
    outgoing.acknowledged(late, "alert", 5.1)
    assert told(outgoing, outgoing.take_changes(5.2)) == [("alert", "late", "acknowledged")]
    outgoing.due(10.0)
    assert told(outgoing, outgoing.take_changes(10.0)) == []


def test_what_was_refused_may_be_taken_later_and_not_the_other_way_round() -> None:
    outgoing = table()
    peer = outgoing.peers.number("car")
    outgoing.arrived(peer, 0.0)
    dispatch = post(outgoing, "alert", "car")
    outgoing.due(0.0)
    outgoing.sent(dispatch, np.array([peer], np.int32), 0.0)
    assert outgoing.refused(peer, "alert", "outside-area", 0.1)
    assert told(outgoing, outgoing.take_changes(0.1)) == [("alert", "car", "refused")]
    assert outgoing.due(5.0) == []  # it is not repeated
    assert outgoing.acknowledged(peer, "alert", 5.0)
    assert not outgoing.refused(peer, "alert", "outside-area", 5.1)  # an answer that was overtaken
    assert told(outgoing, outgoing.take_changes(5.1)) == [("alert", "car", "acknowledged")]
    assert (outgoing.peers.refused[peer], outgoing.peers.acknowledged[peer]) == (0, 1)
    assert (outgoing.peers.dropped[peer], +outgoing.ended) == (0, {DeliveryState.ACKNOWLEDGED: 1})
    check_outgoing(outgoing)


def test_timers_of_what_has_left_are_not_kept_until_their_time() -> None:
    outgoing = table()
    peer = outgoing.peers.number("car")
    outgoing.arrived(peer, 0.0)
    for number in range(10_000):
        peers = np.array([peer], np.int32)
        dispatch = outgoing.post(
            number, "x", peers, 0.0, policy=CRITICAL, expires=3600.0, final=True
        )
        outgoing.due(0.0)
        outgoing.sent(dispatch, peers, 0.0)
        outgoing.acknowledged(peer, number, 0.0)
        outgoing.take_changes(0.0)
    assert len(outgoing) == 0
    assert len(outgoing._heap) <= 1001
    last = outgoing.post("last", "x", np.array([peer], np.int32), 0.0, policy=CRITICAL)
    assert [one for one, _ in outgoing.due(0.0)] == [last]
    check_outgoing(outgoing)


def test_what_there_is_no_room_for_is_given_up_and_told() -> None:
    outgoing = table(max_messages=2, max_messages_per_client=2)
    nobody = np.empty(0, np.int32)
    for id, priority in (("ice", 7), ("emergency", 9), ("news", 3), ("flood", 8)):
        outgoing.post(
            id, "x", nobody, 0.0, policy=CRITICAL, priority=priority, expires=10.0, awaited="b"
        )
        check_outgoing(outgoing)
    changes = told(outgoing, outgoing.take_changes(0.0))
    assert changes == [("news", "b", "unreachable"), ("ice", "b", "unreachable")]
    assert [outgoing.get(id) is not None for id in ("emergency", "flood")] == [True, True]
    assert outgoing.shed == 2
    outgoing.take_changes(0.0)
    check_outgoing(outgoing)


def test_copies_of_an_emergency_are_the_last_to_be_given_up() -> None:
    outgoing = table(max_copies=2)
    for id, priority in (("emergency", 9), ("news", 3), ("ice", 7)):
        peers = np.array([outgoing.peers.number("a")], np.int32)
        outgoing.post(id, "x", peers, 0.0, policy=CRITICAL, priority=priority, expires=10.0)
    assert [one.id for one in outgoing] == ["emergency", "ice"]
    check_outgoing(outgoing)
