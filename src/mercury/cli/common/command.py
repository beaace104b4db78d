"""What all commands share: settings, running, and errors as one clear sentence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import shutil
import sys
import textwrap
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
import uvloop
from rich.console import Console

from mercury.bus import Bus, Retention, open_bus
from mercury.cli.common.reading import numbers
from mercury.config import Settings, load_settings
from mercury.model.errors import ConfigurationError
from mercury.model.printable import printable_lines
from mercury.service import Service, supervisor_link
from mercury.service.logs import set_up_logs
from mercury.service.stop_signals import on_stop_signal
from mercury.session import SessionSettings

Result = TypeVar("Result")

# For people; stdout is for results. [Brackets] are not taken apart, nor long lines in a file.
progress = Console(stderr=True, highlight=False, markup=False, soft_wrap=not sys.stderr.isatty())


# Each topic of an embedded bus takes up to three files, each connection to a gateway one.
_OPEN_FILES = 65_536


def option(help: str, metavar: str | None = None, *, names: str = "", **more: Any) -> Any:
    """An option: its help, the form of its value, its names if not the parameter's."""
    return typer.Option(*names.split(), help=help, metavar=metavar, **more)


def port(help: str) -> Any:
    return option(help, min=0, max=65535)


ConfigOption = Annotated[
    Path | None, option("Settings file (TOML); default $MERCURY_CONFIG or ./mercury.toml")
]
BusOption = Annotated[
    str | None, option("embedded:PATH or kafka://HOST:PORT; default embedded:mercury.db", "URI")
]
MetricsPortOption = Annotated[int | None, port("Port of /metrics, /livez, /healthz; default none")]
JsonOption = Annotated[bool, option("Print JSON on stdout, one object a line", names="--json")]
LinkOption = Annotated[
    str | None, option("Link of each vehicle, as cellular,loss=0.1; default lossless", "SPEC")
]
AntennaOption = Annotated[
    str | None, option("Base station of the links, in metres; default the city's middle", "X,Y")
]
ForOption = Annotated[
    float | None, option("Seconds until it ends; default on Ctrl-C", min=0.0, names="--for")
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
    x_m, y_m = numbers(text, 2, f"--antenna {text} is not X,Y in metres")
    return {"sim__antenna_x_m": x_m, "sim__antenna_y_m": y_m}


def bus_of(settings: Settings) -> Bus:
    bus = settings.bus
    retention = Retention(bus.retention_age_s, bus.retention_bytes)
    return open_bus(bus.uri, retention=retention, partitions=bus.partitions, sync=bus.sync)


def require_bus(settings: Settings) -> None:
    """Raise if there is no bus: commands that only read or send must not create one."""
    scheme, _, path = settings.bus.uri.partition(":")
    if scheme == "memory":
        raise ConfigurationError("a memory: bus is one process's own: name the one of Mercury")
    if scheme == "embedded" and not Path(path).exists():
        raise ConfigurationError(
            f"there is no bus at {path}: run this where `mercury up` runs, or name its bus (--bus)"
        )


def session_of(settings: Settings) -> SessionSettings:
    return SessionSettings(**settings.session.model_dump())


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run on the fast event loop; Ctrl-C is a normal end."""
    try:
        return uvloop.run(work)
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)


def serve(settings: Settings, make: Callable[[Bus], Service]) -> None:
    """Run a service on the configured bus until it is stopped."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    async def work() -> None:
        with contextlib.closing(bus_of(settings)) as bus:
            await make(bus).run()

    run(work())


def stop_event() -> asyncio.Event:
    """Set when this process is asked to end."""
    stop = asyncio.Event()
    on_stop_signal(stop.set)
    return stop


async def wait(stop: asyncio.Event, seconds: float | None) -> None:
    """Wait until `stop` is set, or for this time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


async def watch(
    stop: asyncio.Event, seconds: float | None, every_s: float, show: Callable[[], None]
) -> None:
    """Call `show` at each interval until `stop` is set, or for this time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not stop.is_set():
                show()
                await wait(stop, every_s)


def show(line: str, mark: str = "") -> None:
    """A line on stdout for people: on a terminal broken between words, elsewhere as it is.

    What others have written may be in the line; a mark before it may be coloured.
    """
    out, line = sys.stdout, printable_lines(line)
    if out.isatty():
        columns = shutil.get_terminal_size().columns - (2 if mark else 0)
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        line = textwrap.fill(
            line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    else:  # while rich shows a spinner, what is printed goes to the spinner's terminal
        out = getattr(out, "rich_proxied_file", out)
    print(f"{mark} {line}" if mark else line, file=out, flush=True)


def print_json(result: object) -> None:
    """One line on stdout, for programs."""
    print(json.dumps(result, separators=(",", ":")), flush=True)


def fail(sentence: str, code: int = 1) -> NoReturn:
    """Print the error and exit."""
    whose = f"mercury {supervisor_link.part}".rstrip()
    progress.print(f"{whose}: {printable_lines(sentence)}", style="bold red")
    sys.exit(code)
