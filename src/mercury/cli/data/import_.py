"""`mercury import`: recorded positions become a table, or reports on the bus."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mercury.cli.common import command, times
from mercury.cli.common.spinner import waiting
from mercury.cli.data import history_folder
from mercury.cli.data.history_view import counted
from mercury.model.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mercury.pipeline.traces.inputs import Alike
    from mercury.pipeline.traces.job import Import, Summary

_REJECTS = Path("mercury-import-rejects")


def import_(
    paths: Annotated[list[Path], typer.Argument(help="Files, and folders of files")],
    to: Annotated[
        tuple[str, Path] | None,
        typer.Option(help="Write a table of positions, by day", metavar="parquet FOLDER"),
    ] = None,
    bus: Annotated[
        str | None, typer.Option(help="Append to the topic reports of this bus", metavar="URI")
    ] = None,
    speed: Annotated[
        str, typer.Option(help="Pace on the bus: max, or N times the original", metavar="max|N")
    ] = "max",
    rejects: Annotated[
        Path | None, typer.Option(help="Folder for rows that are not good; default beside --to")
    ] = None,
    rejects_format: Annotated[Literal["parquet", "csv"], typer.Option()] = "parquet",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is in the folders")
    ] = False,
    file_format: Annotated[
        Literal["auto", "csv", "parquet", "gtfs-realtime", "sumo-fcd"],
        typer.Option("--format", help="Of the files; auto goes by their ending"),
    ] = "auto",
    vehicle_column: Annotated[str, typer.Option(metavar="NAME")] = "",
    time_column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Given several times, joined with spaces"),
    ] = None,
    lat_column: Annotated[str, typer.Option(metavar="NAME")] = "",
    lon_column: Annotated[str, typer.Option(metavar="NAME")] = "",
    speed_column: Annotated[str, typer.Option(metavar="NAME")] = "",
    heading_column: Annotated[str, typer.Option(metavar="NAME")] = "",
    time_format: Annotated[
        str,
        typer.Option(
            metavar="auto|epoch-s|epoch-ms|epoch-us|iso|PATTERN",
            help="A pattern as yyyy/MM/dd HH:mm:ss",
        ),
    ] = "auto",
    time_zone: Annotated[
        str, typer.Option(help="Of times that do not say theirs, as America/Chicago")
    ] = "UTC",
    time_origin: Annotated[
        str | None,
        typer.Option(metavar="ISO", help="When a simulation's clock stood at 0; default 1970"),
    ] = None,
    speed_unit: Annotated[
        Literal["auto", "m/s", "km/h", "mph", "kn"],
        typer.Option(help="auto goes by the column's name, else takes m/s"),
    ] = "auto",
    separator: Annotated[
        str, typer.Option(help="Of CSV; default what the header suggests", metavar="CHARACTER")
    ] = "",
    max_speed: Annotated[
        float, typer.Option(min=0.1, help="A fix that needs more m/s to get there is a jump")
    ] = 100.0,
    spark_master: Annotated[
        str | None, typer.Option(help="local[N], spark://HOST:PORT, yarn, k8s://…", metavar="URL")
    ] = None,
    config: command.ConfigOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Bring recorded positions in: CSV, Parquet, GTFS-realtime, SUMO FCD.

    Rows that are not good go to the rejects, with the reason; they do not stop the rest.
    """
    settings = command.settings_for(config, bus__uri=bus, pipeline__spark_master=spark_master)
    parquet = _folder(to)
    if parquet is None and bus is None:
        raise ConfigurationError("say where to: --to parquet FOLDER, --bus URI, or both")
    if bus is not None and bus.startswith("memory:"):
        raise ConfigurationError("a memory: bus ends with this command: use another --bus")
    pace = history_folder.pace(speed)
    origin_us = times.instant(time_origin, "--time-origin") or 0
    from mercury.pipeline.traces.columns import Columns, Reading
    from mercury.pipeline.traces.job import Import, columns_taken

    reading = Reading(
        columns=Columns(
            vehicle_column, tuple(time_column or ()), lat_column, lon_column, speed_column,
            heading_column,
        ),
        time_format=time_format,
        time_zone=time_zone,
        time_origin_us=origin_us,
        speed_unit=speed_unit,
        separator="\t" if separator == "\\t" else separator,
    )  # fmt: skip
    opened = command.bus_of(settings) if bus is not None else None
    try:
        wanted = Import(
            paths,
            rejects or (parquet.with_name(f"{parquet.name}-rejects") if parquet else _REJECTS),
            parquet=parquet,
            bus=opened,
            speed=pace,
            reading=reading,
            file_format=file_format,
            max_speed_mps=max_speed,
            rejects_format=rejects_format,
            overwrite=overwrite,
        )
        taken = columns_taken(wanted)  # what is wrong is said before Spark is waited for
        if not as_json:
            print(_columns(taken), flush=True)
        with history_folder.session(settings) as spark:
            summary = _run(spark, wanted)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if opened is not None:
            opened.close()
    if as_json:
        outputs = {"parquet": parquet and str(parquet), "bus": bus, "rejects": str(wanted.rejects)}
        columns = [{"files": len(one.paths), **one.reading.describe()} for one in taken]
        command.print_json({**summary.to_json(), **outputs, "columns": columns})
    else:
        print(_sentences(summary, wanted), flush=True)
    if summary.rows and not summary.kept:
        command.fail(f"no row was good; {wanted.rejects} says why for each")


def _run(spark: SparkSession, wanted: Import) -> Summary:
    from mercury.pipeline.traces import job

    tracker = spark.sparkContext.statusTracker()

    @contextmanager
    def stage(title: str) -> Iterator[Callable[[int], None]]:
        appended = 0

        def note(count: int) -> None:
            nonlocal appended
            appended = count

        def progress() -> str:
            if appended:
                return f"{appended:,} reports"
            stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
            done = sum(one.numCompletedTasks for one in stages if one)
            total = sum(one.numTasks for one in stages if one)
            return f"{done} of {total} tasks" if total else ""

        with waiting(title, progress):
            yield note

    return job.run(spark, wanted, stage)


def _folder(to: tuple[str, Path] | None) -> Path | None:
    if to is None:
        return None
    table, folder = to
    if table != "parquet":
        raise ConfigurationError(f"--to takes parquet FOLDER, not {table!r}")
    return folder


def _columns(taken: list[Alike]) -> str:
    """Which columns were taken, in which units."""
    lines = []
    for one in taken:
        others = len(one.paths) - 1
        lines.append(f"columns of {one.paths[0]}{f' and {others:,} more' if others else ''}:")
        lines += [f"  {name:<7} ← {said}" for name, said in one.reading.describe().items()]
    return "\n".join(lines)


def _sentences(summary: Summary, wanted: Import) -> str:
    rejected = sum(summary.rejected.values())
    lines = [
        f"{counted(summary.rows, 'row')} of {counted(summary.files, 'file')}"
        f" in {summary.seconds:,.1f} s"
        f" ({summary.rows_per_s:,} rows/s)",
        f"  kept       {summary.kept:>12,}  of {counted(summary.vehicles, 'vehicle')}"
        + (f", {summary.first} to {summary.last}" if summary.kept else ""),
        f"  rejected   {rejected:>12,}" + (f"  in {wanted.rejects}" if rejected else ""),
        *(f"    {reason:<15} {count:>6,}" for reason, count in summary.rejected.items()),
    ]
    if summary.out_of_order:
        lines.insert(2, f"  of these   {summary.out_of_order:>12,}  were out of order")
    if wanted.parquet is not None:
        lines.append(f"The positions are in {wanted.parquet}.")
    if wanted.bus is not None:
        lines.append(f"{summary.appended:,} reports were appended to the bus.")
    return "\n".join(lines)
