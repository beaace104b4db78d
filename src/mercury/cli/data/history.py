"""`mercury history`: queries of the stored tables."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress

from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.cli.data import stored_tables
from mercury.cli.data.stored_tables import counted, rounded, show
from mercury.cli.messages.describe import iso_time
from mercury.config import Settings
from mercury.model.errors import ConfigurationError, PipelineError
from mercury.pipeline.history.days import day_of, days_of
from mercury.pipeline.history.journal import with_retry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from mercury.pipeline.history.files import HistoryFolder

app = typer.Typer(help="Query the tables that the pipeline stored.", no_args_is_help=True)

# The columns that people see, and where they come from.
_LEDGER = {
    "message": "message", "from": "source", "to": "destination", "topic": "topic",
    "recipients": "recipients", "acknowledged": "acknowledged", "expired": "expired",
    "refused": "refused", "unreachable": "unreachable",
    "p50 s": "late_p50_s", "p99 s": "late_p99_s",
}  # fmt: skip


@app.command()
def where(
    vehicle: Annotated[str, typer.Argument(help="Identity of the client")],
    at: Annotated[str | None, option("The last position up to then; default now", "TIME")] = None,
    begin: stored_tables.FromOption = None,
    end: stored_tables.ToOption = None,
    limit: Annotated[int, option("Most positions of a track", min=1)] = 1000,
    config: command.ConfigOption = None,
    folder: stored_tables.FolderOption = None,
    spark_master: stored_tables.MasterOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Print where a client was: last, at a time, or its track from one time to another."""
    at_us = reading.instant(at, "--at")
    from_us, to_us = reading.span(begin, end)
    if at is not None and (begin is not None or end is not None):
        raise ConfigurationError("--at is one time, --from and --to are two")
    settings = stored_tables.load(config, folder, spark_master)
    stored = stored_tables.opened(settings)
    from mercury.pipeline.history import queries

    with stored_tables.session(settings) as spark:

        def way() -> list[Row]:
            rows = stored.read(spark, "reports", *days_of(from_us, to_us))
            rows = queries.track(queries.within(rows, from_us, to_us), vehicle)
            return rows.limit(limit).collect()

        def last() -> list[Row]:
            # Most likely it is on the last day.
            for day in reversed(stored.days("reports")):
                if at_us is None or day <= day_of(at_us):
                    rows = stored.read(spark, "reports", day, day)
                    rows = queries.within(rows, None, None if at_us is None else at_us + 1)
                    if found := queries.last_known(rows, vehicle).collect():
                        return found
            return []

        found = with_retry(last if begin is None and end is None else way)
    track = [_timed(row) for row in found]
    show({"vehicle": vehicle, "track": track}, track, as_json, f"no report of {vehicle}")


@app.command()
def area(
    area: Annotated[str, option("Area: a circle, GeoJSON or a file of it", reading.AREA_FORM)],
    begin: stored_tables.FromOption = None,
    end: stored_tables.ToOption = None,
    kind: Annotated[str | None, option("Only this kind of event; default all")] = None,
    limit: Annotated[int, option("Most events, the oldest first", min=1)] = 1000,
    config: command.ConfigOption = None,
    folder: stored_tables.FolderOption = None,
    spark_master: stored_tables.MasterOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Print the events and alerts of an area, and how much traffic it had."""
    from_us, to_us = reading.span(begin, end)
    asked = reading.area(area)
    settings = stored_tables.load(config, folder, spark_master)
    stored = stored_tables.opened(settings)
    from mercury.pipeline.history import queries

    with stored_tables.session(settings) as spark:
        days = days_of(from_us, to_us)

        def ask() -> tuple[list[Row], Row]:
            events, alerts, reports = (
                queries.within(stored.read(spark, table, *days), from_us, to_us)
                for table in ("events", "alerts", "reports")
            )
            listed = queries.happened(
                queries.inside(events, asked), queries.reaching(alerts, asked), kind
            )
            return (
                listed.limit(limit).collect(),
                queries.traffic(queries.inside(reports, asked)).collect()[0],
            )

        found, seen = with_retry(ask)
    happened = [_timed(row) for row in found]
    result = {"happened": happened, **rounded(seen.asDict())}
    show(result, happened, as_json, "no event and no alert")
    if not as_json:
        print(f"{counted(seen.reports, 'report')} of {counted(seen.vehicles, 'vehicle')}")


@app.command()
def busiest(
    day: Annotated[str | None, option("Such as 2026-03-01 (UTC); default the last stored")] = None,
    top: Annotated[int, option("Number of tiles", min=1)] = 10,
    config: command.ConfigOption = None,
    folder: stored_tables.FolderOption = None,
    spark_master: stored_tables.MasterOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Print the tiles with the most reports on a day."""
    settings = stored_tables.load(config, folder, spark_master)
    stored = stored_tables.opened(settings)
    from mercury.pipeline.history import queries
    from mercury.pipeline.history.tiles import tile_centre

    days = stored.days("reports")
    if not days or (day is not None and day not in days):
        known = f"there are {days[0]} to {days[-1]}" if days else "nothing is stored yet"
        raise ConfigurationError(f"no reports of {day or 'any day'}: {known}")
    chosen = day or days[-1]
    with stored_tables.session(settings) as spark:
        found = with_retry(
            lambda: queries.busiest(stored.read(spark, "reports", chosen, chosen), top).collect()
        )
    tiles = []
    for row in found:
        lat, lon = tile_centre(row.tile) or (None, None)
        tiles.append(rounded({"tile": row.tile, "lat": lat, "lon": lon, **row.asDict()}))
    show({"day": chosen, "tiles": tiles}, tiles, as_json, "no reports")


@app.command()
def compact(
    config: command.ConfigOption = None,
    folder: stored_tables.FolderOption = None,
    spark_master: stored_tables.MasterOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Merge small files into large ones; the pipeline may run meanwhile."""
    settings = stored_tables.load(config, folder, spark_master)
    stored = stored_tables.opened(settings, to_write=True)
    from mercury.pipeline.history.compaction import compact as compact_folder

    with (
        stored_tables.session(settings) as spark,
        Progress(console=command.progress, transient=True) as bar,
    ):
        task = bar.add_task("days and tiles", total=None)
        done = compact_folder(
            spark,
            stored,
            progress=lambda count, total: bar.update(task, completed=count, total=total),
        )
    if as_json:
        command.print_json(done._asdict())
    else:
        print(
            f"{done.files_before:,} files of {done.partitions:,} days and tiles"
            f" became {done.files_after:,}"
        )


@app.command()
def ledger(
    begin: stored_tables.FromOption = None,
    end: stored_tables.ToOption = None,
    limit: Annotated[int, option("Most messages, the newest", min=1)] = 1000,
    config: command.ConfigOption = None,
    folder: stored_tables.FolderOption = None,
    spark_master: stored_tables.MasterOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Print how many recipients received each message, how late; update the table first."""
    from_us, to_us = reading.span(begin, end)
    settings = stored_tables.load(config, folder, spark_master)
    stored = stored_tables.opened(settings, to_write=True)
    waiting = _bring_up(settings, stored)
    from mercury.pipeline.ledger.reading import stored_outcomes

    found = stored_outcomes(stored.path, from_us, to_us)[-limit:]
    for one in found:  # to a millisecond
        for name in ("late_p50_s", "late_p99_s"):
            one[name] = None if one[name] is None else round(one[name], 3)
    if as_json:
        command.print_json({"messages": found, "waiting": waiting})
        return
    shown = [
        {"time": iso_time(one["time_us"]), **{name: one[key] for name, key in _LEDGER.items()}}
        for one in found
    ]
    show({}, shown, False, "no message is over")
    if waiting:
        print(f"{waiting:,} were not over when the last record was stored")


def _bring_up(settings: Settings, stored: HistoryFolder) -> int | None:
    """Enter what the pipeline has not entered; returns how many wait, None if it is running."""
    from mercury.pipeline.ledger.job import LedgerJob, newest_stored_us

    job = LedgerJob(stored.path)
    try:
        job.start()
    except PipelineError:
        return None
    try:
        until_us = newest_stored_us(stored)
        due = job.due(until_us)
        if not due.messages:
            return due.waiting
        with stored_tables.session(settings) as spark:
            # More records may come: not final.
            while (entered := job.run(spark, until_us, final=False)).messages:
                command.progress.print(f"{counted(entered.messages, 'message')} entered the ledger")
        return entered.waiting
    finally:
        job.stop()


@app.command()
def tables(
    config: command.ConfigOption = None,
    folder: stored_tables.FolderOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Print the rows, days, files and bytes of each table."""
    stored = stored_tables.opened(stored_tables.load(config, folder))
    from mercury.pipeline.history.statistics import table_statistics
    from mercury.pipeline.history.tables import TABLES

    with command.progress.status("counting"):
        found = [table_statistics(stored, table)._asdict() for table in TABLES]
    show({"folder": str(stored.path), "tables": found}, found, as_json, "nothing")


@app.command()
def encounters(
    radius: Annotated[float, option("Distance that counts as an encounter, in metres")] = 50.0,
    of: Annotated[str | None, option("Only of this client; default all", "CLIENT")] = None,
    between: Annotated[tuple[str, str] | None, option("Only of these two", "CLIENT CLIENT")] = None,
    min_duration: Annotated[str, option("Shortest to count, such as 10s or 2m", "LENGTH")] = "10s",
    hysteresis: Annotated[float, option("It ends so many metres outside the radius")] = 10.0,
    gap: Annotated[str, option("It ends after so long without a report", "LENGTH")] = "60s",
    begin: stored_tables.FromOption = None,
    end: stored_tables.ToOption = None,
    area: Annotated[str | None, option("Only in this area; default all", reading.AREA_FORM)] = None,
    limit: Annotated[int, option("Most to print, the oldest first", min=0)] = 1000,
    out: Annotated[Path | None, option("Folder to write all to, as Parquet", "DIR")] = None,
    overwrite: Annotated[
        bool, option("Replace the contents of --out", names="--overwrite")
    ] = False,
    positions: Annotated[
        Path | None, option("Read this table of `mercury import` instead", "DIR")
    ] = None,
    config: command.ConfigOption = None,
    folder: stored_tables.FolderOption = None,
    spark_master: stored_tables.MasterOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Print which clients came within a radius of each other, when, how near and how long."""
    settings = stored_tables.load(config, folder, spark_master)
    if positions is not None and folder is not None:
        raise ConfigurationError("reports are read from --folder or from --positions")
    from_us, to_us = reading.span(begin, end)
    place = None if area is None else reading.area(area)
    source = stored_tables.opened(settings) if positions is None else positions
    from mercury.matching.encounters import EncounterRule
    from mercury.pipeline.encounters import job

    rule = EncounterRule(
        radius,
        hysteresis,
        reading.length_s(min_duration, "--min-duration"),
        reading.length_s(gap, "--gap"),
    )
    asked = job.EncounterQuery(rule, of, between, from_us, to_us, place)
    if out is not None:
        read = source if isinstance(source, Path) else source.path
        job.check_out(out, read, overwrite=overwrite)
    with stored_tables.session(settings) as spark:

        def reports() -> DataFrame:
            if isinstance(source, Path):
                return job.imported_positions(spark, source)
            return job.stored_reports(spark, source, asked)

        found = job.find(reports, asked, limit=limit, out=out)
    listed = [_describe(row) for row in found.listed]
    totals = {"encounters": found.encounters, "pairs": found.pairs, "clients": found.clients}
    show(
        {**asdict(rule), **totals, "listed": [rounded(row.asDict()) for row in found.listed]},
        listed,
        as_json,
        "" if found.encounters else "no encounter",
    )
    if not as_json and found.encounters:
        print(
            f"{counted(found.encounters, 'encounter')} of {counted(found.pairs, 'pair')}"
            f" among {counted(found.clients, 'client')}"
            + (f", {len(listed):,} listed" if len(listed) < found.encounters else "")
        )


def _timed(row: Row) -> dict[str, Any]:
    values = rounded(row.asDict())
    return {"time": iso_time(values.pop("time_us")), **values}


def _describe(row: Row) -> dict[str, Any]:
    """An encounter for people; its position to a metre."""
    return {
        "time": iso_time(row.from_us),
        "client": row.client,
        "other": row.other,
        "duration s": round(row.duration_s, 1),
        "nearest m": round(row.nearest_m, 1),
        "lat": round(row.lat, 5),
        "lon": round(row.lon, 5),
    }
