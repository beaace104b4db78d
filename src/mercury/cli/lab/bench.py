"""`mercury bench`: measures Mercury on this machine, with real processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from mercury.bench import brokers as brokers_bench
from mercury.bench import delivery as delivery_bench
from mercury.bench import echo as echo_bench
from mercury.bench import fanout as fanout_bench
from mercury.bench import flood as flood_bench
from mercury.bench import ingest as ingest_bench
from mercury.bench import processes, record
from mercury.bus.api import Sync
from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.cli.common.spinner import steps
from mercury.cli.lab.dev import running_kafka
from mercury.dev import KafkaBroker
from mercury.mediator import NAMES
from mercury.model.errors import ConfigurationError, PipelineError
from mercury.sim.figure import new_figure, save

app = typer.Typer(help="Measure Mercury on this machine.", no_args_is_help=True)

BusOption = Annotated[
    str | None, option("Default an embedded bus; `kafka` starts a Kafka broker for the run", "URI")
]
LogOption = Annotated[Path, option("JSON lines file to append to", callback=record.appendable)]
DEFAULT_LOG = Path("mercury-bench.jsonl")

_PAPER_BASELINE_S = 60.0  # Mercury §7.3: one message a second for a minute, the others 10 s
_SECONDS = 10.0
_WARM_UP_S = 1.0
_NEW_KAFKA_WARM_UP_S = 30.0  # until its Java virtual machine has compiled what it runs
_NEW_KAFKA_WARM_UP_MESSAGES = 10_000
_SEARCH_FROM, _SEARCH_STEP, _SEARCH_TO = 10_000, 5_000, 100_000
_SEARCH_SECONDS = 5.0
_FLOOR_RATE = 10_000.0
_PIPE_WIDTH = 10_000


@app.command()
def echo(
    rates: Annotated[str, option("Messages per second")] = "1, 10, 100, 500, 1000, 5000, 10000",
    seconds: Annotated[
        float | None, option("Length of each rate; default 10, at 1 per second 60", min=0.5)
    ] = None,
    clients: Annotated[int, option("Number of clients", min=1, max=1000)] = echo_bench.CLIENTS,
    search: Annotated[bool, option("Also find the highest rate without loss")] = True,
    plot: Annotated[Path | None, option("Draw figure 5 of the paper in this file")] = None,
    bus: BusOption = None,
    sync: Annotated[Sync, option("What the bus's acknowledgements survive; see bus.sync")] = (
        "process"
    ),
    log: LogOption = DEFAULT_LOG,
    as_json: command.JsonOption = False,
) -> None:
    """Measure round trips through client, adapter, durable bus, broker and back."""
    wanted = [float(rate) for rate in _numbers(rates)]
    if plot is not None:
        save(new_figure(1.0, 1.0), plot)  # what cannot be drawn is said before it takes minutes
    runs, floors = [], []
    max_lossless = 0.0
    with steps("bench echo") as say, closing(echo_bench.FloorLoad()) as floor:
        for rate in wanted:
            say(f"floor: bare asyncio echo at {rate:,g}/s")
            floors.append(floor.run(rate, min(seconds or 3.0, 3.0) if rate > 1 else 5.0))
    with (
        _bus_for(bus) as uri,
        steps("bench echo") as say,
        processes.adapter(uri, {"MERCURY_BUS__SYNC": sync}) as (port, _),
        processes.broker(uri, {"MERCURY_BUS__SYNC": sync}),
        closing(echo_bench.EchoLoad(port, clients)) as load,
    ):
        warm_up_s = _WARM_UP_S if bus != "kafka" else _NEW_KAFKA_WARM_UP_S
        say(f"echo: warm-up of {warm_up_s:g} s, not counted")
        load.run(1000.0, warm_up_s)
        for rate in wanted:
            duration = seconds or (_PAPER_BASELINE_S if rate <= 1 else _SECONDS)
            say(f"echo: {rate:,g}/s for {duration:g} s")
            runs.append(load.run(rate, duration))
            if runs[-1].lossless:
                max_lossless = max(max_lossless, rate)
        if search:
            max_lossless = max(max_lossless, _search(load, say))
        disk = processes.fdatasync_ms(uri)
    floor_at = min(range(len(wanted)), key=lambda at: abs(wanted[at] - _FLOOR_RATE))
    result: dict[str, Any] = {
        "bench": "echo",
        "bus": _bus_name(bus),
        "sync": sync,
        "fdatasync_p50_ms": disk and round(disk[0], 3),
        "fdatasync_p99_ms": disk and round(disk[1], 3),
        "rows": [
            {**run.row(), "floor_p50_ms": bare.row()["p50_ms"]}
            for run, bare in zip(runs, floors, strict=True)
        ],
        "floor_p50_ms": floors[floor_at].row()["p50_ms"],
        "max_lossless_rate": max_lossless,
    }
    if plot is not None:
        echo_bench.draw(runs, floors, plot)
        command.progress.print(f"drawn to {plot}")
    parameters = {"rates": wanted, "seconds": seconds, "clients": clients}
    columns = "rate sent received p50_ms p99_ms max_ms floor_p50_ms"
    if _finish(result, parameters, log, as_json, {columns: result["rows"]}):
        print(f"highest rate without loss: {max_lossless:,.0f}/s")
        if disk is not None:
            print(
                f"bus.sync {sync}; fdatasync of this disk: {disk[0]:.2f} ms, p99 {disk[1]:.2f} ms"
            )


@app.command("match")
def match_(
    entities: Annotated[int, option("Entities, half of which subscribe", min=1000)] = 200_000,
    seconds: Annotated[float, option("Length of each rate", min=1.0)] = 10.0,
    tenfold: Annotated[bool, option("Also measure the kernel with ten times as many")] = True,
    redis: Annotated[bool, option("Also measure Redis, if it is installed")] = True,
    log: LogOption = DEFAULT_LOG,
    as_json: command.JsonOption = False,
) -> None:
    """Measure the matching of moving entities: the kernel, through the gateway, and Redis."""
    try:
        from mercury.bench import match as match_bench
    except ImportError as error:
        raise ConfigurationError(
            f"mercury bench match needs {error.name}: pip install 'mercury-messaging[load]'"
        ) from error
    with steps("bench match") as say:
        result = match_bench.run(
            entities=entities, seconds=seconds, tenfold=tenfold, redis=redis, say=say
        )
    tables = {
        "case entities updates_per_s ns_per_update matches_per_update": result["kernel"],
        "rate taken lost matches_per_s p50_ms p99_ms own_lag_p99_ms": result["rows"],
    }
    if not _finish(result, {"entities": entities, "seconds": seconds}, log, as_json, tables):
        return
    print(f"highest rate with p99 up to 50 ms and nothing lost: {result['updates_per_s']:,}/s")
    missing = result["rows"][0]["events_missing"]
    print(f"events that are missing or too many at 80,000/s: {missing:,}")
    for peer, found in result["peers"].items():
        if found["updates_per_s"] is None:
            print(f"{peer}: {found['reason']}")
        else:
            print(f"{peer}: {found['updates_per_s']:,} updates/s; {'; '.join(found['notes'])}")


@app.command()
def pipeline(
    events: Annotated[int, option("Events to measure", min=20)] = 200,
    rate: Annotated[int, option("Reports per second", min=1000)] = 50_000,
    seconds: Annotated[float, option("How long they are sent", min=10.0)] = 60.0,
    rows: Annotated[int, option("Reports in the batch", min=1000)] = 10_000_000,
    bus: Annotated[
        str | None, option("`kafka` measures only events, over a broker of its own", "kafka")
    ] = None,
    log: LogOption = DEFAULT_LOG,
    as_json: command.JsonOption = False,
) -> None:
    """Measure event to alert, reports per second, and batches next to DuckDB and Polars."""
    if bus is not None:
        _pipeline_over_kafka(bus, events, log, as_json)
        return
    try:
        from mercury.bench import pipeline as pipeline_bench
        from mercury.bench.pipeline_batch import compare
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"this needs {error.name}: pip install 'mercury-messaging[pipeline,bench]'"
        ) from None

    with steps("bench pipeline") as say:
        found = pipeline_bench.latency("", events, say)
        taken = pipeline_bench.sustained(rate, seconds, say)
        with tempfile.TemporaryDirectory(prefix="mercury-bench-") as folder:
            batch_s = compare(rows, Path(folder), say)
    kept_up = taken["lag_growth_per_s"] < 0.01 * rate
    result: dict[str, Any] = {
        "bench": "pipeline",
        **_percentiles("latency", found),
        "sustained_reports_per_s": taken["offered_per_s"] if kept_up else None,
        "sustained": taken,
        "batch_s": batch_s,
    }
    parameters = {"events": events, "rate": rate, "seconds": seconds, "rows": rows}
    tables = {
        "latency_p50_ms latency_p99_ms sustained_reports_per_s": [result],
        "spark duckdb polars": [batch_s],
    }
    _finish(result, parameters, log, as_json, tables)


def _pipeline_over_kafka(bus: str, events: int, log: Path, as_json: bool) -> None:
    """The way from event to alert, in small batches and in real-time mode."""
    from mercury.bench import pipeline as pipeline_bench

    if bus != "kafka":
        raise ConfigurationError(f"--bus takes kafka here, not {bus!r}")
    with running_kafka(KafkaBroker()) as kafka, steps("bench pipeline") as say:
        batches = pipeline_bench.latency(processes.fresh_bus(kafka.uri, ""), events, say)
        real_time = pipeline_bench.realtime_latency(processes.fresh_bus(kafka.uri, ""), events, say)
    times = {**_percentiles("latency", batches), **_percentiles("realtime", real_time)}
    result = {"bench": "pipeline", "bus": "kafka", **times}
    _finish(result, {"events": events}, log, as_json, {" ".join(times): [times]})


def _percentiles(name: str, times_ms: list[float]) -> dict[str, float]:
    return {f"{name}_p{at}_ms": round(float(np.percentile(times_ms, at)), 1) for at in (50, 99)}


def _search(load: echo_bench.EchoLoad, say: Callable[[str], None]) -> float:
    """Raise the rate until something is lost."""
    best = 0.0
    for rate in range(_SEARCH_FROM + _SEARCH_STEP, _SEARCH_TO, _SEARCH_STEP):
        say(f"search: {rate:,}/s for {_SEARCH_SECONDS:g} s")
        if not load.run(float(rate), _SEARCH_SECONDS).lossless:
            break
        best = float(rate)
    return best


@app.command()
def fanout(
    clients: Annotated[str, option("Numbers of clients, comma-separated")] = "1000, 10000, 100000",
    rounds: Annotated[int, option("Alerts to each number", min=1)] = fanout_bench.ROUNDS,
    log: LogOption = DEFAULT_LOG,
    as_json: command.JsonOption = False,
) -> None:
    """Measure one alert to all clients of an area, and the adapter's longest stall."""
    counts = [int(count) for count in _numbers(clients)]
    with steps("bench fanout") as say:
        rows = fanout_bench.run(counts, rounds, say)
    result = {"bench": "fanout", "rows": rows}
    columns = "clients received first_ms last_ms worst_last_ms stall_ms"
    _finish(result, {"clients": counts, "rounds": rounds}, log, as_json, {columns: rows})


@app.command()
def delivery(
    loss: Annotated[str, option("Shares lost each way, 0 to 1")] = "0, 0.1, 0.3, 0.5",
    clients: Annotated[int, option("Number of clients", min=1, max=20_000)] = 1000,
    policies: Annotated[str, option("Comma-separated")] = "fire-and-forget, repeat, critical",
    seed: Annotated[int, option("Seed of the losses", min=0)] = 1,
    log: LogOption = DEFAULT_LOG,
    as_json: command.JsonOption = False,
) -> None:
    """Measure one alert over links that lose packets: share delivered, delay and cost."""
    expected = "--loss takes shares from 0 to below 1 with commas"
    losses = _parsed(loss, expected, lambda one: 0.0 <= one < 1.0)
    named = policies.replace(" ", "").split(",")
    unknown = [name for name in named if name not in NAMES]
    if unknown:
        raise ConfigurationError(f"no policy {unknown[0]!r}: there are {', '.join(NAMES)}")
    chosen = [NAMES[name] for name in named]
    rows = delivery_bench.run(losses, clients, chosen, command.progress.print, seed)
    result = {"bench": "delivery", "rows": rows}
    parameters = {"loss": losses, "clients": clients, "seed": seed}
    columns = (
        "policy loss delivered_share duplicates wire_per_delivery minimum_wire_per_delivery"
        " t50_s t99_s t100_s"
    )
    _finish(result, parameters, log, as_json, {columns: rows})


@app.command()
def ingest(
    rates: Annotated[str, option("Reports per second")] = "20000, 40000, 60000, 80000, 100000",
    seconds: Annotated[float, option("Length of each rate", min=0.5)] = 5.0,
    log: LogOption = DEFAULT_LOG,
    as_json: command.JsonOption = False,
) -> None:
    """Measure how many reports per second one adapter decodes, checks and appends."""
    wanted = [int(rate) for rate in _numbers(rates)]
    with steps("bench ingest") as say:
        rows = ingest_bench.run(wanted, seconds, say)
    whole = [row["offered_per_s"] for row in rows if row["absorbed_share"] == 1.0]
    result = {"bench": "ingest", "rows": rows, "max_lossless_rate": max(whole, default=0)}
    columns = "rate sent on_bus offered_per_s absorbed_share"
    _finish(result, {"rates": wanted, "seconds": seconds}, log, as_json, {columns: rows})


@app.command()
def brokers(
    messages: Annotated[int, option("Content messages per round", min=100)] = 4000,
    interests: Annotated[int, option("Interests to check each one against", min=1)] = 1000,
    rounds: Annotated[int, option("Rounds, each with one broker and two", min=1)] = 5,
    bus: BusOption = None,
    log: LogOption = DEFAULT_LOG,
    as_json: command.JsonOption = False,
) -> None:
    """Measure two brokers that share the work against one that is overloaded."""
    with _bus_for(bus) as uri, steps("bench brokers") as say:
        say("ceiling: the same matching in two bare processes, and in one")
        ceiling = brokers_bench.ceiling(interests, rounds)
        warm_up = _NEW_KAFKA_WARM_UP_MESSAGES if bus == "kafka" else messages // 10
        found = brokers_bench.run(uri, messages, interests, rounds, warm_up, say)
    rows = found.pop("rows")
    result = {"bench": "brokers", "bus": _bus_name(bus), **found, "ceiling": ceiling, "rows": rows}
    parameters = {"messages": messages, "interests": interests, "rounds": rounds}
    columns = "brokers messages per_s cpu_us duplicates"
    if _finish(result, parameters, log, as_json, {columns: rows}):
        print(f"two do {result['ratio']:.2f} times as much as one; bare processes {ceiling:.2f}")


@app.command()
def flood(
    rate: Annotated[float, option("Packets of strangers per second", min=1.0)] = 50_000.0,
    honest: Annotated[float, option("Echoes of honest clients per second", min=1.0)] = 1000.0,
    seconds: Annotated[float, option("Length of each run", min=0.5)] = 20.0,
    bus: BusOption = None,
    log: LogOption = DEFAULT_LOG,
    as_json: command.JsonOption = False,
) -> None:
    """Measure honest echoes while strangers flood the adapter with rubbish and with INITs."""
    with (
        _bus_for(bus) as uri,
        steps("bench flood") as say,
        processes.adapter(uri) as (port, _),
        processes.broker(uri),
    ):
        rows = list(flood_bench.run(port, tuple(flood_bench.FLOODS), rate, honest, seconds, say))
    flooded = rows[1:]
    result = {
        "bench": "flood",
        "bus": _bus_name(bus),
        "honest_lost": sum(row["honest_lost"] for row in flooded),
        "honest_p99_ms": max(row["honest_p99_ms"] for row in flooded),
        "packets_per_s": min(row["packets_per_s"] for row in flooded),
        "rows": rows,
    }
    parameters = {"rate": rate, "honest": honest, "seconds": seconds}
    columns = "flood packets_per_s honest_rate honest_lost honest_p50_ms honest_p99_ms"
    _finish(result, parameters, log, as_json, {f"{columns} honest_max_ms": rows})


@contextmanager
def _bus_for(bus: str | None) -> Iterator[str]:
    """A new bus; `kafka` starts a broker of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="mercury-bench-") as folder,
        running_kafka(KafkaBroker()) if bus == "kafka" else nullcontext() as kafka,
    ):
        yield processes.fresh_bus(kafka.uri if kafka is not None else bus, folder)


def _bus_name(bus: str | None) -> str:
    return (bus or "embedded").partition(":")[0]


def _numbers(text: str) -> list[float]:
    return _parsed(text, "expected positive numbers with commas", lambda one: one > 0.0)


def _parsed(text: str, expected: str, fits: Callable[[float], bool]) -> list[float]:
    otherwise = f"{expected}, not {text!r}"
    found = reading.numbers(text, None, otherwise)
    if not all(map(fits, found)):
        raise ConfigurationError(otherwise)
    return found


def _finish(
    result: dict[str, Any],
    parameters: dict[str, Any],
    log: Path,
    as_json: bool,
    tables: dict[str, list[dict[str, Any]]],
) -> bool:
    """Log and print a result; the keys of tables are their columns. False if printed as JSON."""
    record.append(log, result, parameters)
    if as_json:
        command.print_json(result)
        return False
    for columns, rows in tables.items():
        _table(columns.split(), rows)
    return True


def _table(columns: list[str], rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    console = Console(highlight=False)
    if not console.is_terminal:  # whoever reads a pipe wants all of it
        console.width = _PIPE_WIDTH
    console.print(table)


def _cell(value: float | str | None) -> str:
    """Large and whole numbers without a fraction, others with significant digits."""
    if value is None or isinstance(value, str):
        return value or "–"
    if abs(value) >= 1000.0 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.6g}" if 0.999 < value < 1.0 else f"{value:.4g}"  # nearly all is not all
