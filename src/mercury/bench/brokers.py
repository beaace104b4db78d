"""Two brokers of one group against one, with work that takes a core: content for many interests.

Each content message is held against every interest, as it is in a city where many clients ask for
different things. That is what a broker spends its time with when it has too much of it.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from contextlib import closing
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import numpy as np

from mercury.bench import processes
from mercury.bench.processes import Say
from mercury.broker.interest_index import InterestIndex
from mercury.bus import Bus, Consumer, open_bus
from mercury.model import topics
from mercury.model.errors import MercuryError
from mercury.model.filter import compile_filter, interest_id
from mercury.model.message import Address, Attributes, Kind, Message, Subscription, Values
from mercury.wire import encode

TOPIC = "fuel"
_BRANDS = 50
_STATIONS = 1000
_TOGETHER = 250  # messages that are appended in one go
_LOOK_S = 0.02  # often enough to time seconds, and seldom enough to leave the cores alone
_REFRESH_S = 10.0  # as adapters do
_TIMEOUT_S = 30.0  # without a single result
_LINGER_S = 0.3  # for results that come twice
_BARE_S = 0.5


def filters(count: int) -> list[str]:
    """Different filters; the first takes everything, so that each message has a result."""
    return ["station exists"] + [
        f'price < {1.2 + number / count:.6f} and brand == "brand-{number % _BRANDS}"'
        for number in range(1, count)
    ]


def offers(count: int, seed: int) -> list[Values]:
    """Content: what stations ask for fuel."""
    dice = random.Random(seed)
    return [
        {
            "station": f"station-{dice.randrange(_STATIONS)}",
            "brand": f"brand-{dice.randrange(_BRANDS)}",
            "price": round(1.2 + dice.random(), 3),
        }
        for _ in range(count)
    ]


class Work:
    """Appends content to a bus, and reads the brokers' output."""

    def __init__(self, bus: Bus, interests: int) -> None:
        self._bus = bus
        self._filters = filters(interests)
        self._seed = 1
        self._results: Consumer = bus.subscribe((topics.MATCHED_CONTENT,))
        self._refreshed_at = 0.0

    def run(self, count: int) -> dict[str, float]:
        """Append messages at once, and time until the last is answered."""
        self._seed += 1
        messages = [_message(values) for values in offers(count, self._seed)]
        waiting = {body for _, body in messages}  # each has its own id
        self._speak_for_interests(True)
        begun = heard = ended = time.perf_counter()
        for number, (key, body) in enumerate(messages, 1):
            self._bus.append(topics.content_topic(TOPIC), body, key)
            if number % _TOGETHER == 0 or number == count:
                self._bus.flush_now()
        duplicates = 0
        while waiting or time.perf_counter() < ended + _LINGER_S:
            time.sleep(_LOOK_S)
            self._speak_for_interests()
            found = self._results.poll(count)
            now = time.perf_counter()
            if found:
                heard = now
                before = len(waiting)
                waiting.difference_update([record.value for record in found])
                duplicates += len(found) - (before - len(waiting))
                if before and not waiting:
                    ended = now
            elif waiting and now > heard + _TIMEOUT_S:
                raise MercuryError(f"of {count} messages {len(waiting)} were not answered")
        return {
            "messages": count,
            "per_s": round(count / (ended - begun), 1),
            "duplicates": duplicates,
        }

    def _speak_for_interests(self, now: bool = False) -> None:
        if not now and time.monotonic() < self._refreshed_at + _REFRESH_S:
            return
        self._refreshed_at = time.monotonic()
        for text in self._filters:
            interest = interest_id(TOPIC, compile_filter(text))
            message = Message(
                kind=Kind.SUBSCRIBE,
                source=Address.adapter("bench"),
                destination=Address.broker(),
                payload=Subscription(interest, TOPIC, text),
            )
            self._bus.append(topics.SUBSCRIPTIONS, encode(message), interest)
        self._bus.flush_now()


def _message(values: Values) -> tuple[bytes, bytes]:
    station = str(values["station"])
    content = Message(
        kind=Kind.CONTENT,
        source=Address.service(station),
        destination=Address.broker(),
        topic=TOPIC,
        payload=Attributes(values),
    )
    return station.encode(), encode(content)


def run(
    uri: str, messages: int, interests: int, rounds: int, warm_up: int, say: Say
) -> dict[str, Any]:
    """Measure one broker and two, in turns on the same bus."""
    rows = []
    with (
        closing(open_bus(uri)) as bus,
        processes.broker(uri, {"MERCURY_BROKER__ID": "one"}) as first,
    ):
        work = Work(bus, interests)
        say(f"warm-up with {warm_up:,} messages, not counted")
        work.run(warm_up)
        for number in range(1, rounds + 1):
            say(f"round {number} of {rounds}: one broker, {messages:,} messages")
            rows.append(_measure(work, messages, [first]))
            with processes.broker(uri, {"MERCURY_BROKER__ID": "two"}) as second:
                work.run(messages // 10)
                say(f"round {number} of {rounds}: two brokers")
                rows.append(_measure(work, messages, [first, second]))
    # The median: on shared hardware a core may be half as fast, or as fast again, from one round
    # to the next, and the best of either would be compared at different speeds.
    one, two = (median(row["per_s"] for row in rows[at::2]) for at in (0, 1))
    return {"one_per_s": one, "two_per_s": two, "ratio": round(two / one, 3), "rows": rows}


def _measure(work: Work, messages: int, brokers: list[int]) -> dict[str, float]:
    before = np.array([_done(port) for port in brokers])
    row = work.run(messages)
    handled, cpu_s = (np.array([_done(port) for port in brokers]) - before).T
    return {
        "brokers": len(brokers),
        **row,
        "cpu_us": round(float(cpu_s.sum()) / messages * 1e6, 1),
        "larger_share": round(float(handled.max()) / messages, 3),
    }


def _done(metrics_port: int) -> tuple[float, float]:
    """Messages that a broker has handled, and seconds of a core that it has used."""
    return (
        processes.metric(metrics_port, "mercury_broker_content_total"),
        processes.metric(metrics_port, "mercury_broker_cpu_s_total"),
    )


def ceiling(interests: int, rounds: int) -> float:
    """How much more of the same matching two bare processes do than one: the cores' limit."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    matchers = []
    for _ in range(2):
        ours, theirs = context.Pipe()
        pipes.append(ours)
        matchers.append(context.Process(target=_match, args=(theirs, interests), daemon=True))
        matchers[-1].start()
    try:
        _rate(pipes, 0.0)  # until both are ready
        found = [(_rate(pipes[:1], _BARE_S), _rate(pipes, _BARE_S)) for _ in range(rounds)]
    finally:
        for matcher in matchers:
            matcher.terminate()
            matcher.join()
    return round(median(two for _, two in found) / median(one for one, _ in found), 3)


def _rate(pipes: list[Connection], seconds: float) -> float:
    for pipe in pipes:
        pipe.send(seconds)
    return float(sum([pipe.recv() for pipe in pipes]))


def _match(pipe: Connection, interests: int) -> None:
    index = InterestIndex()
    for text in filters(interests):
        index.add(TOPIC, text, 0.0)
    messages = offers(_STATIONS, seed=1)
    while True:
        seconds = pipe.recv()
        begun = time.perf_counter()
        done = 0
        while (spent := time.perf_counter() - begun) < seconds:
            index.match(TOPIC, messages[done % _STATIONS])
            done += 1
        pipe.send(done / spent)
