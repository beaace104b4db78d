"""Gathers what `mercury doctor` judges; nothing here waits longer than a few seconds."""

from __future__ import annotations

import asyncio
import ctypes
import http.client
import json
import logging
import shutil
import tempfile
import threading
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from mercury.bus import FromTime, Record, catch_up
from mercury.bus.embedded.catalogue import explained
from mercury.bus.embedded.inspection import inspect_bus
from mercury.cli.check.diagnosis import BusFacts, Facts, PartFacts, RoundTrip, Trouble, from_here
from mercury.cli.common import command
from mercury.client import Client
from mercury.config import Settings
from mercury.java.runtime import java_problem
from mercury.model import topics
from mercury.model.errors import BusCorruptError, BusError, BusFullError, MercuryError
from mercury.net.ports import command_of, port_owner
from mercury.service import now_us
from mercury.service.claim import Holder, holder_of
from mercury.service.status import Status, process_state, read_status

BUS_S = 10.0
LOOKBACK_S = 600.0  # where records cannot be counted from the end
_ANSWER_S = 1.0
_NAMED = (*topics.ALERTS, topics.REPLIES, topics.DELIVERIES)  # by every adapter that starts
_UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)
_TIMEX_BYTES = 208


async def gather(settings: Settings, options: str) -> Facts:
    java = asyncio.create_task(asyncio.to_thread(java_problem))
    bus, records = await asyncio.to_thread(_bus, settings)
    reports = latest(records)
    parts = asyncio.gather(*(asyncio.to_thread(_part, report) for report in reports))
    round_trip = await _round_trip(_adapter(settings, reports))
    return Facts(
        bus=bus,
        parts=await parts,
        round_trip=round_trip,
        java=await java,
        spark_installed=find_spec("pyspark") is not None,
        clock_synchronised=_synchronised(),
        up=_up(bus.uri),
        options=options,
    )


def latest(records: Iterable[Record]) -> list[Status]:
    """The last report of each instance; only records that may be one are decoded."""
    by_key: dict[bytes, list[Record]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(record)
    found: dict[tuple[str, str], Status] = {}
    for own in by_key.values():
        # Two of the same id take turns: a few records back there is one of the other.
        for record in sorted(own, key=lambda one: one.timestamp_us)[-8:]:
            status = read_status(record)
            if status is not None:
                found[status.address, status.instance] = status
    return list(found.values())


# The bus


def _bus(settings: Settings) -> tuple[BusFacts, list[Record]]:
    uri = settings.bus.uri
    if uri.startswith("embedded:"):
        return _embedded(uri, Path(uri.removeprefix("embedded:")))
    # Clients of an unreachable bus log each attempt; here one sentence reports it.
    logging.getLogger("mercury.bus").setLevel(logging.CRITICAL)
    found: list[tuple[BusFacts, list[Record]]] = []
    looking = threading.Thread(target=lambda: found.append(_remote(settings)), daemon=True)
    looking.start()
    looking.join(BUS_S)
    if not found:
        return BusFacts(uri, "unavailable", f"{uri} does not answer within {BUS_S:g} s"), []
    return found[0]


def _embedded(uri: str, path: Path) -> tuple[BusFacts, list[Record]]:
    if not path.exists():
        return BusFacts(uri, "missing", f"{uri} does not exist yet", str(path)), []
    seen = inspect_bus(path, topics.STATUS)
    disk = shutil.disk_usage(path.parent)
    found = f"{uri}, {seen.topics} topics, {seen.size_bytes / 1e6:,.1f} MB"
    if seen.checked_bytes < seen.size_bytes:
        found += f" of which the newest {seen.checked_bytes / 1e6:,.1f} were checked"
    try:
        with explained(path), tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(4096))  # as an append would
    except BusError as error:
        seen.problem = seen.problem or error
    trouble: Trouble = ""
    if seen.problem is not None:
        trouble, found = _kind(seen.problem), str(seen.problem)
    endings = ("", "-wal", "-shm", "-lock", "-records", "-pipeline")
    there = [f"{path}{ending}" for ending in endings if Path(f"{path}{ending}").exists()]
    damage = [one.found for one in seen.damage if one.explanation is None]
    facts = BusFacts(uri, trouble, found, str(path), seen.newest_us, disk.free, disk.total)
    return replace(facts, files=there, damage=damage), seen.tail


def _remote(settings: Settings) -> tuple[BusFacts, list[Record]]:
    uri = settings.bus.uri
    records: list[Record] = []
    try:
        with closing(command.bus_of(settings)) as bus:
            names = bus.topics()
            start = FromTime(now_us() - int(LOOKBACK_S * 1e6))
            for some in catch_up(bus.subscribe((topics.STATUS,), start=start)):
                records += some
    except BusError as error:
        return BusFacts(uri, _kind(error), str(error)), records
    newest_us = max((record.timestamp_us for record in records), default=0)
    found = f"{uri}, {len(names)} topics"
    missing = [name for name in _NAMED if name not in names]
    return BusFacts(uri, found=found, newest_us=newest_us, missing=missing), records


def _kind(error: BusError) -> Trouble:
    if isinstance(error, BusFullError):
        return "full"
    return "corrupt" if isinstance(error, BusCorruptError) else "unavailable"


# The parts


def _part(report: Status) -> PartFacts:
    process = process_state(report)
    here = process in ("there", "stopped") and report.state != "stopped"
    health = _health(report.metrics_port) if here and report.metrics_port else ""
    return PartFacts(report, process, health)


def _health(port: int) -> str:
    """The problem that a part's own /healthz reports."""
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
    try:
        asking.request("GET", "/healthz")
        answer = json.load(asking.getresponse())
    except TimeoutError:
        return f"hangs: /healthz at port {port} does not answer within {_ANSWER_S:g} s"
    except (OSError, ValueError, http.client.HTTPException):
        return ""  # not its port any more, or in another network: its reports decide
    finally:
        asking.close()
    return f"fails: {answer.get('reason')}" if answer.get("status") == "failing" else ""


# From end to end


def _adapter(settings: Settings, reports: Iterable[Status]) -> str:
    """The adapter's address: from the settings, or else of an adapter on this machine.

    If none runs, the last one's: the default address may be an adapter of another bus.
    """
    if settings.origin("client.adapter") == "default":
        states = ((one, process_state(one)) for one in reports if one.listens)
        here = [(state == "there", one.at_us, one) for one, state in states if state != "unknown"]
        if here:
            return from_here(max(here, key=lambda one: one[:2])[2].listens)
    return settings.client.adapter


def _up(bus_uri: str) -> Holder | None:
    with suppress(BusError):
        return holder_of(bus_uri)
    return None


async def _round_trip(uri: str) -> RoundTrip:
    # A client at the South Pole, outside all real areas.
    owner = port_owner("UDP", int(uri.rpartition(":")[2]))
    by = "" if owner is None else f"process {owner} ({command_of(owner)})"
    probe = Client(uri, identity=f"doctor-{now_us()}", position=(-90.0, 0.0), connect_timeout_s=1.5)
    connected = False
    try:
        async with probe:
            connected = True
            times = sorted([await probe.echo(timeout_s=2.0) for _ in range(5)])
    except (MercuryError, OSError) as error:
        return RoundTrip(uri, connected, str(error) or type(error).__name__, owner=by)
    return RoundTrip(uri, connected, median_s=times[2], owner=by)


# The machine


def _synchronised() -> bool | None:
    """Whether the kernel's clock is synchronised; None if unknown."""
    with suppress(OSError, AttributeError):
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
        return None if state < 0 else bool(state != _UNSYNCHRONISED)
    return None
