"""The bus on an Apache Kafka cluster, for more than one machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from mercury.bus.api import Retention, Start
from mercury.bus.grouping import check_patterns, named_topics
from mercury.bus.kafka.cluster import Cluster, KafkaAddress
from mercury.bus.kafka.consumer import KafkaConsumer
from mercury.bus.kafka.outbox import Outbox
from mercury.model.errors import BusUnavailableError

FLUSH_S = 30.0
CLOSE_S = 10.0


class KafkaBus:
    """One process's connection to a Kafka cluster."""

    def __init__(self, rest: str, *, retention: Retention, partitions: int) -> None:
        self._cluster = Cluster(KafkaAddress.parse(rest), retention, partitions)
        self._outbox = Outbox(self._cluster)
        self.append = self._outbox.append
        self._consumers: set[KafkaConsumer] = set()
        self._lock = threading.Lock()

    def flush_now(self) -> None:
        self._outbox.check_open()
        self._outbox.flush_now(FLUSH_S)

    async def flush(self) -> None:
        self._outbox.check_open()
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
            self._consumers = {one for one in self._consumers if one.fetcher.alive} | {consumer}
        return consumer

    def trouble(self) -> str:
        with self._lock:
            readers = [one.fetcher for one in self._consumers if one.fetcher.alive]
        return next(filter(None, (reader.trouble() for reader in readers)), "")

    def topics(self) -> list[str]:
        self._outbox.check_open()
        return self._cluster.topics()

    def close(self) -> None:
        with self._lock:
            if self._outbox.closed:
                return
            self._outbox.closed = True
        try:
            self._outbox.flush_now(self._cluster.remaining_timeout_s(CLOSE_S))
        except BusUnavailableError as error:
            lost = self._outbox.outstanding
            raise BusUnavailableError(
                f"{self._cluster.name} was closed before it acknowledged {lost} records"
            ) from error
        finally:
            for consumer in self._consumers:
                consumer.end()
            for consumer in self._consumers:
                consumer.fetcher.join()
            self._outbox.close()
