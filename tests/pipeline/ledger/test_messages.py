"""When a message is over, whom it is for, and that whatever is folded adds up; no Spark here."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.model.area import Area, Circle, Position
from mercury.model.delivery import Delivery, DeliveryState
from mercury.model.errors import JobFailedError
from mercury.model.geojson import area_to_geojson
from mercury.pipeline.ledger.job import _places, held_against
from mercury.pipeline.ledger.messages import (
    ENDLESS_US,
    GRACE_US,
    PRESENT_US,
    Addressed,
    addressed,
    first_of_each,
    in_full,
    is_answered,
    is_over,
)
from mercury.pipeline.ledger.schemas import KNOWN, STATES
from mercury.pipeline.ledger.transforms import _fold

NOW_US = 1_790_000_000_000_000
HERE = Circle(Position(40.76, -111.89), 500.0)
ARROW = to_arrow_schema(KNOWN)


def row(to: str = "area", area: Area | None = None, **said: Any) -> dict[str, Any]:
    known = {"id": "m", "time_us": NOW_US, "sent_us": NOW_US - 5, "destination": to}
    rest = ("ends_us", "expires_us", "source", "kind", "message_kind", "subject", "priority",
            "policy")  # fmt: skip
    shown = None if area is None else json.dumps(area_to_geojson(area))
    return dict.fromkeys(rest) | known | {"area": shown} | said


def test_a_message_holds_from_its_sending_to_its_end() -> None:
    message = addressed(row("everyone", ends_us=NOW_US + 7))
    assert (message.begin_us, message.end_us, message.to) == (NOW_US - 5, NOW_US + 7, "everyone")
    assert (message.look_from_us, message.look_until_us) == (NOW_US - 5, NOW_US + 7)
    assert not is_over(message, NOW_US + 6 + GRACE_US)
    assert is_over(message, NOW_US + 7 + GRACE_US)


@pytest.mark.parametrize(
    ("said_us", "believed_us"),
    [(NOW_US + 10**9, NOW_US), (NOW_US - 10**9, NOW_US - 60_000_000), (None, NOW_US)],
)
def test_a_senders_clock_is_not_believed_for_ever(said_us: int | None, believed_us: int) -> None:
    assert addressed(row("everyone", sent_us=said_us)).sent_us == believed_us


def test_without_an_end_it_is_tried_for_a_day() -> None:
    to_client = addressed(row("client:car-1"))
    assert (to_client.to, to_client.name, to_client.end_us) == (
        "client",
        "car-1",
        NOW_US + ENDLESS_US,
    )
    for_now = addressed(row(area=Area(HERE)))
    assert not for_now.standing
    assert (for_now.look_from_us, for_now.look_until_us) == (NOW_US - PRESENT_US, NOW_US + 1)
    later = addressed(row(area=Area(HERE, valid_from_us=NOW_US + 99)))
    assert later.standing
    assert (later.begin_us, later.end_us) == (NOW_US + 99, NOW_US + 99 + ENDLESS_US)


def test_an_area_may_begin_later_than_its_message() -> None:
    written = row(area=Area(HERE, valid_from_us=NOW_US + 3), ends_us=NOW_US + 9)
    message = in_full(addressed(written), written)
    assert (message.begin_us, message.area) == (NOW_US + 3, Area(HERE, None, NOW_US + 3))


def test_only_an_answer_ends_it_early() -> None:
    message = addressed(row("client:car-1"))
    soon_us = NOW_US + GRACE_US
    heard = Delivery("car-1", DeliveryState.ACKNOWLEDGED)
    assert is_answered(message, {"car-1": heard}, soon_us)
    assert not is_answered(message, {"car-1": heard}, soon_us - 1)
    assert not is_answered(message, {"car-2": heard}, soon_us)
    assert not is_answered(message, {}, soon_us)
    for state in set(DeliveryState) - {DeliveryState.ACKNOWLEDGED, DeliveryState.REFUSED}:
        # Another adapter may still get it through.
        assert not is_answered(message, {"car-1": Delivery("car-1", state)}, soon_us)
    for to in ("everyone", "group:blue"):
        assert not is_answered(addressed(row(to)), {"car-1": heard}, soon_us)


def test_a_repeated_message_counts_from_its_first_record() -> None:
    found = first_of_each([row(time_us=5), row(time_us=3), row(id="n")])
    assert (found["m"]["time_us"], set(found)) == (3, {"m", "n"})


def test_only_days_and_tiles_that_matter_are_read() -> None:
    day_us = 86_400_000_000
    midnight_us = NOW_US // day_us * day_us
    base = addressed(row("everyone", ends_us=NOW_US + 1))
    near = base._replace(
        to="area", area=Area(HERE), begin_us=midnight_us - 1, end_us=midnight_us + 1
    )
    (before, tiles), (after, same) = _places([near]).items()
    assert before < after
    assert tiles == same
    assert tiles is not None
    assert 1 < len(tiles) <= 16
    assert set(_places([near._replace(end_us=midnight_us)])) == {before}
    assert _places([near, base._replace(begin_us=midnight_us)])[after] is None  # all
    for nobody in (base._replace(to="group"), base._replace(to="client", sought=False),
                   base._replace(end_us=base.begin_us)):  # fmt: skip
        assert _places([nobody]) == {}


def test_it_adds_up_or_it_fails() -> None:
    messages = [addressed(row(id="m")), addressed(row(id="n"))]
    counted = {"m": {"recipients": 3}}
    held_against(messages, {"m": {"acknowledged": 2, "unreachable": 1}}, counted)
    held_against(messages, {}, {})
    for found in ({"m": {"acknowledged": 2}}, {"m": {"acknowledged": 4}}, {},
                  {"m": {"acknowledged": 2, "waiting": 1}}):  # fmt: skip
        with pytest.raises(JobFailedError, match=r"does not add up.* m \("):
            held_against(messages, found, counted)
    with pytest.raises(JobFailedError, match="strange"):
        held_against(messages, {}, {"strange": {"recipients": 1}})


receipts = st.fixed_dictionaries(
    {
        "message": st.sampled_from("mn"),
        "client": st.sampled_from("abcd"),
        "state": st.sampled_from([int(state) for state in DeliveryState]),
        "reason": st.sampled_from(["", "away"]),
        "tries": st.integers(0, 3),
        "addressed_us": st.integers(0, 9),
        "first_sent_us": st.integers(0, 9),
        "settled_us": st.integers(0, 9),
        "inside_us": st.none(),
        "expected": st.just(False),
    }
)
should = st.builds(
    lambda message, client, inside_us: (
        dict.fromkeys(KNOWN.names)
        | {"message": message, "client": client, "inside_us": inside_us, "expected": True}
    ),
    st.sampled_from("mn"),
    st.sampled_from("abcd"),
    st.one_of(st.none(), st.integers(1, 9)),
)


@given(st.lists(st.one_of(receipts, should), max_size=12))
def test_whatever_is_known_adds_up(known: list[dict[str, Any]]) -> None:
    about = {
        id: Addressed(id, 2, 2, 2, 5, "area", about={"source": "service:x"}) for id in ("m", "n")
    }
    batches = pa.Table.from_pylist(known, schema=ARROW).to_batches(max_chunksize=3)
    rows = [row for batch in _fold(about, iter(batches)) for row in batch.to_pylist()]
    pairs = {(one["message"], one["client"]) for one in known}
    assert Counter((one["message"], one["client"]) for one in rows) == Counter(pairs)
    assert {one["state"] for one in rows} <= set(STATES)
    for one in rows:
        said = [
            other["state"] for other in known
            if (other["message"], other["client"]) == (one["message"], one["client"])
        ]  # fmt: skip
        assert one["expected"] == (None in said)
        assert (one["state"] == "acknowledged") == (DeliveryState.ACKNOWLEDGED in said)
        assert (one["late_s"] is not None) == (one["state"] == "acknowledged")
        assert one["late_s"] is None or one["late_s"] >= 0.0
        assert one["source"] == "service:x"
