"""What a client that was away gets when it comes back: what still holds, once, urgent first."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest
from live import FAR, HERE, NEAR, Live, connect, in_loop, live, until

from mercury.adapter.kept_alerts import EVERYONE, AddressedAlert, MissedAlerts, To
from mercury.model import topics
from mercury.model.area import Area, Circle
from mercury.model.message import Address, Event, Kind, Message, Priority
from mercury.session import SessionSettings

QUICK = SessionSettings(init_retry_s=0.05, init_retry_max_s=0.1)


CAR = ("client", "car")
ROLES = [EVERYONE, CAR, ("group", "blue")]


def kept(id: int, to: To = CAR, priority: int = 5, until_us: int = 100) -> AddressedAlert:
    return AddressedAlert(b"%d" % id, to, priority, until_us)


def ids(alerts: list[AddressedAlert]) -> list[int]:
    return [int(alert.id) for alert in alerts]


def test_what_is_owed_comes_urgent_first() -> None:
    missed = MissedAlerts()
    other, blue, red = ("client", "other"), ("group", "blue"), ("group", "red")
    for alert in (
        kept(1),
        kept(2, EVERYONE, 9),
        kept(3, other),
        kept(4, priority=7),
        kept(5),
        kept(6, blue, 8),
        kept(7, red),
    ):
        assert missed.add(alert)
    assert ids(missed.owed_to(ROLES, (), 0)) == [2, 6, 4, 1, 5]
    assert ids(missed.owed_to(ROLES, {b"2", b"1"}, 0)) == [6, 4, 5]
    assert ids(missed.owed_to([EVERYONE, ("client", "stranger")], (), 0)) == [2]


def test_an_alert_is_kept_once() -> None:
    missed = MissedAlerts()
    assert missed.add(kept(1))
    assert not missed.add(kept(1))
    assert len(missed) == 1


def test_what_is_over_is_not_owed_and_what_is_done_is_forgotten() -> None:
    missed = MissedAlerts()
    missed.add(kept(1, until_us=10))
    missed.add(kept(2, EVERYONE, until_us=20))
    assert ids(missed.owed_to(ROLES, (), 10)) == [2]
    missed.done(b"1")
    missed.done(b"1")
    assert len(missed) == 1
    missed.done(b"2")
    assert len(missed) == 0
    assert missed._ids_of == {}
    assert not missed.add(kept(2, EVERYONE, until_us=20))  # a broker repeats its work


def tell(
    world: Live, to: Address | Area, text: str, priority: int, valid_s: float = 60.0
) -> Message:
    until_us = time.time_ns() // 1000 + int(valid_s * 1e6)
    return world.append(
        topics.alerts_topic(priority),
        Message(
            kind=Kind.ALERT,
            source=Address.service("office"),
            destination=Address.to_area(to) if isinstance(to, Area) else to,
            priority=priority,
            expires_us=until_us,
            payload=Event("emergency", HERE, text=text),
        ),
    )


@pytest.fixture(params=["memory", "embedded", "kafka"])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URI of a fresh bus of each kind."""
    if request.param == "kafka":
        return f"{request.getfixturevalue('kafka_broker').uri}/{uuid.uuid4().hex}"
    return f"memory:{uuid.uuid4().hex}" if request.param == "memory" else f"embedded:{tmp_path}/bus"


def test_a_client_gets_what_it_missed_while_its_adapter_was_down(
    bus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Kafka answers more slowly than a poll waits, as on a busy machine.
    monkeypatch.setattr("mercury.bus.kafka.consumer.POLL_S", 0.001)

    @in_loop
    async def scenario() -> None:
        async with live(bus) as world:
            adapter = await world.adapter(session=QUICK)
            port = adapter.port
            async with connect(adapter, "car", NEAR, settings=QUICK) as client:
                heard: list[str] = []
                client.on(Kind.ALERT)(lambda message: heard.append(message.event.text))
                tell(world, Address.everyone(), "before", Priority.WARNING)
                tell(world, Area(Circle(HERE, 500.0)), "stands", Priority.WARNING)
                await until(lambda: len(heard) == 2)
                await world.stop(adapter)
                tell(world, Address.client("car"), "for you", Priority.BACKGROUND)
                tell(world, Area(Circle(HERE, 500.0)), "here", Priority.NORMAL)
                tell(world, Address.client("other"), "for another", Priority.EMERGENCY)
                tell(world, Address.everyone(), "too late", Priority.WARNING, valid_s=-1.0)
                tell(world, Address.everyone(), "for all", Priority.WARNING)
                tell(world, Area(Circle(HERE, 500.0)), "too late here", Priority.WARNING, -1.0)
                tell(world, Area(Circle(FAR, 500.0)), "elsewhere", Priority.EMERGENCY)
                tell(world, Area(Circle(HERE, 500.0)), "urgent", Priority.EMERGENCY)
                again = await world.adapter(session=QUICK, port=port)
                await until(lambda: len(heard) == 6)
                assert heard[2:] == ["urgent", "for all", "here", "for you"]
                # What comes live now comes after everything that was owed.
                tell(world, Address.client("car"), "later", Priority.BACKGROUND)
                await until(lambda: len(heard) == 7)
                assert heard[6:] == ["later"]
                assert client.session.sessions_opened == 2
                # Nor were they sent again, to be dropped by the client.
                assert client.dropped.get("repeated", 0) == 0
                assert again.counters["alerts_on_return"] == 2

    scenario()
