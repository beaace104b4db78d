"""The command line; the module of a command is imported when it is used."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from mercury import __version__
from mercury.model.errors import MercuryError

# By group: name, where it is defined, and its line in `mercury --help`.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "demo": ("run.demo:demo", "Run a simulated city for a minute and print what happens."),
        "up": ("run.up:up", "Run all parts on this machine until Ctrl-C or `mercury down`."),
        "down": ("run.up:down", "Stop what `mercury up` started."),
        "adapter": ("run.services:adapter", "Run an adapter: clients' sessions over UDP."),
        "broker": ("run.services:broker", "Run a broker: alerts, content, requests."),
        "matcher": (
            "run.services:matcher",
            "Run a matcher: notify moving clients of what is near.",
        ),
        "pipeline": ("run.services:pipeline", "Run the Spark jobs: detection and history."),
        "client": ("run.client:client", "Run a client: report a position, print messages."),
        "moos": ("run.moos:moos", "Bridge a MOOS community to vehicles and Mercury."),
    },
    "Messages": {
        "send": ("messages.send:send", "Send an alert to an area, a client or a group."),
        "tail": ("messages.tail:tail", "Print the messages of topics as they arrive."),
        "why": ("messages.why:why", "Print what became of a message, and why."),
        "report": ("messages.report:report", "Print what a client received, sent and lost."),
    },
    "Data": {
        "history": ("data.history:app", "Query what the pipeline stored."),
        "replay": ("data.replay:replay", "Append stored records to a bus again, at any speed."),
        "import": ("data.import_:import_", "Import recorded positions into a table or a bus."),
    },
    "Check": {
        "doctor": ("check.doctor:doctor", "Check the machine, the bus and the running parts."),
        "bus": ("check.bus:app", "Check and repair the files of an embedded bus."),
        "config": ("check.config:config", "Print the settings and where each comes from."),
    },
    "Try and measure": {
        "sim": ("lab.sim:app", "Simulate vehicles, each a client over UDP."),
        "load": ("lab.load:load", "Generate load on the matcher from roads."),
        "bench": ("lab.bench:app", "Measure how fast Mercury is on this machine."),
        "dev": ("lab.dev:app", "Run a Kafka broker or a Spark cluster for development."),
    },
}

# Packages that only some installations have, and what installs them.
_EXTRAS = {
    "confluent_kafka": "kafka",
    "google.transit": "traces",
    "matplotlib": "plot",
    "numba": "server",
    "osmium": "load",
    "pandas": "pipeline",
    "pyarrow": "pipeline",
    "pyspark": "pipeline",
    "redis": "load",
    "scipy": "load",
    "starlette": "server",
    "uvicorn": "server",
    "websockets": "server",
}


class _Commands(TyperGroup):
    """Imports a command's module when the command is called, not for the list of commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:  # as git and docker have it
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)), rest


app = typer.Typer(
    name="mercury",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def load_command(name: str) -> Any:
    """The command of this name with its options, or the group of commands."""
    [where] = [group[name][0] for group in COMMANDS.values() if name in group]
    module, _, attribute = where.partition(":")
    found = getattr(import_module(f"mercury.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    single = typer.Typer(add_completion=False)
    single.command(name)(found)
    return typer.main.get_command(single)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"mercury {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_show_version, is_eager=True
    ),
) -> None:
    """Geo-aware messaging and alerting for things that move."""


def main() -> None:
    """Run a command; an error is one sentence and a non-zero exit code."""
    if "MERCURY_SUPERVISOR_FD" in os.environ:
        import_module("mercury.service.supervisor_link").hold()
    try:
        try:
            app()
        finally:
            print(end="", flush=True)  # here, where what goes wrong is said in a sentence
    except MercuryError as error:
        sentence = str(error)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "") or _EXTRAS.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        sentence = f"this needs {error.name}: pip install 'mercury-messaging[{extra}]'"
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is still in the buffer
        if isinstance(error, BrokenPipeError):  # the reader of our output has gone, as `head` does
            sys.exit(141)
        if not error.strerror:
            raise
        sentence = error.strerror + (f": {error.filename}" if error.filename else "")
    else:
        return
    import_module("mercury.cli.common.command").fail(sentence)


for _group, _commands in COMMANDS.items():
    for _name, (_, _line) in _commands.items():
        app.command(_name, help=_line, rich_help_panel=_group)(lambda: None)

if __name__ == "__main__":
    main()
