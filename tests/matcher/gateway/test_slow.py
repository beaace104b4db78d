"""A client that does not read is told less, then nothing; the others do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections import Counter

import numpy as np
from live import in_loop, until
from matcher.gateway_client import BINARY, LAT, LON, METRE, moves, near, publish, world
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from mercury.config import GatewaySettings
from mercury.matcher.gateway.register import Register
from mercury.matcher.hub import Hub
from mercury.matching import Events, MatchingRules
from mercury.model.matching import EventType
from mercury.wire.gateway_frames import pack_moves, read_server_frame

PUBLICATIONS = 1000


def slow_socket(port: int) -> socket.socket:
    """One that takes little before it must be read."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", port))
    small.setblocking(False)
    return small


@in_loop
async def test_one_does_not_read_and_the_other_gets_all() -> None:
    marks = {"low_mark_bytes": 200_000, "high_mark_bytes": 1_500_000}
    async with world(**marks, close_timeout_s=10.0) as here, here.connect(BINARY) as ann:
        address = f"ws://127.0.0.1:{here.gateway.port}/v1/match"
        async with connect(
            address,
            sock=slow_socket(here.gateway.port),
            subprotocols=[BINARY],  # type: ignore[list-item]
            max_queue=1,
            compression=None,
        ) as deaf:
            hello = {"op": "hello", "names": False}
            subscription = {"inside": True, "dwell_s": 0.5, "handle": 1}
            await deaf.send(json.dumps([hello, near("deaf", 0, **subscription)]))
            await deaf.recv()
            await ann.ok(hello, near("ann", 0, **subscription))
            await ann.say(*(publish(f"t-{i}", handle=10 + i) for i in range(PUBLICATIONS)))
            told: Counter[int] = Counter()
            rounds = 0
            rows = moves(*((10 + i, LAT, LON) for i in range(PUBLICATIONS)))
            while here.count("gateway_connections_too_slow") == 0:
                rounds += 1
                assert rounds < 3000, "it is never given up"
                # In and out, and about inside.
                metres = (0, 1, 2, 3, 600)[rounds % 5]
                rows["lat_e7"] = round((LAT + metres * METRE) * 1e7)
                await ann.websocket.send(pack_moves(rows))
                told.update((await ann.rows(PUBLICATIONS))["event_type"].tolist())
            assert here.count("gateway_events_shed_inside") > 0
            # The one that reads was told everything.
            assert told[EventType.EXIT] == (rounds + 1) // 5 * PUBLICATIONS
            assert told[EventType.ENTER] == (1 + rounds // 5) * PUBLICATIONS
            assert sum(told.values()) == rounds * PUBLICATIONS + told[EventType.DWELL]
            assert here.count("gateway_connections") == 1
            await until(lambda: here.entities() == (PUBLICATIONS, 1))
            # The other one, if it reads after all, finds whole frames and why it ended. Of
            # enter and exit it missed none up to then.
            heard: Counter[int] = Counter()
            with contextlib.suppress(ConnectionClosed):
                async for frame in deaf:
                    assert isinstance(frame, bytes)
                    heard.update(read_server_frame(frame)[1]["event_type"].tolist())
            assert deaf.close_code == 1013
            assert 0 < heard[EventType.INSIDE] < told[EventType.INSIDE]
            assert 0 <= heard[EventType.ENTER] - heard[EventType.EXIT] <= PUBLICATIONS
            assert heard[EventType.EXIT] > 0.5 * told[EventType.EXIT]


@in_loop
async def test_who_never_reads_is_cut_off() -> None:
    marks = {"low_mark_bytes": 1024, "high_mark_bytes": 100_000}
    async with world(**marks, close_timeout_s=0.3) as here, here.connect(BINARY) as ann:
        small = slow_socket(here.gateway.port)
        reader, writer = await asyncio.open_connection(sock=small)
        writer.write(
            b"GET /v1/match HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\n\r\n"
        )
        assert b"101" in await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        # Questions whose answers it does not read, until it is given up.
        text = json.dumps([{"op": "ask", "topic": "taxi"}] * 2000).encode()
        frame = b"\x81\xff" + len(text).to_bytes(8, "big") + bytes(4) + text
        await until(lambda: here.count("gateway_connections") == 2)

        def is_too_slow() -> int:
            writer.write(frame)
            return here.count("gateway_connections_too_slow")

        await until(is_too_slow, 30.0)
        await until(lambda: len(here.gateway._websockets) == 1, 5)
        writer.transport.abort()
        await ann.ok({"op": "hello"})


def test_dwell_is_shed_after_inside() -> None:
    settings = GatewaySettings(low_mark_bytes=2000, high_mark_bytes=4000)
    register = Register(Hub(MatchingRules()), settings)
    event_types = [EventType.ENTER, EventType.INSIDE, EventType.DWELL, EventType.EXIT]
    kinds = (np.uint8, np.uint8, np.int64, np.int64, np.int64, np.float32, float, float, np.int64)
    events = Events(*(np.array(event_types, kind) for kind in kinds))
    for waiting, left in ((2000, 4), (2001, 3), (3000, 3), (3001, 2), (9000, 2)):
        kept = register.thinned(events, waiting).event_type.tolist()
        assert len(kept) == left, waiting
        assert {EventType.ENTER, EventType.EXIT} <= set(kept)
    assert register.counts == {"events_shed_inside": 4, "events_shed_dwell": 2}
