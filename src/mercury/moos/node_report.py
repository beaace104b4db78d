"""NODE_REPORT: where a MOOS vehicle says it is, as pNodeReporter writes it.

NAME=abe,X=10,Y=-20,SPD=1.5,HDG=90,LAT=43.8253,LON=-70.3304,TIME=1700000000.25,...
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mercury.model.errors import MoosError
from mercury.moos.text_forms import read_fields


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Position and motion of a vehicle, as it reports them."""

    name: str
    lat: float
    lon: float
    speed_mps: float | None = None
    heading_deg: float | None = None


def read_node_report(text: str) -> NodeReport:
    """Read what Mercury needs; raises MoosError with the reason."""
    fields = read_fields(text)
    name = fields.get("name", "")
    if not name:
        raise MoosError("no-name", "a node report needs NAME")
    lat, lon = _number(fields, "lat"), _number(fields, "lon")
    if lat is None or lon is None:
        raise MoosError("no-position", f"the report of {name} has no LAT and LON")
    if abs(lat) > 90 or abs(lon) > 180:
        raise MoosError("bad-position", f"{name} reports itself at {lat}, {lon}")
    speed_mps, heading_deg = _number(fields, "spd"), _number(fields, "hdg")
    return NodeReport(
        name,
        lat,
        lon,
        None if speed_mps is None else abs(speed_mps),
        None if heading_deg is None else heading_deg % 360.0,
    )


def _number(fields: dict[str, str], name: str) -> float | None:
    if not fields.get(name):
        return None
    try:
        value = float(fields[name])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise MoosError(f"bad-{name}", f"{name.upper()} {fields[name]!r} is no number")
    return value
