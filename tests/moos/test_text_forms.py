"""The text forms: as the paper and MOOS write them, and whatever else may come."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mercury.model.errors import MoosError
from mercury.moos.text_forms import (
    AckMessage,
    NodeMessage,
    read_ack_message,
    read_mediated_message,
    read_node_message,
    write_ack_message,
    write_node_message,
)

names = st.from_regex(r"[A-Za-z0-9_.\-]{1,12}", fullmatch=True)
notes = st.from_regex(r"([A-Za-z0-9_=:]( ?[A-Za-z0-9_=:]){0,8})?", fullmatch=True)
# Texts that are likely to be misread, and any other.
tricky = st.lists(
    st.sampled_from(
        ['"', ",", "=", "{", "}", " ", "a", "\n", "string_val", "_quoted", "=true", ":", "é"]
    )
).map("".join)
strings = tricky | st.text()
doubles = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def node_messages(draw: st.DrawFn) -> NodeMessage:
    value = draw(st.builds(lambda v: {"string_val": v}, strings) | doubles.map(_double))
    nodes = tuple(draw(st.lists(names, max_size=3)))
    return NodeMessage(
        src_node=draw(names),
        dest_nodes=nodes,
        dest_group=draw(names if not nodes else names | st.just("")),
        var_name=draw(names),
        src_app=draw(notes),
        src_bhv=draw(notes),
        color=draw(notes),
        ack_id=draw(names | st.just("")),
        ack=draw(st.booleans()),
        **value,
    )


def _double(value: float) -> dict[str, float]:
    return {"double_val": value}


@given(node_messages())
def test_what_is_written_reads_back(message: NodeMessage) -> None:
    assert read_node_message(write_node_message(message)) == message


@given(st.builds(NodeMessage, names, st.just(("ben",)), names, string_val=strings))
@example(NodeMessage("abe", ("ben",), "SAY", '"a{",string_val_quoted=true'))
@example(NodeMessage("abe", ("ben",), "SAY", '",string_val_quoted=true,dest_node=cal'))
@example(NodeMessage("abe", ("ben",), "SAY", '"{",string_val_quoted=true,"'))
@example(NodeMessage("abe", ("ben",), "SAY", '"'))
@example(NodeMessage("abe", ("ben",), "SAY", '""'))
def test_no_string_can_pass_for_another_field(message: NodeMessage) -> None:
    assert read_node_message(write_node_message(message)) == message


@given(st.builds(AckMessage, st.just("abe_1"), names.map("s".__add__), names.map("d".__add__)))
def test_acknowledgements_read_back(message: AckMessage) -> None:
    assert read_ack_message(write_ack_message(message)) == message


pieces = st.lists(
    st.sampled_from(
        [
            *("src_node=abe", "dest_node=ben", "dest_group=blue", "var_name=X", "ack_id=abe_1"),
            *("string_val=", "string_val_quoted=true", "double_val=", "ack=true", "id=1", "src=a"),
            *(",", '"', "{", "}", "=", " ", "nan", "1e999", "-", "７", "\x00", "dest=b", ":"),
        ]
    )
    | st.text(max_size=5)
).map("".join)


@given(pieces | st.text())
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    for read in (read_node_message, read_mediated_message, read_ack_message):
        try:
            read(text)
        except MoosError as error:
            assert error.reason
            assert str(error)


@pytest.mark.parametrize(
    "text", [',string_val="' * 5000, ',string_val=" ' * 5000, '" , string_val_quoted= ' * 3000]
)
def test_no_text_takes_long(text: str) -> None:
    text = "src_node=a,dest_node=b,var_name=X,string_val=" + text
    begun = time.process_time()
    assert read_node_message(text).string_val is not None
    assert time.process_time() - begun < 0.5  # a slow pattern takes minutes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # pMediator §3.1 and §3.2
        (
            "src_node=abe, dest_node=ben, var_name=RETURN, string_val=true",
            NodeMessage("abe", ("ben",), "RETURN", "true"),
        ),
        (
            "src_node=eve, dest_node=fin, var_name=DIST, double_val=1984",
            NodeMessage("eve", ("fin",), "DIST", double_val=1984.0),
        ),
        (
            "src_node=abe, dest_node=all, var_name=RETURN, string_val=true",
            NodeMessage("abe", ("all",), "RETURN", "true"),
        ),
        (
            "src_node=abe, dest_group=blue, var_name=RETURN, string_val=true",
            NodeMessage("abe", (), "RETURN", "true", dest_group="blue"),
        ),
        # names in any case, unknown fields, several destinations, white space
        (
            " SRC_NODE = abe ,Dest_Node=ben : cal,SRC_APP=pHelmIvP,SRC_BHV=avoid,VAR_NAME=X,"
            "COLOR=yellow,ACK=TRUE,ACK_ID=abe_17,ignored=field,nothing,string_val= a b ",
            NodeMessage(
                "abe",
                ("ben", "cal"),
                "X",
                "a b",
                src_app="pHelmIvP",
                src_bhv="avoid",
                color="yellow",
                ack_id="abe_17",
                ack=True,
            ),
        ),
        # quotes hide commas, and are part of the value unless it is said that they are not
        (
            'src_node=abe,dest_group=blue,var_name=SAY,string_val="hold,station",'
            "string_val_quoted=true,color=green,ack=false,ack_id=42",
            NodeMessage(
                "abe", (), "SAY", "hold,station", dest_group="blue", color="green", ack_id="42"
            ),
        ),
        (
            'string_val_quoted=true,src_node=abe,dest_node=ben,var_name=SAY,string_val="a,b"',
            NodeMessage("abe", ("ben",), "SAY", "a,b"),
        ),
        (
            'src_node=abe,dest_node=ben,var_name=SAY,string_val="hold,station"',
            NodeMessage("abe", ("ben",), "SAY", '"hold,station"'),
        ),
        (
            "src_node=abe,dest_node=ben,var_name=PTS,string_val=pts={1,1:2,2},label=x",
            NodeMessage("abe", ("ben",), "PTS", "pts={1,1:2,2}"),
        ),
        # the last of a name counts; no value is an empty string
        (
            "src_node=abe,src_node=ben,dest_node=cal,var_name=SAY,string_val=1,string_val=2",
            NodeMessage("ben", ("cal",), "SAY", "2"),
        ),
        (
            "src_node=abe,dest_node=ben,var_name=PING",
            NodeMessage("abe", ("ben",), "PING", ""),
        ),
        (
            "src_node=abe,dest_node=ben,var_name=D,string_val=,double_val=.5e1",
            NodeMessage("abe", ("ben",), "D", double_val=5.0),
        ),
    ],
)
def test_node_messages_are_read(text: str, message: NodeMessage) -> None:
    assert read_node_message(text) == message


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            NodeMessage("abe", ("ben",), "RETURN", "true", ack_id="abe_1", ack=True),
            "ack_id=abe_1,ack=true,src_node=abe,dest_node=ben,var_name=RETURN,string_val=true",
        ),
        (
            NodeMessage("abe", ("ben", "cal"), "DIST", double_val=1984.0, ack_id="abe_2"),
            "ack_id=abe_2,src_node=abe,dest_node=ben:cal,var_name=DIST,double_val=1984",
        ),
        (
            NodeMessage("abe", ("ben",), "SAY", "hold,station"),
            'src_node=abe,dest_node=ben,var_name=SAY,string_val="hold,station",'
            "string_val_quoted=true",
        ),
        (
            NodeMessage("abe", ("ben",), "SAY", '"hold,station"'),
            'src_node=abe,dest_node=ben,var_name=SAY,string_val="hold,station"',
        ),
        (
            NodeMessage("abe", ("ben",), "PTS", "pts={1,1:2,2}"),
            'src_node=abe,dest_node=ben,var_name=PTS,string_val="pts={1,1:2,2}",'
            "string_val_quoted=true",
        ),
        (
            NodeMessage("abe", ("ben",), "D", double_val=0.1, src_app="pHelmIvP", color="red"),
            "src_node=abe,dest_node=ben,src_app=pHelmIvP,var_name=D,color=red,double_val=0.1",
        ),
    ],
)
def test_writes_as_moos_does(message: NodeMessage, text: str) -> None:
    assert write_node_message(message) == text


def test_an_acknowledgement_as_in_the_paper() -> None:
    text = "id=abe_124, src=ben, dest=abe"
    assert read_ack_message(text) == AckMessage("abe_124", "ben", "abe")
    assert write_ack_message(AckMessage("abe_124", "ben", "abe")) == text
    assert read_ack_message("SRC=ben,Dest=abe , ID=abe_124").id == "abe_124"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dest_node=ben,var_name=X,double_val=2.5", "no-src_node"),
        ("src_node=abe,var_name=X,double_val=2.5", "no-destination"),
        ("src_node=abe,dest_node= : ,var_name=X,double_val=2.5", "no-destination"),
        ("src_node=abe,dest_node=ben,double_val=2.5", "no-var_name"),
        ("src_node=abe,dest_node=ben,var_name=X,string_val=a,double_val=1", "both-values"),
        ("src_node=abe,dest_node=ben,var_name=X,double_val=fast", "bad-double_val"),
        ("src_node=abe,dest_node=ben,var_name=X,double_val=1_0", "bad-double_val"),
        ("src_node=abe,dest_node=ben,var_name=X,double_val=1e999", "bad-double_val"),
        ("src_node=a b,dest_node=ben,var_name=X,string_val=1", "bad-src_node"),
        ('src_node=abe,dest_node="b,c",var_name=X,string_val=1', "bad-dest_node"),
        ("", "no-src_node"),
    ],
)
def test_malformed_node_messages_are_refused_by_reason(text: str, reason: str) -> None:
    with pytest.raises(MoosError) as caught:
        read_node_message(text)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("src=ben,dest=abe", "no-id"),
        ("id=1,dest=abe", "no-src"),
        ("id=1,src=ben", "no-dest"),
        ("id=1,src=ben,dest=BEN", "ack-to-self"),
        ("id=1,src=b n,dest=abe", "bad-src"),
    ],
)
def test_refuses_acknowledgements(text: str, reason: str) -> None:
    with pytest.raises(MoosError) as caught:
        read_ack_message(text)
    assert caught.value.reason == reason


def test_a_mediated_message_needs_an_id() -> None:
    text = "src_node=abe,dest_node=ben,var_name=X,string_val=1"
    with pytest.raises(MoosError) as caught:
        read_mediated_message(text)
    assert caught.value.reason == "no-ack_id"
    mediated = read_mediated_message(f"ack_id=abe_1,ack=true,{text}")
    assert mediated.ack
    assert write_node_message(mediated.plain) == text
