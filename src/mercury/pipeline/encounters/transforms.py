"""From reports to encounters: each function takes a DataFrame and returns one.

Time and place are cut into windows and tiles, and an engine runs in each of them, wherever there
is a worker. Everyone is seen in its own tile, and sees from every tile within its reach: so each
pair is found where the one who is met is, and nowhere else. What was found is joined by pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from mercury.detection import Grid
from mercury.geo.containment import contains
from mercury.matching.encounters import NEVER_US, Contacts, EncounterRule, Stands, merged
from mercury.matching.encounters import contacts as find_contacts
from mercury.matching.encounters import encounters as find_encounters
from mercury.model.area import Area
from mercury.pipeline.encounters.schemas import CONTACT, ENCOUNTER, PIECE, STAND
from mercury.pipeline.encounters.tiles import counted, tiles_within

_CONTACT_ARROW = to_arrow_schema(CONTACT)
_ENCOUNTER_ARROW = to_arrow_schema(ENCOUNTER)
_PIECE_ARROW = to_arrow_schema(PIECE)
HOUR_US = 3_600_000_000
_KEY = ("tile", "window")
_PAIR = ("client", "other")


@dataclass(frozen=True, slots=True)
class Cut:
    """How space and time are divided; what is found does not depend on it."""

    tile_m: float = 5_000.0
    window_us: int = HOUR_US

    @classmethod
    def suiting(cls, rule: EncounterRule, reports_per_hour: float = 2e6) -> Cut:
        """Tiles that are large against the reach, so that few are seen from two.

        Windows hold no more than a worker has room for, should all be in one tile; where there is
        little they are long, because each tile and window has an engine made for it.
        """
        hours = min(max(2e6 / max(reports_per_hour, 1.0), 0.25), 24.0)
        return cls(
            tile_m=min(max(cls().tile_m, 8.0 * rule.reach_m), 100_000.0),
            window_us=round(hours * HOUR_US),
        )


def stands(
    reports: DataFrame, rule: EncounterRule, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """Where everyone was from each report to the next, within a span of time (`STAND`)."""
    on_earth = (F.abs("lat") <= 90.0) & (F.abs("lon") <= 180.0)
    # Of two reports of one time the later counts, as it does live.
    track = Window.partitionBy("client").orderBy("time_us", "offset", "lat", "lon")
    begin, until = F.col("time_us"), F.lead("time_us").over(track)
    until = F.least(until, begin + round(rule.gap_s * 1e6))
    rows = reports.where(on_earth & F.col("client").isNotNull())
    rows = rows.select("client", begin.alias("from_us"), until.alias("until_us"), "lat", "lon")
    if from_us is not None:
        rows = rows.withColumn("from_us", F.greatest("from_us", F.lit(from_us)))
    if to_us is not None:
        rows = rows.withColumn("until_us", F.least("until_us", F.lit(to_us)))
    return rows.where("from_us < until_us").to(STAND)


def pieces(
    stands: DataFrame,
    rule: EncounterRule,
    cut: Cut,
    *,
    seen: bool = True,
    sees: bool = True,
    area: Area | None = None,
) -> DataFrame:
    """Stands by window and tile, only from inside an area, if one is given (`PIECE`)."""
    reach_m = rule.reach_m if sees else None
    return stands.mapInArrow(partial(_cut, cut, reach_m, seen, area), PIECE)


def where_one_sees(pieces: DataFrame, seeing: DataFrame) -> DataFrame:
    """Only what is in a tile and window where one of a few sees."""
    keys = seeing.where("sees").select(*_KEY).distinct()
    return pieces.join(F.broadcast(keys), list(_KEY), "left_semi").select(*PIECE.names)


def contacts(pieces: DataFrame, rule: EncounterRule, *, mutual: bool) -> DataFrame:
    """What each tile and window has of contacts (`CONTACT`).

    With `mutual` everyone sees everyone, and a pair is reported once, by name.
    """

    def find(some: pa.Table) -> pa.Table:  # Spark reads these types, which a partial has not
        return _find(rule, mutual, some)

    return pieces.groupBy(*_KEY).applyInArrow(find, CONTACT)


def encounters(contacts: DataFrame, rule: EncounterRule) -> DataFrame:
    """Contacts of a pair that touch made one; those that are encounters (`ENCOUNTER`)."""
    rows = contacts.repartition(*_PAIR).sortWithinPartitions(*_PAIR, "from_us")
    return rows.mapInArrow(partial(_join, rule), ENCOUNTER)


# In the workers: cutting


def _cut(
    cut: Cut,
    reach_m: float | None,
    seen: bool,
    area: Area | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    grid = Grid(cut.tile_m)
    for batch in batches:
        if area is not None:
            lat, lon = _reals(batch, "lat"), _reals(batch, "lon")
            batch = batch.filter(pa.array(contains(area.shape, lat, lon)))
        if not batch.num_rows:
            continue
        lat, lon = _reals(batch, "lat"), _reals(batch, "lon")
        own = grid.cell_of(lat, lon)
        if reach_m is None:
            rows, tile = np.arange(len(own)), own
        else:
            rows, tile = tiles_within(grid, lat, lon, reach_m)
        from_us, until_us = _wholes(batch, "from_us")[rows], _wholes(batch, "until_us")[rows]
        first = from_us // cut.window_us
        count = (until_us - 1) // cut.window_us - first + 1
        copy, window = counted(first, count)
        at = rows[copy]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(tile[copy]),
                pa.array(window),
                batch.column("client").take(pa.array(at)),
                pa.array(np.maximum(from_us[copy], window * cut.window_us)),
                pa.array(np.minimum(until_us[copy], (window + 1) * cut.window_us)),
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
    found = find_contacts(
        Stands(
            who,
            _wholes(pieces, "from_us"),
            _wholes(pieces, "until_us"),
            _reals(pieces, "lat"),
            _reals(pieces, "lon"),
            _flags(pieces, "seen"),
            _flags(pieces, "sees"),
        ),
        rule,
        len(names),
        mutual=mutual,
    )
    never = found.near_us == NEVER_US
    return pa.table(
        [
            names.take(pa.array(found.pair // len(names))),
            names.take(pa.array(found.pair % len(names))),
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


# In the workers: joining


def _join(rule: EncounterRule, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows come by pair; the last pair of a batch goes on in the next one."""
    kept = pa.Table.from_batches([], _CONTACT_ARROW)
    for batch in chain(batches, (None,)):
        if batch is None:
            yield from _met(rule, kept).to_batches()
        elif batch.num_rows:
            rows = pa.concat_tables([kept, pa.Table.from_batches([batch]).cast(_CONTACT_ARROW)])
            last = pc.and_(
                *(
                    pc.equal(rows.column(name), batch.column(name)[-1])
                    for name in ("client", "other")
                )
            )
            kept = rows.filter(last)
            yield from _met(rule, rows.filter(pc.invert(last))).to_batches()


def _met(rule: EncounterRule, contacts: pa.Table) -> pa.Table:
    (clients, who), (others, whom) = (_numbered(contacts.column(name)) for name in _PAIR)
    near_us, nearest_us = (
        np.asarray(contacts.column(name).fill_null(NEVER_US)) for name in ("near_us", "nearest_us")
    )
    parts = Contacts(
        who * len(others) + whom,
        _wholes(contacts, "from_us"),
        _wholes(contacts, "until_us"),
        near_us,
        np.asarray(contacts.column("nearest_m").fill_null(np.inf)),
        nearest_us,
        _reals(contacts, "lat"),
        _reals(contacts, "lon"),
    )
    met = find_encounters(merged(parts), rule)
    return pa.table(
        [
            clients.take(pa.array(met.pair // max(len(others), 1))),
            others.take(pa.array(met.pair % max(len(others), 1))),
            pa.array(met.from_us),
            pa.array(met.until_us),
            pa.array((met.until_us - met.from_us) / 1e6),
            *_nearest(met, np.zeros(len(met), np.bool_)),
        ],
        schema=_ENCOUNTER_ARROW,
    )


def _nearest(found: Contacts, never: NDArray[np.bool_]) -> list[pa.Array]:
    columns = (found.nearest_m, found.nearest_us, found.lat, found.lon)
    return [pa.array(column, mask=never) for column in columns]


def _wholes(rows: pa.Table | pa.RecordBatch, name: str) -> NDArray[np.int64]:
    return np.asarray(rows.column(name), dtype=np.int64)


def _reals(rows: pa.Table | pa.RecordBatch, name: str) -> NDArray[np.float64]:
    return np.asarray(rows.column(name), dtype=np.float64)


def _flags(rows: pa.Table | pa.RecordBatch, name: str) -> NDArray[np.bool_]:
    return np.asarray(rows.column(name), dtype=np.bool_)
