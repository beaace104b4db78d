"""How many reports one adapter process takes in: decoded, checked and on the bus."""

from __future__ import annotations

import gc
import time
from contextlib import closing

from mercury.bench import processes
from mercury.bench.processes import Say
from mercury.bus import open_bus
from mercury.load.sessions import LoadClients
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.message import Address, Kind, Message, Priority, Telemetry
from mercury.net.batch import send_packets
from mercury.wire import encode, pack

SESSIONS = 512
SOCKETS = 4
_PLACE = Position(40.76, -111.89)
_NO_FLOOD = {
    "MERCURY_SESSION__FLOOD_RATE_PER_S": "1e9",
    "MERCURY_SESSION__FLOOD_BURST": "1000000000",
}


def run(rates: list[int], seconds: float, say: Say) -> list[dict[str, float]]:
    """Offer reports at each rate and count those on the bus."""
    rows = []
    for rate in rates:
        with (
            processes.temporary_bus() as bus,
            processes.adapter(bus, _NO_FLOOD) as (port, _),
            closing(LoadClients(port, SESSIONS, SOCKETS, [_PLACE])) as clients,
        ):
            clients.connect(timeout_s=30.0)
            say(f"{rate:,} reports a second for {seconds:g} s")
            rows.append(_offer(bus, clients, rate, seconds))
    return rows


def _offer(bus_uri: str, clients: LoadClients, rate: int, seconds: float) -> dict[str, float]:
    # Packets are made before the clock starts: the adapter is measured, not this process.
    count = round(rate * seconds)
    bodies = [
        encode(
            Message(
                kind=Kind.REPORT,
                source=Address.client(session.identity),
                destination=Address.adapter("any"),
                payload=Telemetry(_PLACE, 90.0, 13.9, 5.0, 1300.0, 1),
            )
        )
        for session in clients.sessions
    ]
    before = _newest(bus_uri)
    begun = time.perf_counter()
    sent = turn = 0
    gc.disable()
    try:
        while sent < count:
            wait = begun + sent / rate - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            # One socket after the other, each with a report of every session that it serves.
            socket_number = turn % len(clients.sockets)
            sequence = 1_000_000 + turn // len(clients.sockets)
            numbers = range(socket_number, SESSIONS, len(clients.sockets))
            what = Kind.REPORT, Priority.NORMAL
            packets = [
                (pack(*what, clients.sessions[one].token, sequence, bodies[one]), clients.adapter)
                for one in numbers
            ]
            send_packets(clients.sockets[socket_number].fileno(), packets)
            sent += len(packets)
            turn += 1
    finally:
        gc.enable()
    offered_s = time.perf_counter() - begun
    absorbed = _wait_until_absorbed(bus_uri, before, sent)
    return {
        "rate": rate,
        "sent": sent,
        "on_bus": absorbed,
        "offered_per_s": round(sent / offered_s),
        "absorbed_share": round(absorbed / sent, 6),
    }


def _newest(bus_uri: str) -> int:
    with (
        closing(open_bus(bus_uri)) as bus,
        closing(bus.subscribe((topics.REPORTS,), start="earliest")) as consumer,
    ):
        return consumer.lag()


def _wait_until_absorbed(bus_uri: str, before: int, sent: int) -> int:
    found, unchanged = 0, 0
    while found < sent and unchanged < 10:
        time.sleep(0.1)
        now = _newest(bus_uri) - before
        unchanged = unchanged + 1 if now == found else 0
        found = now
    return found
