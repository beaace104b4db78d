"""`mercury history encounters`: who came how near to whom, when, and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mercury.cli.common import command, positions, times
from mercury.cli.data import history_folder
from mercury.cli.data.history_folder import FolderOption, FromOption, MasterOption, ToOption
from mercury.cli.data.history_view import counted, rounded, show
from mercury.cli.messages.describe import iso_time
from mercury.model.area import Area
from mercury.model.errors import ConfigurationError, MatchingError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from mercury.pipeline.encounters.job import EncounterQuery


def encounters(
    radius: Annotated[float, typer.Option(help="How near is an encounter, in metres")] = 50.0,
    of: Annotated[str | None, typer.Option(help="Whom this client met", metavar="CLIENT")] = None,
    between: Annotated[
        tuple[str, str] | None, typer.Option(help="Only these two", metavar="CLIENT CLIENT")
    ] = None,
    min_duration: Annotated[
        str, typer.Option(help="Leave out what was shorter", metavar="LENGTH")
    ] = "10s",
    hysteresis: Annotated[
        float, typer.Option(help="An encounter ends this many metres outside the radius")
    ] = 10.0,
    gap: Annotated[
        str, typer.Option(help="After this silence a client is nowhere", metavar="LENGTH")
    ] = "60s",
    begin: FromOption = None,
    end: ToOption = None,
    area: Annotated[
        str | None,
        typer.Option(help="While both are inside", metavar="LAT,LON,RADIUS|GEOJSON"),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="List at most this many, oldest first")] = 1000,
    out: Annotated[
        Path | None, typer.Option(help="Write all of them as Parquet, by day", metavar="DIR")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is in that folder")
    ] = False,
    positions: Annotated[
        Path | None,
        typer.Option(help="Read a table that import wrote, not history", metavar="DIR"),
    ] = None,
    config: command.ConfigOption = None,
    folder: FolderOption = None,
    spark_master: MasterOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Who met whom: came within a radius, when, for how long and how near."""
    settings = history_folder.load(config, folder, spark_master)
    if positions is not None and folder is not None:
        raise ConfigurationError("reports are read from --folder or from --positions")
    from_us, to_us = times.span(begin, end)
    place = None if area is None else _area(area)
    stored = history_folder.opened(settings) if positions is None else None
    from mercury.matching.encounters import EncounterRule
    from mercury.pipeline.encounters import job

    try:
        rule = EncounterRule(
            radius,
            hysteresis,
            times.length_s(min_duration, "--min-duration"),
            times.length_s(gap, "--gap"),
        )
    except MatchingError as error:
        raise ConfigurationError(str(error)) from None
    asked = job.EncounterQuery(rule, of, between, from_us, to_us, place)
    if out is not None:
        source = stored.path if stored is not None else positions
        assert source is not None
        job.check_out(out, source, overwrite=overwrite)
    with history_folder.session(settings) as spark:

        def reports() -> DataFrame:
            if positions is not None:
                return job.imported_positions(spark, positions)
            assert stored is not None
            return job.stored_reports(spark, stored, asked)

        found = job.find(reports, asked, limit=limit, out=out)
    listed = [_describe(row) for row in found.listed]
    totals = {"encounters": found.encounters, "pairs": found.pairs, "clients": found.clients}
    show(
        {**_asked(asked), **totals, "listed": [rounded(row.asDict()) for row in found.listed]},
        listed,
        as_json,
        "no encounter" if not found.encounters else "",
    )
    if not as_json and found.encounters:
        print(
            f"{counted(found.encounters, 'encounter')} of {counted(found.pairs, 'pair')}"
            f" among {counted(found.clients, 'client')}"
            + (f", {len(listed):,} listed" if len(listed) < found.encounters else "")
        )


def _area(text: str) -> Area:
    if text.count(",") == 2 and "{" not in text:
        return positions.circle(text)
    return positions.geojson_area(text, "--area")


def _asked(asked: EncounterQuery) -> dict[str, Any]:
    rule = asked.rule
    return {
        "radius_m": rule.radius_m,
        "hysteresis_m": rule.hysteresis_m,
        "min_duration_s": rule.min_duration_s,
        "gap_s": rule.gap_s,
    }


def _describe(row: Row) -> dict[str, Any]:
    """What people see of an encounter; its position to a metre."""
    return {
        "time": iso_time(row.from_us),
        "client": row.client,
        "other": row.other,
        "duration s": round(row.duration_s, 1),
        "nearest m": round(row.nearest_m, 1),
        "lat": round(row.lat, 5),
        "lon": round(row.lon, 5),
    }
