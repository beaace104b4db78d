"""The settings of the simulator: its city, its traffic and the links of its vehicles."""

from __future__ import annotations

from pydantic import field_validator

from mercury.config.section import Section, mistake, setting
from mercury.model.errors import ConfigurationError
from mercury.net import parse_link


class SimSettings(Section):
    vehicles: int = setting(100, "Vehicles that drive", ge=1)
    seed: int = setting(1, "Same seed, same traffic", ge=0)
    report_interval_s: float = setting(1.0, "Interval of a vehicle's reports", gt=0)
    origin_lat: float = setting(40.7608, "Latitude of the city's origin", ge=-90, le=90)
    origin_lon: float = setting(-111.8910, "Longitude of the city's origin", ge=-180, le=180)
    width_m: float = setting(4000.0, "Extent of the city to the east", gt=0)
    height_m: float = setting(4000.0, "Extent of the city to the north", gt=0)
    link: str | None = setting(
        None, "Lossy link of each vehicle, such as cellular,loss=0.1; see docs/reference/links.md"
    )
    antenna_x_m: float | None = setting(
        None, "Range is the distance from here, to the east; none is the middle"
    )
    antenna_y_m: float | None = setting(None, "Range is the distance from here, to the north")

    @field_validator("link")
    @classmethod
    def _read_link(cls, link: str | None) -> str | None:
        try:
            if link is not None:
                parse_link(link)
        except ConfigurationError as error:
            raise mistake(str(error), "link") from None  # one source of what a link may be
        return link

    @property
    def antenna(self) -> tuple[float, float]:
        """Where range is measured from."""
        x_m = self.width_m / 2 if self.antenna_x_m is None else self.antenna_x_m
        y_m = self.height_m / 2 if self.antenna_y_m is None else self.antenna_y_m
        return x_m, y_m
