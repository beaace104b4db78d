"""Both cores together over a network that drops, duplicates, delays and reorders."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from session.world import World, address_of

from mercury.net import Blackout, LinkSettings
from mercury.session import Closed, Lost, Opened, SessionSettings, SessionState
from mercury.testing import HostileNetwork

SETTINGS = SessionSettings(init_retry_max_s=2.0)
# Bad enough that handshakes fail often, good enough that three reports in a row seldom do.
STORM = {"deliver": 0.7, "drop": 0.1, "duplicate": 0.1, "delay": 0.1}


def storm(seed: int, **more: float) -> HostileNetwork[bytes]:
    return HostileNetwork(seed, **{**STORM, **more})


def connected(world: World) -> list[bool]:
    return [
        client.state is SessionState.ESTABLISHED and client.token in world.adapter.table.by_token
        for client in world.clients
    ]


@pytest.mark.parametrize("seed", range(20))
def test_everyone_connects_through_a_storm(seed: int) -> None:
    world = World(100, storm(seed), replace(SETTINGS, report_interval_s=60.0))
    world.start()
    world.run(until=20.0)
    assert all(connected(world)), world.network
    assert len(world.adapter.table) == 100
    for client in world.clients:
        session = world.adapter.table.by_identity[client.identity]
        assert session.token == client.token
        assert session.incarnation == client.incarnation
    world.validate()


def test_a_session_is_opened_once_however_often_init_is_repeated() -> None:
    world = World(500, storm(7, drop=0.0, duplicate=0.8, deliver=0.1), SETTINGS)
    world.start()
    world.run(until=5.0)
    opened = Counter(event.session.identity for event in world.events if isinstance(event, Opened))
    assert set(opened.values()) == {1}, world.network
    assert world.adapter.dropped["repeated-init"] > 0
    world.validate()


@pytest.mark.parametrize("seed", range(5))
def test_sessions_live_through_minutes_of_storm(seed: int) -> None:
    world = World(20, storm(seed, max_delay_s=0.5), SETTINGS)
    world.start()
    world.run(until=120.0)
    # Losing three of three reports (p = 0.001) ends a session now and then: it must come back.
    assert sum(connected(world)) >= 18, world.network
    world.network.shares.update(deliver=1.0, drop=0.0, duplicate=0.0, delay=0.0)
    world.run(until=160.0)
    assert all(connected(world)), world.network
    world.validate()


def test_damaged_packets_are_counted_and_do_no_harm() -> None:
    world = World(50, storm(3, corrupt=0.3), SETTINGS)
    world.start()
    world.run(until=60.0)
    assert world.network.statistics.corrupted > 500
    reasons = world.adapter.dropped
    assert reasons["truncated"] > 0
    assert reasons["not-mercury"] > 0
    assert sum(connected(world)) >= 40, world.network
    world.validate()


def test_a_client_keeps_its_session_when_its_address_changes() -> None:
    world = World(10, storm(11), SETTINGS)
    world.start()
    world.run(until=20.0)
    tokens = [client.token for client in world.clients]
    for number in range(10):
        world.rebind(number, address_of(1000 + number))
    world.run(until=23.0)
    same = 0
    for number, client in enumerate(world.clients):
        session = world.adapter.table.by_identity[client.identity]
        assert session.address == address_of(1000 + number), world.network
        same += client.token == tokens[number]
    assert same >= 9  # one may have been pruned by the storm in between
    assert world.adapter.address_changes >= 9
    world.validate()


def test_clients_return_after_the_adapter_restarted() -> None:
    world = World(50, storm(5), SETTINGS)
    world.start()
    world.run(until=20.0)
    world.restart_adapter()
    world.run(until=30.0)
    assert sum(connected(world)) >= 49, world.network
    assert world.adapter.dropped["unknown-session"] > 0
    world.validate()


def test_a_blackout_prunes_and_heals() -> None:
    world = World(10, HostileNetwork(1, deliver=1, drop=0, duplicate=0, delay=0), SETTINGS)
    world.start()
    world.run(until=5.0)
    world.events.clear()
    lost = world.addresses[3]
    world.network.cut(lost)
    world.run(until=25.0)
    assert [(type(event), event.session.identity) for event in world.events
            if isinstance(event, Closed)] == [(Closed, "car-3")]  # fmt: skip
    assert world.clients[3].state is SessionState.CONNECTING
    assert Lost("silent") in world.clients[3].events
    world.network.heal(lost)
    world.run(until=40.0)
    assert all(connected(world))
    world.validate()


def test_thousands_of_handshakes_take_little_time() -> None:
    world = World(3000, storm(2), replace(SETTINGS, report_interval_s=600.0))
    world.start()
    world.run(until=30.0)
    assert all(connected(world)), world.network
    assert world.network.statistics.sent > 6000
    world.validate()


@pytest.mark.parametrize("seed", range(5))
def test_sessions_come_back_after_a_blackout_of_a_lossy_link(seed: int) -> None:
    link = LinkSettings(
        loss=0.1, delay_s=0.1, jitter_s=0.2, duplicate=0.1, blackouts=(Blackout(20.0, 30.0),)
    )
    world = World(50, HostileNetwork(seed, link=link), SETTINGS)
    world.start()
    world.run(until=19.0)
    assert sum(connected(world)) >= 48, world.network
    world.run(until=49.0)
    assert not any(connected(world)), world.network
    world.run(until=80.0)
    assert sum(connected(world)) >= 48, world.network
    world.validate()
