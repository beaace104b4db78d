"""A wrong argument gets one sentence that names it and says what it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from live import HERE, connect, in_loop, live

import mercury
from mercury import ServiceEndpoint
from mercury.client.declaring import MatchStream, MovingPublication
from mercury.client.receipts import Receipts
from mercury.model.errors import ArgumentError, MercuryError, MessageError, RequestError
from mercury.model.message import Address

URI = "udp://127.0.0.1:7400"

WRONG: list[tuple[str, Callable[[mercury.Client], Any], str]] = [
    (
        "to",
        lambda car: car.tell(["a"], {}),
        "tell: to takes the name of a client, an Address, an Area, or None with within_m, "
        "not ['a']",
    ),
    ("to", lambda car: car.tell(7, {}), "not 7"),
    (
        "values",
        lambda car: car.tell("a", ["x"]),
        "values takes a mapping from texts to values, such as {'price': 1.5}, not ['x']",
    ),
    ("values", lambda car: car.tell("a", {1: 2}), "not {1: 2}"),
    ("values", lambda car: car.publish("fuel", None), "not None"),
    ("topic", lambda car: car.publish(7, {}), "publish: topic takes a text, not 7"),
    ("topic", lambda car: car.tell("a", {}, topic=b"x"), "topic takes a text, not b'x'"),
    ("topic", lambda car: car.subscribe(None), "not None"),
    ("topic", lambda car: car.near(7, radius_m=5.0), "near: topic takes a text"),
    ("topic", lambda car: car.ask_near(7), "ask_near: topic takes a text"),
    ("topic", lambda car: car.request(7, {}), "request: topic takes a text"),
    ("kind", lambda car: car.sense(7), "sense: kind takes a text, not 7"),
    (
        "kind",
        lambda car: car.on(print),
        "write `@client.on(Kind.ALERT)`, or `@client.on()` for all, not <built-in",
    ),
    (
        "policy",
        lambda car: car.tell("a", {}, policy="often"),
        "policy takes one of 'fire-and-forget', 'repeat', 'critical', not 'often'",
    ),
    ("policy", lambda car: car.sense("x", policy=1), "not 1"),
    (
        "priority",
        lambda car: car.tell("a", {}, priority="high"),
        "priority takes a whole number from 0 to 9, not 'high'",
    ),
    (
        "expires_in_s",
        lambda car: car.tell("a", {}, expires_in_s="2"),
        "expires_in_s takes a number of seconds from 0 to 1e9, not '2'",
    ),
    ("expires_in_s", lambda car: car.publish("a", {}, expires_in_s=-1), "not -1"),
    ("expires_in_s", lambda car: car.publish("a", {}, expires_in_s=float("nan")), "not nan"),
    (
        "ordered",
        lambda car: car.tell("a", {}, ordered="yes"),
        "ordered takes True or False, not 'yes'",
    ),
    (
        "within_m",
        lambda car: car.tell(None, {}, within_m="near"),
        "within_m takes a number, not 'near'",
    ),
    (
        "position",
        lambda car: car.publish("a", {}, position="here"),
        "position takes a Position or a pair (lat, lon), not 'here'",
    ),
    ("position", lambda car: car.sense("a", position=(1.0,)), "not (1.0,)"),
    (
        "place",
        lambda car: car.query("here"),
        "place takes an Area, a Position or a pair (lat, lon), not 'here'",
    ),
    ("radius_m", lambda car: car.query(HERE, "far"), "radius_m takes a number, not 'far'"),
    ("timeout_s", lambda car: car.echo("long"), "timeout_s takes a number of seconds"),
    ("timeout_s", lambda car: car.connected("long"), "timeout_s takes a number of seconds"),
    ("where", lambda car: car.subscribe("fuel", where=7), "where takes a text, not 7"),
    (
        "handler",
        lambda car: car.subscribe("fuel", handler="f"),
        "handler takes a function, not 'f'",
    ),
    (
        "limit",
        lambda car: car.ask_near("taxi", radius_m=5.0, limit=0),
        "limit takes a whole number above 0, not 0",
    ),
    (
        "polygon",
        lambda car: car.near("taxi", polygon="x"),
        "polygon takes a Polygon or its corners, not 'x'",
    ),
    (
        "groups",
        lambda car: car.join(7),
        "join: groups takes names of groups, such as ['blue'], not [7]",
    ),
    ("groups", lambda car: car.leave("blue", ""), "leave: groups takes names of groups"),
    ("lat", lambda car: car.move("40", -111.0), "move: lat takes a number, not '40'"),
    (
        "heading_deg",
        lambda car: car.move(40.0, -111.0, heading_deg="east"),
        "heading_deg takes a number",
    ),
    ("message", lambda car: car.taken(b"id"), "taken: message takes a Message, not b'id'"),
    ("message", lambda car: car.send("x"), "send: message takes a Message, not 'x'"),
    ("id", lambda car: car.why("01a1"), "why: id takes the id of a message, not '01a1'"),
]


async def given(call: Callable[[mercury.Client], Any], car: mercury.Client) -> None:
    result = call(car)
    if inspect.isawaitable(result):
        await result


@in_loop
async def test_wrong_arguments_of_a_client() -> None:
    async with live() as world:
        adapter = await world.adapter()
        async with connect(adapter, "car") as car:
            for argument, call, sentence in WRONG:
                with pytest.raises(ArgumentError) as caught:
                    await given(call, car)
                assert (caught.value.argument, sentence in str(caught.value)) == (argument, True), (
                    str(caught.value)
                )
                assert isinstance(caught.value, MercuryError)
                assert isinstance(caught.value, TypeError)
                assert "\n" not in str(caught.value)
            assert car.counters["sent"] == 0


def test_wrong_arguments_of_connect() -> None:
    with pytest.raises(ArgumentError, match="Client: identity takes a name of at .*, not 7"):
        mercury.connect(URI, identity=7)
    with pytest.raises(ArgumentError, match="identity takes a name of at most 128 bytes, not ''"):
        mercury.connect(URI, identity="")
    with pytest.raises(ArgumentError, match="identity takes a name of at most 128 bytes"):
        mercury.connect(URI, identity="x" * 129)
    with pytest.raises(ArgumentError, match="groups takes names of groups, .* not 'blue'"):
        mercury.connect(URI, identity="car", groups="blue")
    with pytest.raises(ArgumentError, match=r"not \[''\]: a name has 1 to 128 bytes"):
        mercury.connect(URI, identity="car", groups=[""])
    with pytest.raises(ArgumentError, match="position takes a Position or a pair"):
        mercury.connect(URI, identity="car", position=5)


@in_loop
async def test_wrong_arguments_of_a_service() -> None:
    with pytest.raises(ArgumentError, match="ServiceEndpoint: bus takes a Bus or its URI, not 7"):
        ServiceEndpoint(7, "x")
    async with live() as world:
        office = ServiceEndpoint(world.bus, "office")
        for call, sentence in (
            (lambda: office.alert(["a"]), "alert: to takes an Area, an Address, a Position"),
            (lambda: office.alert("everyone"), "not 'everyone'"),
            (lambda: office.alert(HERE, text=7), "text takes a text, not 7"),
            (lambda: office.alert(HERE, validity_s="long"), "validity_s takes a number of seconds"),
            (lambda: office.alert(HERE, policy="often"), "policy takes one of"),
            (lambda: office.publish("fuel", [1]), "values takes a mapping"),
            (lambda: office.why(7), "id takes the id of a message"),
            (lambda: anext(office.listen(7)), "listen: names takes names of topics on the bus"),
            (
                lambda: anext(office.listen("reports", start="x")),
                "listen: start takes 'latest', 'earliest' or a FromTime, not 'x'",
            ),
        ):  # fmt: skip
            with pytest.raises(ArgumentError) as caught:
                await call()
            assert sentence in str(caught.value)
        for to in (Address.broker(), Address.service("x"), Address.adapter("x")):
            with pytest.raises(MessageError, match="alerts are for clients, groups, areas or"):
                await office.alert(to)
        for kind in ("a b", ""):
            with pytest.raises(MessageError, match=f"{kind!r} is no name for an event kind"):
                await office.alert(HERE, kind=kind)
        with pytest.raises(ArgumentError, match="a name has 1 to 128 bytes"):
            await office.alert(Address.client("ü" * 65))


@in_loop
async def test_what_would_be_refused_is_refused_to_the_caller() -> None:
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        async with connect(adapter, "car") as car:
            for call in (
                lambda: car.publish("no topic", {}),
                lambda: car.tell("ben", {}, topic="no topic"),
                lambda: car.subscribe("no topic"),
            ):
                with pytest.raises(MessageError, match="'no topic' is no name for a topic"):
                    await call()
            with pytest.raises(MessageError, match="'a b' is no name for an event kind"):
                await car.sense("a b")
            with pytest.raises(MessageError, match="'moving.ask' is reserved"):
                await car.request("moving.ask", {})
            with pytest.raises(RequestError, match="no such request: 'sing'"):
                await car.request("sing", {})
            with pytest.raises(MessageError, match="'a' is no text, number, True, False or bytes"):
                await car.publish("fuel", {"a": {}})
            with pytest.raises(MessageError, match="car cannot tell itself"):
                await car.tell("car", {})
            with pytest.raises(MessageError, match="a priority up to 7"):
                await car.tell("ben", {}, priority=9)
            for to in ("x" * 129, Address.client("x" * 5000)):
                with pytest.raises(MessageError) as too_long:
                    await car.tell(to, {})
                assert str(too_long.value).startswith("tell: to takes the name of a client")
                assert str(too_long.value).endswith("…: a name has 1 to 128 bytes")
            for to in (Address.everyone(), Address.broker(), Address.service("x")):
                with pytest.raises(MessageError, match="tells clients, groups and areas, not"):
                    await car.tell(to, {})
            assert adapter.dropped == {}


def test_no_public_method_that_takes_something_is_forgotten() -> None:
    # Between the client's own parts; `listen` checks while it is iterated over.
    inside = {"ask", "confirm", "regroup", "forget", "say_again", "run", "listen"}
    for public in (mercury.Client, ServiceEndpoint):
        for name, method in inspect.getmembers(public, inspect.isfunction):
            takes = len(inspect.signature(method).parameters) > 1
            if takes and not name.startswith("_") and name not in inside:
                assert hasattr(method, "__wrapped__"), name
    for method in (Receipts.settled, MatchStream.declared, MovingPublication.update):
        assert hasattr(method, "__wrapped__"), method
