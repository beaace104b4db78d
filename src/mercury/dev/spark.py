"""A real Spark standalone cluster, a master and its workers, on loopback."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from mercury.dev.processes import end_with_parent, free_port, stop
from mercury.java.runtime import find_java
from mercury.model.errors import DevError

_HOST = "127.0.0.1"
_START_S = 60.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
# Says little and manages processes: the executors have options of their own.
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class SparkCluster:
    """Starts and stops a master and workers; applications go to `master`."""

    def __init__(self, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        if not re.fullmatch(r"[1-9]\d*[mg]", memory):
            raise DevError(f"a worker's memory is a number with m or g, not {memory!r}")
        self.workers, self.cores, self.memory = workers, cores, memory
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="mercury-spark-"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        """What `--spark-master` is given."""
        return f"spark://{_HOST}:{self.port}"

    def start(self) -> None:
        """Start the processes and return when all workers are with the master."""
        self._run("master", _MASTER, "--host", _HOST, "--port", str(self.port), "--webui-port", "0")
        for number in range(self.workers):
            size = ("--cores", str(self.cores), "--memory", self.memory)
            self._run(
                f"worker-{number}", _WORKER, "--host", _HOST, "--webui-port", "0", *size,
                "--work-dir", str(self.folder / "work"), self.master,
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while self._registered() < self.workers:
            if not self.running():
                raise DevError(f"Spark ended at its start: {self._last_words()}")
            if time.monotonic() > deadline:
                raise DevError(f"Spark's workers did not come up within {_START_S:g} s")
            time.sleep(0.05)

    def running(self) -> bool:
        """Whether all processes live."""
        return all(process.poll() is None for process in self._processes.values())

    def close(self) -> None:
        """Stop the workers, then the master, and remove what they wrote."""
        while self._processes:
            stop(self._processes.popitem()[1])
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, name: str, main: str, *arguments: str) -> None:
        home = spark_home()
        command = [find_java(), *_JVM, "-cp", f"{home / 'jars'}/*", main, *arguments]
        with (self.folder / f"{name}.log").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                command,
                env={**os.environ, **_environment(home)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=end_with_parent(),
            )

    def _registered(self) -> int:
        said = (self.folder / "master.log").read_text("utf-8", errors="replace")
        return len(set(re.findall(r"Registering worker (\S+) with", said)))

    def _last_words(self) -> str:
        """What is in the log of the process that has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                said = (self.folder / f"{name}.log").read_text("utf-8", errors="replace")
                lines = said.strip().splitlines() or ["it said nothing"]
                wrong = [line for line in lines if "Exception" in line or "Error" in line]
                return f"{name}: {(wrong or lines)[-1]}"
        return "nobody knows why"


def _environment(home: Path) -> dict[str, str]:
    """What Spark's own scripts would set."""
    return {
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": _HOST,
        "PYSPARK_PYTHON": sys.executable,
    }


def spark_home() -> Path:
    """Where Spark is installed."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise DevError("Spark is not installed: pip install 'mercury-messaging[pipeline]'")
    return Path(found.origin).parent
