"""The bridge's core: what pMediator promises, on a network that loses and repeats."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moos.bridges import Fleet, bridge, datagram, local

from mercury.moos.bridge import MoosBridge, Posting
from mercury.moos.packet import MoosPacket, write_packet
from mercury.moos.text_forms import NodeMessage, NodeReport, write_node_message
from mercury.testing.network import HostileNetwork

RETURN = "src_node=abe,dest_node={},var_name=RETURN,string_val=true"


def sent(one: MoosBridge, now: float = 0.0) -> list[tuple[str | None, str]]:
    """Mates that something is sent to now, and as which variable."""
    return [(posting.mate, posting.key) for posting in one.due(now)]


def test_the_way_of_one_message() -> None:
    abe, ben = bridge("abe", "ben", "cal", begun_us=122), bridge("ben", "abe")
    abe.receive(local(RETURN.format("ben")), 0.0)
    [copy] = abe.due(0.0)
    assert copy == Posting(
        "ben",
        "MEDIATED_MESSAGE",
        "ack_id=abe_123,ack=true,src_node=abe,dest_node=ben,var_name=RETURN,string_val=true",
    )
    ben.receive(abe.datagram(copy, 0.0), 0.1)
    posted, ack = ben.due(0.1)
    assert posted == Posting(None, "NODE_MESSAGE", RETURN.format("ben"))
    assert ack == Posting("abe", "ACK_MESSAGE", "id=abe_123, src=ben, dest=abe")
    abe.receive(ben.datagram(ack, 0.0), 0.2)
    assert abe.due(100.0) == []
    assert abe.next_timer() is None
    report = abe.report(1.0)
    assert (report.sent, report.resent, report.acknowledged) == (1, 0, 1)
    assert (dict(abe.bad), dict(abe.dropped)) == ({}, {})


def test_each_destination_has_a_copy_of_its_own() -> None:
    abe = bridge("abe", "ben", "cal", "deb")
    abe.receive(local(RETURN.format("ben:cal:BEN")), 0.0)
    texts = [posting.text for posting in abe.due(0.0)]
    assert [text.partition(",var_name")[0] for text in texts] == [
        "ack_id=abe_1,ack=true,src_node=abe,dest_node=ben",
        "ack_id=abe_2,ack=true,src_node=abe,dest_node=cal",
    ]


def test_ids_go_on_after_a_restart() -> None:
    ids: list[set[str]] = []
    for begun_us in (1_000_000, 1_000_000 + 1_000_000):  # a second later
        abe = bridge("abe", "ben", begun_us=begun_us)
        for number in range(1000):
            abe.receive(local(RETURN.format("ben") + str(number)), 0.0)
        ids.append({posting.text.partition(",")[0] for posting in abe.due(0.0)})
    assert list(map(len, ids)) == [1000, 1000]
    assert not ids[0] & ids[1]


def test_only_who_did_not_acknowledge_gets_it_again() -> None:
    abe = bridge("abe", "ben", "cal", resend_thresh_s=3.0)
    abe.receive(local(RETURN.format("all")), 0.0)
    assert sent(abe) == [("ben", "MEDIATED_MESSAGE"), ("cal", "MEDIATED_MESSAGE")]
    abe.receive(datagram("ACK_MESSAGE", "id=abe_1, src=ben, dest=abe"), 0.5)
    assert sent(abe, 2.6) == []
    assert sent(abe, 3.4) == [("cal", "MEDIATED_MESSAGE")]


def test_an_acknowledgement_counts_only_from_whom_the_copy_was_for() -> None:
    abe = bridge("abe", "ben", "cal")
    abe.receive(local(RETURN.format("ben")), 0.0)
    abe.due(0.0)
    for wrong in ("id=abe_1, src=cal, dest=abe", "id=abe_2, src=ben, dest=abe"):
        abe.receive(datagram("ACK_MESSAGE", wrong), 0.1)
    abe.receive(datagram("ACK_MESSAGE", "id=abe_1, src=ben, dest=cal"), 0.1)
    assert abe.dropped == {"ack-not-awaited": 2, "not-for-us": 1}
    assert sent(abe, 2.3) == [("ben", "MEDIATED_MESSAGE")]


def test_variables_without_acknowledgement_are_sent_once() -> None:
    abe = bridge("abe", "ben", no_ack_vars=frozenset({"RETURN"}))
    abe.receive(local(RETURN.format("ben")), 0.0)
    [posting] = abe.due(0.0)
    assert "ack_id=abe_1,src_node" in posting.text
    assert "ack=" not in posting.text.replace("ack_id", "")
    assert abe.next_timer() is None
    ben = bridge("ben", "abe")
    for now in (0.1, 0.2):
        ben.receive(abe.datagram(posting, 0.0), now)
    assert sent(ben, 0.2) == [(None, "NODE_MESSAGE")]
    report = abe.report(1.0)
    assert (report.peers[0].dropped, report.topics[0].acknowledge) == (0, False)


def test_what_nobody_acknowledges_is_given_up_after_max_tries() -> None:
    abe = bridge("abe", "ben", max_tries=3)
    abe.receive(local(RETURN.format("ben")), 0.0)
    tries = now = 0.0
    while (timer := abe.next_timer()) is not None:
        now = max(timer, now)
        tries += len(abe.due(now))
    assert tries == 1 + 3
    row = abe.report(now).peers[0]
    assert (row.sent, row.resent, row.dropped, row.waiting) == (1, 3, 1, 0)


def test_groups_and_all() -> None:
    abe = bridge("abe", "ben", "cal", "deb", group="Blue", mates=("cal", "deb"))
    abe.receive(local("src_node=abe,dest_group=blue,var_name=X,string_val=1"), 0.0)
    assert [mate for mate, _ in sent(abe)] == ["cal", "deb"]
    abe.receive(local("src_node=abe,dest_node=ALL,var_name=X,string_val=1"), 0.0)
    assert [mate for mate, _ in sent(abe)] == ["ben", "cal", "deb"]
    abe.receive(local("src_node=abe,dest_node=ben,dest_group=blue,var_name=X,string_val=1"), 0.0)
    assert [mate for mate, _ in sent(abe)] == ["ben", "cal", "deb"]
    abe.receive(local("src_node=abe,dest_group=red,var_name=X,string_val=1"), 0.0)
    assert sent(abe) == []
    assert abe.dropped == {"unknown-group": 1}


def test_without_named_mates_the_group_is_who_has_a_route() -> None:
    abe = bridge("abe", "ben", "cal", group="blue")
    abe.receive(local("src_node=abe,dest_group=blue,var_name=X,string_val=1"), 0.0)
    assert [mate for mate, _ in sent(abe)] == ["ben", "cal"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (RETURN.format("zoe"), "unknown-node"),
        (RETURN.format("abe"), "to-ourselves"),
        ("src_node=ben,dest_node=cal,var_name=X,string_val=1", "source-is-not-us"),
        ("src_node=abe,dest_node=ben,var_name=X,string_val=" + "x" * 64_600, "too-large"),
    ],
)
def test_what_cannot_be_sent_on_is_counted(text: str, reason: str) -> None:
    abe = bridge("abe", "ben")
    abe.receive(local(text), 0.0)
    assert sent(abe) == []
    assert abe.dropped == {reason: 1}
    assert not abe.bad


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"junk", "too-short"),
        (local("dest_node=ben"), "no-src_node"),
        (datagram("MEDIATED_MESSAGE", RETURN.format("abe")), "no-ack_id"),
        (datagram("ACK_MESSAGE", "id=1"), "no-src"),
        (write_packet(MoosPacket("ACK_MESSAGE", double_val=1.0)), "not-a-string"),
        (write_packet(MoosPacket("X", "1", message_type="C")), "not-a-notification"),
        (datagram("NODE_REPORT_LOCAL", "NAME=abe"), "no-position"),
    ],
)
def test_what_is_malformed_is_counted_as_bad(data: bytes, reason: str) -> None:
    abe = bridge("abe", "ben")
    abe.receive(data, 0.0)
    assert sent(abe) == []
    assert abe.bad == {reason: 1}


def test_variables_of_others_are_passed_over() -> None:
    ben = bridge("ben", "abe")
    ben.receive(datagram("NAV_X", "1"), 0.0)
    ben.receive(datagram("MEDIATED_MESSAGE", "ack_id=abe_1," + RETURN.format("cal")), 0.0)
    ben.receive(
        datagram(
            "MEDIATED_MESSAGE",
            "ack_id=zoe_1,ack=true,src_node=zoe,dest_node=ben,var_name=X,string_val=1",
        ),
        0.0,
    )
    assert sent(ben) == []
    assert ben.dropped == {"unknown-variable": 1, "not-for-us": 1, "no-way-back": 1}


def test_a_pshare_that_does_not_rename_is_understood() -> None:
    ben = bridge("ben", "abe")
    ben.receive(
        datagram("MEDIATED_MESSAGE_LOCAL", "ack_id=abe_1,ack=true," + RETURN.format("ben")), 0.0
    )
    assert sent(ben) == [(None, "NODE_MESSAGE"), ("abe", "ACK_MESSAGE")]


def test_a_mate_that_counts_anew_is_heard() -> None:
    """pMediator may begin at 1 again when it is started again."""
    ben = bridge("ben", "abe")
    first = datagram("MEDIATED_MESSAGE", "ack_id=abe_1,ack=true," + RETURN.format("ben"))
    other = datagram("MEDIATED_MESSAGE", "ack_id=abe_1,ack=true," + RETURN.format("ben") + "!")
    for data, now in ((first, 0.0), (first, 2.0), (other, 3.0), (first, 600.0)):
        ben.receive(data, now)
    postings = [posting for posting in ben.due(600.0) if posting.mate is None]
    assert [posting.text[-5:] for posting in postings] == ["=true", "true!", "=true"]


def test_through_a_relay_anybody_can_be_sent_to() -> None:
    abe = bridge("abe", "*")
    abe.receive(local(RETURN.format("all")), 0.0)
    assert abe.dropped == {"nobody-known": 1}
    abe.receive(local(RETURN.format("Zoe")), 0.0)
    [posting] = abe.due(0.0)
    assert posting.mate == "zoe"
    assert "dest_node=Zoe" in posting.text
    abe.receive(local(RETURN.format("all")), 0.0)
    assert [mate for mate, _ in sent(abe)] == ["zoe"]


def test_own_reports_are_handed_on() -> None:
    found: list[NodeReport] = []
    abe = bridge("abe", "ben")
    abe._on_report = found.append
    text = "NAME={},X=1,Y=2,SPD=1.5,HDG=450,LAT=43.8,LON=-70.3,TIME=1"
    abe.receive(datagram("NODE_REPORT_LOCAL", text.format("ABE")), 0.0)
    abe.receive(datagram("NODE_REPORT", text.format("ben")), 0.0)
    assert found == [NodeReport("ABE", 43.8, -70.3, 1.5, 90.0)]
    assert abe.dropped == {"report-of-another": 1}


@given(
    st.sampled_from(["NODE_MESSAGE_LOCAL", "MEDIATED_MESSAGE", "ACK_MESSAGE", "NODE_REPORT"]),
    st.text() | st.sampled_from([RETURN, "ack_id=1", "src_node=ben", "LAT=nan,NAME=abe"]),
)
def test_no_datagram_stops_the_bridge(key: str, text: str) -> None:
    abe = bridge("abe", "ben")
    abe.receive(datagram(key, text), 0.0)
    abe.due(0.0)
    assert sum(abe.bad.values()) + sum(abe.dropped.values()) <= 2


@pytest.mark.parametrize("seed", range(5))
def test_everything_arrives_exactly_once_over_lossy_links(seed: int) -> None:
    network = HostileNetwork[str](
        seed, deliver=0.5, drop=0.3, duplicate=0.1, delay=0.1, max_delay_s=5.0
    )
    fleet = Fleet(network, "abe", "ben", "cal", max_tries=30, no_ack_vars=frozenset({"STATUS"}))
    wanted: dict[str, Counter[str]] = {name: Counter() for name in fleet.heard}
    for number in range(40):
        for name in fleet.heard:
            value = f'{number}, "a=b" {{'
            fleet.say(name, NodeMessage(name, ("all",), "BID", value))
            fleet.say(name, NodeMessage(name, ("all",), "STATUS", double_val=float(number)))
            for mate in fleet.heard:
                if mate != name:
                    message = NodeMessage(name, (mate,), "BID", value)
                    wanted[mate][write_node_message(message)] += 1
        fleet.run(fleet.now + 1.0)
    fleet.run(fleet.now + 120.0)
    for name, heard in fleet.heard.items():
        bids = Counter({text: n for text, n in heard.items() if "var_name=BID" in text})
        statuses = Counter({text: n for text, n in heard.items() if "STATUS" in text})
        assert bids == wanted[name], network
        assert set(statuses.values()) == {1}, network
        assert 30 <= len(statuses) <= 75, network  # about 70 % of 80, and not one sent again
        report = fleet.bridges[name].report(fleet.now)
        rows = {row.topic: row for row in report.topics}
        assert (rows["STATUS"].sent, rows["STATUS"].resent) == (80, 0)
        assert rows["BID"].sent == 80
        assert rows["BID"].resent > 20, network
        assert [row.dropped for row in report.peers] == [0, 0], network
        assert not fleet.bridges[name].bad
    assert network.statistics.dropped > 100


@pytest.mark.parametrize("seed", range(3))
def test_what_is_given_up_is_counted_and_nothing_comes_twice(seed: int) -> None:
    network = HostileNetwork[str](seed, deliver=0.6, drop=0.3, duplicate=0.1, delay=0.0)
    fleet = Fleet(network, "abe", "ben", "cal", max_tries=1)
    for number in range(60):
        fleet.say("abe", NodeMessage("abe", ("ben", "cal"), "BID", str(number)))
    fleet.run(60.0)
    report = fleet.bridges["abe"].report(fleet.now)
    lost = sum(row.dropped for row in report.peers)
    assert lost == 120 - report.acknowledged
    assert lost > 5, network
    for name in ("ben", "cal"):
        assert set(fleet.heard[name].values()) == {1}, network
        assert len(fleet.heard[name]) >= 60 - lost


def test_a_busy_mate_finds_room() -> None:
    ben = bridge("ben", "abe")
    for number in range(12_000):  # 200 a second, for a minute
        text = f"ack_id=abe_{number},ack=true,src_node=abe,dest_node=ben,var_name=X,string_val=1"
        ben.receive(datagram("MEDIATED_MESSAGE", text), number / 200)
    assert len(ben.due(60.0)) == 24_000
    assert not ben.dropped


def test_damaged_datagrams_do_no_harm() -> None:
    network = HostileNetwork[str](4, deliver=0.8, drop=0.0, duplicate=0.2, delay=0.0, corrupt=0.3)
    fleet = Fleet(network, "abe", "ben", max_tries=40)
    for number in range(50):
        fleet.say("abe", NodeMessage("abe", ("ben",), "BID", str(number)))
    fleet.run(120.0)
    assert network.statistics.corrupted > 10
    assert fleet.bridges["ben"].bad
    assert fleet.bridges["abe"].report(fleet.now).acknowledged >= 49
