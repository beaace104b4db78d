"""Starts the parts that a benchmark measures as processes of their own, and stops them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.error import HTTPError

from mercury.dev.processes import free_port, stop_process
from mercury.model.errors import MercuryError

Say = Callable[[str], None]  # shows the progress of a benchmark

_START_S = 30.0
_STOP_S = 10.0
_SYNCS = 500


def health(port: int) -> dict[str, float] | None:
    """The answer of `/healthz`; None while the service is not up."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1.0) as answer:
            found: dict[str, Any] = json.load(answer)
    except HTTPError as error:  # under load it may be behind, which is what is measured
        found = json.load(error)
    except OSError:
        return None
    return None if found["status"] == "starting" else found


def metric(port: int, name: str) -> float:
    """One number of a service's `/metrics`; 0 while it has not been counted."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5.0) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    return 0.0


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    is_up: Callable[[], object],
    environment: dict[str, str] | None = None,
    start_s: float = _START_S,
) -> Iterator[None]:
    """Run a program while the block lasts, from when it is up."""
    process = subprocess.Popen(command, env={**os.environ, **(environment or {})})
    try:
        deadline = time.monotonic() + start_s
        while not is_up():
            if process.poll() is not None:
                raise MercuryError(f"the {name} ended at its start with {process.returncode}")
            if time.monotonic() > deadline:
                raise MercuryError(f"the {name} did not come up within {start_s:g} s")
            time.sleep(0.05)
        yield
    finally:
        stop_process(process, _STOP_S)


@contextmanager
def part(
    name: str,
    arguments: Sequence[str],
    environment: dict[str, str] | None = None,
    start_s: float = _START_S,
) -> Iterator[int]:
    """Run `mercury NAME` while the block lasts; yields its metrics port."""
    port = free_port()
    command = [sys.executable, "-m", "mercury.cli.main", name, *arguments]
    environment = {"MERCURY_LOG__LEVEL": "warning", **(environment or {})}
    command += ["--metrics-port", str(port)]
    with running(name, command, lambda: health(port) is not None, environment, start_s):
        yield port


@contextmanager
def adapter(bus: str, environment: dict[str, str] | None = None) -> Iterator[tuple[int, int]]:
    """An adapter process; yields its UDP and its metrics port."""
    port = free_port(socket.SOCK_DGRAM)
    environment = {"MERCURY_SESSION__REPORT_INTERVAL_S": "60", **(environment or {})}
    with part("adapter", ["--bus", bus, "--port", str(port)], environment) as metrics_port:
        yield port, metrics_port


def broker(bus: str, environment: dict[str, str] | None = None) -> AbstractContextManager[int]:
    """A broker process; yields its metrics port."""
    return part("broker", ["--bus", bus], environment)


@contextmanager
def temporary_bus() -> Iterator[str]:
    """The URI of an embedded bus that is deleted after the block."""
    with tempfile.TemporaryDirectory(prefix="mercury-bench-") as folder:
        yield fresh_bus(None, folder)


def fdatasync_ms(bus: str) -> tuple[float, float] | None:
    """How long the disk of an embedded bus takes to keep a small append: median and p99."""
    if not bus.startswith("embedded:"):
        return None
    took = []
    with tempfile.TemporaryFile(dir=os.path.dirname(bus.removeprefix("embedded:"))) as file:
        for _ in range(_SYNCS):
            file.write(bytes(512))
            file.flush()
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - begun) * 1000)
    took.sort()
    return took[_SYNCS // 2], took[_SYNCS * 99 // 100]


def fresh_bus(uri: str | None, folder: str) -> str:
    """The URI of a new bus: embedded in a folder, or a namespace of its own in Kafka."""
    if uri is None:
        return f"embedded:{folder}/bench.db"
    if uri.startswith("kafka:"):
        return f"{uri.rstrip('/')}{'.' if uri.count('/') > 2 else '/'}bench-{uuid.uuid4().hex[:8]}"
    return uri
