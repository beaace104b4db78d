"""A recorded hour: what a small city puts on the bus, with poison in it."""

from __future__ import annotations

import math
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

from mercury.bus import Bus, Record, Retention
from mercury.bus.embedded.bus import EmbeddedBus
from mercury.model.area import Area, Circle, Position
from mercury.model.delivery import Deliveries, Delivery, DeliveryState
from mercury.model.identity import new_id
from mercury.model.message import Address, Event, Kind, Message, Telemetry
from mercury.wire import encode
from mercury.wire import mercury_pb2 as pb
from mercury.wire.codec import deliveries_to_pb
from mercury.wire.records import fix_header, message_route, telemetry_fix

BEGIN_US = int(datetime(2026, 3, 1, 23, 30, tzinfo=UTC).timestamp()) * 1_000_000  # into a new day
HOUR_US = 3_600_000_000
Appended = tuple[str, bytes, bytes, tuple[tuple[str, bytes], ...]]
TOPICS = ("reports", "events.*", "alerts.*", "deliveries")
CRASH = Position(40.75, -111.9)
BAD_KEY = b"\xff\xfe"
POISON = 9  # records of each step that are none


@contextmanager
def opened(path: Path, partitions: int = 4) -> Iterator[EmbeddedBus]:
    bus = EmbeddedBus(path, retention=Retention(None, None), partitions=partitions)
    yield bus
    bus.close()


def report(client: str, lat: float, lon: float) -> Appended:
    telemetry = Telemetry(Position(lat, lon), heading_deg=90.0, speed_mps=12.5)
    message = Message(
        kind=Kind.REPORT,
        source=Address.client(client),
        destination=Address.adapter("a"),
        payload=telemetry,
    )
    return "reports", encode(message), client.encode(), (telemetry_fix(telemetry),)


def event(client: str, at: Position | None, kind: str = "collision") -> Appended:
    message = Message(
        kind=Kind.EVENT,
        source=Address.client(client),
        destination=Address.broker(),
        payload=Event(kind, at, text="Bang", values={"lanes": 2, "b": b"\x00", "n": math.nan}),
    )
    place = fix_header(40.7, -111.95, 45.0, 3.5)
    return f"events.{kind}", encode(message), b"40.75,-111.90", (message_route(message), place)


def alert(to: Address, priority: int = 9) -> Appended:
    message = Message(
        kind=Kind.ALERT,
        source=Address.service("pipeline"),
        destination=to,
        priority=priority,
        expires_us=BEGIN_US + HOUR_US,
        payload=Event("collision", text="Crash ahead"),
    )
    return "alerts.urgent", encode(message), b"40.75,-111.90", (message_route(message),)


def receipts(
    message: uuid.UUID, *rows: Delivery, source: str = "service:pipeline", adapter: str = "a"
) -> Appended:
    envelope = pb.Envelope(version=1, kind=pb.RECEIPT, id=new_id())
    envelope.source.adapter = adapter
    said = Deliveries(message, source, rows, topic="collision", kind=Kind.ALERT, priority=9)
    deliveries_to_pb(said, envelope.deliveries)
    return "deliveries", envelope.SerializeToString(), message.bytes, ()


def fill(bus: Bus, steps: int = 60, vehicles: int = 10, seed: int = 1) -> int:
    """Append an hour's records, a minute a step; how many these were."""
    rng = random.Random(seed)
    count = 0
    with mock.patch.object(time, "time_ns") as clock:
        for step in range(steps):
            clock.return_value = (BEGIN_US + step * HOUR_US // steps) * 1000
            records = [
                report(f"car-{n}", 40.7 + rng.random() / 8, -112 + rng.random() / 8)
                for n in range(vehicles)
            ]
            records += [
                event("car-1", CRASH),
                event("car-2", None, "obstacle"),
                alert(Address.to_area(Area(Circle(CRASH, 800.0)))),
                alert(Address.everyone()),
                receipts(uuid.UUID(bytes=b"m" * 16), Delivery("car-3", DeliveryState.WAITING)),
                # Poison.
                ("deliveries", b"whatever", b"car-3", ()),
                ("reports", b"", b"car-4", ()),
                ("reports", b"", b"car-4", (("position", b"short"),)),
                ("reports", b"", b"car-4", (fix_header(91.0, 0.0, 0.0, 0.0),)),
                ("reports", b"", b"car-4", (fix_header(math.nan, 0.0, 0.0, 0.0),)),
                ("reports", b"", BAD_KEY, (fix_header(1.0, 0.0, 0.0, 0.0),)),
                ("events.collision", b"\xff\xff\xff", b"k", ()),
                ("events.collision", report("x", 1.0, 1.0)[1], b"k", ()),
                ("alerts.low", b"", b"k", ()),
            ]
            for topic, value, key, headers in records:
                bus.append(topic, value, key, headers)
            bus.flush_now()
            count += len(records)
    return count


def everything(bus: Bus, topics: tuple[str, ...] = TOPICS) -> list[Record]:
    consumer = bus.subscribe(list(topics), start="earliest")
    found = []
    while records := consumer.poll(4096):
        found += records
    consumer.close()
    return found
