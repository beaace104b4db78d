"""Gateways over real sockets: between communities over lossy links, and into Mercury."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from live import HERE, NEAR, connect, in_loop, live, until
from moos.loopback import Community, LossyLink

from mercury.model.errors import AddressInUseError, ConfigurationError
from mercury.model.message import Address
from mercury.moos import MoosService
from mercury.moos.settings import BridgeSettings, Endpoint
from mercury.moos.text_forms import NodeMessage, read_node_message, write_node_message

NAMES = ("abe", "ben", "cal")
FREE_PORT = Endpoint("127.0.0.1", 0)


class Vehicles:
    """A service and a community each, and a lossy link from each to each."""

    def __init__(self, seed: int) -> None:
        self.communities = {name: Community(name) for name in NAMES}
        self.services: dict[str, MoosService] = {}
        self.links = {
            (source, mate): LossyLink(seed * 100 + number)
            for number, (source, mate) in enumerate(
                (source, mate) for source in NAMES for mate in NAMES if source != mate
            )
        }

    async def start(self, name: str, **given: Any) -> MoosService:
        service = MoosService(
            BridgeSettings(
                name=name,
                community=name,
                listen=FREE_PORT,
                local=self.communities[name].address,
                routes={
                    mate: link.address
                    for (source, mate), link in self.links.items()
                    if source == name
                },
                resend_thresh_s=0.05,
                **given,
            ),
            seed=1,
        )
        await service.open()
        self.services[name] = service
        for (_, mate), link in self.links.items():
            if mate == name:
                link.to_port = service.port
        return service

    def say(self, message: NodeMessage) -> None:
        name = message.src_node
        text = write_node_message(message)
        self.communities[name].share("NODE_MESSAGE_LOCAL", text, self.services[name].port)

    def waiting(self) -> int:
        reports = [service.report() for service in self.services.values()]
        return sum(row.waiting for report in reports for row in report.peers)

    async def close(self) -> None:
        for service in self.services.values():
            await service.close()
        for link in self.links.values():
            link.close()
        for community in self.communities.values():
            community.close()


@contextlib.asynccontextmanager
async def vehicles(seed: int) -> AsyncIterator[Vehicles]:
    world = Vehicles(seed)
    try:
        yield world
    finally:
        await world.close()


@pytest.mark.parametrize("seed", [1, 2])
@in_loop
async def test_three_vehicles_over_lossy_links(seed: int) -> None:
    async with vehicles(seed) as world:
        for name in NAMES:
            await world.start(name, max_tries=40, no_ack_vars=frozenset({"STATUS"}))
        wanted: dict[str, Counter[str]] = {name: Counter() for name in NAMES}
        for number in range(20):
            for name in NAMES:
                world.say(NodeMessage(name, ("all",), "BID", f"{number}, of {name}"))
                world.say(NodeMessage(name, ("all",), "STATUS", double_val=float(number)))
                for mate in set(NAMES) - {name}:
                    copy = NodeMessage(name, (mate,), "BID", f"{number}, of {name}")
                    wanted[mate][write_node_message(copy)] += 1
            await until(
                lambda sent=(number + 1) * 3 * 2 * 2: (
                    sum(one.report().sent for one in world.services.values()) == sent
                )
            )
        await until(lambda: not world.waiting())
        await until(
            lambda: all(
                Counter(
                    {
                        text: count
                        for text, count in world.communities[name].texts().items()
                        if read_node_message(text).var_name == "BID"
                    }
                )
                == wanted[name]
                for name in NAMES
            )
        )
        lost = sum(link.lost for link in world.links.values())
        assert lost > 50  # the links were as bad as they should be
        for name in NAMES:
            statuses = [
                count
                for text, count in world.communities[name].texts().items()
                if "var_name=STATUS" in text
            ]
            assert set(statuses) == {1}
            assert len(statuses) < 40  # lost for good
            report = world.services[name].report()
            rows = {row.topic: row for row in report.topics}
            assert (rows["STATUS"].sent, rows["STATUS"].resent) == (40, 0)
            assert rows["BID"].resent > 0
            assert [row.dropped for row in report.peers] == [0, 0]
            assert not world.services[name].bridge.bad
            assert report.acks[0].acks_resent > 0


@in_loop
async def test_only_who_did_not_acknowledge_gets_it_again_and_is_given_up() -> None:
    async with vehicles(3) as world:
        abe = await world.start("abe", max_tries=3)
        await world.start("ben", max_tries=3)
        to_ben, back = world.links["abe", "ben"], world.links["ben", "abe"]
        to_ben._drop = back._drop = to_ben._duplicate = back._duplicate = 0.0  # cal is not there
        world.say(NodeMessage("abe", ("ben", "cal"), "BID", "1"))
        await until(lambda: abe.report().sent == 2)
        await until(lambda: not world.waiting())
        rows = {row.peer: row for row in abe.report().peers}
        assert (rows["ben"].sent, rows["ben"].resent, rows["ben"].dropped) == (1, 0, 0)
        assert (rows["cal"].sent, rows["cal"].resent, rows["cal"].dropped) == (1, 3, 1)
        assert [packet.key for packet in to_ben.passed] == ["MEDIATED_MESSAGE"]
        assert world.communities["ben"].posted[0].community == "ben"


@in_loop
async def test_a_restart_of_a_bridge_repeats_no_id() -> None:
    async with vehicles(4) as world:
        await world.start("ben")
        for link in world.links.values():
            link._drop = link._duplicate = 0.0
        for _ in range(2):
            abe = await world.start("abe")
            world.say(NodeMessage("abe", ("ben",), "RETURN", "true"))
            await until(lambda abe=abe: abe.report().acknowledged == 1)
            await abe.close()
        [(_, count)] = world.communities["ben"].texts().items()
        assert count == 2


@in_loop
async def test_a_taken_port_and_an_unknown_host_are_clear_errors() -> None:
    async with vehicles(5) as world:
        abe = await world.start("abe")
        taken = BridgeSettings(
            "abe", "abe", Endpoint("127.0.0.1", abe.port), Endpoint("127.0.0.1", 9)
        )
        with pytest.raises(AddressInUseError, match=r"in use"):
            await MoosService(taken).open()
        lost = BridgeSettings(
            "abe", "abe", FREE_PORT, FREE_PORT, {"ben": Endpoint("no-such-host.invalid", 9)}
        )
        with pytest.raises(ConfigurationError, match=r"cannot find the address of host"):
            await MoosService(lost).open()


REPORT = "NAME={},X=1,Y=2,SPD=1.5,HDG=90,LAT={},LON={},TIME=1"


@in_loop
async def test_positions_go_up_and_alerts_and_messages_come_down() -> None:
    """Places go up, alerts come down, and vehicles without a common route hear each other."""
    communities = {name: Community(name) for name in ("abe", "ben")}
    async with live() as world:
        adapter = await world.adapter()
        await world.broker()
        services = {
            name: MoosService(
                BridgeSettings(
                    name.capitalize(),
                    name,
                    FREE_PORT,
                    community.address,
                    mates=("ben",) if name == "abe" else (),
                    group="blue" if name == "abe" else None,
                ),
                adapter=f"udp://127.0.0.1:{adapter.port}",
                position=HERE if name == "ben" else None,
            )
            for name, community in communities.items()
        }
        for service in services.values():
            await service.open()
        abe, ben = services["abe"], services["ben"]
        assert abe.uplink is not None
        assert ben.uplink is not None
        assert not abe.uplink.connected  # it does not know yet where it is
        report = REPORT.format("abe", NEAR.lat, NEAR.lon)
        communities["abe"].share("NODE_REPORT_LOCAL", report, abe.port)
        await until(lambda: abe.uplink and abe.uplink.connected and ben.uplink.connected)
        client = abe.uplink._client
        assert client is not None
        assert client.position == NEAR
        communities["abe"].share(
            "NODE_REPORT_LOCAL", REPORT.format("abe", HERE.lat, HERE.lon), abe.port
        )
        await until(lambda: client.position == HERE)
        assert client.session.telemetry is not None
        assert client.session.telemetry.heading_deg == 90.0

        text = 'src_node=abe,dest_node=ben,var_name=SAY,string_val="é, {",string_val_quoted=true'
        communities["abe"].share("NODE_MESSAGE_LOCAL", text, abe.port)
        await until(lambda: communities["ben"].texts())
        assert communities["ben"].texts() == {text: 1}
        await until(lambda: abe.report().acknowledged == 1)

        async with connect(adapter, "witness", HERE) as witness:
            # Through Mercury nobody speaks in the name of our own community.
            forged = {"key": "NODE_MESSAGE_LOCAL", "text": text.encode()}
            await witness.tell("abe", forged, topic="moos")
            await witness.tell("abe", {"key": "ACK_MESSAGE", "text": "no bytes"}, topic="moos")
            await until(lambda: abe.bridge.dropped.get("unknown-variable"))
            await until(lambda: abe.uplink and abe.uplink.counters["not-a-posting"] == 1)
            assert abe.report().sent == 1
            await witness.tell(Address.group("blue"), {"x": b"\0", "y": 1.5}, topic="wind")
            await until(lambda: communities["abe"].texts("MERCURY_MESSAGE"))
            assert not communities["ben"].texts("MERCURY_MESSAGE")
            await witness.sense("emergency", text="Collision, two boats")
            await until(lambda: all(c.texts("MERCURY_ALERT") for c in communities.values()))
        [news] = communities["abe"].texts("MERCURY_MESSAGE")
        said = json.loads(news)
        assert (said["topic"], said["source"]) == ("wind", "client:witness")
        assert said["values"] == {"x": "AA==", "y": 1.5}
        [alert] = communities["abe"].texts("MERCURY_ALERT")
        found = json.loads(alert)
        assert (found["kind"], found["text"]) == ("emergency", "Collision, two boats")
        assert found["lat"] == pytest.approx(HERE.lat)
        assert found["area"]["properties"]["radius_m"] >= 500.0
        for service in services.values():
            await service.close()
    for community in communities.values():
        community.close()
