"""From a live adapter and its clients over the bus and history to the ledger."""

from __future__ import annotations

import time
from pathlib import Path

from cli.commands import mercury
from live import FAR, HERE, NEAR, Hand, connect, first, in_loop, live, until
from pipeline.whole_bus import store_batch
from pyspark.sql import SparkSession

from mercury.config.mediator import MediatorSettings
from mercury.model import topics
from mercury.model.area import Area, Circle
from mercury.model.message import Address, Event, Kind, Message, Priority
from mercury.pipeline.ledger.job import LedgerJob
from mercury.pipeline.ledger.messages import GRACE_US
from mercury.pipeline.ledger.reading import stored_ledger, stored_message, stored_outcomes

QUICK = MediatorSettings.model_validate(
    {"rules": {"alert": {"policy": "critical", "resend_after_s": 0.05, "backoff": 1.0}}}
)
VALID_S = 1.0


def test_who_heard_it(spark: SparkSession, tmp_path: Path) -> None:
    uri = f"embedded:{tmp_path / 'bus.db'}"
    sent: dict[str, Message] = {}

    @in_loop
    async def talk() -> None:
        async with live(uri) as world:
            adapter = await world.adapter(mediator=QUICK)
            mute = Hand(adapter, "mute")  # hears, and never answers
            await mute.init()
            async with connect(adapter, "car", NEAR) as car, connect(adapter, "far", FAR) as far:
                await until(lambda: len(adapter.sessions.table) == 3)
                sent["alert"] = world.append(
                    topics.ALERTS_URGENT,
                    Message(
                        kind=Kind.ALERT,
                        source=Address.service("office"),
                        destination=Address.to_area(Area(Circle(HERE, 500.0))),
                        topic="emergency",
                        priority=Priority.EMERGENCY,
                        expires_us=time.time_ns() // 1000 + int(VALID_S * 1e6),
                        payload=Event("emergency", HERE, text="stop"),
                    ),
                )
                assert (await first(car)).event.text == "stop"
                written = await far.tell("car", {"text": "thanks"}, expires_in_s=600.0)
                await written.settled(10.0)
                sent["word"] = written.message
                ends_s = sent["alert"].expires_us / 1e6
                await until(lambda: time.time() > ends_s)
                await until(lambda: adapter.mediator.outgoing.waiting == 0)
            mute.close()

    talk()
    store_batch(spark, uri, tmp_path / "h")
    job = LedgerJob(tmp_path / "h")
    job.start()
    entered = job.run(spark, sent["alert"].expires_us + GRACE_US)
    job.stop()
    assert (entered.messages, entered.rows, entered.waiting) == (2, 3, 0)

    car, mute = stored_ledger(tmp_path / "h", sent["alert"].id.hex)
    assert car.items() >= {"client": "car", "state": "acknowledged", "expected": True}.items()
    assert car["tries"] >= 1
    assert car["late_s"] is not None
    assert 0.0 <= car["late_s"] < VALID_S
    assert car["inside_us"] is not None
    ended = {"client": "mute", "state": "expired", "reason": "not-acknowledged"}
    about = {"source": "service:office", "kind": "alert", "topic": "emergency", "priority": 9}
    assert mute.items() >= (ended | about).items()
    assert mute["tries"] > 2
    # It was to hold for ten minutes, and entered when the only one it was for had answered.
    (word,) = stored_ledger(tmp_path / "h", sent["word"].id.hex)
    assert word.items() >= {
        "client": "car", "state": "acknowledged", "source": "client:far", "kind": "content",
        "topic": "message", "policy": "repeat", "expected": True,
    }.items()  # fmt: skip
    message = stored_message(tmp_path / "h", sent["word"].id.hex)
    assert message is not None
    assert (message["destination"], message["text"]) == ("client:car", "thanks")
    [outcome] = [
        one for one in stored_outcomes(tmp_path / "h") if one["message"] == str(sent["alert"].id)
    ]
    assert outcome.items() >= {"recipients": 2, "acknowledged": 1, "expired": 1}.items()
    _ask_why(tmp_path, str(sent["alert"].id))


def _ask_why(folder: Path, id: str) -> None:
    """What is not on the bus any more is asked of the history."""
    bus = ("--bus", "embedded:gone.db", "--folder", "h")
    done = mercury("why", id, *bus, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "emergency 'stop' from service:office" in done.stdout
    assert "2 were addressed: 1 acknowledged it" in done.stdout
    assert "1 expired without an answer" in done.stdout
    mute = mercury("why", id, "--client", "mute", *bus, folder=folder)
    assert "mute did not answer: it was sent" in mute.stdout
    unknown = mercury("why", "01a1e25d-7bd0-7107-a77b-b72066548c43", *bus, folder=folder)
    assert unknown.returncode == 1
    assert "none in h" in unknown.stderr
