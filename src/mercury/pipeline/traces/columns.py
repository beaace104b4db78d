"""How files are to be understood: what the user said, and guesses from usual names for the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mercury.model.errors import ConfigurationError

# Names as they look without case and punctuation; those that stand first are better guesses.
_VEHICLE = (
    "vehicle vehicleid vehid deviceid device unitid busid taxiid truckid trainid shipid trackid"
    " trackerid clientid client objectid mmsi id"
)
_TIME = (
    "timeus timestampus timems timestampms timestamp time datetime eventtime gpstime recordedat"
    " reportedat positiontime sampletime ts timesteptime epoch t"
)
_LAT = "lat latitude vehiclelat positionlat gpslat latdeg vehicley y"
_LON = "lon lng long longitude vehiclelon positionlon gpslon gpslng londeg vehiclex x"
_SPEED = (
    "speedmps speed speedms vehiclespeed velocity speedkmh speedkph speedmph speedknots spd sog"
    " groundspeed"
)
_HEADING = "headingdeg heading bearing course vehicleangle angle cog direction azimuth"

_SPEED_UNITS = {"kmh": "kmh", "kph": "kmh", "mph": "mph", "knots": "knots", "sog": "knots"}
_TIME_UNITS = {"us": "epoch-us", "ms": "epoch-ms"}


@dataclass(frozen=True, slots=True)
class Columns:
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
    """What the user said about the files."""

    columns: Columns = field(default_factory=Columns)
    time_format: str = "auto"  # auto, epoch-s, epoch-ms, epoch-us, iso, or a pattern of Spark's
    time_zone: str = "UTC"  # of times that do not say theirs
    time_origin_us: int = 0  # when the clock of the files stood at 0: a simulation's start
    speed_unit: str = "auto"  # auto, mps, kmh, mph, knots
    separator: str = ""  # of CSV; guessed where empty

    def of_table(self, header: Sequence[str], file: str) -> Reading:
        """With all columns of a table, and the units that their names tell."""
        columns = resolve(self.columns, header, file)
        return replace(
            self,
            columns=columns,
            time_format=_time_format(columns) if self.time_format == "auto" else self.time_format,
            speed_unit=_speed_unit(columns) if self.speed_unit == "auto" else self.speed_unit,
        )


def resolve(wanted: Columns, header: Sequence[str], file: str) -> Columns:
    """The columns of a table with this header; raises ConfigurationError naming what is missing."""
    listing = f"the columns of {file} are {', '.join(map(repr, header)) or 'none'}"
    for name in wanted.names():
        if name not in header:
            raise ConfigurationError(f"there is no column {name!r}; {listing}")
    usual = {
        "vehicle": _VEHICLE, "time": _TIME, "lat": _LAT, "lon": _LON, "speed": _SPEED,
        "heading": _HEADING,
    }  # fmt: skip
    plain = {_plain(name): name for name in reversed(header)}
    free = {key: name for key, name in plain.items() if name not in wanted.names()}
    guessed = {
        meaning: next((free[key] for key in names.split() if key in free), "")
        for meaning, names in usual.items()
    }
    found = Columns(
        vehicle=wanted.vehicle or guessed["vehicle"],
        time=wanted.time or ((guessed["time"],) if guessed["time"] else ()),
        lat=wanted.lat or guessed["lat"],
        lon=wanted.lon or guessed["lon"],
        speed=wanted.speed or guessed["speed"],
        heading=wanted.heading or guessed["heading"],
    )
    missing = [name for name in ("vehicle", "time", "lat", "lon") if not getattr(found, name)]
    if missing:
        flags = " and ".join(f"--{name}-column" for name in missing)
        raise ConfigurationError(
            f"which column holds the {' and the '.join(missing)} cannot be guessed: say {flags};"
            f" {listing}"
        )
    return found


def _time_format(columns: Columns) -> str:
    """What the time column's name says of its format; `auto` if nothing."""
    name = _plain(columns.time[0]) if len(columns.time) == 1 else ""
    return _TIME_UNITS.get(name[-2:], "auto") if name.startswith("time") else "auto"


def _speed_unit(columns: Columns) -> str:
    """What the speed column's name says of its unit; m/s if nothing."""
    name = _plain(columns.speed)
    return next((unit for end, unit in _SPEED_UNITS.items() if name.endswith(end)), "mps")


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()
