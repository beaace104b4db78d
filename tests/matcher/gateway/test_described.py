"""The gateway's two descriptions are true: every path is there, every example is accepted."""

from __future__ import annotations

import json
from typing import Any

import httpx
from live import WAIT_S, in_loop
from matcher.gateway_client import BINARY, near, publish, world

from mercury.matcher.gateway import requests
from mercury.matcher.gateway.descriptions import ASYNCAPI, OPENAPI
from mercury.matcher.gateway.websocket import PATH
from mercury.wire.gateway_frames import EVENT_ROW, MOVE_ROW


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [one for value in node.values() for one in references(value)]
    return [one for value in node for one in references(value)] if isinstance(node, list) else []


def test_references_lead_somewhere() -> None:
    for document in (OPENAPI, ASYNCAPI):
        found = references(document)
        assert found
        for reference in found:
            node: Any = document
            for step in reference.removeprefix("#/").split("/"):
                node = node[step]


def documented() -> list[tuple[str, str, dict[str, Any], Any]]:
    """Every documented operation with each of its examples: method, path, parameters, body."""
    found = []
    for path, operations in OPENAPI["paths"].items():
        for method, operation in operations.items():
            parameters = {
                one["name"]: one["example"]
                for one in operation.get("parameters", [])
                if "example" in one
            }
            here = path.replace("{id}", str(parameters.pop("id", "")))
            content = operation.get("requestBody", {}).get("content", {})
            examples = content.get("application/json", {}).get("examples", {})
            for example in examples.values() or [{"value": None}]:
                found.append((method.upper(), here, parameters, example["value"]))
    return found


@in_loop
async def test_every_documented_request_is_accepted() -> None:
    async with (
        world() as here,
        httpx.AsyncClient(base_url=here.url, timeout=WAIT_S, trust_env=False) as http,
    ):
        seen = set()
        for method, path, parameters, body in documented():
            parameters = {
                name: json.dumps(value) if isinstance(value, bool) else value
                for name, value in parameters.items()
            }
            async with http.stream(method, path, params=parameters, json=body) as answer:
                assert answer.status_code in (200, 201), (method, path, body)
                answers = OPENAPI["paths"][_template(path)][method.lower()]["responses"]
                assert str(answer.status_code) in answers
                (kind,) = answers[str(answer.status_code)]["content"]
                assert answer.headers["content-type"].startswith(kind)
            seen.add((method, path))
        assert len(seen) == 9
        # And there is nothing that is not documented.
        served = {
            (method, route.path.replace(":path", ""))  # type: ignore[attr-defined]
            for route in here.gateway._pages.application().routes
            for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
        }
        described = {
            (method.upper(), path)
            for path, operations in OPENAPI["paths"].items()
            for method in operations
        }
        assert served == described
        for path, document in (("/openapi.json", OPENAPI), ("/asyncapi.json", ASYNCAPI)):
            assert (await http.get(path)).json() == document


def _template(path: str) -> str:
    return path.replace("/taxi-1", "/{id}")


@in_loop
async def test_every_documented_message_is_accepted() -> None:
    messages = ASYNCAPI["components"]["messages"]
    assert ASYNCAPI["channels"]["match"]["address"] == PATH
    async with world() as here, here.connect(BINARY) as ann:
        said = 0
        for reference in ASYNCAPI["operations"]["say"]["messages"]:
            name = reference["$ref"].rpartition("/")[2]
            for example in messages[name].get("examples", []):
                answer = await ann.say(example["payload"])
                assert answer["ok"] is True, (example, answer)
                assert answer.get("n") == example["payload"].get("n")
                said += 1
        assert said == 9


@in_loop
async def test_what_is_told_looks_as_documented() -> None:
    messages = ASYNCAPI["components"]["messages"]

    def example(name: str) -> Any:
        return messages[name]["examples"][0]["payload"]

    async with world() as here, here.connect() as ann:
        await ann.ok(near(), publish("taxi-1", 0, values={"seats": 4}))
        event = await ann.event()
        assert event.keys() == example("event").keys()
        assert event.keys() == messages["event"]["payload"]["properties"].keys()
        answer = await ann.say(near(radius_m=-5))
        assert answer == example("refusal")
        answer = await ann.say({"op": "hello", "n": 1})
        assert answer == example("answer")
        found = (await ann.say(near(op="ask")))["found"]
        assert (
            found[0].keys()
            == OPENAPI["components"]["schemas"]["NearbyPublication"]["properties"].keys()
        )
    async with world() as here, here.connect(BINARY) as bob:
        await bob.ok(near(handle=1), publish("taxi-1", 0, values={"seats": 4}))
        await bob.rows(1)
        (introduced,) = bob.names.values()
        expected = dict(example("publications")["publications"][0])
        del expected["number"]
        assert introduced == expected


def test_fields_are_those_that_are_read() -> None:
    messages = ASYNCAPI["components"]["messages"]

    def documented(name: str) -> set[str]:
        return set(messages[name]["payload"]["properties"]) - requests.FRAME

    assert documented("publish") == requests._PUBLICATION
    assert documented("near") == requests._NEAR
    assert documented("move") == requests._MOVE
    assert documented("ask") == requests._ASK - {"id"}
    schemas = OPENAPI["components"]["schemas"]
    assert set(schemas["Publication"]["properties"]) == requests._PUBLICATION - {"id"}
    assert set(schemas["Query"]["properties"]) == requests._ASK - {"id"}


def test_rows_have_the_sizes_of_the_protocol() -> None:
    assert (MOVE_ROW.itemsize, EVENT_ROW.itemsize) == (24, 32)
