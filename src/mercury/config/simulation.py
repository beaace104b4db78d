"""The settings of the simulator: its city, its traffic and the links of its vehicles."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from mercury.config.section import Section
from mercury.model.errors import ConfigurationError
from mercury.net import parse_link


class SimSettings(Section):
    vehicles: int = Field(default=100, ge=1, description="Vehicles that drive")
    seed: int = Field(default=1, ge=0, description="Same seed, same traffic")
    report_interval_s: float = Field(default=1.0, gt=0, description="A vehicle reports so often")
    origin_lat: float = Field(
        default=40.7608, ge=-90, le=90, description="Latitude of the city's origin"
    )
    origin_lon: float = Field(
        default=-111.8910, ge=-180, le=180, description="Longitude of the city's origin"
    )
    width_m: float = Field(default=4000.0, gt=0, description="Extent of the city to the east")
    height_m: float = Field(default=4000.0, gt=0, description="Extent of the city to the north")
    link: str | None = Field(
        default=None,
        description="Lossy link of each vehicle, such as cellular,loss=0.1; see docs/links.md",
    )
    antenna_x_m: float | None = Field(
        default=None, description="Range is the distance from here, to the east; none is the middle"
    )
    antenna_y_m: float | None = Field(
        default=None, description="Range is the distance from here, to the north"
    )

    @model_validator(mode="after")
    def _read_link(self) -> Self:
        try:
            if self.link is not None:
                parse_link(self.link)
        except ConfigurationError as error:
            # One source of what a link may be: its grammar.
            context = {"message": str(error), "keys": ("link",)}
            raise PydanticCustomError("link", "{message}", context) from None
        return self

    @property
    def antenna(self) -> tuple[float, float]:
        """Where range is measured from."""
        x_m, y_m = self.antenna_x_m, self.antenna_y_m
        return (
            self.width_m / 2 if x_m is None else x_m,
            self.height_m / 2 if y_m is None else y_m,
        )
