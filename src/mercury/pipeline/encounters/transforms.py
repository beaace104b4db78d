"""From reports to encounters: each function takes a DataFrame and returns one.

Time and space are cut into windows and tiles, and each of them has an engine on some worker. A
client is published in its own tile, and subscribes in every tile within its reach: so each pair is
found once, in the tile of the one that is met. What was found is joined by pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.geo.grid import Grid
from mercury.matching.encounters import NEVER_US, Contacts, EncounterRule, Segments, merged
from mercury.matching.encounters import contacts as find_contacts
from mercury.matching.encounters import encounters as find_encounters
from mercury.model.area import Area
from mercury.pipeline.encounters.schemas import CONTACT, ENCOUNTER, PIECE, SEGMENT
from mercury.pipeline.encounters.tiles import counted, tiles_within
from mercury.pipeline.history.queries import keep_inside
from mercury.pipeline.spark.fix_columns import on_earth

_CONTACT_ARROW = to_arrow_schema(CONTACT)
_ENCOUNTER_ARROW = to_arrow_schema(ENCOUNTER)
_PIECE_ARROW = to_arrow_schema(PIECE)
HOUR_US = 3_600_000_000
_KEY = ("tile", "window")
_PAIR = ("client", "other")
# What a contact says of when and where it was nearest, if it was not within the radius.
_UNKNOWN = {
    "near_us": NEVER_US, "nearest_m": np.inf, "nearest_us": NEVER_US, "lat": np.nan, "lon": np.nan,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tiling:
    """How space and time are divided; results do not depend on it."""

    tile_m: float = 5_000.0
    window_us: int = HOUR_US

    @classmethod
    def suiting(cls, rule: EncounterRule, reports_per_hour: float = 2e6) -> Tiling:
        """Tiles that are large against the reach, so that few are seen from two.

        Windows hold no more than a worker's memory, if all were in one tile; with few reports they
        are long, because each tile and window needs an engine.
        """
        hours = min(max(2e6 / max(reports_per_hour, 1.0), 0.25), 24.0)
        return cls(
            tile_m=min(max(cls().tile_m, 8.0 * rule.reach_m), 100_000.0),
            window_us=round(hours * HOUR_US),
        )


def segments(
    reports: DataFrame, rule: EncounterRule, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """Where everyone was from each report to the next, within a span of time (`SEGMENT`)."""
    # Of two reports of one time the later counts, as in live matching.
    track = Window.partitionBy("client").orderBy("time_us", "offset", "lat", "lon")
    begin, until = F.col("time_us"), F.lead("time_us").over(track)
    until = F.least(until, begin + round(rule.gap_s * 1e6))
    rows = reports.where(on_earth() & F.col("client").isNotNull())
    rows = rows.select("client", begin.alias("from_us"), until.alias("until_us"), "lat", "lon")
    if from_us is not None:
        rows = rows.withColumn("from_us", F.greatest("from_us", F.lit(from_us)))
    if to_us is not None:
        rows = rows.withColumn("until_us", F.least("until_us", F.lit(to_us)))
    return rows.where("from_us < until_us").to(SEGMENT)


def pieces(
    segments: DataFrame,
    rule: EncounterRule,
    tiling: Tiling,
    *,
    seen: bool = True,
    sees: bool = True,
    area: Area | None = None,
) -> DataFrame:
    """Segments by window and tile, only from inside an area, if one is given (`PIECE`)."""
    reach_m = rule.reach_m if sees else None
    return segments.mapInArrow(partial(_tiled, tiling, reach_m, seen, area), PIECE)


def where_one_sees(pieces: DataFrame, seeing: DataFrame) -> DataFrame:
    """Only the pieces in tiles and windows where one of the chosen clients sees."""
    keys = seeing.where("sees").select(*_KEY).distinct()
    return pieces.join(F.broadcast(keys), list(_KEY), "left_semi").select(*PIECE.names)


def contacts(pieces: DataFrame, rule: EncounterRule, *, mutual: bool) -> DataFrame:
    """The contacts of each tile and window (`CONTACT`).

    With `mutual`, each pair is reported once, by name.
    """

    def find(some: pa.Table) -> pa.Table:  # Spark reads these types, which a partial has not
        return _find(rule, mutual, some)

    return pieces.groupBy(*_KEY).applyInArrow(find, CONTACT)


def encounters(contacts: DataFrame, rule: EncounterRule) -> DataFrame:
    """Merge contacts of a pair that touch; those that are encounters (`ENCOUNTER`)."""
    rows = contacts.repartition(*_PAIR).sortWithinPartitions(*_PAIR, "from_us")
    return rows.mapInArrow(partial(_join, rule), ENCOUNTER)


# In the workers: cutting


def _tiled(
    tiling: Tiling,
    reach_m: float | None,
    seen: bool,
    area: Area | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    grid = Grid(tiling.tile_m)
    for batch in batches if area is None else keep_inside(area, batches):
        if not batch.num_rows:
            continue
        lat, lon, from_us, until_us = (
            np.asarray(batch.column(name)) for name in ("lat", "lon", "from_us", "until_us")
        )
        own = grid.cell_of(lat, lon)
        rows, tile = np.arange(len(own)), own
        if reach_m is not None:
            rows, tile = tiles_within(grid, lat, lon, reach_m)
        first = from_us[rows] // tiling.window_us
        copy, window = counted(first, (until_us[rows] - 1) // tiling.window_us - first + 1)
        at = rows[copy]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(tile[copy]),
                pa.array(window),
                batch.column("client").take(pa.array(at)),
                pa.array(np.maximum(from_us[at], window * tiling.window_us)),
                pa.array(np.minimum(until_us[at], (window + 1) * tiling.window_us)),
                pa.array(lat[at]),
                pa.array(lon[at]),
                pa.array((tile[copy] == own[at]) & seen),
                pa.array(np.full(len(at), reach_m is not None)),
            ],
            schema=_PIECE_ARROW,
        )


# In the workers: finding


def _find(rule: EncounterRule, mutual: bool, pieces: pa.Table) -> pa.Table:
    names, who = _numbered(pieces.column("client"))
    tracks = (np.asarray(pieces.column(name)) for name in Segments._fields[1:])
    found = find_contacts(Segments(who, *tracks), rule, len(names), mutual=mutual)
    never = found.near_us == NEVER_US
    return pa.table(
        [
            *_named(found, names, names),
            pa.array(found.from_us),
            pa.array(found.until_us),
            pa.array(found.near_us, mask=never),
            *_nearest(found, never),
        ],
        schema=_CONTACT_ARROW,
    )


def _numbered(clients: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """The names in their order, and a number for each row: lower is before."""
    names = pc.unique(clients)
    names = names.take(pc.sort_indices(names))
    return names, np.asarray(pc.index_in(clients, names), dtype=np.int64)


def _named(found: Contacts, clients: pa.Array, others: pa.Array) -> list[pa.Array]:
    """Who met whom, by their numbers."""
    who, whom = np.divmod(found.pair, max(len(others), 1))
    return [clients.take(pa.array(who)), others.take(pa.array(whom))]


# In the workers: joining


def _join(rule: EncounterRule, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows are sorted by pair; the last pair of a batch continues in the next one."""
    kept = pa.Table.from_batches([], _CONTACT_ARROW)
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = pa.concat_tables([kept, pa.Table.from_batches([batch]).cast(_CONTACT_ARROW)])
        last = pc.and_(*(pc.equal(rows.column(name), batch.column(name)[-1]) for name in _PAIR))
        kept = rows.filter(last)
        yield from _met(rule, rows.filter(pc.invert(last))).to_batches()
    yield from _met(rule, kept).to_batches()


def _met(rule: EncounterRule, contacts: pa.Table) -> pa.Table:
    (clients, who), (others, whom) = (_numbered(contacts.column(name)) for name in _PAIR)
    columns = {one.name: contacts.column(one.name) for one in fields(Contacts)[1:]}
    columns |= {name: columns[name].fill_null(value) for name, value in _UNKNOWN.items()}
    parts = Contacts(who * len(others) + whom, *map(np.asarray, columns.values()))
    met = find_encounters(merged(parts), rule)
    return pa.table(
        [
            *_named(met, clients, others),
            pa.array(met.from_us),
            pa.array(met.until_us),
            pa.array((met.until_us - met.from_us) / 1e6),
            *_nearest(met),
        ],
        schema=_ENCOUNTER_ARROW,
    )


def _nearest(found: Contacts, never: NDArray[np.bool_] | None = None) -> list[pa.Array]:
    columns = (found.nearest_m, found.nearest_us, found.lat, found.lon)
    return [pa.array(column, mask=never) for column in columns]
