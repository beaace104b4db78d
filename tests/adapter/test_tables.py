"""What an adapter keeps of those who left, and what makes room in full tables."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Collection, Iterator

import pytest
from adapter.test_cores import HERE, World
from mediator.invariants import check_outgoing

from mercury.adapter.routing import bus_record
from mercury.config.mediator import MediatorSettings
from mercury.mediator import Arrival, Incoming
from mercury.model import topics
from mercury.model.area import LAST_INSTANT_US, Area, Circle, Rectangle, Shape
from mercury.model.declarations import DECLARE, Declaration
from mercury.model.delivery import DeliveryState, Reason
from mercury.model.errors import PacketError
from mercury.model.matching import Publication
from mercury.model.message import (
    Address,
    Attributes,
    DeliveryPolicy,
    Kind,
    Message,
    Priority,
)
from mercury.session import Answered, Session
from mercury.wire import mercury_pb2 as pb
from mercury.wire import parse, to_envelope

AROUND = Address.to_area(Area(Circle(HERE, 500.0)))


def tell(
    world: World,
    source: Address,
    to: Address,
    priority: int = Priority.NORMAL,
    expires_us: int | None = None,
) -> pb.Envelope:
    """A message reaches the adapter by the bus."""
    message = Message(
        kind=Kind.CONTENT,
        source=source,
        destination=to,
        topic="message",
        sent_us=world.at.us,
        expires_us=expires_us if expires_us is not None else world.at.us + 60_000_000,
        priority=priority,
        policy=DeliveryPolicy.REPEAT,
        payload=Attributes({"x": 1}),
    )
    envelope = to_envelope(message)
    world.addressing.address(envelope, envelope.SerializeToString(), world.at.us, world.at)
    return envelope


def publish(world: World) -> list[pb.Envelope]:
    """The bus takes the outcomes; senders are sent theirs. Returns those for the ledger."""
    ledger = []
    for record in list(world.mediator.changes(world.now)):
        if record.topic == topics.REPLIES:
            until_us = world.at.us + 600_000_000
            world.mediator.tell_sender(record.key.decode(), record.value, until_us, world.now)
        else:
            ledger.append(parse(record.value))
    return ledger


def answer_all(world: World, *sessions: Session) -> None:
    """Send what is due; these clients acknowledge all that waits for them."""
    world.sent()
    outgoing = world.mediator.outgoing
    for session in sessions:
        peer = outgoing.peers.number(session.identity)
        ids = [bytes(one.id) for one in outgoing if one.row(peer) is not None]  # type: ignore[call-overload]
        world.mediator.answered([Answered(session, tuple(ids), ())], world.now)


def visit(world: World, name: str, other: Session) -> None:
    """A client comes, tells another something, declares something, hears and leaves."""
    car = world.open(name)
    envelope = tell(world, Address.client(name), Address.client(other.identity))
    assert world.mediator.take(car, envelope, world.now)
    world.request(car, DECLARE, Declaration(Publication("taxi", "taxi")))
    world.moving.flush(world.at.us)
    answer_all(world, other)
    publish(world)
    answer_all(world, car)
    publish(world)
    world.mediator.outbox.clear()
    world.close(car)
    world.moving.flush(world.at.us)
    world.now += 0.2
    world.moving.handle_timer(world.at)


def sizes(world: World) -> dict[str, int]:
    """How many entries each table has."""
    outgoing, incoming, moving = world.mediator.outgoing, world.mediator.incoming, world.moving
    return {
        "sessions": len(world.sessions.table),
        "messages": len(outgoing),
        "timers": len(outgoing._heap),
        "peers": len(outgoing.peers._numbers),
        "streams": len(outgoing._streams),
        "room": len(outgoing._room),
        "for few": len(outgoing._for_few),
        "for many": len(outgoing._for_many),
        "senders": len(incoming),
        "ids": incoming.ids,
        "ends": len(incoming._ends),
        "standing": len(world.addressing.standing),
        "missed": len(world.addressing.missed),
        "groups": len(world.addressing.groups._of),
        "entities": len(moving.entities),
        "queries": len(moving.queries),
        "answers": moving.kept_answers,
        "waiting": len(moving._waiting),
        "fresh": len(moving._fresh),
        "reported": len(moving._reported_us),
    }


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def drive_in(world: World, name: str, seen: Collection[bytes] = ()) -> Session:
    """A client opens a session with a report."""
    table = world.sessions.table
    session = table.add(name, name.encode().ljust(16), 1, bytes(16), world.now)
    table.lat[session.slot], table.lon[session.slot] = HERE.lat, HERE.lon
    table.moved[session.slot] = True
    world.addressing.opened(session, (), set(seen), world.at)
    return session


def after(world: World, seconds: float) -> None:
    world.now += seconds
    world.sent()
    world.moving.handle_timer(world.at)
    for _ in range(3):
        publish(world)


def test_who_left_is_forgotten_when_what_it_said_is_over(traced: None) -> None:
    world = World()
    hub = world.open("hub")
    for number in range(100):
        visit(world, f"first-{number}", hub)
    after(world, 700.0)
    gc.collect()
    before, held = sizes(world), tracemalloc.get_traced_memory()[0]
    for number in range(200):
        visit(world, f"car-{number}", hub)
    gc.collect()
    # The ids, as long as they may be repeated; answers, for a minute; and for ten what became of
    # its messages, should it ask again.
    assert (tracemalloc.get_traced_memory()[0] - held) / 200 < 5000
    assert sizes(world)["messages"] == before["messages"]
    after(world, 700.0)
    gc.collect()
    assert {name: size for name, size in sizes(world).items() if size} == {
        "sessions": 1,
        "peers": 1,
    }
    assert sizes(world) == before
    # The ids of late messages and routes, which are as many however many clients come.
    assert tracemalloc.get_traced_memory()[0] - held < 400_000


def test_a_message_to_one_client_is_kept_until_that_has_it() -> None:
    world = World()
    ben = world.open("ben")
    world.open("abe")
    never = tell(world, Address.client("abe"), Address.client("ben"), expires_us=0)
    absent = tell(world, Address.client("abe"), Address.client("cal"), expires_us=0)
    answer_all(world, ben)
    [one] = [found for found in publish(world) if found.deliveries.message == never.id]
    assert list(one.deliveries.state) == [DeliveryState.ACKNOWLEDGED]
    assert world.mediator.outgoing.get(never.id) is None
    assert world.mediator.outgoing.get(absent.id) is not None
    assert len(world.addressing.missed) == 1
    # Nor is it sent again to who comes back, or when a broker repeats its work.
    world.close(ben)
    world.open("ben")
    assert world.owed() == []
    world.addressing.address(never, never.SerializeToString(), world.at.us, world.at)
    assert world.mediator.outgoing.get(never.id) is None
    assert world.mediator.dropped == {"repeated-alert": 1}


def test_who_passed_by_a_lasting_alert_and_has_it_is_forgotten_after_a_while() -> None:
    world = World()
    alert = tell(world, Address.service("office"), AROUND, Priority.WARNING, LAST_INSTANT_US)
    refuser = drive_in(world, "refuser")
    for number in range(500):
        car = drive_in(world, f"car-{number}")
        for id, slots, _ in world.owed():
            world.mediator.address(id, slots, world.now)
        answer_all(world, car)
        world.close(car)
    world.mediator.answered([Answered(refuser, (), ((alert.id, "outside-area"),))], world.now)
    publish(world)
    outgoing = world.mediator.outgoing
    dispatch = outgoing.get(alert.id)
    assert dispatch is not None
    assert len(dispatch) == 501
    after(world, 599.0)
    again = drive_in(world, "car-7")
    assert world.owed() == []
    world.close(again)
    after(world, 2.0)
    assert outgoing.peers.names(dispatch.peers) == ["refuser"]
    assert set(outgoing.peers._numbers) == {"refuser"}
    check_outgoing(outgoing)
    # Those that come back say which they have seen; others are sent it again.
    drive_in(world, "car-8", {alert.id})
    assert world.owed() == []
    drive_in(world, "car-9")
    assert [id for id, _, _ in world.owed()] == [alert.id]


def test_what_another_adapters_client_has_is_not_kept() -> None:
    here, there = World(), World()
    there.mediator._adapter = "adapter-2"
    ben = there.open("ben")
    envelope = tell(there, Address.client("abe"), Address.client("ben"), expires_us=0)
    here.addressing.address(envelope, envelope.SerializeToString(), here.at.us, here.at)
    answer_all(there, ben)
    for receipts in publish(there):
        here.mediator.learn(receipts.SerializeToString(), here.now)
    publish(here)
    assert len(here.mediator.outgoing) == len(here.addressing.missed) == 0


def test_receipts_for_a_sender_that_is_gone_are_bounded_and_small(traced: None) -> None:
    world = World(MediatorSettings(max_messages=2000, max_messages_per_client=500))
    hub, abe = world.open("hub"), world.open("abe")
    world.close(abe)
    held = 0
    for number in range(700):
        if number == 100:
            gc.collect()
            held = tracemalloc.get_traced_memory()[0]
        envelope = tell(world, Address.client("abe"), Address.client("hub"), expires_us=0)
        world.mediator.incoming.receive("abe", envelope.id, world.now, acknowledge=True)
        answer_all(world, hub)
        publish(world)
        if number == 499:
            gc.collect()
            assert (tracemalloc.get_traced_memory()[0] - held) / 400 < 4500
    assert len(world.mediator.outgoing) == 500
    # It hears of the last ones when it comes back; of the others the ledger knows.
    abe = world.open("abe")
    assert len(world.sent()) == 500


def test_a_newcomers_emergency_is_taken_however_many_came_before() -> None:
    incoming = Incoming(max_ids=10, max_sources=1000, max_ids_of_all=2000)

    def event(name: str, id: int, now: float, *, urgent: bool = False) -> Arrival:
        return incoming.receive(name, id, now, acknowledge=True, urgent=urgent)

    for number in range(5000):  # each sends one event that never expires, and leaves
        assert event(f"car-{number}", 0, number / 100) is Arrival.NEW
        incoming.left(f"car-{number}")
    assert len(incoming) == incoming.ids == 1000
    assert len(incoming._ends) < 4000
    assert event("newcomer", 0, 50.0, urgent=True) is Arrival.NEW
    assert event("newcomer", 0, 50.0, urgent=True) is Arrival.REPEATED
    # One that fills its own room displaces nobody, and has room for what is urgent.
    for id in range(10):
        assert event("many", id, 50.0) is Arrival.NEW
    assert event("many", 10, 50.0) is Arrival.NO_ROOM
    assert event("many", 10, 50.0, urgent=True) is Arrival.NEW
    assert event("many", 11, 109.0) is Arrival.NO_ROOM
    assert event("many", 11, 110.0) is Arrival.NEW
    assert event("newcomer", 0, 111.0) is Arrival.REPEATED
    assert event("many", 11, 111.0) is Arrival.REPEATED


def test_who_is_there_is_remembered_when_the_room_of_all_is_full() -> None:
    incoming = Incoming(max_ids=100, max_sources=1000, max_ids_of_all=50)
    for id in range(50):
        assert incoming.receive("here", id, 0.0, acknowledge=True) is Arrival.NEW
    assert incoming.receive("other", 0, 1.0, acknowledge=True) is Arrival.NO_ROOM
    urgent = incoming.receive("other", 0, 1.0, acknowledge=True, urgent=True)
    assert urgent is Arrival.NEW
    incoming.left("here")
    assert incoming.receive("other", 1, 2.0, acknowledge=True) is Arrival.NEW
    assert incoming.ids == 2
    incoming.left("other")
    incoming.arrived("other")
    assert incoming.receive("other", 1, 3.0, acknowledge=True) is Arrival.REPEATED


def test_an_emergency_is_kept_when_the_table_of_messages_is_full_and_the_sender_is_told() -> None:
    world = World(MediatorSettings(max_messages=200, max_messages_per_client=50))
    world.open("mal")
    office = Address.service("office")
    emergency = tell(world, office, AROUND, Priority.EMERGENCY)
    to_cal = tell(world, Address.client("abe"), Address.client("cal"))
    first = tell(world, Address.client("mal"), Address.client("x"), expires_us=LAST_INSTANT_US)
    for _ in range(99):
        tell(world, Address.client("mal"), Address.client("x"), expires_us=LAST_INSTANT_US)
    ended = {one.deliveries.message: one.deliveries for one in publish(world)}
    assert len(ended) == 51  # the emergency, and its own
    assert list(ended[first.id].state) == [DeliveryState.UNREACHABLE]
    assert list(ended[first.id].reasons) == [Reason.NO_ROOM]
    for number in range(300):  # under as many names as you like
        tell(world, Address.client(f"mal-{number}"), AROUND, expires_us=LAST_INSTANT_US)
    outgoing = world.mediator.outgoing
    assert len(outgoing) == 200
    assert outgoing.get(emergency.id) is not None
    assert outgoing.get(to_cal.id) is None
    warning = tell(world, office, Address.client("late"), Priority.WARNING)
    again = tell(world, office, AROUND, Priority.EMERGENCY)
    for number in range(300):
        tell(world, Address.client(f"more-{number}"), AROUND, Priority.WARNING)
    assert all(outgoing.get(one.id) is not None for one in (emergency, warning, again))
    assert len(world.addressing.standing) + len(world.addressing.missed) == len(outgoing) == 200
    car = world.open("car")
    world.sessions.table.moved[car.slot] = True
    assert emergency.id in {id for id, _, _ in world.owed()}


def test_nothing_is_kept_for_longer_than_an_adapter_keeps_anything() -> None:
    world = World(MediatorSettings(max_validity_s=100.0))
    for to in (AROUND, Address.client("late"), Address.everyone()):
        tell(world, Address.service("office"), to, expires_us=LAST_INSTANT_US)
    after(world, 99.0)
    world.owed()
    assert (len(world.addressing.standing), len(world.addressing.missed)) == (1, 2)
    after(world, 1.0)
    world.owed()
    assert (len(world.addressing.standing), len(world.addressing.missed)) == (0, 0)
    assert len(world.mediator.outgoing) == 0


@pytest.mark.parametrize(
    ("area", "reason"),
    [
        (Circle(HERE, 100_000.0), ""),
        (Circle(HERE, 100_001.0), "area-too-large"),
        (Rectangle(-90.0, -180.0, 90.0, 180.0), "area-too-large"),
        (None, "malformed"),
    ],
)
def test_a_client_sends_to_no_more_than_so_large_an_area(area: Shape | None, reason: str) -> None:
    world = World()
    to = Address.to_area(Area(area or Circle(HERE, 1.0)))
    envelope = tell(world, Address.client("car"), to)
    if area is None:
        envelope.destination.area.circle.radius_m = -1.0
    body = envelope.SerializeToString()
    session = world.open("car")
    try:
        record = bus_record(session, envelope, body, world.sessions.table, 1000.0, 100_000.0)
    except PacketError as error:
        assert error.reason == reason
    else:
        assert (record.topic, reason) == (topics.alerts_topic(Priority.NORMAL), "")


def test_no_parsed_message_is_kept() -> None:
    world = World()
    world.open("car")
    envelope = world.alert(AROUND)
    dispatch = world.mediator.outgoing.get(envelope.id)
    assert dispatch is not None
    assert not any(isinstance(one, pb.Envelope) for one in dispatch.content)
