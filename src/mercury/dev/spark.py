"""A real Spark standalone cluster, a master and its workers, on loopback."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from mercury.dev.processes import Component, free_port
from mercury.java.runtime import find_java
from mercury.model.errors import DevError

_HOST = "127.0.0.1"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
# Says little and manages processes: the executors have options of their own.
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class SparkCluster(Component):
    """Starts and stops a master and workers; applications go to `master`."""

    title = "Spark"

    def __init__(self, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        if not re.fullmatch(r"[1-9]\d*[mg]", memory):
            raise DevError(f"a worker's memory is a number with m or g, not {memory!r}")
        super().__init__(Path(tempfile.mkdtemp(prefix="mercury-spark-")), temporary=True)
        self.workers, self.cores, self.memory = workers, cores, memory
        self.port = free_port()

    @property
    def master(self) -> str:
        """What `--spark-master` is given."""
        return f"spark://{_HOST}:{self.port}"

    def start(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Start the processes and return when all workers are with the master."""
        self._java("master", _MASTER, "--port", str(self.port))
        for number in range(self.workers):
            size = ("--cores", str(self.cores), "--memory", self.memory)
            folder = ("--work-dir", str(self.folder / "work"))
            self._java(f"worker-{number}", _WORKER, *size, *folder, self.master)
        self._await(lambda: self._registered() == self.workers, waiting)

    def _java(self, name: str, main: str, *arguments: str) -> None:
        home = spark_home()
        place = ("--host", _HOST, "--webui-port", "0")
        command = [find_java(), *_JVM, "-cp", f"{home / 'jars'}/*", main, *place, *arguments]
        environment = {  # as Spark's own scripts set it
            "SPARK_HOME": str(home),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": _HOST,
            "PYSPARK_PYTHON": sys.executable,
        }
        self._run(name, command, environment)

    def _registered(self) -> int:
        said = self._log("master").read_text("utf-8", errors="replace")
        return len(set(re.findall(r"Registering worker (\S+) with", said)))


def spark_home() -> Path:
    """Where Spark is installed."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise DevError("Spark is not installed: pip install 'mercury-messaging[pipeline]'")
    return Path(found.origin).parent
