"""`mercury import`: recorded positions become a table, or reports on the bus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.cli.common.spinner import waiting
from mercury.cli.data import stored_tables
from mercury.cli.data.stored_tables import MasterOption, counted
from mercury.model.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mercury.pipeline.traces.inputs import Alike
    from mercury.pipeline.traces.job import Import, ImportSummary


def import_(
    paths: Annotated[list[Path], typer.Argument(help="Files to read, or folders of files")],
    to: Annotated[
        tuple[str, Path] | None, option("Write a table, by day; this or --bus", "parquet FOLDER")
    ] = None,
    bus: Annotated[str | None, option("Append to the topic reports of a bus", "URI")] = None,
    speed: Annotated[str, option("N times the original speed, or max", "max|N")] = "max",
    rejects: Annotated[
        Path | None, option("Folder for invalid rows; default --to with -rejects added")
    ] = None,
    rejects_format: Annotated[Literal["parquet", "csv"], option("Their format")] = "parquet",
    overwrite: Annotated[
        bool, option("Replace the contents of the folders", names="--overwrite")
    ] = False,
    file_format: Annotated[
        Literal["auto", "csv", "parquet", "gtfs-realtime", "sumo-fcd"],
        option("csv, parquet, gtfs-realtime, sumo-fcd or auto", "FORMAT", names="--format"),
    ] = "auto",
    vehicle_column: Annotated[str, option("Default by its name", "NAME")] = "",
    time_column: Annotated[
        list[str] | None, option("Repeat it to join date and time; default by its name", "NAME")
    ] = None,
    lat_column: Annotated[str, option("In degrees; default by its name", "NAME")] = "",
    lon_column: Annotated[str, option("In degrees; default by its name", "NAME")] = "",
    speed_column: Annotated[str, option("Default by its name, if any", "NAME")] = "",
    heading_column: Annotated[str, option("In degrees; default by its name, if any", "NAME")] = "",
    time_format: Annotated[
        str,
        option("auto, epoch-s, epoch-ms, epoch-us, iso, or as yyyy/MM/dd HH:mm:ss", "FORMAT"),
    ] = "auto",
    time_zone: Annotated[
        str, option("Of times without an offset, such as America/Chicago")
    ] = "UTC",
    time_origin: Annotated[
        str | None, option("Time at second 0 of a simulation; default 1970-01-01", "ISO")
    ] = None,
    speed_unit: Annotated[
        Literal["auto", "m/s", "km/h", "mph", "kn"],
        option("auto: by the column's name, else m/s"),
    ] = "auto",
    separator: Annotated[str, option("Of CSV; default by the header", "CHARACTER")] = "",
    max_speed: Annotated[
        float, option("Fastest plausible speed in m/s; faster fixes are rejected as jumps", min=0.1)
    ] = 100.0,
    spark_master: MasterOption = None,
    config: command.ConfigOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Import recorded positions: CSV, Parquet, GTFS-realtime, SUMO FCD.

    Invalid rows are written to the rejects with the reason; the others are imported.
    """
    settings = command.settings_for(config, bus__uri=bus, pipeline__spark_master=spark_master)
    table, parquet = to or ("parquet", None)
    if table != "parquet":
        raise ConfigurationError(f"--to takes parquet FOLDER, not {table!r}")
    if parquet is None and bus is None:
        raise ConfigurationError("say where to: --to parquet FOLDER, --bus URI, or both")
    if bus is not None and bus.startswith("memory:"):
        raise ConfigurationError("a memory: bus ends with this command: use another --bus")
    pace = reading.pace(speed)
    from mercury.pipeline.traces.columns import ColumnNames, Reading
    from mercury.pipeline.traces.job import Import, columns_taken

    how = Reading(
        columns=ColumnNames(
            vehicle_column, tuple(time_column or ()), lat_column, lon_column, speed_column,
            heading_column,
        ),
        time_format=time_format,
        time_zone=time_zone,
        time_origin_us=reading.instant(time_origin, "--time-origin") or 0,
        speed_unit=speed_unit,
        separator="\t" if separator == "\\t" else separator,
    )  # fmt: skip
    steps: dict[str, int] = {}  # begun, and how many reports each appended
    with nullcontext() if bus is None else closing(command.bus_of(settings)) as opened:
        wanted = Import(
            paths,
            rejects or Path(f"{parquet or 'mercury-import'}-rejects"),
            parquet=parquet,
            bus=opened,
            speed=pace,
            reading=how,
            file_format=file_format,
            max_speed_mps=max_speed,
            rejects_format=rejects_format,
            overwrite=overwrite,
        )
        taken = columns_taken(wanted)  # what is wrong is said before Spark is waited for
        if not as_json:
            print(_columns(taken), flush=True)
        with stored_tables.session(settings, lambda: _interrupted(steps, wanted)) as spark:
            summary = _run(spark, wanted, steps)
    if as_json:
        outputs = {"parquet": parquet and str(parquet), "bus": bus, "rejects": str(wanted.rejects)}
        columns = [{"files": len(one.paths), **one.reading.describe()} for one in taken]
        command.print_json({**asdict(summary), **outputs, "columns": columns})
    elif summary.kept:
        print(_sentences(summary, wanted), flush=True)
    if not summary.kept:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in summary.rejected.items())
        why = f" ({reasons}; {wanted.rejects} has more)" if reasons else ": there are no rows"
        places = " and ".join(str(one) for one in (parquet, bus) if one)
        command.fail(f"nothing was written to {places}, as no row could be kept{why}")


def _run(spark: SparkSession, wanted: Import, steps: dict[str, int]) -> ImportSummary:
    from mercury.pipeline.traces import job

    tracker = spark.sparkContext.statusTracker()

    @contextmanager
    def stage(title: str) -> Iterator[Callable[[int], None]]:
        steps[title] = 0

        def progress() -> str:
            if steps[title]:
                return f"{steps[title]:,} reports"
            stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
            done = sum(one.numCompletedTasks for one in stages if one)
            total = sum(one.numTasks for one in stages if one)
            return f"{done} of {total} tasks" if total else ""

        with waiting(title, progress):
            yield lambda count: steps.update({title: count})

    return job.run(spark, wanted, stage)


def _interrupted(steps: dict[str, int], wanted: Import) -> str:
    if len(steps) < 2:  # only reading
        return "interrupted; nothing was written"
    title, appended = [*steps.items()][-1]
    if "bus" in title:
        return f"interrupted while {title}: {counted(appended, 'report')} went there"
    folders = " and ".join(str(one) for one in (wanted.rejects, wanted.parquet) if one)
    return f"interrupted while {title}: {folders} may not be whole, replace them with --overwrite"


def _columns(taken: list[Alike]) -> str:
    lines = []
    for one in taken:
        others = len(one.paths) - 1
        lines.append(f"columns of {one.paths[0]}{f' and {others:,} more' if others else ''}:")
        lines += [f"  {name:<7} ← {said}" for name, said in one.reading.describe().items()]
    return "\n".join(lines)


def _sentences(summary: ImportSummary, wanted: Import) -> str:
    rejected = sum(summary.rejected.values())
    lines = [
        f"{counted(summary.rows, 'row')} of {counted(summary.files, 'file')}"
        f" in {summary.seconds:,.1f} s"
        + (f" ({summary.rows_per_s:,} rows/s)" if summary.rows_per_s else ""),
        f"  kept       {summary.kept:>12,}  of {counted(summary.vehicles, 'vehicle')}"
        f", {summary.first} to {summary.last}",
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
