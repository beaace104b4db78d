"""Appends the pipeline's alerts to the bus: each once, also when a batch is repeated.

An alert's id follows from what it was found from. After a restart the sink reads which alerts are
on the bus already.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from uuid import UUID

from mercury.bus import Bus, FromTime, catch_up
from mercury.detection import DetectedCondition, Verdict
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.errors import PacketError
from mercury.model.identity import derived_id
from mercury.model.message import Address, DeliveryPolicy, Event, Kind, Message, Priority
from mercury.wire import encode, parse
from mercury.wire.records import message_route

LOOKBACK_US = 24 * 3600 * 1_000_000


class AlertsSink:
    """Appends alerts and conditions to the bus."""

    def __init__(self, bus: Bus, now_us: int, name: str = "pipeline") -> None:
        self.bus = bus
        self.address = Address.service(name)
        self._sent: dict[bytes, int] = {}  # alert id -> when it ends
        # By job: condition id -> what was published.
        self._shown: dict[str, dict[bytes, tuple[object, ...]]] = {}
        self._mutex = threading.Lock()  # jobs have threads of their own
        self._read_sent(now_us)

    def _read_sent(self, now_us: int) -> None:
        start = FromTime(now_us - LOOKBACK_US)
        consumer = self.bus.subscribe(topics.ALERTS, start=start)
        for records in catch_up(consumer, 4096):
            for record in records:
                try:
                    envelope = parse(record.value)
                except PacketError:
                    continue
                if envelope.source.service == self.address.name:
                    self._sent[envelope.id] = envelope.expires_us
        consumer.close()

    def alert(self, verdicts: Iterable[Verdict]) -> list[Verdict]:
        """Publish alerts that are not on the bus yet; durable when this returns."""
        with self._mutex:
            new = [one for one in verdicts if one.alert_id not in self._sent]
            self._sent.update({one.alert_id: one.until_us for one in new})
        for verdict in new:
            message = Message(
                kind=Kind.ALERT,
                id=UUID(bytes=verdict.alert_id),
                source=self.address,
                destination=Address.to_area(verdict.area),
                topic=verdict.kind,
                priority=verdict.priority,
                expires_us=verdict.until_us,
                correlation=UUID(bytes=verdict.incident_id),
                policy=DeliveryPolicy.CRITICAL,
                payload=verdict.event(),
            )
            self._append(topics.alerts_topic(message.priority), message, verdict.centre)
        if new:
            self.bus.flush_now()
        return new

    def show(self, job: str, conditions: Iterable[DetectedCondition]) -> int:
        """Publish the conditions of a job that changed; how many these were."""
        before = self._shown.get(job, {})
        shown: dict[bytes, tuple[object, ...]] = {}
        changed = 0
        for condition in conditions:
            id = derived_id(condition.incident_id, "condition")
            content = (condition.area, condition.until_us, tuple(condition.values.items()))
            shown[id] = content
            if before.get(id) == content:
                continue
            changed += 1
            message = Message(
                kind=Kind.EVENT,
                id=UUID(bytes=id),
                source=self.address,
                destination=Address.to_area(condition.area),
                topic=topics.CONDITIONS,
                priority=Priority.NORMAL,
                expires_us=condition.until_us,
                payload=Event(
                    condition.kind,
                    condition.centre,
                    condition.radius_m,
                    values=dict(condition.values),
                ),
            )
            self._append(topics.CONDITIONS, message, condition.centre)
        self._shown[job] = shown
        return changed

    def forget(self, now_us: int) -> None:
        """Drop alerts and conditions that ended long ago."""
        horizon_us = now_us - LOOKBACK_US
        with self._mutex:
            kept = self._sent.items()
            self._sent = {id: end for id, end in kept if not end or end > horizon_us}

    def _append(self, topic: str, message: Message, centre: Position) -> None:
        # With this key, all records about a place stay in order.
        key = f"{centre.lat:.2f},{centre.lon:.2f}".encode()
        self.bus.append(topic, encode(message), key, (message_route(message),))
