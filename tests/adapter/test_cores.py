"""The adapter's cores on a clock of their own: no sockets, no bus, no event loop."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from adapter.invariants import check_entities
from numpy.typing import NDArray
from wire.frames import Declared, Moved, Withdrawn, read_frame
from wire.packets import unpack

from mercury.adapter.addressing import Addressing
from mercury.adapter.match_events import HOLDS_US, MatchEvents
from mercury.adapter.mediator import AdapterMediator
from mercury.adapter.moving_clients import ANSWER_AFTER_S, MAX_PER_CLIENT, MovingClients
from mercury.adapter.queries import ANSWER_AFTER_S as QUERY_AFTER_S
from mercury.adapter.queries import QUIET_S
from mercury.config.mediator import MediatorSettings
from mercury.model import topics
from mercury.model.area import Area, Circle, Position
from mercury.model.declarations import (
    ASK,
    DECLARE,
    WITHDRAW,
    Declaration,
    NearQuery,
    Withdrawal,
)
from mercury.model.delivery import DeliveryState
from mercury.model.errors import BusFullError, MatchingError
from mercury.model.instant import Instant
from mercury.model.matching import EventReason, EventType, NearSubscription, Publication, entity_key
from mercury.model.message import (
    Address,
    Attributes,
    DeliveryPolicy,
    Event,
    Kind,
    Message,
    Payload,
    Priority,
)
from mercury.session import AdapterSessions, Answered, Session, SessionSettings
from mercury.wire import HEADER_BYTES, decode, to_envelope
from mercury.wire import mercury_pb2 as pb
from mercury.wire.match_frames import EVENTS, FrameWriter, rows

EPOCH_US = 1_700_000_000_000_000
HERE = Position(40.76, -111.89)
OFFICE = Address.service("office")


class World:
    """Sessions, and the cores over them."""

    def __init__(self, settings: MediatorSettings | None = None) -> None:
        tokens = itertools.count(1)
        self.now = 100.0
        self._opened = 0
        self.sessions = AdapterSessions(
            "adapter-1", SessionSettings(), lambda: next(tokens).to_bytes(16, "big")
        )
        self.mediator = AdapterMediator(
            "adapter-1",
            self.sessions,
            settings or MediatorSettings(),
            random.Random(7),
            now=self.now,
            epoch_us=EPOCH_US,
        )
        self.addressing = Addressing(self.mediator, {}, None)
        self.moving = MovingClients(Address.adapter("adapter-1"), self.mediator, repeat_after_s=4.0)
        self.match_events = MatchEvents(self.moving)

    @property
    def at(self) -> Instant:
        return Instant(self.now, EPOCH_US + int(self.now * 1e6))

    def open(
        self, identity: str, position: Position = HERE, groups: tuple[str, ...] = ()
    ) -> Session:
        table = self.sessions.table
        self._opened += 1
        token = (1000 + self._opened).to_bytes(16, "big")
        session = table.add(identity, token, 1, identity.encode().ljust(16, b"\0"), self.now)
        session.fix = (position.lat, position.lon, 0.0, 0.0)
        table.lat[session.slot], table.lon[session.slot] = position.lat, position.lon
        self.addressing.opened(session, groups, set(), self.at)
        return session

    def close(self, session: Session) -> None:
        self.sessions.table.remove(session)
        self.addressing.closed(session)
        self.moving.closed(session, self.at.us)

    def alert(self, to: Address, valid_s: float = 60.0) -> pb.Envelope:
        message = Message(
            kind=Kind.ALERT,
            source=Address.service("office"),
            destination=to,
            priority=Priority.EMERGENCY,
            sent_us=self.at.us,
            expires_us=self.at.us + int(valid_s * 1e6),
            payload=Event("emergency", HERE, text="stop"),
        )
        envelope = to_envelope(message)
        self.addressing.address(envelope, envelope.SerializeToString(), self.at.us, self.at)
        return envelope

    def in_order(self, to: Address, number: int, source: Address = OFFICE) -> None:
        """A message that is to arrive after those before it."""
        message = Message(
            kind=Kind.CONTENT,
            source=source,
            destination=to,
            sent_us=self.at.us,
            expires_us=self.at.us + 600_000_000,
            policy=DeliveryPolicy.CRITICAL,
            ordered=True,
            payload=Attributes({"n": number}),
        )
        envelope = to_envelope(message)
        self.addressing.address(envelope, envelope.SerializeToString(), self.at.us, self.at)

    def tick(self) -> None:
        """Address what is owed to those who came or moved."""
        for id, slots, _ in self.addressing.due(self.at.us):
            self.mediator.address(id, slots, self.now)

    def heard(self) -> list[int]:
        """What is sent now, and what follows it once that is acknowledged."""
        found = []
        while jobs := list(self.mediator.due(self.now)):
            for job in jobs:
                job.report(0, len(job.slots), np.ones(len(job.slots), bool), self.now)
                message = decode(job.body)
                found += [int(message.values["n"])] * len(job.slots)
                ids = (message.id.bytes,)
                answers = [Answered(one, ids, ()) for one in self.sessions.table]
                self.mediator.answered(answers, self.now)
        return found

    def request(self, session: Session, topic: str, payload: Payload) -> pb.Envelope:
        message = Message(
            kind=Kind.REQUEST,
            source=Address.client(session.identity),
            destination=Address.broker(),
            topic=topic,
            payload=payload,
        )
        envelope = to_envelope(message)
        self.moving.request(session, envelope, self.at)
        return envelope

    def owed(self) -> list[tuple[bytes, NDArray[np.intp], str]]:
        """What is to be addressed to those who came."""
        return [one for one in self.addressing.due(self.at.us) if len(one[1])]

    def sent(self) -> list[tuple[str, int]]:
        """Who is sent how many copies now; all of them go out."""
        found = []
        for job in self.mediator.due(self.now):
            names = [self.sessions.table.at(int(slot)) for slot in job.slots]
            found += [(one.identity, job.priority) for one in names if one is not None]
            job.report(0, len(job.slots), np.ones(len(job.slots), bool), self.now)
        return found

    def replies(self) -> list[Message]:
        """The single packets that wait to be sent."""
        packets, self.mediator.outbox = self.mediator.outbox, []
        return [
            decode(packet[HEADER_BYTES:])
            for packet, *_ in packets
            if unpack(packet).kind == Kind.REPLY
        ]

    def frames(self) -> list[object]:
        """What goes to the matchers now."""
        records, _ = self.moving.flush(self.at.us)
        assert {record.topic for record in records} <= {topics.ENTITIES}
        return [segment for record in records for segment in read_frame(record.value)]


def test_an_alert_is_due_again_after_its_wait_until_it_is_answered() -> None:
    world = World()
    car = world.open("car")
    world.open("far", Position(50.0, 0.0))
    sent = world.alert(Address.to_area(Area(Circle(HERE, 500.0))))
    assert world.sent() == [("car", Priority.EMERGENCY)]
    world.now += 0.4  # critical: again after 0.5 s, give or take a tenth
    assert world.sent() == []
    world.now += 0.2
    assert world.sent() == [("car", Priority.EMERGENCY)]
    world.mediator.answered([Answered(car, (sent.id,), ())], world.now)
    world.now += 30.0
    assert world.sent() == []
    [record] = world.mediator.changes(world.now)
    assert (record.topic, record.key) == (topics.DELIVERIES, sent.id)
    [state] = decode(record.value).payload.rows  # type: ignore[union-attr]
    assert (state.client, state.state, state.tries) == ("car", DeliveryState.ACKNOWLEDGED, 2)
    assert list(world.mediator.changes(world.now)) == []


def test_who_comes_into_the_area_or_back_is_owed_the_alert_once() -> None:
    world = World()
    world.alert(Address.to_area(Area(Circle(HERE, 500.0))))
    world.alert(Address.client("late"))
    assert world.owed() == []
    late = world.open("late")
    world.sessions.table.moved[late.slot] = True
    owed = world.owed()
    assert [counter for _, _, counter in owed] == ["alerts_on_entry", "alerts_on_return"]
    for id, slots, _ in owed:
        assert world.mediator.address(id, slots, world.now) == 1
    assert world.sent() == [("late", Priority.EMERGENCY)] * 2
    assert world.owed() == []


TO_CAR = Address.client("car")
TO_ALL = Address.everyone()
TO_AREA = Address.to_area(Area(Circle(HERE, 500.0)))


@pytest.mark.parametrize("to", [TO_CAR, TO_ALL, TO_AREA], ids=["client", "everyone", "area"])
@pytest.mark.parametrize("newest", [TO_CAR, TO_AREA], ids=["client", "area"])
def test_order_is_kept_when_a_message_comes_while_earlier_ones_wait_for_who_is_back(
    to: Address, newest: Address
) -> None:
    world = World()
    for number in range(3):
        world.in_order(to, number)
    car = world.open("car")
    world.sessions.table.moved[car.slot] = True
    world.in_order(newest, 3)
    assert world.heard() == []
    world.tick()
    assert world.heard() == [0, 1, 2, 3]
    world.in_order(newest, 4)  # nothing waits: it does not, either
    assert world.heard() == [4]


def test_order_is_kept_among_messages_that_are_owed_for_several_reasons() -> None:
    world = World()
    for number, to in enumerate([TO_CAR, TO_ALL, TO_AREA] * 4):
        world.in_order(to, number)
    car = world.open("car")
    world.sessions.table.moved[car.slot] = True
    world.tick()
    assert world.heard() == list(range(12))


def test_order_is_kept_when_a_message_comes_while_others_are_being_addressed() -> None:
    world = World()
    for number in range(3):
        world.in_order(TO_AREA, number)
    car = world.open("car")
    world.sessions.table.moved[car.slot] = True
    owed = world.addressing.due(world.at.us)
    id, slots, _ = next(owed)  # the loop may run in between
    world.mediator.address(id, slots, world.now)
    world.in_order(TO_AREA, 3)
    for id, slots, _ in owed:
        world.mediator.address(id, slots, world.now)
    world.in_order(TO_CAR, 4)  # it must not overtake the one that waits
    assert world.heard() == [0, 1, 2]
    world.tick()
    assert world.heard() == [3, 4]


def test_order_is_kept_for_a_client_that_has_a_new_session_in_between() -> None:
    world = World()
    car = world.open("car")
    world.in_order(TO_CAR, 0)
    world.in_order(TO_CAR, 1)
    world.close(car)
    world.in_order(TO_CAR, 2)
    world.in_order(TO_ALL, 3)
    world.open("car")
    world.in_order(TO_CAR, 4)
    world.tick()
    assert world.heard() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("opened", ["before", "between", "after"])
def test_nobody_hears_its_own_words_whenever_it_has_a_new_session(opened: str) -> None:
    world = World()
    abe = world.open("abe", groups=("blue",))
    world.open("ben", groups=("blue",))
    if opened == "before":
        world.close(abe)
        abe = world.open("abe", groups=("blue",))
    elif opened == "between":
        world.close(abe)
    for number, to in enumerate((Address.group("blue"), TO_AREA)):
        world.in_order(to, number, source=Address.client("abe"))
    if opened != "before":
        if opened == "after":
            world.close(abe)
        abe = world.open("abe", groups=("blue",))
    world.sessions.table.moved[abe.slot] = True
    world.tick()
    assert world.heard() == [0, 1]  # ben alone
    assert {
        world.mediator.outgoing.peers.name(int(peer))
        for dispatch in world.mediator.outgoing
        for peer in dispatch.peers
    } == {"ben"}


def test_who_is_gone_again_before_it_is_served_is_not_served() -> None:
    world = World()
    world.alert(Address.client("late"))
    world.close(world.open("late"))
    other = world.open("other")  # in the same slot
    assert other.slot == 0
    assert world.owed() == []


def test_what_is_not_durable_is_not_confirmed_and_may_come_again() -> None:
    world = World()
    car = world.open("car")
    envelope = pb.Envelope(id=bytes(16))
    assert world.mediator.take(car, envelope, world.now)
    assert not world.mediator.take(car, envelope, world.now)  # repeated: answered as the first
    assert world.mediator.unconfirmed == [(car, envelope.id)]
    world.mediator.incoming.disown(car.identity, envelope.id)
    assert world.mediator.take(car, envelope, world.now)
    world.mediator.confirmed([(car, envelope.id)] * 2, world.now)
    [(packet, address, priority, _)] = world.mediator.outbox
    assert (unpack(packet).kind, address, priority) == (Kind.RECEIPT, car.address, Priority.REPLY)


def test_a_sender_hears_what_became_of_its_message_also_when_it_was_away_meanwhile() -> None:
    world = World()
    car, other = world.open("car"), world.open("other")
    told = Message(
        kind=Kind.CONTENT,
        source=Address.client("car"),
        destination=Address.client("other"),
        topic="message",
        sent_us=world.at.us,
        expires_us=world.at.us + 60_000_000,
        payload=Attributes({"x": 1}),
    )
    envelope = to_envelope(told)
    assert world.mediator.take(car, envelope, world.now)
    peers = world.sessions.table.peer[[other.slot]]
    body = envelope.SerializeToString()
    world.mediator.post(envelope, body, told.expires_us, peers, world.now)
    world.sent()
    world.mediator.answered([Answered(other, (told.id.bytes,), ())], world.now)
    world.close(car)  # three reports were lost
    changes = list(world.mediator.changes(world.now))
    [reply] = [record for record in changes if record.topic == topics.REPLIES]
    assert reply.key == b"car"
    until_us = world.at.us + 60_000_000
    world.mediator.tell_sender("car", reply.value, until_us, world.now)
    world.mediator.tell_sender("stranger", reply.value, until_us, world.now)  # another adapter's
    assert world.sent() == []
    car = world.open("car")
    assert world.sent() == [("car", Priority.REPLY)]
    receipt = decode(reply.value).id.bytes
    world.mediator.answered([Answered(car, (receipt,), ())], world.now)
    list(world.mediator.changes(world.now))
    assert world.mediator.outgoing.get(receipt) is None  # nothing is kept of it


def test_a_declaration_is_answered_after_a_while_and_repeated_once() -> None:
    world = World()
    car = world.open("car")
    world.request(car, DECLARE, Declaration(Publication("taxi", "taxi", {"seats": 4})))
    declared, moved = world.frames()
    assert isinstance(declared, Declared)
    assert isinstance(moved, Moved)  # where its client is
    world.moving.handle_timer(world.at)
    assert world.replies() == []  # a matcher may still refuse it
    world.now += ANSWER_AFTER_S
    world.moving.handle_timer(world.at)
    assert [reply.values for reply in world.replies()] == [{"ok": True}]
    assert world.frames() == []
    world.now += 4.0  # the adapter that its client came from has given it up by now
    world.moving.handle_timer(world.at)
    assert isinstance(world.frames()[0], Declared)
    world.now += 100.0
    world.moving.handle_timer(world.at)
    assert world.frames() == []
    world.request(car, WITHDRAW, Withdrawal("publication", "taxi"))
    [withdrawn] = world.frames()
    assert isinstance(withdrawn, Withdrawn)
    assert [reply.values for reply in world.replies()] == [{"ok": True}]


def test_what_the_bus_does_not_take_is_refused() -> None:
    world = World()
    car = world.open("car")
    world.request(car, DECLARE, Declaration(Publication("taxi", "taxi")))
    _, declared = world.moving.flush(world.at.us)
    world.moving.rejected(declared, BusFullError("no space left"), world.at)
    [reply] = world.replies()
    assert reply.values["reason"] == "bus"
    assert len(world.moving.entities) == 0


def test_a_client_declares_no_more_than_it_may() -> None:
    world = World()
    car = world.open("car")
    for number in range(MAX_PER_CLIENT + 1):
        world.request(car, DECLARE, Declaration(Publication(f"taxi-{number}", "taxi")))
    [reply] = world.replies()
    assert reply.values["reason"] == "count"
    assert len(world.moving.entities) == MAX_PER_CLIENT
    world.close(car)
    assert len(world.moving.entities) == 0
    check_entities(world.moving.entities)


def test_all_clients_declare_no_more_than_they_may() -> None:
    world = World()
    world.moving._max_entities = 3
    for number in range(4):
        session = world.open(f"car-{number}")
        world.request(session, DECLARE, Declaration(Publication("taxi", "taxi")))
    [reply] = world.replies()
    assert reply.values["reason"] == "count"
    assert len(world.moving.entities) == 3


def found(world: World, request: pb.Envelope, session: Session, *cabs: str) -> None:
    """A matcher finds publications for a query."""
    key = entity_key("subscription", f"{session.identity}/?{request.id.hex()}")
    keys = [entity_key("publication", cab) for cab in cabs]
    events = rows(
        EVENTS,
        len(keys),
        subscription=key,
        publication=np.array(keys, np.uint64),
        event_type=EventType.ENTER,
        reason=EventReason.MOVED,
        distance_m=np.arange(len(keys)) + 1.0,
    )
    described = {key: Publication(cab, "taxi") for key, cab in zip(keys, cabs, strict=True)}
    frame = FrameWriter().describe(described).notify(events).to_bytes()
    world.match_events.take(frame, b"00", (), world.at)


def test_a_query_ends_with_a_pause_or_with_its_time() -> None:
    world = World()
    car = world.open("car")
    queries = [NearQuery(NearSubscription("?", "taxi", 500.0), 20) for _ in range(3)]
    first, second, third = (world.request(car, ASK, one) for one in queries)
    found(world, first, car, "a/taxi", "b/taxi")
    world.now += QUIET_S - 0.01
    found(world, second, car, "a/taxi")
    world.moving.handle_timer(world.at)
    assert world.replies() == []
    world.now += 0.01  # nothing more came for the first
    world.moving.handle_timer(world.at)
    [reply] = world.replies()
    assert reply.correlation == decode(first.SerializeToString()).id
    matches = reply.payload.rows  # type: ignore[union-attr]
    assert [match.publication for _, _, match in matches] == ["a/taxi", "b/taxi"]
    world.now += QUIET_S
    world.moving.handle_timer(world.at)
    assert len(world.replies()) == 1
    world.now = 100.0 + QUERY_AFTER_S  # of the third nothing came at all
    world.moving.handle_timer(world.at)
    [reply] = world.replies()
    assert reply.correlation == decode(third.SerializeToString()).id
    assert len(world.moving.queries) == len(world.moving.entities) == 0


def test_many_open_queries_cost_no_more_each() -> None:
    world = World()
    queries, cars = world.moving.queries, [world.open(f"car-{number}") for number in range(300)]
    for car in cars:
        for _ in range(8):
            world.request(car, ASK, NearQuery(NearSubscription("?", "taxi", 500.0), 20))
    assert len(queries) == 2400
    with pytest.raises(MatchingError, match="at most 8 queries"):
        queries.ask(cars[0], bytes(16), pb.NearQuery(), world.now)
    world.close(cars[0])
    assert len(queries) == 2392
    assert queries.due(world.now) == []
    assert len(queries.due(world.now + QUERY_AFTER_S)) == 2392
    assert len(queries) == 0


def test_matches_are_sent_until_they_are_answered_and_positions_inside_once() -> None:
    world = World()
    car = world.open("car")
    what = NearSubscription("taxi", "taxi", 500.0, inside=True)
    world.request(car, DECLARE, Declaration(what))
    taxi = entity_key("publication", "cab/taxi")
    for event_type in (EventType.ENTER, EventType.INSIDE):
        events = rows(
            EVENTS,
            1,
            subscription=entity_key("subscription", "car/taxi"),
            publication=taxi,
            event_type=event_type,
            reason=EventReason.MOVED,
        )
        writer = FrameWriter()
        if event_type is EventType.ENTER:
            writer.describe({taxi: Publication("cab/taxi", "taxi")})
        world.match_events.take(writer.notify(events).to_bytes(), b"00", (), world.at)
    assert len(world.mediator.outbox) == 1  # inside, once
    assert world.sent() == [("car", Priority.NORMAL)]
    world.now += 1.0
    assert world.sent() == [("car", Priority.NORMAL)]
    world.now += HOLDS_US / 1e6
    assert world.sent() == []
    assert list(world.mediator.changes(world.now)) == []  # not in the ledger


def test_a_reply_is_remembered_for_who_asks_again() -> None:
    world = World()
    car = world.open("car")
    envelope = world.request(car, WITHDRAW, Withdrawal("publication", "taxi"))
    [first] = world.replies()
    world.moving.request(car, envelope, world.at)
    [again] = world.replies()
    assert (again.id, again.payload) == (first.id, Attributes({"ok": True}))
