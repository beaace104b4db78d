"""The columns of files: as the user named them, or guessed from usual names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from mercury.model.errors import ConfigurationError

# Names without case and punctuation; earlier ones are better guesses.
_USUAL = {
    "vehicle": (
        "vehicle vehicleid vehid deviceid device unitid busid taxiid truckid trainid shipid trackid"
        " trackerid clientid client objectid mmsi id"
    ),
    "time": (
        "timeus timestampus timems timestampms timestamp time datetime eventtime gpstime recordedat"
        " reportedat positiontime sampletime ts timesteptime epoch t"
    ),
    "lat": "lat latitude vehiclelat positionlat gpslat latdeg vehicley y",
    "lon": "lon lng long longitude vehiclelon positionlon gpslon gpslng londeg vehiclex x",
    "speed": (
        "speedmps speed speedms vehiclespeed velocity speedkmh speedkph speedmph speedknots spd sog"
        " groundspeed"
    ),
    "heading": "headingdeg heading bearing course vehicleangle angle cog direction azimuth",
}

MPS_PER_UNIT = {"m/s": 1.0, "km/h": 1.0 / 3.6, "mph": 0.44704, "kn": 1852.0 / 3600.0}
# The unit that the end of a column's name implies.
_SPEED_UNITS = {
    "mps": "m/s", "ms": "m/s", "kmh": "km/h", "kph": "km/h", "mph": "mph", "knots": "kn",
    "kn": "kn", "sog": "kn",
}  # fmt: skip
_TIME_UNITS = {"us": "epoch-us", "ms": "epoch-ms"}
_TIME_WORDS = {"epoch-s": "seconds", "epoch-ms": "milliseconds", "epoch-us": "microseconds"}


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The names of the columns; empty where not given, or where a table has none."""

    vehicle: str = ""
    time: tuple[str, ...] = ()  # several are joined with spaces: date, hour, minute …
    lat: str = ""
    lon: str = ""
    speed: str = ""
    heading: str = ""

    def names(self) -> list[str]:
        """All that are given."""
        single = (self.vehicle, self.lat, self.lon, self.speed, self.heading)
        return [name for name in (*self.time, *single) if name]


@dataclass(frozen=True, slots=True)
class Reading:
    """The user's description of the files."""

    columns: ColumnNames = field(default_factory=ColumnNames)
    time_format: str = "auto"  # auto, epoch-s, epoch-ms, epoch-us, iso, or a pattern of Spark's
    time_zone: str = "UTC"  # of times without an offset
    time_origin_us: int = 0  # when the clock of the files stood at 0: a simulation's start
    speed_unit: str = "auto"  # one of MPS_PER_UNIT; auto is m/s, where a column's name says nothing
    separator: str = ""  # of CSV; guessed where empty

    def of_table(self, header: Sequence[str], file: str) -> Reading:
        """With all columns of a table, and the units that their names say."""
        columns = resolve(self.columns, header, file)
        return replace(
            self,
            columns=columns,
            time_format=_time_format(columns) if self.time_format == "auto" else self.time_format,
            speed_unit=_speed_unit(columns) if self.speed_unit == "auto" else self.speed_unit,
        )

    def describe(self) -> dict[str, str]:
        """What is taken from which column, in which unit; for people."""
        unit = {"auto": "m/s assumed", "m/s": "m/s"}.get(
            self.speed_unit, f"{self.speed_unit} → m/s"
        )
        units = {"time": self._time_words(), "speed": unit, "heading": "degrees"}
        found = {}
        for meaning in _USUAL:
            given = getattr(self.columns, meaning)
            names = (given,) if isinstance(given, str) else given
            quoted = " ".join(f'"{name}"' for name in names if name)
            unit = f" ({units[meaning]})" if meaning in units else ""
            found[meaning] = f"{quoted}{unit}" if quoted else "none"
        return found

    def _time_words(self) -> str:
        since = iso_time(self.time_origin_us) if self.time_origin_us else "1970"
        if self.time_format in _TIME_WORDS:
            return f"{_TIME_WORDS[self.time_format]} since {since}"
        text = {"iso": "ISO 8601", "auto": f"a number since {since}, or ISO 8601"}
        return f"{text.get(self.time_format, self.time_format)}; {self.time_zone} unless it says so"


def iso_time(time_us: int) -> str:
    """A time in UTC, to the second."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).isoformat().replace("+00:00", "Z")


def resolve(wanted: ColumnNames, header: Sequence[str], file: str) -> ColumnNames:
    """The columns of a table with this header; raises ConfigurationError naming what is missing."""
    listing = f"the columns of {file} are {', '.join(map(repr, header)) or 'none'}"
    for name in wanted.names():
        if name not in header:
            raise ConfigurationError(f"there is no column {name!r}; {listing}")
    plain = {_plain(name): name for name in reversed(header)}
    free = {key: name for key, name in plain.items() if name not in wanted.names()}
    guessed: dict[str, Any] = {
        meaning: next((free[key] for key in names.split() if key in free), "")
        for meaning, names in _USUAL.items()
    }
    guessed["time"] = (guessed["time"],) if guessed["time"] else ()
    found = ColumnNames(**{name: getattr(wanted, name) or guess for name, guess in guessed.items()})
    missing = [name for name in ("vehicle", "time", "lat", "lon") if not getattr(found, name)]
    if missing:
        flags = " and ".join(f"--{name}-column" for name in missing)
        raise ConfigurationError(
            f"which column holds the {' and the '.join(missing)} cannot be guessed: say {flags};"
            f" {listing}"
        )
    return found


def _time_format(columns: ColumnNames) -> str:
    """The format that the time column's name implies; `auto` if none."""
    name = _plain(columns.time[0]) if len(columns.time) == 1 else ""
    return _TIME_UNITS.get(name[-2:], "auto") if name.startswith("time") else "auto"


def _speed_unit(columns: ColumnNames) -> str:
    """The unit that the speed column's name implies; `auto` if none."""
    name = _plain(columns.speed)
    return next((unit for end, unit in _SPEED_UNITS.items() if name.endswith(end)), "auto")


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()
