"""Columns are guessed from usual names, and what cannot be guessed is named."""

from __future__ import annotations

import pytest

from mercury.model.errors import ConfigurationError
from mercury.pipeline.traces.columns import ColumnNames, Reading, resolve


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            "vehicle_id,timestamp,speed,route_id,latitude,longitude",
            ColumnNames("vehicle_id", ("timestamp",), "latitude", "longitude", "speed"),
        ),
        (
            "timestep_time,vehicle_id,vehicle_x,vehicle_y,vehicle_angle,vehicle_speed",
            ColumnNames(
                "vehicle_id", ("timestep_time",), "vehicle_y", "vehicle_x", "vehicle_speed",
                "vehicle_angle",
            ),
        ),
        (
            "ID,Date Time,LAT,Lng,Course",
            ColumnNames("ID", ("Date Time",), "LAT", "Lng", "", "Course"),
        ),
        (
            "id,vehicle,time,time_us,lat,lon",
            ColumnNames("vehicle", ("time_us",), "lat", "lon"),
        ),
    ],
)  # fmt: skip
def test_usual_names(header: str, expected: ColumnNames) -> None:
    assert resolve(ColumnNames(), header.split(","), "f") == expected


def test_what_is_named_is_taken_and_not_guessed_for_something_else() -> None:
    header = ["id", "time", "lat", "lon", "x", "speed"]
    found = resolve(ColumnNames(lon="x", vehicle="speed"), header, "f")
    assert found == ColumnNames("speed", ("time",), "lat", "x")


def test_what_cannot_be_guessed_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(ColumnNames(), ["who", "when", "lat", "lon"], "trace.csv")
    assert str(caught.value) == (
        "which column holds the vehicle and the time cannot be guessed: say --vehicle-column and"
        " --time-column; the columns of trace.csv are 'who', 'when', 'lat', 'lon'"
    )


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match="no column 'latt'; the columns of f are 'id'"):
        resolve(ColumnNames(lat="latt"), ["id"], "f")


@pytest.mark.parametrize(
    ("names", "time_format", "speed_unit"),
    [
        ("time_us,speed_kmh", "epoch-us", "km/h"),
        ("timestamp_ms,speed_mph", "epoch-ms", "mph"),
        ("time,speed", "auto", "auto"),
        ("time,sog", "auto", "kn"),
    ],
)
def test_units_in_names(names: str, time_format: str, speed_unit: str) -> None:
    header = ["id", "lat", "lon", *names.split(",")]
    found = Reading().of_table(header, "f")
    assert (found.time_format, found.speed_unit) == (time_format, speed_unit)
    said = Reading(time_format="iso", speed_unit="mph").of_table(header, "f")
    assert (said.time_format, said.speed_unit) == ("iso", "mph")


def test_what_was_taken_is_said_with_its_unit() -> None:
    header = ["Bus ID", "Timestamp", "Latitude", "Longitude", "Speed", "route"]
    said = Reading(speed_unit="km/h", time_zone="America/Chicago").of_table(header, "f").describe()
    assert said == {
        "vehicle": '"Bus ID"',
        "time": '"Timestamp" (a number since 1970, or ISO 8601; America/Chicago unless it says so)',
        "lat": '"Latitude"',
        "lon": '"Longitude"',
        "speed": '"Speed" (km/h → m/s)',
        "heading": "none",
    }
    assert Reading().of_table(header, "f").describe()["speed"] == '"Speed" (m/s assumed)'


def test_several_columns_of_a_time_and_a_clock_of_its_own() -> None:
    columns = ColumnNames(vehicle="a", time=("day", "hour"), lat="b", lon="c")
    reading = Reading(columns, time_format="epoch-s", time_origin_us=1_714_550_400_000_000)
    said = reading.describe()
    assert said["time"] == '"day" "hour" (seconds since 2024-05-01T08:00:00Z)'
