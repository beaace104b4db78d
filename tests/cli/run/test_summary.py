"""The sentences at the end of a run: the ledger, and why a vehicle was not told."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mercury.bus import open_bus
from mercury.cli.run.summary import ledger_sentence, sentences, why_missed
from mercury.config import load_settings
from mercury.model.area import Area, Circle, Position
from mercury.model.delivery import Deliveries, Delivery, DeliveryState
from mercury.model.message import Address, Event, Kind, Message, Telemetry
from mercury.service import now_us
from mercury.wire import encode
from mercury.wire.records import telemetry_fix

HERE, THERE = Position(40.76, -111.89), Position(40.80, -111.89)
LEDGER = {
    "messages": 2, "recipients": 1300, "acknowledged": 1299, "expired": 0, "refused": 0,
    "unreachable": 0, "waiting": 1, "refusals": {}, "tries": 1301, "p50_s": 0.0042, "p99_s": 0.03,
}  # fmt: skip


def test_the_ledger_in_a_sentence() -> None:
    assert ledger_sentence(LEDGER) == (
        "Ledger: 2 messages to 1,300 recipients: 1,299 acknowledged"
        " (half within 0.004 s, 99 % within 0.030 s), 0 unreachable, 1 still waiting."
    )
    assert ledger_sentence(LEDGER | {"recipients": 0}) == (
        "Ledger: 2 messages, addressed to nobody who was there."
    )
    late = LEDGER | {"refused": 3, "refusals": {"outside-area": 2, "expired": 1}}
    reasons = " 3 refused (the client had left the area: 2, it had expired: 1), 0 unreachable"
    assert reasons in ledger_sentence(late)
    one = LEDGER | {"messages": 1, "recipients": 1, "acknowledged": 1, "waiting": 0, "p50_s": None}
    said = "Ledger: 1 message to 1 recipient: 1 acknowledged, 0 unreachable."
    assert ledger_sentence(one) == said
    none = LEDGER | {"messages": 0, "recipients": 0}
    assert ledger_sentence(none) == "Ledger: no message was addressed to clients."


def test_who_was_not_told_is_told_why(tmp_path: Path) -> None:
    uri = f"embedded:{tmp_path / 'bus.db'}"
    bus = open_bus(uri)
    alert = Message(
        kind=Kind.ALERT,
        source=Address.broker(),
        destination=Address.to_area(Area(Circle(HERE, 500.0))),
        payload=Event("emergency"),
    )
    bus.append("alerts.urgent", encode(alert), b"key")
    report = Message(
        kind=Kind.REPORT,
        source=Address.client("car-2"),
        destination=Address.broker(),
        payload=Telemetry(THERE),
    )
    bus.append("reports", encode(report), b"car-2", (telemetry_fix(Telemetry(THERE)),))
    late = Delivery("car-1", DeliveryState.REFUSED, "outside-area", 1, now_us(), now_us(), now_us())
    receipts = Message(
        kind=Kind.REPORT,
        source=Address.adapter("adapter-1"),
        destination=Address.everyone(),
        payload=Deliveries(alert.id, "broker", (late,), "alerts.emergency"),
    )
    bus.append("deliveries", encode(receipts), alert.id.bytes)
    bus.flush_now()
    bus.close()

    settings = load_settings(None, {"bus.uri": uri})
    first, second = asyncio.run(why_missed(settings, str(alert.id), ["car-1", "car-2"]))
    assert first.startswith("car-1 received it and refused it at ")
    assert second.startswith("car-2 was not addressed: ")
    assert asyncio.run(why_missed(settings, None, ["car-1"])) == []  # there was no alert at all

    incident = {"summary": "Emergency: 2 of 4 were told.", "why_missed": [first, second]}
    simulation = {"incidents": [incident], "link": None}
    result = {"seconds": 1, "parts": {}, "restarts": {}, "ledger": LEDGER}
    lines = sentences({**result, "simulation": simulation})
    start = lines.index("  Emergency: 2 of 4 were told.")
    assert lines[start + 1 : start + 3] == [f"    {first}", f"    {second}"]


def test_a_bus_that_cannot_be_read_leaves_what_is_known_without_it() -> None:
    result = {"seconds": 3.5, "problem": "no space", "simulation": None}
    assert sentences(result) == ["Mercury ran for 3.5 s."]
