"""What the facts about a running Mercury mean: decided here, gathered elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mercury.service.claim import Holder
from mercury.service.status import Status

Verdict = Literal["ok", "warning", "failed"]
StateName = Literal["running", "starting", "failing", "stopped", "hung", "silent", "died"]
Trouble = Literal["", "missing", "full", "corrupt", "unavailable"]

SILENT_INTERVALS = 2.5  # a part that has missed two reports is silent
GIVEN_UP_S = 600.0  # a part silent for longer, on a machine that cannot be seen, does not run
STARTING_S = 180.0  # Spark on a busy machine
RECENT_S = 60.0  # an end is news for this time; who starts then is started again
CLOCK_S = 2.0
LATE_S = 5.0  # a report may wait in memory before the bus takes it
LEAST_FREE = 0.05, 1024**3  # of a disk; the smaller of the two
SLOW_S = 0.5
NEEDED = {"adapter": "no client can connect", "broker": "nothing is decided or answered"}
_KINDS = (*NEEDED, "matcher", "pipeline")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, in one sentence, and the next command to run."""

    name: str
    verdict: Verdict
    found: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class PartFacts:
    """One instance of a part: its last report, and the state of its process."""

    report: Status
    process: Literal["there", "stopped", "gone", "unknown"] = "unknown"
    health: str = ""  # what its own page says is wrong: "fails: …", "hangs: …"


@dataclass(frozen=True, slots=True)
class BusFacts:
    """The bus, and the disk it is on."""

    uri: str
    trouble: Trouble = ""
    found: str = ""  # one sentence, on what is wrong or what is there
    path: str = ""  # of an embedded bus
    newest_us: int = 0
    free_bytes: int = 0
    disk_bytes: int = 0  # 0 if it is not on a disk of this machine
    missing: Sequence[str] = ()  # topics that there are wherever an adapter runs
    files: Sequence[str] = ()  # of an embedded bus, with the state of jobs that counts its records
    damage: Sequence[str] = ()  # of single topics, a sentence each


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """The result of a client's message to itself."""

    uri: str
    connected: bool = False
    error: str = ""
    median_s: float = 0.0
    owner: str = ""  # the process of this machine that has the port


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts that were gathered."""

    bus: BusFacts
    parts: Sequence[PartFacts]
    round_trip: RoundTrip
    java: str = ""  # what is wrong with it
    spark_installed: bool = True
    clock_synchronised: bool | None = None  # as the kernel reports
    up: Holder | None = None  # the `mercury up` that runs here
    options: str = ""  # for commands that are to work with the same bus and settings

    @property
    def tail(self) -> str:
        """The command that shows details."""
        return f"mercury tail status --since 1m{self.options}"

    @property
    def bus_fails(self) -> bool:
        """Whether it exists and cannot be used."""
        return self.bus.trouble not in ("", "missing")

    def starts_again(self, report: Status) -> bool:
        """Whether `mercury up` runs this part."""
        if self.up is None:
            return False
        name = report.address.partition(":")[2]
        return name in self.up.parts or (_has_first_id(report) and report.part in self.up.parts)


@dataclass(frozen=True, slots=True)
class PartState:
    """The state of one part, by its address."""

    report: Status
    state: StateName
    age_s: float  # of its last report
    meaning: str
    hint: str = ""

    @property
    def is_running(self) -> bool:
        return self.state in ("running", "starting", "failing")

    @property
    def missed_start(self) -> bool:
        """Whether it ended by itself before it served, not just now."""
        served = self.report.at_us - self.report.started_us > self.report.interval_s * 1e6
        return self.report.state == "stopped" and not served and self.age_s > RECENT_S


def diagnose(facts: Facts, now_us: int) -> list[Finding]:
    """All findings, causes before their consequences."""
    states = part_states(facts, now_us)
    runs = any(one.is_running for one in states)
    findings = [_bus(facts.bus, facts.options, runs), *_damage(facts.bus), *_disk(facts.bus)]
    findings += _clock(facts, now_us)
    if runs or any(one.state in ("hung", "silent") for one in states):
        findings += _parts(facts, states)
        findings += _same_id(facts, now_us - _ahead_us(facts, now_us))
    elif facts.bus_fails and not states:
        findings.append(Finding("parts", "warning", "nothing is known of them without the bus"))
    else:
        seen = "; ".join(f"{one.report.address} {one.meaning}" for one in states)
        found = f"nothing runs here ({seen})" if seen else "nothing runs here"
        findings.append(Finding("parts", "failed", found, _start_all(facts)))
    findings.append(_round_trip(facts, states))
    findings.append(_java(facts, states))
    return findings


def age_text(seconds: float) -> str:
    """A length of time, for people."""
    for unit_s, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{seconds:.0f} s"


# The parts


def part_states(facts: Facts, now_us: int) -> list[PartState]:
    """One for each address that has reported: of the running instance, or else the last."""
    found: dict[str, PartState] = {}
    now_us -= _ahead_us(facts, now_us)
    for part in sorted(facts.parts, key=lambda one: one.report.at_us):
        state = _judge(part, facts, now_us)
        known = found.get(part.report.address)
        if state.state == "starting" and known is not None and known.state == "died":
            again_s = (part.report.started_us - known.report.at_us) / 1e6
            if again_s < RECENT_S:
                meaning = f"{known.meaning}; {state.meaning}"
                state = replace(state, state="failing", meaning=meaning)
        if known is None or state.is_running or not known.is_running:
            found[part.report.address] = state
    return [found[address] for address in sorted(found)]


def _ahead_us(facts: Facts, now_us: int) -> int:
    """How far this machine's clock is ahead, if all reports of running parts look equally old."""
    alive = [one for one in facts.parts if one.report.state != "stopped" and one.process != "gone"]
    here = [one.report.at_us for one in alive if one.process == "there"]
    if facts.round_trip.error or facts.bus.trouble or not here:
        return 0
    newest_us = max(one.report.at_us for one in alive)  # unless one elsewhere is on time
    interval_us = alive[0].report.interval_s * 1e6
    late = now_us - newest_us > interval_us + CLOCK_S * 1e6
    alike = newest_us - min(here) <= SILENT_INTERVALS * interval_us
    return now_us - newest_us if late and alike else 0


def _judge(part: PartFacts, facts: Facts, now_us: int) -> PartState:
    report = part.report
    age_s = max(0.0, (now_us - report.at_us) / 1e6)
    up_s = age_s + max(0.0, (report.at_us - report.started_us) / 1e6)
    start = _start_command(report, facts.options)
    kill = f"kill -KILL {report.pid} && {start}"
    silent = f"has said nothing for {age_text(age_s)}"
    last = f"its last report came {age_text(age_s)} ago"

    def state(name: StateName, meaning: str, hint: str = "") -> PartState:
        return PartState(report, name, age_s, meaning, hint)

    if report.state == "stopped":
        if report.problem:
            return state("died", f"ended {age_text(age_s)} ago: {report.problem}", start)
        return state("stopped", f"was stopped {age_text(age_s)} ago", start)
    restarted = part.process != "unknown" and facts.starts_again(report)
    if restarted:
        kill = f"kill -KILL {report.pid}"
    if part.process == "gone":
        meaning = f"died: process {report.pid} is gone, {last}"
        if facts.up is not None and restarted:
            meaning += f"; `mercury up`, process {facts.up.process}, starts it again"
        return state("died", meaning, facts.tail if restarted else start)
    if part.process == "stopped":
        meaning = f"hangs: process {report.pid} was stopped by a signal, {last}"
        return state("hung", meaning, f"kill -CONT {report.pid}")
    if part.health:
        hangs = part.health.startswith("hangs")
        return state("hung" if hangs else "failing", part.health, kill if hangs else facts.tail)
    if age_s > SILENT_INTERVALS * report.interval_s:
        if facts.bus.trouble:
            return state("silent", f"{silent}: the bus is in trouble", facts.tail)
        if part.process == "there":
            meaning = f"hangs: process {report.pid} runs, but {silent}"
            return state("hung", meaning, kill)
        meaning = f"{silent}: it died, hangs or does not reach the bus, on {report.host}"
        return state("silent" if age_s < GIVEN_UP_S else "died", meaning, start)
    if report.problem:
        return state("failing", f"fails: {report.problem}", facts.tail)
    if report.state == "starting":
        meaning = f"has been starting for {age_text(up_s)}"
        return state("failing" if up_s > STARTING_S else "starting", meaning, facts.tail)
    return state("running", f"runs for {age_text(up_s)}, {last}")


def _start_command(report: Status, options: str) -> str:
    name = report.address.partition(":")[2]
    own = "" if _has_first_id(report) else f" --id {name}"
    port = report.listens.rpartition(":")[2]
    if port not in ("", "7400"):
        own += f" --port {port}"
    return f"mercury {report.part}{options}{own}"


def _has_first_id(report: Status) -> bool:
    """Whether it has the default id."""
    return report.address.partition(":")[2] in (f"{report.part}-1", "pipeline")


def _start_all(facts: Facts) -> str:
    """The command to start all parts, on another port if that is taken."""
    port = facts.round_trip.uri.rpartition(":")[2]
    aside = f" --port {int(port) + 10}" if facts.round_trip.connected and port.isdigit() else ""
    return f"mercury up{facts.options}{aside}"


def _parts(facts: Facts, states: Sequence[PartState]) -> Iterator[Finding]:
    living = [one for one in states if one.is_running]
    oldest_us = min((one.report.started_us for one in living), default=0)
    there = {one.report.part for one in states if one.is_running or one.state in ("hung", "silent")}
    for one in states:
        name = one.report.address
        if one.is_running:
            verdict: Verdict = "failed" if one.state == "failing" else "ok"
            hint = one.hint if verdict == "failed" else ""
            yield Finding(name, verdict, one.meaning, hint)
        elif one.state == "stopped":
            continue  # stopped on purpose: counts only if no other does its work
        elif one.state == "died" and one.report.part in NEEDED and one.report.part not in there:
            continue  # reported below
        elif one.missed_start and one.report.part in {other.report.part for other in living}:
            yield Finding(name, "warning", one.meaning, one.hint)
        elif one.report.at_us >= oldest_us or one.state != "died":
            yield Finding(name, "failed", one.meaning, one.hint)
            there.add(one.report.part)
        # Otherwise it belongs to an earlier run.
    for kind in _KINDS:
        if kind in there:
            continue
        same = [one for one in states if one.report.part == kind]
        last = max(same, key=lambda one: one.report.at_us, default=None)
        said = "" if last is None else f": {last.report.address} {last.meaning}"
        start = f"mercury {kind}{facts.options}"
        if kind in NEEDED:
            found = f"no {kind} runs, so {NEEDED[kind]}{said}"
            yield Finding(kind, "failed", found, start if last is None else last.hint)
        elif kind == "matcher" or facts.spark_installed:
            yield Finding(kind, "warning", f"no {kind} runs{said}", start)


def _same_id(facts: Facts, now_us: int) -> Iterator[Finding]:
    fresh: dict[str, list[Status]] = {}
    for part in sorted(facts.parts, key=lambda one: one.report.started_us):
        report = part.report
        within_s = SILENT_INTERVALS * report.interval_s
        if report.state == "stopped" or part.process == "gone":
            continue
        if (now_us - report.at_us) / 1e6 <= within_s:
            fresh.setdefault(report.address, []).append(report)
    for address, reports in fresh.items():
        older, newer = reports[0], reports[-1]
        if len(reports) > 1 and older.at_us > newer.started_us:
            where = " and ".join(f"process {one.pid} on {one.host}" for one in (older, newer))
            found = f"two parts call themselves {address}: {where}"
            yield Finding("same id", "failed", found, f"kill {newer.pid}")


# Bus, disk, clock


def _bus(bus: BusFacts, options: str, runs: bool) -> Finding:
    if runs and bus.missing:  # Kafka lost its data: parts name topics when they start
        found = f"{bus.uri} lacks topics that its parts use ({', '.join(bus.missing)})"
        hint = f"mercury down{options} && mercury up{options}"
        return Finding("bus", "failed", f"{found}: start them again", hint)
    if not bus.trouble or bus.trouble == "missing":  # then nothing runs, which is reported
        return Finding("bus", "warning" if bus.trouble else "ok", bus.found)
    hints = {
        "full": f"df -h {bus.path}",
        "corrupt": f"mv {' '.join(bus.files)} $(mktemp -d damaged-XXX) && mercury up{options}",
        "unavailable": f"fuser -v {bus.path}*; ls -ld {bus.path}*; findmnt -T {bus.path}",
    }
    sentence, _, extra = bus.found.partition(": pip install ")
    if extra:
        return Finding("bus", "failed", sentence, f"pip install {extra}")
    hint = hints[bus.trouble]
    if bus.trouble == "corrupt" and f"{bus.path}-records" not in bus.files:  # not a bus
        hint = f"mercury up --bus embedded:{bus.path}-mercury"
    elif bus.found.endswith("is a directory"):
        hint = f"mercury up --bus embedded:{bus.path}/mercury.db"
    elif not bus.path:
        server = bus.uri.partition("//")[2].partition("/")[0].partition(",")[0]
        host, _, port = server.rpartition(":")
        hint = f"nc -vz {host} {port}" if port.isdigit() else "mercury config"
    return Finding("bus", "failed", bus.found, hint)


def _damage(bus: BusFacts) -> Iterator[Finding]:
    """What of the records is lost, until somebody has seen and accepted it."""
    if bus.damage:
        more = f"; and {len(bus.damage) - 1} more" if len(bus.damage) > 1 else ""
        yield Finding("records", "failed", bus.damage[0] + more, f"mercury bus repair {bus.path}")


def _disk(bus: BusFacts) -> Iterator[Finding]:
    if not bus.disk_bytes:
        return
    free = f"{bus.free_bytes / 1e6:,.{0 if bus.free_bytes > 1e7 else 1}f} MB free"
    share, size = LEAST_FREE
    if bus.free_bytes < min(share * bus.disk_bytes, size):
        full = "nearly full" if bus.free_bytes else "full"
        found = f"the disk of the bus is {full}: {free} of {bus.disk_bytes / 1e6:,.0f} MB"
        yield Finding("disk", "failed", found, f"df -h {bus.path or '.'}")
    else:
        yield Finding("disk", "ok", free)


def _clock(facts: Facts, now_us: int) -> Iterator[Finding]:
    check = "timedatectl status"
    newest_us = max([facts.bus.newest_us, *(part.report.at_us for part in facts.parts)])
    ahead_s = (newest_us - now_us) / 1e6
    for part in facts.parts:
        report = part.report
        if report.state == "stopped" or part.process == "gone":
            continue
        off_s = (report.sent_us - report.at_us) / 1e6
        if off_s > CLOCK_S or -off_s > CLOCK_S + LATE_S:
            word = "ahead of" if off_s > 0 else "behind"
            who = f"the clock of {report.host}, where {report.address} runs,"
            found = f"{who} is {age_text(abs(off_s))} {word} that of the bus"
            yield Finding("clock", "failed", found, check)
            return
    if late_us := _ahead_us(facts, now_us):
        silent = f"parts that work look silent for {age_text(late_us / 1e6)}"
        found = f"{silent}: this machine's clock is ahead of that of the bus"
        yield Finding("clock", "failed", found, check)
    elif ahead_s > CLOCK_S:
        found = f"what is on the bus is {age_text(ahead_s)} ahead of this machine's clock"
        yield Finding("clock", "failed", found, check)
    elif facts.clock_synchronised is False:
        yield Finding("clock", "warning", "nothing keeps this machine's clock right", check)
    else:
        yield Finding("clock", "ok", "agrees with the bus")


# From end to end


def _round_trip(facts: Facts, states: Sequence[PartState]) -> Finding:
    trip = facts.round_trip
    adapters = [one for one in states if one.report.part == "adapter"]
    ended = all(one.state in ("died", "stopped") for one in adapters)
    if trip.connected and ended and not any(facts.starts_again(one.report) for one in adapters):
        by = f", {trip.owner}" if trip.owner else ""
        if facts.bus_fails:
            found = f"an adapter answers at {trip.uri}{by}; whether it is of this bus is not known"
            return Finding("round trip", "warning", found)
        found = f"the adapter that answers at {trip.uri}{by} is of another bus"
        return Finding("round trip", "failed", found, _start_all(facts))
    if not trip.error:
        found = f"client → broker → client in {trip.median_s * 1e3:.2f} ms"
        verdict: Verdict = "warning" if trip.median_s > SLOW_S else "ok"
        return Finding("round trip", verdict, found)
    kind = "broker" if trip.connected else "adapter"
    doing = [one for one in states if one.report.part == kind]
    listens = sorted(one.report.listens for one in doing if one.is_running and one.report.listens)
    why, hint = trip.error, facts.tail
    if facts.bus_fails:
        why, hint = facts.bus.found, _bus(facts.bus, facts.options, runs=True).hint
    elif all(one.state in ("died", "stopped") for one in states):
        why, hint = "nothing runs", f"mercury up{facts.options}"
    elif not doing:
        why, hint = f"no {kind} runs", f"mercury {kind}{facts.options}"
    elif all(one.state != "running" for one in doing):
        why, hint = f"{doing[0].report.address} {doing[0].meaning}", doing[0].hint
    elif listens and trip.uri not in {*listens, *map(from_here, listens)}:
        why = f"one listens at {listens[0]}"
        hint = f"MERCURY_CLIENT__ADAPTER={listens[0]} mercury doctor{facts.options}"
    first = f"no adapter answers at {trip.uri}"
    if trip.connected:
        first = "the adapter answers, but the echo does not come back"
    return Finding("round trip", "failed", f"{first}: {why}", hint)


def from_here(listens: str) -> str:
    """How this machine reaches an adapter that listens everywhere."""
    return listens.replace("//0.0.0.0:", "//127.0.0.1:").replace("[::]", "[::1]")


def _java(facts: Facts, states: Sequence[PartState]) -> Finding:
    if not facts.java:
        return Finding("Java", "ok", "there, for the pipeline")
    if any(one.report.part == "pipeline" and one.is_running for one in states):
        return Finding("Java", "ok", "not needed here: a pipeline runs")
    if not facts.spark_installed:
        return Finding("Java", "ok", "not needed: Spark is not installed here")
    sentence, _, advice = facts.java.partition(": ")
    return Finding("Java", "failed", f"the pipeline cannot run: {sentence}", advice)
