"""Events as many vehicles sense them, on the bus under a steady load, with poison among them."""

from __future__ import annotations

import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from mercury.bus import Bus, Record
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.errors import PacketError
from mercury.model.message import Address, Attributes, Event, Kind, Message
from mercury.wire import decode, encode

ALONE, TOGETHER = "alone", "together"
ENOUGH = 3
EVERY_S = 1.0
RULES = f"""
[pipeline]
history = false

[pipeline.spark_conf]
"spark.driver.extraJavaOptions" = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m"

[detection.congestion]
enabled = false

# One witness settles it, at once: each event is an incident of its own.
[detection.kinds.{ALONE}]
predicate = "count >= 1"
every_s = 0
reach_m = 50.0
memory_s = 5.0
validity_s = 60.0

[detection.kinds.{TOGETHER}]
predicate = "count >= {ENOUGH}"
every_s = {EVERY_S}
lateness_s = 5.0
reach_m = 50.0
validity_s = 600.0
"""
_TICK_S = 0.02
_LONE_A_TICK = 2
_TICKS_TO_INCIDENT = 10
_TICKS_TO_POISON = 5

Place = tuple[float, float]


class Eventful:
    """A world in which things happen, each far from the others."""

    def __init__(self, bus: Bus, rng: random.Random) -> None:
        self._bus = bus
        self._rng = rng
        self._numbers = itertools.count()
        self._witnessed: list[tuple[Position, int]] = []  # incidents, and witnesses to come

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Things happen while the block lasts, more than 100 events a second."""
        done = threading.Event()
        thread = threading.Thread(target=self._go_on, args=(done,))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def lone(self) -> Position:
        """One vehicle senses something."""
        place = self._elsewhere()
        self._sense(ALONE, place)
        self._bus.flush_now()
        return place

    def incident(self, witnesses: int = ENOUGH) -> Position:
        """Several sense the same at once."""
        place = self._elsewhere()
        for _ in range(witnesses):
            self._sense(TOGETHER, place)
        self._bus.flush_now()
        return place

    def poison(self) -> None:
        """What cannot be an event, on the topics of events."""
        no_event = Message(
            kind=Kind.EVENT,
            source=Address.client("car"),
            destination=Address.broker(),
            payload=Attributes({"n": 1}),
        )
        for kind in (ALONE, TOGETHER):
            for value in (self._rng.randbytes(40), b"", encode(no_event)):
                self._bus.append(topics.events_topic(kind), value, b"poison")

    def _go_on(self, done: threading.Event) -> None:
        for tick in itertools.count():
            if done.wait(_TICK_S):
                return
            for _ in range(_LONE_A_TICK):
                self.lone()
            if tick % _TICKS_TO_INCIDENT == 0:
                self._witnessed.append((self._elsewhere(), self._rng.randint(2, 5)))
            if tick % _TICKS_TO_POISON == 0:
                self.poison()
            # One witness of each a tick, so that incidents fall across batches and kills.
            for place, _ in self._witnessed:
                self._sense(TOGETHER, place)
            self._witnessed = [(place, left - 1) for place, left in self._witnessed if left > 1]
            self._bus.flush_now()

    def _elsewhere(self) -> Position:
        number = next(self._numbers)
        return Position(number // 1000 * 0.01, number % 1000 * 0.01)  # a kilometre apart

    def _sense(self, kind: str, place: Position) -> None:
        message = Message(
            kind=Kind.EVENT,
            source=Address.client(f"car-{next(self._numbers)}"),
            destination=Address.broker(),
            payload=Event(kind, place),
        )
        self._bus.append(topics.events_topic(kind), encode(message), b"here")


def due(bus: Bus) -> dict[str, set[Place]]:
    """Where there must be an alert, by kind: what the rules say, as plainly as can be."""
    lone: set[Place] = set()
    witnesses: dict[tuple[Place, int], int] = defaultdict(int)
    for record in _everything(bus, [topics.events_topic(kind) for kind in (ALONE, TOGETHER)]):
        try:
            event = decode(record.value).event
        except PacketError:
            continue
        if event is None:
            continue
        place = place_of(event)
        if event.kind == ALONE:
            lone.add(place)
        else:
            witnesses[place, record.timestamp_us // int(EVERY_S * 1e6)] += 1
    together = {place for (place, _), count in witnesses.items() if count >= ENOUGH}
    return {ALONE: lone, TOGETHER: together}


def place_of(event: Event) -> Place:
    """Where something is, in whole steps of the world: a mean of positions is not exact."""
    assert event.position is not None
    return round(event.position.lat, 2), round(event.position.lon, 2)


def _everything(bus: Bus, names: Iterable[str]) -> list[Record]:
    consumer = bus.subscribe(tuple(names), start="earliest")
    found: list[Record] = []
    while records := consumer.poll(4096):
        found += records
    consumer.close()
    return found
