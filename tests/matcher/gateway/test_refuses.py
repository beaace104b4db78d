"""What is wrong is said in a sentence, and the connection goes on where it can."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from live import in_loop, until
from matcher.gateway_client import BINARY, LAT, LON, Talk, World, move, near, publish, world
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from mercury.config import GatewaySettings
from mercury.matcher.gateway.server import Gateway
from mercury.matcher.hub import Hub
from mercury.matching import MatchingRules
from mercury.model.errors import AddressInUseError

HALF_THE_PLANET = {
    "type": "Polygon",
    "coordinates": [[[-90, -80], [0, -80], [80, -80], [80, 80], [0, 80], [-90, 80]]],
}
LINE = {"type": "LineString", "coordinates": [[24.9, 60.1], [24.91, 60.1]]}

TEXTS = [
    ("this is not JSON", "json", "not JSON: "),
    ("[" * 100_000, "json", "not JSON"),
    ('"taxi"', "json", "a text is a JSON object with an op, or a list of them"),
    ('{"op":"near","radius_m":NaN}', "number", "NaN is not a number of JSON"),
    ('{"op":"near","lat":-Infinity}', "number", "-Infinity is not a number of JSON"),
    ('{"id":"me"}', "op", "op must be hello, publish, near, move, withdraw or ask"),
    ('{"op":["near"]}', "op", "op must be hello"),
]

OPS: list[tuple[dict[str, Any], str, str]] = [
    ({"op": "fly"}, "op", "op must be hello"),
    ({"op": "hello", "names": 1}, "names", "names must be true or false"),
    (near(topic="bus"), "topic", "there is no topic 'bus' here"),
    (near(topic="no name"), "topic", "'no name' is no name for a topic"),
    (near(topic=5), "topic", "topic must be a text, not 5"),
    (near(topic=None), "topic", "topic is missing"),
    (near(""), "id", "an id has 1 to 160 bytes here"),
    (near("m" * 161), "id", "an id has 1 to 160 bytes here"),
    (near("\ud800"), "id", "id holds half a character"),
    (near(radius_m=-5), "radius", "radius_m -5 is not more than 0"),
    (near(radius_m=0), "radius", "radius_m 0 is not more than 0"),
    (near(radius_m="500"), "radius_m", "radius_m must be a number, not '500'"),
    (near(radius_m=True), "radius_m", "radius_m must be a number, not True"),
    (near(radius_m=1e999), "number", "Infinity is not a number of JSON"),
    (near(radius_m=10**400), "radius_m", "radius_m must be a finite number"),
    (near(radius_m=60_000), "radius", "a scope of 60.0 km is wider than the 50.0 km allowed here"),
    (near(radius_m=None), "scope", "a scope is either a radius or a polygon"),
    (near(area=LINE), "area", "area: LineString needs width_m"),
    (near(area={"type": "Polygon"}), "area", "area: a Polygon's coordinates must be a list"),
    (near(area=7), "area", "area: GeoJSON must be an object"),
    (near(area=HALF_THE_PLANET), "radius", "is wider than the 50.0 km allowed here"),
    (near(where="seats >="), "where", "where: expected a value after '>=' at column 9"),
    (near(where=3), "where", "where must be a text, not 3"),
    (near(inside="yes"), "inside", "inside must be true or false, not 'yes'"),
    (near(dwell_s=-1), "dwell_s", "dwell_s -1 is not between"),
    (near(hysteresis_m=-1), "hysteresis_m", "hysteresis_m -1 is not between"),
    (near(ttl_s=0), "ttl", "ttl_s 0 is not more than 0"),
    (near(lat=90.1), "lat", "lat must be between -90 and 90, not 90.1"),
    (near(lon=181), "lon", "lon must be between -180 and 180, not 181.0"),
    (near(lat=None), "lat", "lat must be between -90 and 90, not nothing"),
    (near(metres=None, accuracy_m=1), "accuracy_m", "accuracy_m needs lat and lon"),
    (near(accuracy_m=-1), "accuracy_m", "accuracy_m -1 is below 0"),
    (near(time_us=1.5), "time_us", "time_us must be whole microseconds since 1970, not 1.5"),
    (near(time_us=250_000_000_000_000_000), "time_us", "more than 60 s ahead"),
    (near(radius=5), "field", "there is no field 'radius' here; known are accuracy_m, area"),
    (near(handle=-1), "handle", "handle must be a whole number from 0 to 1048575, not -1"),
    (near(handle=1 << 20), "handle", "handle must be a whole number from 0 to 1048575"),
    (near(handle=1), "handle", "handle 1 is used for the publication taxi-1 already"),
    (publish("taxi-2", values=[1]), "values", "values must be an object, not a list"),
    (publish("taxi-2", values={"a": [1]}), "values", "'a' must be a text, a number, true or false"),
    (publish("taxi-2", values={"a": None}), "values", "'a' must be a text, a number"),
    (publish("taxi-2", values={"a": "x" * 1001}), "values", "'a' has more than 1000 characters"),
    (publish("taxi-2", values={"a": 1 << 63}), "values", "'a' does not fit 64 bits"),
    (publish("taxi-2", values=dict.fromkeys(map(str, range(65)), 1)), "values", "65 values"),
    (publish("taxi-2", radius_m=6000), "radius", "a scope of 6.0 km is wider than the 5.0 km"),
    (publish("taxi-2", where="x"), "field", "there is no field 'where' here"),
    (move("unknown", 0), "id", "'unknown' was not declared on this connection"),
    ({"op": "move", "lat": LAT, "lon": LON}, "id", "id is missing"),
    ({"op": "move", "id": "taxi-1"}, "lat", "a move needs lat and lon"),
    ({"op": "move", "handle": 9, "lat": LAT, "lon": LON}, "handle", "handle 9 is not in use"),
    (move("both", 0), "side", "'both' is a publication and a subscription: say side"),
    (move("both", 0, side="left"), "side", "side must be publication or subscription"),
    (move("taxi-1", 0, side="subscription"), "id", "'taxi-1' was not declared"),
    ({"op": "withdraw", "id": "unknown"}, "id", "'unknown' was not declared"),
    ({"op": "ask", "topic": "taxi", "radius_m": 5}, "lat", "a query with a radius needs lat"),
    (near(op="ask", limit=0), "limit", "limit must be a whole number above 0, not 0"),
    (near(op="ask", radius_m=60_000), "radius", "wider than the 50.0 km allowed here"),
    (near(op="ask", area=HALF_THE_PLANET), "radius", "wider than the 50.0 km allowed here"),
    (near(op="ask", topic="bus"), "topic", "there is no topic 'bus' here"),
    (near(op="ask", where="seats <> 2"), "where", "where: "),
]


@in_loop
async def test_ops_that_cannot_be() -> None:
    rules = MatchingRules(topics=frozenset({"taxi"}))
    async with world(rules) as here, here.connect() as ann:
        await ann.ok(publish("taxi-1", 0, handle=1), publish("both"), near("both"))
        for text, reason, sentence in TEXTS:
            await ann.websocket.send(text)
            await _refused(ann, text, reason, sentence, None)
        for number, (op, reason, sentence) in enumerate(OPS):
            await ann.websocket.send(json.dumps({**op, "n": number}))
            known = None if reason == "number" else number
            await _refused(ann, str(op), reason, sentence, known)
        # None of them harmed the connection, or left anything.
        await ann.ok(move("both", 0, side="publication"), move("both", 0, side="subscription"))
        assert here.entities() == (2, 1)
        refused = [
            count
            for reason, count in here.gateway.statistics().dropped.items()
            if reason.startswith("gateway.refused-")
        ]
        assert sum(refused) == len(TEXTS) + len(OPS)


async def _refused(ann: Talk, said: str, reason: str, sentence: str, n: int | None) -> None:
    async with asyncio.timeout(5):
        while "event" in (answer := json.loads(await ann.hear())):
            pass
    assert sentence in answer["error"], said
    assert answer["reason"] == reason, said
    assert answer.get("n") == n, said


@in_loop
async def test_a_text_that_is_no_text() -> None:
    async with world() as here, here.connect() as ann, here.connect() as bob:
        await ann.websocket.send(b"\xff\xfe", text=True)
        await ann.websocket.wait_closed()
        assert ann.websocket.close_code == 1007
        await bob.ok({"op": "hello"})
        await until(lambda: here.count("gateway_connections") == 1)


@in_loop
async def test_a_connection_declares_so_much_and_no_more() -> None:
    async with world(max_entities=3) as here, here.connect() as ann, here.connect() as bob:
        await ann.ok(publish("taxi-1", ttl_s=0.05), publish("taxi-2", 0), near())
        await ann.ok(publish("taxi-2", 0))  # once more is not one more
        await until(lambda: here.entities()[0] == 1)
        await ann.ok(publish("taxi-3", 0))  # in place of what expired
        answer = await ann.say(publish("taxi-4", 0))
        assert answer == {"error": "a connection declares at most 3 things", "reason": "count"}
        await ann.ok({"op": "withdraw", "id": "taxi-3"}, publish("taxi-4", 0))
        await bob.ok(publish("taxi-5", 0))


@in_loop
async def test_the_handle_of_what_expired_is_free() -> None:
    async with world() as here, here.connect() as ann:
        await ann.ok(publish("taxi-1", ttl_s=0.05, handle=1))
        await until(lambda: here.entities()[0] == 0)
        await ann.ok(publish("taxi-2", handle=1), publish("taxi-1"))
        await ann.ok({"op": "move", "handle": 1, "lat": LAT, "lon": LON})
        # Another handle for the same: the first one is free.
        await ann.ok(publish("taxi-2", handle=2))
        answer = await ann.say({"op": "move", "handle": 1, "lat": LAT, "lon": LON})
        assert answer["error"] == "handle 1 is not in use"


@in_loop
async def test_handshakes_that_fail() -> None:
    async with world(max_connections=1) as here:
        base = f"ws://127.0.0.1:{here.gateway.port}"
        for path, offered, status in (
            ("/v1/other", None, 404),
            ("/v1/match", ["chat.v2"], 400),
        ):
            with pytest.raises(InvalidStatus) as caught:
                await connect(base + path, subprotocols=offered).__aenter__()  # type: ignore[arg-type]
            assert caught.value.response.status_code == status
        async with here.connect(BINARY) as ann:
            with pytest.raises(InvalidStatus) as caught:
                await connect(base + "/v1/match").__aenter__()
            assert caught.value.response.status_code == 503
            assert here.count("gateway_connections_refused") == 1
            await ann.ok({"op": "hello"})
        # There is room again.
        await until(lambda: here.count("gateway_connections") == 0)
        async with here.connect() as bob:
            await bob.ok({"op": "hello"})


@in_loop
async def test_bytes_that_are_no_websocket() -> None:
    impatient = {"ping_interval_s": 0.1, "ping_timeout_s": 0.1, "close_timeout_s": 0.2}
    async with world(**impatient) as here, here.connect() as ann:
        for junk in (b"\x00\x01\x02\x03" * 100, b"GET /v1/match HTTP/1.1\r\nUpgrade: websocket"):
            _, writer = await asyncio.open_connection("127.0.0.1", here.gateway.port)
            writer.write(junk)
            writer.close()
            await writer.wait_closed()
        await _shake_hands_then(here, b"\xff\xff\xff\xff")  # an opcode that is none
        await _shake_hands_then(here, None)  # gone without a word
        await _shake_hands_then(here, b"")  # not a word, nor a sign of life
        await ann.ok({"op": "hello"})


async def _shake_hands_then(here: World, data: bytes | None) -> None:
    before = here.count("gateway_connections")
    reader, writer = await asyncio.open_connection("127.0.0.1", here.gateway.port)
    writer.write(
        b"GET /v1/match HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert b"101" in await reader.readuntil(b"\r\n\r\n")
    await until(lambda: here.count("gateway_connections") == before + 1)
    if data is None:
        writer.transport.abort()
    else:
        writer.write(data)
        await asyncio.wait_for(reader.read(), 5)  # to the end
    await until(lambda: here.count("gateway_connections") == before)
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        pass


@in_loop
async def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        gateway = Gateway(Hub(MatchingRules()), GatewaySettings(port=port))
        with pytest.raises(
            AddressInUseError, match=f"TCP port {port} on 127.0.0.1, for the gateway"
        ):
            await gateway.start()
        await gateway.stop()


@in_loop
async def test_a_gateway_that_closes_says_so() -> None:
    hub = Hub(MatchingRules())
    gateway = Gateway(hub, GatewaySettings(port=0))
    await gateway.start()
    async with World(hub, gateway).connect() as ann:
        await ann.ok(publish("taxi-1", 0))
        stopping = asyncio.create_task(gateway.stop())
        await ann.websocket.wait_closed()
        assert ann.websocket.close_code == 1001
        await stopping
    assert hub.engine.statistics()["publications"] == 0


@in_loop
async def test_requests_that_do_not_go_on_are_cut_off_and_others_served() -> None:
    async with world(request_timeout_s=0.3) as there:
        port = there.gateway.port
        half = b"GET /v1/near?topic=taxi HTTP/1.1\r\nHost: x\r\n"
        whole = half + b"\r\n"
        post = b"POST /v1/near HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
        open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        for number, (_, writer) in enumerate(open_ones):
            writer.write((b"", half, post, whole + half)[number % 4])
        async with connect(f"ws://127.0.0.1:{port}/v1/match") as websocket:
            for number, (reader, writer) in enumerate(open_ones):
                said = await asyncio.wait_for(reader.read(), 5.0)
                assert (b" 408 " in said) == (number % 4 == 2)
                writer.close()
            await asyncio.sleep(0.4)  # longer than a request may take
            await websocket.ping()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b" 200 " in await asyncio.wait_for(reader.read(), 5.0)
            writer.close()
