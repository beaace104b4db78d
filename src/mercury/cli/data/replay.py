"""`mercury replay`: appends stored records to a bus again."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.cli.data import stored_tables
from mercury.cli.data.stored_tables import FolderOption, MasterOption
from mercury.cli.messages.describe import iso_time


def replay(
    begin: Annotated[str, option(f"Since {reading.TIME_HELP}", "TIME", names="--from")],
    end: Annotated[str, option("Until this time, exclusive", "TIME", names="--to")],
    speed: Annotated[str, option("Multiple of the original speed, or max")] = "1",
    topics: Annotated[
        str, option("Topics, comma-separated; alerts follow from these")
    ] = "reports,events.*",
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    folder: FolderOption = None,
    spark_master: MasterOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Append stored records to a bus again, in their order and at any speed."""
    from_us, to_us = reading.span(begin, end)
    assert from_us is not None
    assert to_us is not None
    factor = reading.pace(speed)
    names = tuple(name for name in topics.split(",") if name)
    settings = stored_tables.load(config, folder, spark_master, bus)
    stored = stored_tables.opened(settings)
    from mercury.pipeline.history.replay import Replay, in_order, recorded

    interrupted = False
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]:,} records"),
        TimeElapsedColumn(),
    )
    with (
        closing(command.bus_of(settings)) as target,
        stored_tables.session(settings) as spark,
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
    if as_json:
        command.print_json({"records": work.count, "interrupted": interrupted})
    else:
        print(f"{work.count:,} records are on {settings.bus.uri}")
    if interrupted:
        sys.exit(130)
