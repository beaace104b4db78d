"""`mercury replay`: a stored hour, through the system again."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mercury.cli.common import command, times
from mercury.cli.data import history_folder
from mercury.cli.data.history_folder import FolderOption, MasterOption
from mercury.cli.messages.describe import iso_time


def replay(
    begin: Annotated[str, typer.Option("--from", help=times.TIME_HELP, metavar="TIME")],
    end: Annotated[str, typer.Option("--to", help="Just before this", metavar="TIME")],
    speed: Annotated[str, typer.Option(help="1 is the original pace; max has none")] = "1",
    topics: Annotated[
        str, typer.Option(help="With commas; alerts follow from these by themselves")
    ] = "reports,events.*",
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    folder: FolderOption = None,
    spark_master: MasterOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Put stored records back on the bus, at any speed; Ctrl-C ends it cleanly."""
    from_us, to_us = times.span(begin, end)
    assert from_us is not None
    assert to_us is not None
    factor = history_folder.pace(speed)
    names = tuple(name for name in topics.split(",") if name)
    settings = command.settings_for(
        config,
        bus__uri=bus,
        pipeline__history_folder=folder,
        pipeline__spark_master=spark_master,
    )
    stored = history_folder.opened(settings)
    from mercury.pipeline.history.replay import Replay, in_order, recorded

    target = command.bus_of(settings)
    interrupted = False
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]:,} records"),
        TimeElapsedColumn(),
    )
    try:
        with (
            history_folder.session(settings) as spark,
            Progress(*columns, console=command.progress, transient=True) as bar,
        ):
            task = bar.add_task(iso_time(from_us)[:19], total=to_us - from_us, count=0)

            def show(count: int, time_us: int) -> None:
                done = time_us - from_us
                bar.update(task, description=iso_time(time_us)[:19], completed=done, count=count)

            work = Replay(target, factor, progress=show)
            try:
                work.run(in_order(recorded(spark, stored, names, from_us, to_us)))
            except KeyboardInterrupt:
                interrupted = True
    finally:
        target.close()
    if as_json:
        command.print_json({"records": work.count, "interrupted": interrupted})
    else:
        print(f"{work.count:,} records are on {settings.bus.uri}")
    if interrupted:
        sys.exit(130)
