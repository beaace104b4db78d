"""What all commands share: settings, running, and errors as one clear sentence."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
import uvloop
from rich.console import Console

from mercury.bus import Bus, Retention, open_bus
from mercury.config import Settings, load_settings
from mercury.model.errors import ConfigurationError
from mercury.service import Service
from mercury.service.logs import set_up_logs
from mercury.session import SessionSettings

Result = TypeVar("Result")

# For people; stdout is for results. Neither [brackets] nor long lines are to be taken apart.
progress = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file; default $MERCURY_CONFIG or ./mercury.toml"),
]
BusOption = Annotated[
    str | None,
    typer.Option(
        "--bus",
        help="embedded:PATH, kafka://HOST:PORT[,HOST:PORT...]\\[/PREFIX], memory:",
        metavar="URI",
    ),
]
IdOption = Annotated[str | None, typer.Option("--id", help="Name, unique on the bus")]
MetricsPortOption = Annotated[
    int | None, typer.Option("--metrics-port", help="TCP port of /metrics, /healthz")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout")]
LinkOption = Annotated[
    str | None,
    typer.Option(help="Lossy link of each vehicle, such as cellular,loss=0.1", metavar="SPEC"),
]
AntennaOption = Annotated[
    str | None,
    typer.Option(help="Where the links lead to; default the middle of the plane", metavar="X,Y"),
]
ForOption = Annotated[
    float | None, typer.Option("--for", min=0.0, help="End by itself after so many seconds")
]


def settings_for(config: Path | None, **overrides: object) -> Settings:
    """Load the settings; names are `section__key`, None means not given."""
    settings = load_settings(
        config, {name.replace("__", ".", 1): value for name, value in overrides.items()}
    )
    set_up_logs(settings.log.level, json_lines=settings.log.json_lines)
    return settings


def antenna_settings(text: str | None) -> dict[str, float]:
    """What `--antenna` overrides, for `settings_for`."""
    if text is None:
        return {}
    try:
        x_m, y_m = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigurationError(f"--antenna {text} is not X,Y in metres") from None
    return {"sim__antenna_x_m": x_m, "sim__antenna_y_m": y_m}


def bus_of(settings: Settings) -> Bus:
    """Open the configured bus."""
    bus = settings.bus
    return open_bus(
        bus.uri,
        retention=Retention(bus.retention_age_s, bus.retention_bytes),
        partitions=bus.partitions,
    )


def require_bus(settings: Settings) -> None:
    """Raise if there is no bus: who only looks or sends must not make one where nobody is."""
    scheme, _, path = settings.bus.uri.partition(":")
    if scheme == "memory":
        raise ConfigurationError("a memory: bus is one process's own: name the one of Mercury")
    if scheme == "embedded" and not Path(path).exists():
        raise ConfigurationError(
            f"there is no bus at {path}: run this where `mercury up` runs, or name its bus (--bus)"
        )


def session_of(settings: Settings) -> SessionSettings:
    """The configured behaviour of sessions."""
    return SessionSettings(**settings.session.model_dump())


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run on the fast event loop; Ctrl-C is a normal end."""
    try:
        return uvloop.run(work)
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)


def serve(settings: Settings, make: Callable[[Bus], Service]) -> None:
    """Run a service on the configured bus until it is stopped."""

    async def work() -> None:
        bus = bus_of(settings)
        try:
            await make(bus).run()
        finally:
            bus.close()

    run(work())


def print_json(result: object) -> None:
    """One line on stdout, for programs."""
    print(json.dumps(result, separators=(",", ":"), sort_keys=False), flush=True)


def fail(sentence: str, code: int = 1) -> NoReturn:
    """Say what is wrong and end."""
    progress.print(f"mercury: {sentence}", style="bold red", markup=False, soft_wrap=True)
    sys.exit(code)
