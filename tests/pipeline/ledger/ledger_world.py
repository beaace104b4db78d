"""A few minutes of traffic with messages and receipts at random, and the ledger by brute force."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from pipeline.history import recording

from mercury.geo import contains_point
from mercury.model import topics
from mercury.model.area import (
    Area,
    Circle,
    Corridor,
    HeadingSector,
    Polygon,
    Position,
    Rectangle,
    Shape,
)
from mercury.model.delivery import Delivery, DeliveryState
from mercury.model.message import (
    Address,
    AddressKind,
    Attributes,
    DeliveryPolicy,
    Event,
    Kind,
    Message,
    Telemetry,
)
from mercury.wire import encode
from mercury.wire.records import telemetry_fix

SECOND_US = 1_000_000
BEGIN_US = recording.BEGIN_US + 25 * 60 * SECOND_US  # five minutes before midnight
LONG_AFTER_US = BEGIN_US + 26 * 3600 * SECOND_US
# A city, and an island that the antimeridian crosses.
PLACES = (Position(40.76, -111.89), Position(-16.8, 180.0))
AREA_KINDS = ("circle", "corridor", "polygon", "rectangle")
Times = list[tuple[int, Any]]
WORDS = {0: "fire-and-forget", 1: "repeat", 2: "critical"}


@dataclass
class World:
    """What was put on the bus, and when."""

    messages: Times = field(default_factory=list)
    reports: Times = field(default_factory=list)  # (client, position, heading)
    receipts: Times = field(default_factory=list)  # (message, rows)

    def put_on(self, path: Path) -> None:
        """Append it all, at the times it came."""
        records = [(at, *_report(*one)) for at, one in self.reports]
        records += [(at, *_message(one)) for at, one in self.messages]
        records += [(at, *recording.receipts(id, *rows)) for at, (id, rows) in self.receipts]
        with recording.opened(path) as bus, mock.patch.object(time, "time_ns") as clock:
            now_us = 0
            for at_us, *record in sorted(records, key=lambda one: one[0]):
                if at_us != now_us:
                    bus.flush_now()
                    now_us = at_us
                clock.return_value = at_us * 1000
                bus.append(*record)
            bus.flush_now()


def random_world(seed: int, clients: int = 30, seconds: int = 420, messages: int = 240) -> World:
    rng = random.Random(seed)
    world = World()
    names = [f"car-{number}" for number in range(clients)]
    for number, name in enumerate(names):
        for second in range(rng.randrange(60), rng.randrange(200, seconds), rng.randrange(2, 9)):
            heading = rng.choice([None, rng.uniform(0.0, 360.0)])
            at_us = BEGIN_US + second * SECOND_US + rng.randrange(SECOND_US)
            world.reports.append((at_us, (name, near(rng, PLACES[number % 2]), heading)))
    for _ in range(messages):
        at_us = BEGIN_US + rng.randrange(seconds * SECOND_US)
        message = random_message(rng, at_us, names)
        world.messages.append((at_us, message))
        if rng.random() < 0.1:  # put on the bus again
            world.messages.append((at_us + rng.randrange(60 * SECOND_US), message))
        if message.destination.kind is AddressKind.CLIENT and rng.random() < 0.4:
            heard = random_row(rng, message.destination.name, at_us)
            heard = replace(heard, state=DeliveryState.ACKNOWLEDGED, settled_us=at_us + SECOND_US)
            world.receipts.append((at_us + SECOND_US, (message.id, [heard])))
            continue
        for _ in range(rng.randrange(4)):
            said_us = at_us + rng.randrange(1, 90 * SECOND_US)
            rows = [random_row(rng, one, at_us) for one in rng.sample(names, rng.randrange(1, 6))]
            world.receipts.append((said_us, (message.id, rows)))
    return world


def near(rng: random.Random, place: Position) -> Position:
    lon = place.lon + rng.uniform(-0.02, 0.02)
    return Position(place.lat + rng.uniform(-0.02, 0.02), (lon + 180.0) % 360.0 - 180.0)


def random_message(rng: random.Random, at_us: int, names: list[str]) -> Message:
    kind = rng.choice(["area"] * 5 + ["client", "group", "everyone"])
    match kind:
        case "area":
            to = Address.to_area(random_area(rng, at_us))
        case "client":
            to = Address.client(rng.choice([*names, "unheard-of"]))
        case "group":
            to = Address.group("blue")
        case _:
            to = Address.everyone()
    by_client = rng.random() < 0.3
    lasts_s = rng.choice([-5, rng.randrange(120), rng.randrange(120)])
    ends_us = rng.choice([0, at_us + lasts_s * SECOND_US])
    return Message(
        kind=Kind.CONTENT if by_client else Kind.ALERT,
        source=Address.client(rng.choice(names)) if by_client else Address.service("office"),
        destination=to,
        topic=rng.choice(["", "hint"]) if not by_client else "message",
        priority=rng.randrange(10),
        sent_us=at_us - rng.choice([0, 5_000, 90 * SECOND_US, -3600 * SECOND_US]),
        expires_us=ends_us,
        policy=rng.choice(list(DeliveryPolicy)),
        id=uuid.UUID(int=(at_us // 1000 << 80) | (0x7 << 76) | rng.getrandbits(62)),
        payload=Attributes({"text": "hi"}) if by_client else Event("flood", text="Stay away"),
    )


def random_area(rng: random.Random, at_us: int) -> Area:
    place = rng.choice(PLACES)
    heading = HeadingSector(rng.uniform(0.0, 360.0), 90.0) if rng.random() < 0.4 else None
    from_us = at_us + rng.randrange(-60, 60) * SECOND_US if rng.random() < 0.3 else None
    until_us = at_us + rng.randrange(61, 150) * SECOND_US if rng.random() < 0.5 else None
    return Area(random_shape(rng, near(rng, place)), heading, from_us, until_us)


def random_shape(rng: random.Random, center: Position) -> Shape:
    def east(degrees: float) -> float:
        return (center.lon + degrees + 180.0) % 360.0 - 180.0

    match rng.choice(AREA_KINDS):
        case "circle":
            return Circle(center, rng.uniform(100.0, 2000.0))
        case "corridor":
            return Corridor((center, Position(center.lat, east(0.02))), 1000.0)
        case "polygon":
            return Polygon(
                (center, Position(center.lat, east(0.02)), Position(center.lat + 0.02, east(0.01)))
            )
        case _:
            return Rectangle(center.lat, east(-0.01), center.lat + 0.01, east(0.01))


def random_row(rng: random.Random, client: str, at_us: int) -> Delivery:
    state = rng.choice(list(DeliveryState))
    addressed_us = at_us + rng.randrange(30 * SECOND_US)
    tries = rng.randrange(4)
    return Delivery(
        client,
        state,
        rng.choice(["", "away"]),
        tries,
        addressed_us,
        addressed_us + 1000 if tries else 0,
        # Unique, so that no two receipts weigh the same.
        0 if state is DeliveryState.WAITING else addressed_us + rng.randrange(60 * SECOND_US),
    )


def _report(client: str, position: Position, heading: float | None) -> tuple[Any, ...]:
    return "reports", b"", client.encode(), (telemetry_fix(Telemetry(position, heading)),)


def _message(message: Message) -> tuple[Any, ...]:
    return topics.alerts_topic(message.priority), encode(message), b"", ()


# The twin: one recipient after the other, from what was put on the bus


def brute_force(world: World) -> Iterator[dict[str, Any]]:
    first: dict[bytes, tuple[int, Message]] = {}
    for at_us, message in sorted(world.messages, key=lambda one: one[0]):
        first.setdefault(message.id, (at_us, message))
    clients = {one[0] for _, one in world.reports}
    for at_us, message in first.values():
        said: dict[str, list[Delivery]] = {}
        for _, (id, rows) in world.receipts:
            if id == message.id:
                for row in rows:
                    said.setdefault(row.client, []).append(row)
        to = message.destination
        named = {to.name} if to.kind is AddressKind.CLIENT else set()
        for client in sorted(clients | set(said) | named):
            row = one_recipient(world, at_us, message, client, said.get(client, []))
            if row is not None:
                yield row


def one_recipient(
    world: World, at_us: int, message: Message, client: str, said: list[Delivery]
) -> dict[str, Any] | None:
    to, area = message.destination, message.destination.area
    sent_us = max(min(message.sent_us, at_us), at_us - 60 * SECOND_US)
    begin_us = sent_us
    ends = [message.expires_us] if message.expires_us else []
    if area is not None:
        begin_us = max(begin_us, area.valid_from_us or 0)
        ends += [area.valid_until_us] if area.valid_until_us else []
    for_now = area is not None and not ends and begin_us <= at_us
    if for_now:
        begin_us = at_us
    later_us = begin_us if area is not None and begin_us > at_us else at_us
    end_us = min(ends, default=later_us + 24 * 3600 * SECOND_US)

    seen = [(at, place, heading) for at, (who, place, heading) in world.reports if who == client]
    if to.kind is AddressKind.CLIENT and to.name != client:
        seen = []
    if to.kind is AddressKind.GROUP:
        seen = []
    if for_now:
        before = [one for one in seen if at_us - 15 * SECOND_US <= one[0] <= at_us]
        last = max(before, key=lambda one: one[0], default=None)
        inside = [last] if last and inside_area(area, last) else []
    else:
        inside = [one for one in seen if begin_us <= one[0] < end_us and inside_area(area, one)]
    inside_us = min((one[0] for one in inside), default=None)
    if to.kind is AddressKind.CLIENT and said:
        inside_us = None  # it is known from the receipts
    is_sender = message.source == Address.client(client)
    expected = not is_sender and (
        bool(inside) or (to.kind is AddressKind.CLIENT and to.name == client)
    )
    if not expected:
        inside_us = None
    if not expected and not said:
        return None
    state, reason, settled_us = outcome(said, inside_us, at_us, begin_us, end_us, for_now)
    addressed_us = min((row.addressed_us for row in said), default=None)
    if not said and reason == "never-addressed":
        addressed_us = inside_us
    late_s = None
    if state == "acknowledged":
        could_us = begin_us
        if inside_us is not None:
            could_us = max(begin_us, min(inside_us, addressed_us or inside_us))
        late_s = max(0.0, (settled_us - could_us) / 1e6)
    return {
        "message": str(message.id),
        "client": client,
        "state": state,
        "reason": reason or None,
        "tries": max((row.tries for row in said), default=0),
        "addressed_us": addressed_us,
        "first_sent_us": min((row.first_sent_us for row in said if row.first_sent_us),
                             default=None),
        "settled_us": settled_us,
        "inside_us": inside_us,
        "late_s": late_s,
        "expected": expected or to.kind is AddressKind.GROUP,
        "source": str(message.source),
        "kind": message.kind.name.lower(),
        "topic": message.topic or "flood",
        "priority": message.priority,
        "policy": WORDS[message.policy],
        "time_us": at_us,
        "sent_us": sent_us,
        "ends_us": end_us,
    }  # fmt: skip


def inside_area(area: Area | None, report: tuple[int, Position, float | None]) -> bool:
    if area is None:
        return True
    _, place, heading = report
    return contains_point(Area(area.shape, area.heading), place.lat, place.lon, heading)


def outcome(
    said: list[Delivery],
    inside_us: int | None,
    at_us: int,
    begin_us: int,
    end_us: int,
    for_now: bool,
) -> tuple[str, str, int]:
    for state in ("acknowledged", "refused", "expired", "unreachable"):
        rows = [row for row in said if row.state.label == state]
        if rows:
            # An adapter that never had the client says that it was away.
            best = max(rows, key=lambda row: (row.reason != "away", row.settled_us, row.tries))
            return state, best.reason, best.settled_us
    if said and any(row.tries for row in said):
        return "expired", "not-acknowledged", end_us
    if said:
        return "unreachable", "away", end_us
    if end_us <= at_us:
        return "expired", "not-sent", end_us
    if inside_us is None:
        return "unreachable", "away", end_us
    return "unreachable", "never-addressed", begin_us if for_now else end_us
