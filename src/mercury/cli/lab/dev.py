"""`mercury dev`: real components to develop against, on this machine."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from mercury.cli.common import command
from mercury.cli.common.spinner import waiting
from mercury.dev.kafka import KafkaBroker, kafka_version
from mercury.dev.spark import SparkCluster
from mercury.java.archives import MAVEN_URL, MAVEN_VARIABLE
from mercury.model.errors import DevError

app = typer.Typer(help="Run real components for development.", no_args_is_help=True)

_CHECK_S = 0.2


@app.callback()
def _group() -> None:
    """Run real components for development."""


@app.command()
def kafka(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 9092,
    data: Annotated[
        Path | None, typer.Option(help="Folder that outlives the broker; default temporary")
    ] = None,
    maven: Annotated[
        str | None,
        typer.Option(help=f"Maven repository; default ${MAVEN_VARIABLE} or {MAVEN_URL}"),
    ] = None,
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Run one Apache Kafka broker on loopback until Ctrl-C; prints its URI when it is ready."""
    stop = _stop_on_signal()
    with running_kafka(KafkaBroker(data, port=port, maven_url=maven), stop) as broker:
        if stop.is_set():
            sys.exit(130)
        if as_json:
            command.print_json(
                {"uri": broker.uri, "version": kafka_version(), "pid": broker.pid,
                 "data": str(broker.data)}
            )  # fmt: skip
        else:
            print(broker.uri, flush=True)
        command.progress.print(
            f"Kafka {kafka_version()} is up, its log is {broker.log_file}"
            + ("" if seconds else " – Ctrl-C stops it")
        )
        _wait(stop, seconds, broker.running, f"Kafka ended by itself, see {broker.log_file}")


@app.command()
def spark(
    workers: Annotated[int, typer.Option(min=1, max=64)] = 2,
    cores: Annotated[int, typer.Option(min=1, help="Of each worker")] = 1,
    memory: Annotated[str, typer.Option(help="Of each worker", metavar="SIZE")] = "1g",
    seconds: command.ForOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Run a Spark cluster on loopback until Ctrl-C; prints its URL when the workers are there."""
    stop = _stop_on_signal()
    cluster = SparkCluster(workers=workers, cores=cores, memory=memory)
    with contextlib.closing(cluster):
        with waiting("Spark's master and workers are starting"):
            cluster.start()
        if as_json:
            command.print_json({"master": cluster.master, "workers": workers})
        else:
            print(cluster.master, flush=True)
        command.progress.print(
            f"Spark is up with {workers} workers, logs are in {cluster.folder}"
            + ("" if seconds else " – Ctrl-C stops it")
        )
        _wait(stop, seconds, cluster.running, f"Spark ended by itself, see {cluster.folder}")


def _stop_on_signal() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _wait(
    stop: threading.Event, seconds: float | None, running: Callable[[], bool], otherwise: str
) -> None:
    """Return when it is time to stop; what does not run any more is an error."""
    waited = 0.0
    while not stop.wait(_CHECK_S) and (seconds is None or waited < seconds):
        waited += _CHECK_S
        if not running():
            raise DevError(otherwise)
    command.progress.print("stopping …")


@contextlib.contextmanager
def running_kafka(
    broker: KafkaBroker, stop: threading.Event | None = None
) -> Iterator[KafkaBroker]:
    """Fetch and start a broker, saying what is being waited for; stop it in the end."""
    try:
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
    except _StoppedError:
        sys.exit(130)
    finally:
        broker.close()


class _StoppedError(Exception):
    """Ctrl-C while the broker was coming up."""


def _leave_if(stop: threading.Event | None) -> None:
    if stop is not None and stop.is_set():
        raise _StoppedError
