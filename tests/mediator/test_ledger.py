"""Receipts in any order, repeated and from several adapters, add up to one row a recipient."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mercury.mediator.ledger import Ledger, final, merged, never_addressed
from mercury.model.delivery import Deliveries, Delivery, DeliveryState, Reason

rows = st.builds(
    Delivery,
    client=st.sampled_from("abc"),
    state=st.sampled_from(DeliveryState),
    reason=st.sampled_from(["", "away"]),
    tries=st.integers(0, 5),
    addressed_us=st.integers(0, 9),
    first_sent_us=st.integers(0, 9),
    settled_us=st.integers(0, 9),
)
receipts = st.builds(
    Deliveries,
    message=st.sampled_from([b"1", b"2"]),
    source=st.just("service:office"),
    rows=st.lists(rows, max_size=4).map(tuple),
)


def of(some: list[Deliveries]) -> Ledger:
    ledger = Ledger()
    for one in some:
        ledger.add(one)
    return ledger


def content(ledger: Ledger) -> dict[bytes, dict[str, tuple[object, ...]]]:
    return {
        entry.about.message: {
            name: (row.state, row.tries, row.addressed_us, row.first_sent_us, row.settled_us)
            for name, row in entry.rows.items()
        }
        for entry in ledger
    }


@given(st.lists(receipts, max_size=8), st.randoms())
def test_it_adds_up_whatever_comes_in_whatever_order(some: list[Deliveries], rng: object) -> None:
    ledger = of(some)
    addressed = {(one.message, row.client) for one in some for row in one.rows}
    summary = ledger.summary()
    assert sum(summary.states.values()) == summary.recipients == len(addressed)
    # Repeated receipts and another order change nothing.
    again = [*some, *some]
    rng.shuffle(again)  # type: ignore[attr-defined]
    assert content(of(again)) == content(ledger)
    # What a recipient said is never lost, and what is over never counts as open.
    for message, client in addressed:
        states = {
            row.state for one in some if one.message == message
            for row in one.rows if row.client == client
        }  # fmt: skip
        entry = ledger.get(message)
        assert entry is not None
        state = entry.rows[client].state
        assert (DeliveryState.ACKNOWLEDGED in states) == (state is DeliveryState.ACKNOWLEDGED)
        assert (state is DeliveryState.WAITING) == (states == {DeliveryState.WAITING})


@given(rows, st.integers(1, 100))
def test_no_delivery_waits_after_its_message_has_ended(row: Delivery, end_us: int) -> None:
    ended = final(row, end_us)
    assert ended.state is not DeliveryState.WAITING
    assert (ended == row) == (row.state is not DeliveryState.WAITING)


def test_two_adapters_tell_of_one_client() -> None:
    left = Delivery("car", DeliveryState.UNREACHABLE, "away", 3, 10, 11, 90)
    came = Delivery("car", DeliveryState.ACKNOWLEDGED, "", 1, 40, 41, 42)
    for both in (merged(left, came), merged(came, left)):
        assert both == Delivery("car", DeliveryState.ACKNOWLEDGED, "", 3, 10, 11, 42)


def test_who_gave_up_knows_more_than_who_never_had_the_client() -> None:
    gave_up = Delivery("car", DeliveryState.UNREACHABLE, Reason.GAVE_UP, 6, 10, 11, 50)
    never_here = Delivery("car", DeliveryState.UNREACHABLE, Reason.AWAY, 0, 90, 0, 90)
    for both in (merged(gave_up, never_here), merged(never_here, gave_up)):
        assert both == gave_up


def test_what_ended_without_an_answer_that_nobody_asked_for() -> None:
    open_row = Delivery("car", DeliveryState.WAITING, tries=1)
    assert final(open_row, 9).reason == Reason.NOT_ACKNOWLEDGED
    assert final(open_row, 9, asked=False).reason == Reason.NOT_ASKED


def test_the_summary_tells_how_long_it_took() -> None:
    times = [Delivery(str(n), DeliveryState.ACKNOWLEDGED, "", 1, 0 + 1, 0, n * 1_000_000 + 1)
             for n in range(100)]  # fmt: skip
    lost = never_addressed("x", 5, 9)
    left = Delivery("y", DeliveryState.REFUSED, "outside-area", 1)
    summary = of([Deliveries(b"1", "s", (*times, lost, left))]).summary()
    assert summary.states == Counter(
        {
            DeliveryState.ACKNOWLEDGED: 100,
            DeliveryState.UNREACHABLE: 1,
            DeliveryState.REFUSED: 1,
        }
    )
    assert summary.refusals == {"outside-area": 1}
    assert (summary.delay_s(0.5), summary.delay_s(0.99)) == (50.0, 99.0)
    assert summary.as_dict()["unreachable"] == 1
    assert lost.reason == Reason.NEVER_ADDRESSED
