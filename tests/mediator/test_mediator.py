"""What one vehicle's mediator does, step by step."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from mediator.vehicles import Mediator, Road

from mercury.mediator import BY_STRENGTH, Arrival, Policies
from mercury.model.message import DeliveryPolicy
from mercury.testing.network import HostileNetwork

REPEAT = DeliveryPolicy.REPEAT
CRITICAL = DeliveryPolicy.CRITICAL


def perfect(seed: int = 1) -> HostileNetwork[str]:
    return HostileNetwork(seed, deliver=1.0, drop=0.0, duplicate=0.0, delay=0.0)


def mediator(name: str = "abe", begun_us: int = 0, **options: object) -> Mediator:
    made = Mediator(
        name,
        random.Random(1),
        begun_us=begun_us,
        policies=Policies({}),
        **options,  # type: ignore[arg-type]
    )
    for mate in ("ben", "cal"):
        made.join(mate, 0.0)
    return made


def test_only_who_did_not_acknowledge_gets_it_again() -> None:
    abe = mediator()
    ben_id, cal_id = abe.post("x", "X", ["ben", "cal"], 0.0, policy=REPEAT)
    abe.due(0.0)
    assert abe.acknowledged("ben", ben_id, 0.5)
    assert not abe.acknowledged("ben", ben_id, 0.6)  # known
    assert not abe.acknowledged("ben", cal_id, 0.6)  # not ben's
    assert not abe.acknowledged("dan", cal_id, 0.6)  # unknown
    assert abe.due(1.7) == []
    assert [copy.mate for copy in abe.due(2.3)] == ["cal"]


def test_what_is_not_acknowledged_is_given_up_after_max_tries() -> None:
    abe = mediator()
    abe.post("x", "X", ["ben"], 0.0, policy=REPEAT)
    times = []
    now = 0.0
    while (timer := abe.next_timer()) is not None:
        now = max(timer, now)
        times += [now] * len(abe.due(now))
    assert len(times) == 1 + 5  # pMediator §5.2: re-sent a maximum of five times
    gaps = [after - before for before, after in pairwise(times)]
    assert all(1.8 <= gap <= 2.2 for gap in gaps)
    row = abe.report(now).peers[0]
    assert (row.sent, row.resent, row.dropped, row.waiting) == (1, 5, 1, 0)


def test_the_most_urgent_goes_first() -> None:
    abe = mediator(resends_per_s=10.0)
    for priority in (1, 9, 5):
        abe.post(priority, "X", ["ben"], 0.0, policy=REPEAT, priority=priority)
    assert [copy.content for copy in abe.due(0.0)] == [9, 5, 1]
    # Where not all may be repeated at once, the most urgent is.
    assert [copy.content for copy in abe.due(3.0)] == [9]


def test_what_has_expired_is_not_sent_again() -> None:
    abe = mediator()
    abe.post("x", "X", ["ben"], 0.0, policy=CRITICAL, expires=3.0)
    sent = 0
    now = 0.0
    while (timer := abe.next_timer()) is not None:
        now = max(timer, now)
        sent += len(abe.due(now))
    assert now == 3.0
    assert 3 <= sent <= 6
    assert abe.report(now).peers[0].dropped == 1


def test_fire_and_forget_is_sent_once() -> None:
    abe = mediator()
    abe.post("x", "FUEL_STATUS", ["ben", "cal"], 0.0)
    copies = abe.due(0.0)
    assert [copy.acknowledge for copy in copies] == [False, False]
    assert abe.next_timer() is None
    topic = abe.report(60.0).topics[0]
    assert (topic.sent, topic.resent, topic.acknowledge) == (2, 0, False)
    assert topic.per_minute == pytest.approx(2.0)
    # It was sent as often as it was meant to be: nothing was dropped, nothing ended.
    assert [row.dropped for row in abe.report(60.0).peers] == [0, 0]
    assert abe.report(60.0).events == []


def test_an_answer_that_nobody_asked_for_counts_as_no_drop() -> None:
    abe = mediator()
    [id] = abe.post("x", "FUEL_STATUS", ["ben"], 0.0)
    [(dispatch, peers)] = abe.outgoing.due(0.0)
    abe.outgoing.sent(dispatch, peers, 0.0)
    assert abe.acknowledged("ben", id, 0.1)
    row = abe.report(1.0).peers[0]
    assert (row.acknowledged, row.dropped) == (1, 0)


@pytest.mark.parametrize("acknowledge", [True, False])
def test_an_id_may_come_again_as_another_message_after_its_time(acknowledge: bool) -> None:
    ben = mediator("ben").incoming
    arrivals = [
        ben.receive("abe", "abe_1", now, acknowledge=acknowledge, until=now + 60.0)
        for now in (0.0, 59.0, 61.0, 62.0)
    ]
    assert arrivals == [Arrival.NEW, Arrival.REPEATED, Arrival.NEW, Arrival.REPEATED]


def test_the_topic_says_how_much_trouble_it_is_worth() -> None:
    policies = Policies(
        {"STOP": (CRITICAL, BY_STRENGTH[CRITICAL]), "message": (REPEAT, BY_STRENGTH[REPEAT])}
    )
    abe = Mediator("abe", random.Random(1), begun_us=0, policies=policies)
    abe.join("ben", 0.0)
    abe.post("x", "STOP", ["ben"], 0.0)
    abe.post("x", "OTHER", ["ben"], 0.0)
    assert [one.policy.name for one in abe.outgoing] == ["critical", "repeat"]


def test_every_copy_is_answered_and_one_is_passed_on() -> None:
    ben = mediator("ben")
    assert ben.incoming.receive("abe", "abe_1", 0.0, acknowledge=True) is Arrival.NEW
    assert ben.incoming.answers_due(0.0) == [("abe", [("abe_1", "")])]
    assert ben.incoming.receive("abe", "abe_1", 2.0, acknowledge=True) is Arrival.REPEATED
    assert ben.incoming.answers_due(2.0) == [("abe", [("abe_1", "")])]
    assert ben.incoming.receive("cal", "abe_1", 2.0, acknowledge=False) is Arrival.NEW  # another's
    row = ben.report(3.0).acks[0]
    assert (row.peer, row.acks_sent, row.acks_resent) == ("abe", 1, 1)


def test_what_a_mate_missed_waits_for_it() -> None:
    abe = mediator()
    abe.outgoing.left(abe.outgoing.peers.number("ben"))
    abe.post("x", "X", ["ben"], 0.0, policy=CRITICAL)
    assert abe.due(0.0) == []
    abe.join("ben", 100.0)
    assert [copy.mate for copy in abe.due(100.0)] == ["ben"]


def test_order_is_kept_where_it_is_asked_for() -> None:
    network = HostileNetwork[str](
        3, deliver=0.4, drop=0.2, duplicate=0.2, delay=0.2, max_delay_s=5.0
    )
    road = Road(network)
    order: list[str] = []
    abe = road.vehicles["abe"].mediator
    ids = [
        abe.post(number, "X", ["ben"], 0.0, policy=CRITICAL, ordered=True)[0]
        for number in range(50)
    ]
    road.flush()
    while road.step():
        order += [id for id in road.vehicles["ben"].heard if id not in order]
    assert order == ids
    assert network.statistics.dropped > 20  # the network was as hostile as it should be


def test_an_earlier_message_goes_first_also_to_who_is_added_to_it_late() -> None:
    outgoing = mediator().outgoing
    ben = np.array([outgoing.peers.number("ben")], np.int32)
    nobody = np.empty(0, np.int32)
    outgoing.arrived(int(ben[0]), 0.0)
    dispatches = [
        outgoing.post(
            number, "x", nobody, 0.0, policy=BY_STRENGTH[CRITICAL], source="abe", ordered=True
        )
        for number in range(3)
    ]
    for dispatch in reversed(dispatches):
        outgoing.add(dispatch, ben, 0.0)
    order = []
    while due := outgoing.due(0.0):
        for dispatch, peers in due:
            outgoing.sent(dispatch, peers, 0.0)
            order.append(dispatch.id)
            outgoing.acknowledged(int(ben[0]), dispatch.id, 0.0)
    assert order == [0, 1, 2]


def test_the_report_tells_what_happened() -> None:
    road = Road(perfect())
    abe = road.vehicles["abe"].mediator
    for _ in range(3):
        abe.post("x", "MUSTER", ["ben", "cal"], road.now, policy=REPEAT)
        road.flush()
        road.run(road.now + 1.0)
    found = abe.report(road.now).as_dict()
    assert (found["sent"], found["resent"], found["acknowledged"]) == (6, 0, 6)
    assert [row["peer"] for row in found["peers"]] == ["ben", "cal"]
    assert found["peers"][0]["first_try_s"] == pytest.approx(0.02)
    assert found["topics"][0]["peers"] == ["ben", "cal"]
    assert found["events"][0]["state"] == "acknowledged"
    ben = road.vehicles["ben"].mediator.report(road.now)
    assert ben.received == 3
    assert ben.acks[0].acks_sent == 3
