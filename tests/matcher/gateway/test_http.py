"""The gateway over HTTP: asking, streaming, declaring."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from live import WAIT_S, in_loop, until
from matcher.gateway_client import LAT, LON, METRE, World, near, publish, world

from mercury.bus import open_bus
from mercury.config import GatewaySettings, MatcherSettings
from mercury.matcher.gateway import pages
from mercury.matcher.service import Matcher, SharedMatcher
from mercury.matching import MatchingRules
from mercury.model.errors import BusFullError
from mercury.model.matching import Publication

SQUARE = {
    "type": "Polygon",
    "coordinates": [[[24.93, 60.16], [24.96, 60.16], [24.96, 60.18], [24.93, 60.18]]],
}
HERE = {"topic": "taxi", "lat": LAT, "lon": LON}


def client(here: World) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=here.url, timeout=WAIT_S, trust_env=False)


async def put(http: httpx.AsyncClient, name: str, metres: float, **more: Any) -> httpx.Response:
    body = {**HERE, "lat": LAT + metres * METRE, **more}
    return await http.put(f"/v1/publications/{name}", json=body)


@in_loop
async def test_declaring_asking_withdrawing() -> None:
    async with world(max_found=4) as here, client(here) as http:
        for i in range(6):
            answer = await put(http, f"taxi-{i}", 10 * i, values={"seats": i})
            assert (answer.status_code, answer.json()) == (201, {"ok": True})
        assert (await put(http, "taxi-5", 35, values={"seats": 5})).status_code == 200
        question = {**HERE, "radius_m": 45, "where": "seats >= 2"}
        by_address = await http.get("/v1/near", params={**question, "limit": "3"})
        by_body = await http.post("/v1/near", json={**question, "limit": 3})
        assert by_address.json() == by_body.json()
        found = by_address.json()["found"]
        assert [one["publication"] for one in found] == ["taxi-2", "taxi-3", "taxi-5"]
        assert found[0]["distance_m"] == pytest.approx(20, rel=0.01)
        assert found[0]["values"] == {"seats": 2}
        # Without a limit as many as the gateway gives; and of an area.
        wide = await http.get("/v1/near", params={**HERE, "radius_m": 500})
        assert len(wide.json()["found"]) == 4
        area = await http.get("/v1/near", params={"topic": "taxi", "area": json.dumps(SQUARE)})
        assert len(area.json()["found"]) == 4
        assert (await http.delete("/v1/publications/taxi-2")).json() == {"ok": True}
        gone = await http.delete("/v1/publications/taxi-2")
        assert gone.status_code == 404
        assert gone.json() == {"error": "there is no publication 'taxi-2'", "reason": "unknown"}
        assert here.entities() == (5, 0)
        assert here.count("gateway_requests") == 13


@in_loop
async def test_what_is_put_is_told_at_websockets_and_lives_by_its_time() -> None:
    async with world() as here, client(here) as http, here.connect() as ann:
        await ann.ok(near())
        await put(http, "a/b c", 0, ttl_s=0.3, accuracy_m=5, radius_m=3)
        told = await ann.event()
        assert (told["event"], told["publication"]) == ("enter", "a/b c")
        assert (await ann.event())["reason"] == "expired"


@in_loop
async def test_what_is_taken_over_outlives_its_first_owner() -> None:
    async with world() as here, client(here) as http:
        async with here.connect() as cab:
            await cab.ok(publish("taxi-1", 0), publish("taxi-2", 0))
            assert (await put(http, "taxi-1", 0)).status_code == 200
        await until(lambda: here.entities() == (1, 0))
        found = (await http.get("/v1/near", params={**HERE, "radius_m": 5})).json()["found"]
        assert [one["publication"] for one in found] == ["taxi-1"]


@in_loop
async def test_topics_and_health() -> None:
    async with world() as here, client(here) as http, here.connect() as ann:
        await ann.ok(near(), near("bus", topic="bus"), publish("taxi-1"), publish("taxi-2"))
        assert (await http.get("/v1/topics")).json() == {
            "topics": [
                {"topic": "bus", "publications": 0, "subscriptions": 1},
                {"topic": "taxi", "publications": 2, "subscriptions": 1},
            ]
        }
        health = (await http.get("/healthz")).json()
        assert health["status"] == "ok"
        assert (health["publications"], health["gateway_connections"]) == (2, 1)


@in_loop
@pytest.mark.parametrize("shared", [False, True])
async def test_health_is_that_of_the_matcher(shared: bool) -> None:
    bus = open_bus("memory:")
    kind = SharedMatcher if shared else Matcher
    matcher = kind(bus, MatcherSettings(), GatewaySettings(port=0))
    await matcher.start()
    assert matcher.gateway is not None
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as http:
        url = f"http://127.0.0.1:{matcher.gateway.port}/healthz"
        assert (await http.get(url)).status_code == 200
        matcher.bus_failed(BusFullError("no space is left"))
        answer = await http.get(url)
    assert (answer.status_code, answer.json()["status"]) == (503, "failing")
    assert answer.json()["reason"] == "the bus does not take what is appended: no space is left"
    await matcher.stop()
    bus.close()


REFUSED: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("/v1/near", {"radius_m": 5}, 400, "topic", "topic is missing"),
    ("/v1/near", {**HERE, "radius_m": "wide"}, 400, "radius_m", "radius_m must be a number"),
    ("/v1/near", {**HERE, "radius_m": "nan"}, 400, "radius_m", "radius_m must be a finite number"),
    ("/v1/near", {**HERE, "radius_m": "-1"}, 400, "radius", "radius_m -1 is not more than 0"),
    ("/v1/near", {**HERE, "radius_m": "99999"}, 400, "radius", "wider than the 50.0 km allowed"),
    ("/v1/near", {**HERE, "radius_m": 5, "limit": "2.5"}, 400, "limit", "limit must be a whole"),
    ("/v1/near", {**HERE, "radius_m": 5, "where": "a ="}, 400, "where", "at column 3"),
    ("/v1/near", {**HERE, "area": "{"}, 400, "json", "not JSON"),
    ("/v1/near", {**HERE, "radius": 5}, 400, "field", "there is no field 'radius' here"),
    ("/v1/near/stream", {"topic": "taxi", "radius_m": 5}, 400, "lat", "needs lat and lon"),
    ("/v1/near/stream", {**HERE, "radius_m": 5, "inside": 1}, 400, "inside", "true or false"),
    ("/v1/near/stream", {**HERE, "radius_m": 5, "id": "i" * 161}, 400, "id", "1 to 160 bytes"),
    ("/v1/nearby", {}, 404, "unknown", "Not Found"),
    ("/v1/publications/taxi-1", {}, 405, "method", "Method Not Allowed"),
]


@in_loop
async def test_requests_that_cannot_be() -> None:
    async with world(max_text_bytes=2000) as here, client(here) as http:
        for path, parameters, status, reason, sentence in REFUSED:
            answer = await http.get(path, params=parameters)
            assert (answer.status_code, answer.json()["reason"]) == (status, reason), parameters
            assert sentence in answer.json()["error"]
        for body, status, reason in (
            (b"{", 400, "json"),
            (b"[]", 400, "json"),
            (b"\xff\xfe\x00", 400, "json"),
            (b'{"topic":"taxi","lat":NaN}', 400, "number"),
            (b'{"topic":"taxi","id":"taxi-2"}', 400, "id"),
            (b'{"topic":"taxi","pad":"' + b"x" * 3000 + b'"}', 413, "size"),
        ):
            answer = await http.put("/v1/publications/taxi-1", content=body)
            assert (answer.status_code, answer.json()["reason"]) == (status, reason), body
        assert here.entities() == (0, 0)


@asynccontextmanager
async def streaming(
    http: httpx.AsyncClient, **parameters: Any
) -> AsyncIterator[AsyncIterator[str]]:
    async with http.stream("GET", "/v1/near/stream", params=parameters) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        assert await anext(lines) == ": subscribed"
        yield lines


async def next_event(lines: AsyncIterator[str]) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_S):
        kind = ""
        async for line in lines:
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                event: dict[str, Any] = json.loads(line.removeprefix("data: "))
                assert event.get("event", "error") == kind
                return event
    raise AssertionError("the stream has ended")


@in_loop
async def test_a_stream_tells_what_comes_and_goes() -> None:
    async with world(MatchingRules(ttl_s=0.2)) as here, client(here) as http:
        subscription = {
            **HERE,
            "radius_m": 100,
            "where": "seats > 1",
            "inside": "true",
            "id": "corner",
        }
        async with streaming(http, **subscription) as lines:
            here.let_pass(0.4)  # longer than things live that do not say how long
            for metres in (0, 10, 500):
                await put(http, "taxi-1", metres, values={"seats": 2}, ttl_s=60)
            told = [await next_event(lines) for _ in range(3)]
            assert [one["event"] for one in told] == ["enter", "inside", "exit"]
            assert {one["subscription"] for one in told} == {"corner"}
            assert here.count("gateway_streams") == 1
        await until(lambda: here.count("gateway_streams") == 0)
        await until(lambda: here.entities() == (1, 0))


@in_loop
async def test_a_stream_of_an_area_and_of_two_readers() -> None:
    async with (
        world() as here,
        client(here) as http,
        streaming(http, topic="taxi", area=json.dumps(SQUARE)) as one,
        streaming(http, **HERE, radius_m=100) as two,
    ):
        await put(http, "taxi-1", 0)
        assert (await next_event(one))["publication"] == "taxi-1"
        assert (await next_event(two))["publication"] == "taxi-1"


@in_loop
async def test_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SIGN_OF_LIFE_S", 0.05)
    marks = {"low_mark_bytes": 1024, "high_mark_bytes": 3000}
    async with world(max_connections=1, **marks) as here, client(here) as http:
        async with streaming(http, **HERE, radius_m=100) as lines:
            full = await http.get("/v1/near/stream", params={**HERE, "radius_m": 5})
            assert (full.status_code, full.json()["reason"]) == (503, "full")
            async with asyncio.timeout(WAIT_S):
                while await anext(lines) != ": alive":
                    pass
            # More than it may hold before its reader has a turn, twice.
            for start in (0, 100):
                for i in range(start, start + 100):
                    ref = here.hub.publish(Publication(f"taxi-{i}", "taxi"))
                    here.hub.move_one(ref, LAT, LON)
                here.hub.flush()
            error = {"event": "enter"}
            while "error" not in error:
                error = await next_event(lines)
            assert error == {"error": "too much waits to be read", "reason": "slow"}
            assert here.count("gateway_connections_too_slow") == 1
        assert here.count("gateway_streams") == 0


@in_loop
async def test_streams_end_with_the_gateway() -> None:
    async with world() as here, client(here) as http:
        async with streaming(http, **HERE, radius_m=100) as lines:
            stopping = asyncio.create_task(here.gateway.stop())
            async with asyncio.timeout(WAIT_S):
                assert [line async for line in lines if line] == []
            await stopping
        assert here.entities() == (0, 0)
