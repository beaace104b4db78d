"""The benchmark of two brokers against one, in small: that it runs, and counts every message."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from mercury.bench.brokers import TOPIC, Work, filters, offers
from mercury.broker.interest_index import InterestIndex
from mercury.bus import open_bus
from mercury.model import topics
from mercury.model.errors import MercuryError

WAIT_S = 120.0


def test_it_runs_and_every_message_is_answered_once(tmp_path: Path) -> None:
    log = tmp_path / "bench.jsonl"
    arguments = ["--messages", "200", "--interests", "20", "--rounds", "2", "--log", str(log)]
    done = subprocess.run(
        [sys.executable, "-m", "mercury.cli.main", "bench", "brokers", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["bench"], result["bus"]) == ("brokers", "embedded")
    assert [row["brokers"] for row in result["rows"]] == [1, 2, 1, 2]
    for row in result["rows"]:
        assert (row["messages"], row["duplicates"]) == (200, 0)
        assert row["larger_share"] == 1.0 if row["brokers"] == 1 else row["larger_share"] < 1.0
        assert row["cpu_us"] > 0
    found = [median(row["per_s"] for row in result["rows"][at::2]) for at in (0, 1)]
    assert [result["one_per_s"], result["two_per_s"]] == found
    assert result["ratio"] == pytest.approx(found[1] / found[0], abs=0.001)
    assert result["ceiling"] > 0
    logged = json.loads(log.read_text("utf-8"))
    assert logged["parameters"] == {"messages": 200, "interests": 20, "rounds": 2}
    assert {name: logged[name] for name in result} == result


def test_every_message_matches_something_and_not_everything() -> None:
    index = InterestIndex()
    for text in filters(200):
        index.add(TOPIC, text, 0.0)
    assert len(index) == 200  # all different
    matches = [len(index.match(TOPIC, offer)) for offer in offers(100, seed=3)]
    assert min(matches) >= 1
    assert max(matches) < 20


def test_messages_without_an_answer_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mercury.bench.brokers._TIMEOUT_S", 0.1)
    bus = open_bus("memory:")
    with pytest.raises(MercuryError, match="of 10 messages 10 were not answered"):
        Work(bus, interests=3).run(10)
    assert topics.content_topic(TOPIC) in bus.topics()
    bus.close()
