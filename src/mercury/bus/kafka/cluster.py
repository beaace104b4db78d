"""Admin requests of the Kafka bus: topics, offsets, consumer groups."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from mercury.bus.api import Retention
from mercury.bus.grouping import check_topic, rank_of
from mercury.bus.kafka.outage import Outage, is_not_about_connections
from mercury.model.errors import BusError, BusUnavailableError

log = logging.getLogger("mercury.bus.kafka")
_client_log = logging.getLogger("mercury.bus.kafka.client")  # librdkafka's own log
_client_log.addFilter(is_not_about_connections)

Result = TypeVar("Result")
PartitionId = tuple[str, int]  # topic, without the namespace, and partition
Commits = dict[PartitionId, int]  # the next offsets of a group
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()

OPEN_S = 4.0  # a reachable broker answers much sooner
ANSWER_S = 10.0
METADATA_S = 1.0  # topics that other processes create are noticed within this time
_RETRY_S = 0.02
# A new group makes its first commit in this topic: it may have no other yet.
_GROUPS_TOPIC = "mercury-groups"
_MIB, _GIB = 1024**2, 1024**3
_MINUTE_MS, _WEEK_MS = 60_000, 7 * 24 * 3600 * 1000

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")

_UNREACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._NOENT,  # no leader of a partition
    KafkaError.REQUEST_TIMED_OUT,
}
# Errors while a topic is still being created, or its leader has moved.
_NOT_YET = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
}


class KafkaAddress(NamedTuple):
    """What `kafka://HOST:PORT[,HOST:PORT...][/PREFIX]` says."""

    servers: str
    prefix: str  # of topics and groups, with its dot

    @classmethod
    def parse(cls, rest: str) -> KafkaAddress:
        """Read what follows `kafka:`."""
        servers, _, prefix = rest.removeprefix("//").rstrip("/").partition("/")
        found = [_SERVER.fullmatch(server) for server in servers.split(",")]
        try:
            if not rest.startswith("//") or not all(
                one is not None and 0 < int(one[1]) < 65536 for one in found
            ):
                raise BusError("no servers")
            return cls(servers, f"{check_topic(prefix)}." if prefix else "")
        except BusError:
            raise BusUnavailableError(
                f"{'kafka:' + rest!r} is not a Kafka bus; it looks like "
                "kafka://HOST:PORT[,HOST:PORT...][/PREFIX]"
            ) from None

    def __str__(self) -> str:
        return f"kafka://{self.servers}" + (f"/{self.prefix[:-1]}" if self.prefix else "")


def trouble(error: KafkaError, name: str) -> BusError:
    """A client's error as a BusError."""
    if error.code() in _UNREACHABLE | _NOT_YET:
        return BusUnavailableError(f"{name} cannot be reached: {error.str()}")
    return BusError(f"{name} refuses: {error.str()} ({error.name()})")


def topic_config(retention: Retention, partitions: int) -> dict[str, str]:
    """Kafka's retention of a topic; it counts bytes per partition and drops whole segments."""
    age_ms = -1 if retention.max_age_s is None else int(retention.max_age_s * 1000)
    size = -1 if retention.max_bytes is None else max(1, retention.max_bytes // partitions)
    # A segment is dropped when its newest record is too old: with four, at most a quarter stays
    # longer than it should.
    segment_bytes = _GIB if size < 0 else min(max(size // 4, _MIB), _GIB)
    segment_ms = _WEEK_MS if age_ms < 0 else min(max(age_ms // 4, _MINUTE_MS), _WEEK_MS)
    return {
        "retention.ms": str(age_ms),
        "retention.bytes": str(size),
        "segment.bytes": str(segment_bytes),
        "segment.ms": str(segment_ms),
        # The time of appending, by one clock: that is what FromTime and retention go by.
        "message.timestamp.type": "LogAppendTime",
    }


class Cluster:
    """A Kafka cluster as one bus sees it; names outside the namespace do not exist."""

    def __init__(self, address: KafkaAddress, retention: Retention, partitions: int) -> None:
        self.name = str(address)
        self.prefix = address.prefix
        self.version = 0  # grows with every topic that is seen for the first time
        self._servers = address.servers
        self._retention = retention
        self._partitions = partitions
        self._lock = threading.Lock()  # held while topics are looked up or made
        self._known: dict[str, int] = {}  # topic -> partitions
        self._refreshed_at = 0.0
        self._outage = Outage(self.name)
        self._admin = AdminClient(self.config())
        self.refresh_topics(OPEN_S)

    def config(self, **own: Any) -> dict[str, Any]:
        """Settings of every client of this cluster."""
        return {
            "bootstrap.servers": self._servers,
            "client.id": "mercury",
            "socket.nagle.disable": True,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "logger": _client_log,
            "error_cb": self.on_error,
            **{name.replace("_", "."): value for name, value in own.items()},
        }

    # Reachability

    def on_error(self, error: KafkaError) -> None:
        """A client reports an error that concerns no request of ours."""
        self.report_error(trouble(error, self.name))

    def report_error(self, error: BusError) -> None:
        """Log an error that is not raised; an outage is logged once, not for each error."""
        if isinstance(error, BusUnavailableError):
            self._outage.note_error()
            log.debug("%s", error)
        else:
            log.warning("%s", error)

    @property
    def is_away(self) -> bool:
        """Whether the cluster is known not to answer."""
        return self._outage.away_s(time.monotonic()) > 0.0

    def probe_if_due(self) -> None:
        """Probe the cluster during a suspected outage, at intervals; called all the time."""
        if self._outage.probe_due(time.monotonic()):
            try:
                self.refresh_topics(METADATA_S)
                answered = True
            except BusUnavailableError:
                answered = False
            said = self._outage.probed(answered, time.monotonic())
            if said is not None:
                log.log(*said)

    def remaining_timeout_s(self, limit_s: float) -> float:
        """What is left of the timeout, which all callers share during one outage."""
        return max(0.0, limit_s - self._outage.away_s(time.monotonic()))

    # Names

    def partition(self, partition_id: PartitionId, offset: int = -1001) -> TopicPartition:
        """A partition as the client names it."""
        return TopicPartition(self.prefix + partition_id[0], partition_id[1], offset)

    def partition_id(self, partition: TopicPartition) -> PartitionId:
        return partition.topic[len(self.prefix) :], partition.partition

    # Topics

    def topics(self) -> list[str]:
        self.refresh_topics()
        return sorted(set(self._known) - {_GROUPS_TOPIC})

    def partitions_of(self, topic: str) -> int | None:
        """How many partitions a topic has; None while it is not known to exist."""
        return self._known.get(topic)

    def refresh_topics_if_due(self) -> None:
        """Look for new topics, at intervals."""
        if time.monotonic() - self._refreshed_at > METADATA_S:
            self.refresh_topics(METADATA_S)

    def matching(self, patterns: tuple[str, ...]) -> dict[str, int]:
        """Known topics of a subscription, and their partitions."""
        return {
            topic: partitions
            for topic, partitions in self._known.items()
            if topic != _GROUPS_TOPIC and rank_of(patterns, topic) is not None
        }

    def ensure(self, names: Iterable[str]) -> None:
        """Make the topics that do not exist yet, and return when they can be used."""
        missing = {name for name in names if name not in self._known}
        if not missing:
            return
        self.refresh_topics()
        missing -= set(self._known)
        if not missing:
            return
        made = self._admin.create_topics([self._new_topic(name) for name in sorted(missing)])
        for future in made.values():
            try:
                self._result(future)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise trouble(error.args[0], self.name) from error
        deadline = time.monotonic() + ANSWER_S
        while missing - set(self._known):
            if time.monotonic() > deadline:
                raise BusUnavailableError(f"{self.name} does not show the topics just made")
            time.sleep(_RETRY_S)
            self.refresh_topics()
        # Known is not yet usable: each partition has to find its leader.
        self.offsets(self.partition_ids({name: self._known[name] for name in missing}), LATEST)

    def _new_topic(self, name: str) -> NewTopic:
        if name == _GROUPS_TOPIC:
            return NewTopic(self.prefix + name, 1, replication_factor=-1)
        config = topic_config(self._retention, self._partitions)
        return NewTopic(self.prefix + name, self._partitions, replication_factor=-1, config=config)

    def refresh_topics(self, timeout_s: float = ANSWER_S) -> None:
        """Read the cluster's list of topics."""
        timeout_s = max(METADATA_S, self.remaining_timeout_s(timeout_s))
        with self._lock:
            self._refreshed_at = time.monotonic()
            try:
                found = self._admin.list_topics(timeout=timeout_s).topics
            except KafkaException as error:
                raise BusUnavailableError(
                    f"{self.name} cannot be reached: no broker answered within {timeout_s:g} s"
                ) from error
            known = {
                name[len(self.prefix) :]: len(topic.partitions)
                for name, topic in found.items()
                if name.startswith(self.prefix) and not name.startswith("__") and topic.partitions
            }
            if known != self._known:
                self._known = known
                self.version += 1

    # Offsets

    @staticmethod
    def partition_ids(topics: Mapping[str, int]) -> list[PartitionId]:
        return [(topic, part) for topic, count in topics.items() for part in range(count)]

    def offsets(
        self, partition_ids: Sequence[PartitionId], spec: OffsetSpec, timeout_s: float = ANSWER_S
    ) -> dict[PartitionId, int]:
        """An offset of each partition: the earliest, the latest, or the first since a time."""
        if not partition_ids:
            return {}
        wanted = {self.partition(partition_id): spec for partition_id in partition_ids}

        def ask() -> dict[PartitionId, int]:
            found = self._admin.list_offsets(wanted)
            return {
                self.partition_id(at): self._result(one, timeout_s).offset
                for at, one in found.items()
            }

        return self.with_retry(ask, timeout_s)

    def spans(
        self, partition_ids: Sequence[PartitionId], timeout_s: float = ANSWER_S
    ) -> dict[PartitionId, tuple[int, int]]:
        """The first offset and the one after the last, of each partition."""
        lows = self.offsets(partition_ids, EARLIEST, timeout_s)
        ends = self.offsets(partition_ids, LATEST, timeout_s)
        return {one: (lows[one], ends[one]) for one in partition_ids}

    def since(
        self, partition_ids: Sequence[PartitionId], timestamp_us: int
    ) -> dict[PartitionId, int]:
        """The first offset at or after a time, or the one after the last."""
        spec = OffsetSpec.for_timestamp(max(0, -(-timestamp_us // 1000)))
        found = self.offsets(partition_ids, spec)
        ends = self.offsets([one for one, at in found.items() if at < 0], LATEST)
        return {**found, **ends}

    # Groups

    def group_partition(self) -> PartitionId:
        """The partition in which a group commits that it exists."""
        self.ensure([_GROUPS_TOPIC])
        return _GROUPS_TOPIC, 0

    def _result(self, future: Future[Result], timeout_s: float = ANSWER_S) -> Result:
        try:
            return future.result(timeout_s)
        except FutureTimeoutError:
            raise BusUnavailableError(
                f"{self.name} cannot be reached: no answer within {timeout_s:g} s"
            ) from None

    def with_retry(self, ask: Callable[[], Result], timeout_s: float = ANSWER_S) -> Result:
        """Retry while a topic is still being created or its leader moves."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return ask()
            except KafkaException as error:
                cause = error.args[0]
                if cause.code() not in _NOT_YET or time.monotonic() > deadline:
                    raise trouble(cause, self.name) from error
            time.sleep(_RETRY_S)
            self.refresh_topics()  # the client's metadata is out of date
