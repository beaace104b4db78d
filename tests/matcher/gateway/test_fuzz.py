"""Whatever a client says, it gets an answer, and nothing else happens to the gateway."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as some
from live import iterate
from matcher.gateway_client import Paper

from mercury.config import GatewaySettings
from mercury.matcher.gateway.connection import GatewaySession
from mercury.matcher.gateway.register import Register
from mercury.matcher.hub import Hub
from mercury.matching import MatchingRules

FIELDS = [
    "id", "topic", "values", "radius_m", "ttl_s", "handle", "lat", "lon", "accuracy_m", "time_us",
    "area", "where", "inside", "dwell_s", "hysteresis_m", "limit", "side", "names", "n", "other",
]  # fmt: skip
SCALARS = (
    some.none()
    | some.booleans()
    | some.integers(-(10**20), 10**20)
    | some.integers(0, 3)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.sampled_from(["taxi", "me", "a >= 1", "publication", "subscription"])
    | some.text(max_size=20)
)
RING = some.lists(some.lists(some.floats(-200, 200), min_size=1, max_size=3), max_size=6)
AREA = some.fixed_dictionaries(
    {"type": some.sampled_from(["Polygon", "Feature", "Point"]), "coordinates": some.lists(RING)}
)
VALUES = SCALARS | AREA | some.dictionaries(some.text(max_size=5), SCALARS, max_size=3)
OPS = some.sampled_from(["hello", "publish", "near", "move", "withdraw", "ask", "fly", None])
OP = some.builds(
    lambda op, fields: {**fields, "op": op},
    OPS,
    some.dictionaries(some.sampled_from(FIELDS), VALUES, max_size=8),
)


async def _talk(frames: list[str | bytes]) -> tuple[list[Any], GatewaySession]:
    hub = Hub(MatchingRules())
    register, paper = Register(hub, GatewaySettings()), Paper()
    connection = GatewaySession(register, paper, binary=True)
    for frame in frames:
        connection.receive(frame)
        await iterate()
    hub.tick()
    connection.leave()
    hub.flush()
    assert hub.failures == 0
    assert hub.engine.statistics()["subscriptions"] == 0
    assert hub.engine.statistics()["publications"] == 0
    assert register.connections == 0
    return paper.texts, connection


@settings(max_examples=40)
@given(some.lists(OP, max_size=5))
def test_any_object_is_answered(ops: list[dict[str, Any]]) -> None:
    texts, _ = asyncio.run(_talk([json.dumps(op) for op in ops]))
    answers = [text for text in texts if "ok" in text or "error" in text]
    assert len(answers) == len(ops)
    for answer in answers:
        assert "ok" in answer or (answer["error"] and answer["reason"])


# Rows without an error are not answered, so none may begin as their frames do.
NOT_ROWS = some.binary(max_size=80).filter(lambda data: not data.startswith(b"Mv"))


@given(some.lists(some.text(max_size=40) | NOT_ROWS, max_size=8))
def test_any_frame_is_answered(frames: list[str | bytes]) -> None:
    texts, _ = asyncio.run(_talk(frames))
    assert len(texts) == len(frames)


@example(bytes(2 * 24))  # of the handle 0, at 0° N, 0° E, now
@given(some.binary(max_size=24 * 4))
def test_any_row_is_taken_or_dropped(rows: bytes) -> None:
    rows = rows[: len(rows) // 24 * 24]
    frame = b"Mv\x01\x01" + (len(rows) // 24).to_bytes(4, "little") + rows
    publish = '{"op":"publish","id":"a","topic":"taxi","handle":0}'
    texts, connection = asyncio.run(_talk([publish, frame]))
    assert texts == [{"ok": True}]
    assert connection.taken + connection.dropped == len(rows) // 24
