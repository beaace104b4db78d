"""The bus on an Apache Kafka cluster, for when one machine is not enough."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from mercury.bus.api import Headers, Retention, Start
from mercury.bus.grouping import check_patterns, check_topic, named_topics
from mercury.bus.headers import check_headers
from mercury.bus.kafka.cluster import Cluster, KafkaAddress
from mercury.bus.kafka.consumer import KafkaConsumer
from mercury.bus.kafka.outbox import Outbox
from mercury.model.errors import BusUnavailableError

FLUSH_S = 30.0
CLOSE_S = 10.0


class KafkaBus:
    """One process's connection to a Kafka cluster."""

    def __init__(self, rest: str, *, retention: Retention, partitions: int) -> None:
        address = KafkaAddress.parse(rest)
        self._retention = retention
        self._cluster = Cluster(address, retention, partitions)
        self._outbox = Outbox(self._cluster)
        self._consumers: set[KafkaConsumer] = set()
        self._lock = threading.Lock()
        self._closed = False

    def append(self, topic: str, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        # Whatever cannot be written is refused here: nobody waits for the answer to one record.
        if type(value) is not bytes or type(key) is not bytes:
            value, key = _as_bytes(value), _as_bytes(key)
        if headers:
            headers = check_headers(headers)
        check_topic(self._cluster.prefix + topic)
        self._check_open()
        self._outbox.append(topic, value, key, headers)

    def flush_now(self) -> None:
        self._check_open()
        self._outbox.flush_now(FLUSH_S)

    async def flush(self) -> None:
        self._check_open()
        done = self._outbox.flush()
        if done is None:
            return
        try:
            await asyncio.wait_for(asyncio.wrap_future(done), FLUSH_S)
        except TimeoutError:
            raise self._outbox.late(FLUSH_S) from None

    def subscribe(
        self, topics: Sequence[str], *, group: str | None = None, start: Start = "latest"
    ) -> KafkaConsumer:
        patterns = check_patterns(topics)
        self.flush_now()  # what was appended before is not "after"
        self._cluster.ensure(named_topics(patterns))
        consumer = KafkaConsumer(self._cluster, self._outbox, patterns, group, start)
        with self._lock:
            self._consumers = {one for one in self._consumers if not one.ended} | {consumer}
        return consumer

    def topics(self) -> list[str]:
        self._check_open()
        return self._cluster.topics()

    def enforce_retention(self) -> int:
        """Drop what is too old; Kafka drops what is too much by itself, per partition."""
        self._check_open()
        if self._retention.max_age_s is None:
            return 0
        return self._cluster.drop_older(self._retention.max_age_s)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._outbox.flush_now(CLOSE_S)
        except BusUnavailableError as error:
            lost = self._outbox.outstanding
            if not lost:
                raise
            raise BusUnavailableError(
                f"{self._cluster.name} was closed before it acknowledged {lost} records"
            ) from error
        finally:
            for consumer in self._consumers:
                consumer.end()
            for consumer in self._consumers:
                consumer.join()
            self._outbox.close()

    def _check_open(self) -> None:
        if self._closed:
            raise BusUnavailableError(f"{self._cluster.name} is closed")


def _as_bytes(data: object) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"a record's key and value are bytes, not {type(data).__name__}")
