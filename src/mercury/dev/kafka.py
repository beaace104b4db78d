"""A real Apache Kafka broker in KRaft mode, one node, on loopback."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import socket
import struct
import subprocess
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

from mercury.dev.processes import Component, free_port
from mercury.java.archives import Progress, cache_folder, fetch, read_lock
from mercury.java.runtime import find_java
from mercury.model.errors import AddressInUseError, DevError
from mercury.net.ports import bind_tcp

LOCK = Path(__file__).with_name("kafka-jars.lock")
_OUTPUT = "output"  # the output before the log exists
_JVM = ("-Xmx512m", "-XX:+UseParallelGC", "-Xshare:auto")

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
# Topics are created explicitly, with partitions and retention, never by a typing error.
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
# After a crash the broker waits this long until its former session expires.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=2
# Thousands of small partitions must not map gigabytes of empty index.
log.index.size.max.bytes=1048576
log.segment.delete.delay.ms=1000
"""

_LOGGING = """\
<Configuration status="WARN">
  <Appenders>
    <File name="file" fileName="{file}"><PatternLayout pattern="%d %p %m (%c)%n"/></File>
  </Appenders>
  <Loggers><Root level="INFO"><AppenderRef ref="file"/></Root></Loggers>
</Configuration>
"""


def kafka_version() -> str:
    """The release that the lock file pins."""
    found = re.search(r"/kafka_2\.13/([^/]+)/", LOCK.read_text("utf-8"))
    assert found is not None
    return found[1]


class KafkaBroker(Component):
    """Starts, stops and kills one broker; its data outlives it unless it is temporary."""

    title = "Kafka"

    def __init__(
        self, data: Path | None = None, *, port: int = 0, maven_url: str | None = None
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="mercury-kafka-")) if data is None else data
        super().__init__(folder, temporary=data is None)
        self.data = folder
        self.port = port or free_port()
        self.log_file = self.data / "kafka.log"
        self._maven_url = maven_url
        self._java = ""
        self._jars: list[Path] = []

    @property
    def uri(self) -> str:
        return f"kafka://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id, while it runs."""
        return self._processes[_OUTPUT].pid

    def prepare(self, progress: Progress = lambda done, total: None) -> None:
        """Find Java and download Kafka, if not done yet."""
        self._java = find_java()
        folder = cache_folder(f"kafka-{kafka_version()}")
        self._jars = fetch(read_lock(LOCK), folder, url=self._maven_url, progress=progress)

    def start(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Start the broker and return when it answers; `waiting` is called at intervals."""
        if not self._jars:
            self.prepare()
        try:
            bind_tcp("127.0.0.1", self.port, "Kafka").close()
        except AddressInUseError:
            raise DevError(f"port {self.port} is taken; --port 0 takes a free one") from None
        properties = self._configure()
        if not (self.data / "logs" / "meta.properties").exists():
            cluster = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
            # StorageTool refuses an id that begins like an option.
            cluster = "m" + cluster[1:]
            command = self._command("kafka.tools.StorageTool")
            command += ["format", "--cluster-id", cluster, "--config", str(properties)]
            formatted = subprocess.run(command, capture_output=True, text=True, check=False)
            if formatted.returncode:
                said = (formatted.stderr or formatted.stdout).strip().rpartition("\n")[2]
                raise DevError(f"Kafka cannot format {self.data}: {said}")
        self._run(_OUTPUT, [*self._command("kafka.Kafka"), str(properties)])
        try:
            self._await(lambda: _answers(self.port), waiting)
        except DevError:
            self.kill()
            raise

    def _configure(self) -> Path:
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            properties = self.data / "server.properties"
            controller_port = free_port(other_than=self.port)
            values = {"port": self.port, "controller_port": controller_port}
            logs = (self.data / "logs").absolute()
            properties.write_text(_PROPERTIES.format(logs=logs, **values), "utf-8")
            logging = _LOGGING.format(file=self.log_file.absolute())
            (self.data / "log4j2.xml").write_text(logging, "utf-8")
        except OSError as error:
            raise DevError(f"{self.data} cannot be written: {error.strerror}") from error
        return properties

    def _command(self, main: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={(self.data / 'log4j2.xml').absolute()}"
        # As Kafka's own scripts take them.
        options = shlex.split(os.environ.get("KAFKA_OPTS", ""))
        return [self._java, *_JVM, *options, logging, "-cp", ":".join(map(str, self._jars)), main]


def _answers(port: int) -> bool:
    """Ask which requests the broker knows (ApiVersions, version 0): it answers once it serves."""
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            return len(connection.recv(8)) == 8
    except OSError:
        return False
