"""`mercury why` and `mercury report`: what became of messages, asked as a person would."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from cli.commands import mercury
from live import FAR, HERE, NEAR, connect, first, http_get, in_loop, live, until

from mercury.bus import open_bus
from mercury.client import ServiceEndpoint
from mercury.model.area import Area, Circle, HeadingSector, Position
from mercury.model.delivery import DeliveryState
from mercury.model.message import Address

ELSEWHERE = Position(41.5, -111.89)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A bus on which some things were told; the ids of the messages by name."""
    folder = tmp_path_factory.mktemp("ledger")
    ids: dict[str, str] = {}

    @in_loop
    async def tell() -> None:
        async with live(f"embedded:{folder / 'mercury.db'}") as world:
            adapter = await world.adapter()
            async with (
                connect(adapter, "abe", NEAR) as abe,
                connect(adapter, "ben", FAR) as ben,
                connect(adapter, "cal", ELSEWHERE, heading_deg=270.0) as cal,
                ServiceEndpoint(world.bus, "office") as office,
            ):
                area = Area(Circle(HERE, 500.0))
                flood = await office.alert(area, kind="flood", text="Flood", validity_s=600.0)
                assert (await first(abe)).id == flood.id
                away = await office.alert(Address.client("nobody"), validity_s=600.0)
                over = await office.alert(Address.client("nobody"), validity_s=0.1)
                east = Area(Circle(ELSEWHERE, 500.0), HeadingSector(90.0, 45.0))
                turned = await office.alert(east, kind="roadworks", validity_s=600.0)
                cal.move(ELSEWHERE.lat, ELSEWHERE.lon, heading_deg=270.0, report=True)
                await over.settled()
                ben.move(FAR.lat, FAR.lon, report=True)  # and once more below
                said = await abe.tell("ben", {"x": 1})
                assert (await first(ben)).values["x"] == 1
                await said.settled(5.0)
                ended = adapter.mediator.outgoing.ended
                await until(lambda: ended[DeliveryState.ACKNOWLEDGED] >= 2)
                ben.move(FAR.lat, FAR.lon, report=True)
                table = adapter.sessions.table
                slot = table.by_identity["ben"].slot
                await until(lambda: table.lat[slot] == FAR.lat)
                await adapter.bus.flush()
            ids.update(
                flood=str(flood.id),
                away=str(away.id),
                said=str(said.id),
                over=str(over.id),
                turned=str(turned.id),
            )

    tell()
    return folder, ids


def test_what_became_of_a_message(told: tuple[Path, dict[str, str]]) -> None:
    folder, ids = told
    done = mercury("why", ids["flood"], folder=folder)
    assert done.returncode == 0, done.stderr
    assert "flood 'Flood' from service:office" in done.stdout
    assert "1 was addressed: 1 acknowledged it" in done.stdout
    # The first digits of an id are enough, where only one message begins so.
    for_abe = mercury("why", ids["flood"].replace("-", "")[:28], "--client", "abe", folder=folder)
    assert "abe acknowledged it at" in for_abe.stdout


def test_why_somebody_has_not_heard_it(told: tuple[Path, dict[str, str]]) -> None:
    folder, ids = told
    far = mercury("why", ids["flood"], "--client", "ben", folder=folder)
    assert "ben was not addressed: none of its" in far.stdout
    unknown = mercury("why", ids["flood"], "--client", "eve", folder=folder)
    assert "eve was not addressed: it was silent while the message held" in unknown.stdout
    away = mercury("why", ids["away"], "--client", "nobody", folder=folder)
    assert "nobody has had no session since it was sent: it gets it if it comes back before" in (
        away.stdout
    )
    assert mercury("why", ids["away"], folder=folder).stdout == away.stdout  # there is only one
    over = mercury("why", ids["over"], "--client", "nobody", folder=folder)
    assert "nobody had no session until it ended at" in over.stdout
    turned = mercury("why", ids["turned"], "--client", "cal", folder=folder)
    assert "heading 270°, and the message is for headings of 90° ± 45° only" in turned.stdout
    other = mercury("why", ids["away"], "--client", "abe", folder=folder)
    assert "it was for nobody alone" in other.stdout


def test_what_became_of_the_last_message(told: tuple[Path, dict[str, str]]) -> None:
    folder, ids = told
    last = mercury("why", "--last", folder=folder)
    assert last.stdout.startswith(f"{ids['said']}: message from client:abe")
    assert "1 was addressed: 1 acknowledged it" in last.stdout
    for_ben = mercury("why", "--last", "--client", "ben", folder=folder)
    assert "ben acknowledged it at" in for_ben.stdout
    both = mercury("why", ids["said"], "--last", folder=folder)
    assert both.returncode == 1
    assert "say which message: either its id or --last" in both.stderr


def test_why_without_a_message_is_one_sentence(tmp_path: Path) -> None:
    for asked in (["--last"], ["0123abcd"], ["01a1f296-b8df-7f67-90b2-4e1659f907c9"]):
        missing = mercury("why", *asked, folder=tmp_path)
        assert missing.stderr.startswith("mercury: there is no bus at mercury.db: "), asked
    open_bus(f"embedded:{tmp_path / 'mercury.db'}").close()
    done = mercury("why", "--last", folder=tmp_path)
    assert done.returncode == 1
    assert "nothing was sent to anybody over the bus in the last hour" in done.stderr


def test_why_for_programs(told: tuple[Path, dict[str, str]]) -> None:
    folder, ids = told
    found = json.loads(mercury("why", ids["said"], "--json", folder=folder).stdout)
    assert found["id"] == ids["said"]
    assert found["summary"]["acknowledged"] == found["summary"]["recipients"] == 1
    [row] = found["recipients"]
    assert (row["client"], row["state"], row["tries"]) == ("ben", "acknowledged", 1)
    assert row["addressed"] <= row["first_sent"] <= row["settled"]


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("xyz", "'xyz' is no message id"),
        ("00000000-0000-7000-8000-000000000000", "no message"),
        ("01", "'01' is no message id"),
    ],
)
def test_what_cannot_be_answered(told: tuple[Path, dict[str, str]], id: str, sentence: str) -> None:
    done = mercury("why", id, folder=told[0])
    assert done.returncode == 1
    assert sentence in done.stderr


def test_the_report_of_a_client(told: tuple[Path, dict[str, str]]) -> None:
    folder, ids = told
    text = mercury("report", "abe", folder=folder, COLUMNS="40").stdout
    assert "abe: 1 sent, 0 sent again, 1 acknowledged; 1 received" in text
    assert "service:office" in text
    assert ids["said"] in text  # whole, though nobody's terminal is that wide
    assert "…" not in text
    found = json.loads(mercury("report", "abe", "--json", folder=folder).stdout)
    [peer] = found["peers"]
    assert (peer["peer"], peer["sent"], peer["acknowledged"], peer["dropped"]) == ("ben", 1, 1, 0)
    assert peer["first_try_s"] < 5.0
    [topic] = found["topics"]
    assert (topic["topic"], topic["peers"]) == ("message", ["ben"])
    [heard] = found["heard"]
    assert (heard["source"], heard["acknowledged"]) == ("service:office", 1)
    [ack] = found["acks"]
    assert ack["acks_sent"] == 1
    also = mercury("report", "client:abe", folder=folder).stdout  # as senders are named
    assert also.splitlines()[0] == text.splitlines()[0]
    nothing = mercury("report", "cal", folder=folder)
    assert nothing.returncode == 0
    assert "Nothing was sent to it or by it" in nothing.stdout
    for asked in (["eve"], ["eve", "--json"]):
        unknown = mercury("report", *asked, folder=folder)
        assert (unknown.returncode, unknown.stdout) == (1, "")
        assert unknown.stderr.startswith("mercury: nothing is known of eve (--since 1h): ")


def test_the_report_as_metrics(told: tuple[Path, dict[str, str]]) -> None:
    folder, _ = told

    @in_loop
    async def scenario() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "mercury.cli.main", "report", "abe", "--watch", "--json",
            "--metrics-port", "0", "--for", "20", cwd=folder,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "COLUMNS": "120"},
        )  # fmt: skip
        try:
            assert process.stderr is not None
            assert process.stdout is not None
            line = (await process.stderr.readline()).decode()
            port = int(line.split(":")[-1].split("/")[0])
            assert json.loads(await process.stdout.readline())["name"] == "abe"
            status, body = await http_get(port, "/metrics")
            assert status == 200
            assert 'mercury_report_sent_total{client="abe",peer="ben"} 1.0' in body
            assert 'mercury_report_acks_sent_total{client="abe",peer="adapter"} 1.0' in body
        finally:
            process.terminate()
            assert await process.wait() == 0

    scenario()
    refused = mercury("report", "abe", "--metrics-port", "0", folder=folder)
    assert refused.returncode == 1
    assert "--metrics-port goes with --watch" in refused.stderr
