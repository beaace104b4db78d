"""The parts that `mercury up` and `mercury demo` start: with which arguments, on which ports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mercury.cli.common import command
from mercury.config import Settings
from mercury.java.runtime import find_java
from mercury.model.errors import AddressInUseError, ConfigurationError, JavaError, PipelineError
from mercury.net import bind_udp
from mercury.net.ports import bind_tcp
from mercury.service.claim import claimed
from mercury.service.supervisor import Part

_GATEWAY_BESIDE = 80  # the default ports are as far apart
_GATEWAY_TRIES = 20
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


@dataclass(slots=True)
class Parts:
    """What runs on one machine."""

    core: list[Part]  # without these nothing works
    matcher: Part | None
    gateway: str | None  # where the matcher opens one
    pipeline: Part | None

    def all(self) -> list[Part]:
        """All of them, in the order of starting."""
        late = (self.matcher, self.pipeline)
        return [*self.core, *(part for part in late if part is not None)]


@contextmanager
def claimed_parts(settings: Settings, config: Path | None, **options: Any) -> Iterator[Parts]:
    """What is to run on a bus that nobody else on this machine runs the parts of."""
    if settings.bus.uri.startswith("memory:"):
        raise ConfigurationError("several processes share the bus: use an embedded: bus or Kafka")
    if settings.adapter.port == 0:
        raise ConfigurationError("the adapter needs a fixed port here, not 0")
    with claimed(settings.bus.uri) as write:
        try:
            parts = plan(settings, config, **options)
        except AddressInUseError as error:
            other = (settings.adapter.port + 100) % 65536
            hint = f"end that, or choose others: `mercury up --port {other} --bus embedded:PATH`"
            raise AddressInUseError(f"{error}: {hint}") from None
        write([part.name for part in parts.all()])
        yield parts


def plan(
    settings: Settings,
    config: Path | None = None,
    *,
    brokers: int = 1,
    matcher: bool = True,
    pipeline: bool | None = None,
) -> Parts:
    """Choose parts and ports; a port that another process has is an error.

    Arguments:
        pipeline: None runs it where Java and Spark are, and says so where they are not.
    """
    host, port = settings.adapter.host, settings.adapter.port
    bind_udp(host, port).close()
    common = ["--bus", settings.bus.uri]
    if config is not None:
        common += ["--config", str(config)]
    core = [
        Part(f"broker-{number}", ["broker", *common, "--id", f"broker-{number}", *metrics])
        for number, metrics in enumerate(_broker_metrics(settings, brokers), 1)
    ]
    core.append(Part("adapter", ["adapter", *common, "--port", str(port)]))
    parts = Parts(core, None, None, None)
    _check_metrics_port(settings.adapter.metrics_port)
    if matcher and find_spec("numba") is None:
        text = "without the matcher: it needs numba: pip install 'mercury-messaging[server]'"
        command.progress.print(text, markup=False, soft_wrap=True)
    elif matcher:
        _check_metrics_port(settings.matcher.metrics_port)
        arguments = ["matcher", *common]
        if settings.matcher.gateway:
            gateway_port = _gateway_port(settings)
            parts.gateway = f"http://{settings.gateway.host}:{gateway_port}"
            arguments += ["--gateway-port", str(gateway_port)]
        parts.matcher = Part("matcher", arguments)
    if pipeline is not False:
        missing = _missing_for_pipeline(settings)
        if missing is None:
            _check_metrics_port(settings.pipeline.metrics_port)
            parts.pipeline = Part("pipeline", ["pipeline", *common])
        elif pipeline:
            raise PipelineError(missing)
        else:
            text = f"without the pipeline: {missing}"
            command.progress.print(text, markup=False, soft_wrap=True)
    return parts


def adapter_uri(settings: Settings) -> str:
    """Where clients on this machine reach the adapter."""
    host = settings.adapter.host
    return f"udp://{_EVERYWHERE.get(host, host)}:{settings.adapter.port}"


def _broker_metrics(settings: Settings, brokers: int) -> list[list[str]]:
    """The ports of the brokers' metrics follow each other."""
    first = settings.broker.metrics_port
    if not first:
        return [[]] * brokers
    ports = range(first, first + brokers)
    for port in ports:
        _check_metrics_port(port)
    return [["--metrics-port", str(port)] for port in ports]


def _check_metrics_port(port: int | None) -> None:
    if port:
        bind_tcp("127.0.0.1", port, "metrics").close()


def _gateway_port(settings: Settings) -> int:
    """The gateway's port; if only the adapter's was chosen, one beside it, for a second Mercury."""
    host, port = settings.gateway.host, settings.gateway.port
    beside = settings.adapter.port + _GATEWAY_BESIDE
    if settings.origin("gateway.port") != "default" or beside == port:
        bind_tcp(host, port, "the gateway").close()
        return port
    for tried in range(beside, beside + _GATEWAY_TRIES):
        try:
            bind_tcp(host, tried % 65536, "the gateway").close()
        except AddressInUseError:
            continue
        return tried % 65536
    raise ConfigurationError(f"no TCP port from {beside} on is free for the gateway")


def _missing_for_pipeline(settings: Settings) -> str | None:
    """Why the pipeline cannot run here; None if it can."""
    folders = (settings.pipeline.checkpoint, settings.pipeline.history_folder)
    if not settings.bus.uri.startswith("embedded:") and None in folders:
        return "with this bus it must be told pipeline.checkpoint and pipeline.history_folder"
    for package in ("pandas", "pyarrow", "pyspark"):
        if find_spec(package) is None:
            return f"it needs {package}: pip install 'mercury-messaging[pipeline]'"
    try:
        find_java()
    except JavaError as error:
        return str(error)
    return None
