"""The command line: one file a command."""

from __future__ import annotations

import os
import sys

import typer

from mercury import __version__
from mercury.cli.check import config, doctor
from mercury.cli.common.command import fail
from mercury.cli.data import history, import_, replay
from mercury.cli.lab import bench, dev, load, sim
from mercury.cli.messages import report, send, tail, why
from mercury.cli.run import adapter, broker, client, demo, down, matcher, moos, pipeline, up
from mercury.model.errors import MercuryError
from mercury.service import tie

app = typer.Typer(
    name="mercury",
    help="Geo-aware messaging and alerting for things that move.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("down")(down.down)
app.command("adapter")(adapter.adapter)
app.command("broker")(broker.broker)
app.command("matcher")(matcher.matcher)
app.command("client")(client.client)
app.command("pipeline")(pipeline.pipeline)
app.add_typer(sim.app, name="sim")
app.command("load")(load.load)
app.command("send")(send.send)
app.command("tail")(tail.tail)
app.command("report")(report.report)
app.command("why")(why.why)
app.add_typer(history.app, name="history")
app.command("replay")(replay.replay)
app.command("import")(import_.import_)
app.command("moos")(moos.moos)
app.command("config")(config.config)
app.command("doctor")(doctor.doctor)
app.add_typer(bench.app, name="bench")
app.add_typer(dev.app, name="dev")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"mercury {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True),
) -> None:
    """Geo-aware messaging and alerting for things that move."""


def main() -> None:
    """Run a command; what goes wrong is one sentence and a non-zero exit code."""
    tie.hold()
    try:
        app()
    except MercuryError as error:
        fail(str(error))
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()
