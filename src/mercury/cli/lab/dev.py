"""`mercury dev`: real components to develop against, on this machine."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from mercury.cli.common import command
from mercury.cli.common.command import option
from mercury.cli.common.spinner import waiting
from mercury.dev.kafka import KafkaBroker, kafka_version
from mercury.dev.processes import Component
from mercury.dev.spark import SparkCluster
from mercury.java.archives import MAVEN_URL, MAVEN_VARIABLE
from mercury.model.errors import DevError

app = typer.Typer(help="Run Kafka or Spark on this machine for development.", no_args_is_help=True)

_CHECK_S = 0.2


@app.command()
def kafka(
    port: Annotated[int, command.port("TCP port, 0 for a free one")] = 9092,
    data: Annotated[
        Path | None, option("Folder of its data, kept when it ends; default temporary")
    ] = None,
    maven: Annotated[
        str | None, option(f"Maven repository; default ${MAVEN_VARIABLE} or {MAVEN_URL}")
    ] = None,
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Run one Apache Kafka broker on loopback until Ctrl-C; print its URI when it is ready."""
    stop = _stop_on_signal()
    with running_kafka(KafkaBroker(data, port=port, maven_url=maven), stop) as broker:
        _leave_if(stop)
        if as_json:
            command.print_json(
                {"uri": broker.uri, "version": kafka_version(), "pid": broker.pid,
                 "data": str(broker.data)}
            )  # fmt: skip
        else:
            print(broker.uri, flush=True)
        up = f"Kafka {kafka_version()} is up, its log is {broker.log_file}"
        _wait(broker, stop, seconds, up, broker.log_file)


@app.command()
def spark(
    workers: Annotated[int, option("Number of workers", min=1, max=64)] = 2,
    cores: Annotated[int, option("Cores of each worker", min=1)] = 1,
    memory: Annotated[str, option("Memory of each worker", "SIZE")] = "1g",
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Run a Spark cluster on loopback until Ctrl-C; print its URL when it is ready."""
    stop = _stop_on_signal()
    cluster = SparkCluster(workers=workers, cores=cores, memory=memory)
    with contextlib.closing(cluster):
        with waiting("Spark's master and workers are starting"):
            cluster.start()
        if as_json:
            command.print_json({"master": cluster.master, "workers": workers})
        else:
            print(cluster.master, flush=True)
        up = f"Spark is up with {workers} workers, logs are in {cluster.folder}"
        _wait(cluster, stop, seconds, up, cluster.folder)


def _stop_on_signal() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _wait(
    component: Component, stop: threading.Event, seconds: float | None, up: str, logs: Path
) -> None:
    """Print that it is up, and return when it must stop; raises if it ends by itself."""
    command.progress.print(up + ("" if seconds else " – Ctrl-C stops it"))
    waited = 0.0
    while not stop.wait(_CHECK_S) and (seconds is None or waited < seconds):
        waited += _CHECK_S
        if not component.running():
            raise DevError(f"{component.title} ended by itself, see {logs}")
    command.progress.print("stopping …")


@contextlib.contextmanager
def running_kafka(
    broker: KafkaBroker, stop: threading.Event | None = None
) -> Iterator[KafkaBroker]:
    """Download and start a broker, showing progress; stop it in the end."""
    with contextlib.closing(broker):
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        with Progress(*columns, TimeRemainingColumn(), console=command.progress) as bar:
            fetching = bar.add_task(f"fetching Kafka {kafka_version()}", visible=False)

            def advance(done: int, total: int) -> None:
                _leave_if(stop)
                bar.update(fetching, completed=done, total=total, visible=True)

            broker.prepare(advance)
        command.progress.print("starting Kafka …")
        broker.start(lambda: _leave_if(stop))
        yield broker


def _leave_if(stop: threading.Event | None) -> None:
    if stop is not None and stop.is_set():
        sys.exit(130)
