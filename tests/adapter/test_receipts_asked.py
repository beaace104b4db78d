"""Receipts that did not come by themselves are asked for."""

from __future__ import annotations

import asyncio

import pytest
from live import Hand, connect, first, in_loop, live, until

from mercury.adapter import Adapter, mediator
from mercury.adapter.mediator import _Outcomes
from mercury.client import connection
from mercury.model import topics
from mercury.model.delivery import ASKED, RECEIPTS, DeliveryState
from mercury.model.message import Address, Attributes, Kind
from mercury.session import SessionSettings
from mercury.wire import mercury_pb2 as pb

QUICK = SessionSettings(init_retry_s=0.05, init_retry_max_s=0.1)


def loses_receipts(adapter: Adapter) -> None:
    """As if it were killed each time between writing the ledger and telling the sender."""
    honest = adapter.bus.append

    def append(topic: str, *record: object) -> None:
        if topic != topics.REPLIES:
            honest(topic, *record)  # type: ignore[arg-type]

    adapter.bus.append = append  # type: ignore[method-assign, assignment]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FOLLOW_UP_S", 0.2)


@in_loop
async def test_a_sender_asks_for_receipts_that_were_lost() -> None:
    async with live() as world:
        adapter = await world.adapter()
        loses_receipts(adapter)
        async with connect(adapter, "abe") as abe, connect(adapter, "ben") as ben:
            receipts = await abe.tell("ben", {"x": 1})
            assert (await first(ben)).id == receipts.id
            [row] = (await receipts.settled(10.0)).values()
            assert row.state is DeliveryState.ACKNOWLEDGED
            # It asks no more, until there is something to ask for.
            assert abe._follow_up is not None
            await abe._follow_up
            receipts = await abe.tell("ben", {"x": 2})
            assert (await receipts.settled(10.0)).keys() == {"ben"}


@in_loop
async def test_a_sender_asks_another_incarnation_of_its_adapter() -> None:
    async with live() as world:
        adapter = await world.adapter()
        loses_receipts(adapter)
        async with (
            connect(adapter, "abe", settings=QUICK) as abe,
            connect(adapter, "ben", settings=QUICK) as ben,
        ):
            receipts = await abe.tell("ben", {"x": 1})
            assert (await first(ben)).id == receipts.id
            acknowledged = adapter.mediator.outgoing.ended
            await until(lambda: acknowledged[DeliveryState.ACKNOWLEDGED] == 1)
            port = adapter.port
            await world.stop(adapter)
            await world.adapter(port=port)
            assert (await receipts.settled(10.0)).keys() == {"ben"}


@in_loop
async def test_an_adapter_knows_of_recipients_at_others() -> None:
    async with live() as world:
        here, there = await world.adapter(id="here"), await world.adapter(id="there")
        loses_receipts(there)
        async with connect(here, "abe") as abe, connect(there, "ben") as ben:
            receipts = await abe.tell(Address.client("ben"), {"x": 1})
            assert (await first(ben)).id == receipts.id
            [row] = (await receipts.settled(10.0)).values()
            assert (row.client, row.state) == ("ben", DeliveryState.ACKNOWLEDGED)


@in_loop
async def test_who_asks_is_told_of_its_own_messages_alone() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "abe") as abe, connect(adapter, "ben") as ben:
            receipts = await abe.tell("ben", {"x": 1})
            assert (await first(ben)).id == receipts.id
            await receipts.settled(10.0)
            hand = Hand(adapter)
            await hand.init()
            for asked in (receipts.id.bytes * 2, b"", b"short", bytes(16), "text"):
                hand.say(Kind.REQUEST, Attributes({ASKED: asked}), topic=RECEIPTS)
                assert (await hand.next(Kind.REPLY)).values == {"ok": True}
            assert hand.messages(Kind.RECEIPT) == []
            async with asyncio.timeout(10.0):
                await abe.request(RECEIPTS, {ASKED: receipts.id.bytes})
            hand.close()


@in_loop
async def test_an_answer_is_bounded_and_the_next_one_tells_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mediator, "_ROWS_PER_RECORD", 1)
    monkeypatch.setattr(mediator, "_MAX_ANSWERS", 3)
    monkeypatch.setattr(connection, "_FOLLOW_UP_S", 1000.0)  # it asks by hand
    async with live() as world:
        adapter = await world.adapter()
        loses_receipts(adapter)
        hands = [Hand(adapter, f"hand-{number}") for number in range(5)]
        for hand in hands:
            await hand.init(groups=("blue",))
        async with connect(adapter, "abe") as abe:
            receipts = await abe.tell(Address.group("blue"), {"x": 1})
            await until(lambda: adapter.mediator.outgoing.waiting == 5)
            await abe.request(RECEIPTS, {ASKED: receipts.id.bytes * 64})
            assert 1 <= len(receipts.deliveries) <= 3  # some may be of the same
            while len(receipts.deliveries) < 5:
                await abe.request(RECEIPTS, {ASKED: receipts.id.bytes})
        for hand in hands:
            hand.close()


def test_what_is_kept_for_those_who_ask_takes_bounded_room() -> None:
    outcomes = _Outcomes(max_bytes=100)

    def add(id: bytes, record: bytes, source: str = "client:abe", state: int = 1) -> None:
        outcomes.add(pb.Deliveries(message=id, source=source, state=[state]), record, float(id))

    for id in (b"1", b"2", b"3"):
        for record in (b"a" * 20, b"b" * 20):
            add(id, record)
    assert outcomes.of(b"1") == []
    assert len(outcomes.of(b"2")) == len(outcomes.of(b"3")) == 2
    outcomes.expire(602.5)
    assert outcomes.of(b"2") == []
    assert len(outcomes.of(b"3")) == 2
    add(b"4", b"of nobody who can ask", source="service:office")
    add(b"5", b"open", state=DeliveryState.WAITING)
    assert outcomes.of(b"4") == outcomes.of(b"5") == []
