"""`mercury bench flood`: strangers cost honest clients nothing at a rate that two cores bear."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from mercury.bench.flood import FLOODS
from mercury.session import AdapterSessions, SessionSettings


def test_it_runs_and_honest_clients_lose_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mercury.cli.main", "bench", "flood", "--rate", "2000",
         "--honest", "100", "--seconds", "0.5", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["bench"] == "flood"
    assert result["honest_lost"] == 0
    assert result["honest_p99_ms"] > 0
    assert result["packets_per_s"] > 1000
    assert [row["flood"] for row in result["rows"]] == ["none", *FLOODS]


def test_no_flood_opens_a_session() -> None:
    rng = random.Random(1)
    adapter = AdapterSessions("adapter", SessionSettings(), lambda: rng.randbytes(16))
    for make in FLOODS.values():
        for packet in make(rng, 500):
            assert adapter.receive(packet, b"x" * 16, 0.0) is None
    assert len(adapter.table) == 0
    assert {"not-mercury", "unknown-session"} <= set(adapter.dropped)
    assert adapter.challenges > 400
