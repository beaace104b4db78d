"""`mercury load`: many entities on roads that publish and subscribe, as fast as asked."""

from __future__ import annotations

import re
from typing import Annotated, Any

from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.cli.common.spinner import waiting
from mercury.load.drivers.api import open_driver
from mercury.load.generator import LATE_MS, Generator, LoadResult
from mercury.load.workload import Workload, WorkloadSettings
from mercury.model.errors import ConfigurationError
from mercury.roads.network import CITY, CITY_ORIGIN, CITY_SIZE_M, open_roads
from mercury.roads.trips import TripSettings
from mercury.service.stop_signals import on_stop_signal

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SHOW_EVERY_S = 1.0
_CITY_SIZE = f"{CITY_SIZE_M[0] / 1000:g}x{CITY_SIZE_M[1] / 1000:g}"


def load(
    to: Annotated[
        str,
        option(
            "ws://HOST:PORT, ws+json://HOST:PORT, udp://HOST:PORT, redis://HOST:PORT,"
            " null: or file:PATH.csv.gz",
            "URI",
        ),
    ] = "ws://127.0.0.1:7480",
    roads: Annotated[
        str, option("city: made up; or a file .osm.pbf, .osm, .osm.gz, .net.xml, .net.xml.gz")
    ] = CITY,
    entities: Annotated[int, option("Number of entities", min=1)] = 100_000,
    publications: Annotated[
        float, option("Share that publishes, 0 to 1; the others subscribe", min=0.0, max=1.0)
    ] = 0.5,
    rate: Annotated[float, option("Updates per second of each entity")] = 1.0,
    radius: Annotated[str, option("Range of subscriptions, in metres", "M..M")] = "50..500",
    topics: Annotated[int, option("Number of topics", min=1)] = 32,
    where: Annotated[
        float, option("Mean share of publications that pass a filter; 1 uses no filters")
    ] = 0.55,
    inside: Annotated[
        bool, option("Notify subscriptions at every update inside them", names="--inside")
    ] = False,
    seconds: Annotated[str, option("Length, such as 30s or 5m", "TIME", names="--for")] = "30s",
    warm_up: Annotated[str, option("Before that: sent, but not counted", "TIME")] = "2s",
    route_places: Annotated[
        int, option("Stops of a round trip, home included", names="--places")
    ] = TripSettings().places,
    reach: Annotated[
        float, option("Farthest stop from home, in metres", names="--range")
    ] = TripSettings().range_m,
    noise: Annotated[
        float, option("Standard deviation of the position error, in metres")
    ] = WorkloadSettings().noise_m,
    connections: Annotated[int, option("Connections to ws:// or ws+json://", min=1)] = 1,
    size: Annotated[str, option("Of the city, in kilometres; 4 means 4x4", "KMxKM")] = _CITY_SIZE,
    origin: Annotated[
        str, option("Centre of the city, in degrees", "LAT,LON")
    ] = f"{CITY_ORIGIN.lat},{CITY_ORIGIN.lon}",
    name: Annotated[str, option("Prefix of ids; each generator needs its own")] = "load",
    seed: Annotated[int, option("Seed of the load", min=0)] = 1,
    json: command.JsonOption = False,
) -> None:
    """Move entities on roads, send their updates at a fixed rate, and measure the latency."""
    settings = WorkloadSettings(
        entities=entities,
        publications=publications,
        rate_hz=rate,
        radius_m=_pair(radius, "..", "--radius takes metres such as 50..500"),
        topics=topics,
        selectivity=where,
        inside=inside,
        noise_m=noise,
        trips=TripSettings(route_places, reach),
        name=name,
        seed=seed,
    )
    width_km, height_km = _pair(size.lower(), "x", "--size takes kilometres such as 40x40")
    size_m = (width_km * 1000.0, height_km * 1000.0)
    for_s, warm_up_s = _seconds(seconds, "--for"), _seconds(warm_up, "--warm-up")
    driver = open_driver(to, connections=connections)
    shown = ["roads"]
    with waiting("load", lambda: shown[0], quiet_s=0.5, every_s=_SHOW_EVERY_S):
        network = open_roads(roads, seed=seed, size_m=size_m, origin=reading.position(origin))
        shown[0] = f"trips on {network.nodes:,} crossings and {network.edges:,} streets"
        workload = Workload(network, settings)
        generator = Generator(
            workload,
            driver,
            seconds=for_s,
            warm_up_s=warm_up_s,
            say=lambda text: shown.__setitem__(0, text),
        )
        result = command.run(_run(generator))
    if json:
        command.print_json({"to": to, "roads": roads, **workload.to_json(), **result.to_json()})
    else:
        print(summary(to, result))


async def _run(generator: Generator) -> LoadResult:
    on_stop_signal(generator.stop)  # what was counted until then is printed
    return await generator.run()


def summary(to: str, result: LoadResult) -> str:
    found = result.to_json()
    total_s = result.seconds + result.warm_up_s
    lines = [
        f"{found['offered']:,} updates offered to {to} in {total_s:.1f} s"
        f" ({found['offered_per_s']:,.0f}/s): {_fate(found)}.",
    ]
    events = [f"{count:,} {name}" for name, count in found["matches"].items() if count]
    if events:
        per_s = sum(found["matches_per_s"].values())
        lines.append(
            f"{result.counters.events:,} events in {result.seconds:.1f} s ({per_s:,.0f}/s):"
            f" {', '.join(events)}."
        )
        lines.append(f"Latency, from when an update was due: {_times(found['latency'])}.")
    lines.append(
        f"Own lag: {_times(found['own_lag'])}; {100 * result.cpu_share:.0f} % of one core."
    )
    if not result.kept_up:
        lines.append(
            f"The generator did not keep its own schedule (p99 above {LATE_MS:g} ms, or updates"
            " missed): the measurements say more of it than of the system."
        )
    lines += [f"{note[:1].upper()}{note[1:]}." for note in result.counters.notes]
    return "\n".join(lines)


def _fate(found: dict[str, Any]) -> str:
    parts = []
    if found["taken"] is None:
        parts.append(f"{found['sent']:,} sent")
    else:
        parts += [f"{found['taken']:,} taken", f"{found['dropped']:,} dropped"]
        silent = found["sent"] - found["taken"] - found["dropped"]
        if silent:
            parts.append(f"{silent:,} without a word")
    if found["unsent"]:
        parts.append(f"{found['unsent']:,} not sent")
    return ", ".join(parts)


def _times(found: dict[str, float | None]) -> str:
    return ", ".join(
        f"{name.removesuffix('_ms')} {'–' if value is None else f'{value:,.1f} ms'}"
        for name, value in found.items()
    )


def _seconds(text: str, option: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if found is None or found[2] not in _UNITS:
        raise ConfigurationError(f"{option} takes a time such as 30s or 5m, not {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def _pair(text: str, between: str, expected: str) -> tuple[float, float]:
    """Two numbers, or one for both."""
    low, found, high = text.partition(between)
    try:
        return float(low), float(high if found else low)
    except ValueError:
        raise ConfigurationError(f"{expected}, not {text!r}") from None
