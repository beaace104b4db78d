"""Every condition that `mercury doctor` knows, one by one: what it says, and what to type next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mercury.cli.check.diagnosis import (
    BusFacts,
    Facts,
    Finding,
    PartFacts,
    RoundTrip,
    Trouble,
    diagnose,
    part_states,
)
from mercury.service.claim import Holder
from mercury.service.status import Status

NOW = 1_800_000_000_000_000
S = 1_000_000
GB = 10**9
URI = "udp://127.0.0.1:7400"


def report(part: str, name: str = "", *, age_s: float = 2.0, **said: object) -> Status:
    address = f"{part if part in ('adapter', 'broker') else 'service'}:{name or part + '-1'}"
    at_us = NOW - int(age_s * S)
    known: dict[str, object] = {
        "part": part, "state": "running", "pid": 100 + len(part), "process": "p", "host": "one",
        "instance": f"{address}/a", "started_us": NOW - 1000 * S, "interval_s": 5.0,
        "address": address, "at_us": at_us, "sent_us": at_us,
        "listens": URI if part == "adapter" else "",
    }  # fmt: skip
    return Status(**{**known, **said})  # type: ignore[arg-type]


def part(kind: str, *, process: str = "there", health: str = "", **said: object) -> PartFacts:
    return PartFacts(report(kind, **said), process, health)  # type: ignore[arg-type]


WELL = Facts(
    bus=BusFacts(
        "embedded:m.db",
        "",
        "embedded:m.db, 9 topics",
        "m.db",
        NOW,
        50 * GB,
        100 * GB,
        files=["m.db", "m.db-lock", "m.db-records"],
    ),
    parts=[part("adapter"), part("broker"), part("matcher"), part("pipeline", name="pipeline")],
    round_trip=RoundTrip(URI, connected=True, median_s=0.001),
)
NO_ADAPTER = RoundTrip(URI, error="no answer within 1.5 s")
NO_ECHO = RoundTrip(URI, connected=True, error="no reply to 'echo' within 2 s")
OTHER = RoundTrip(URI, connected=True, median_s=0.001, owner="process 9 (mercury adapter)")


def with_part(one: PartFacts, facts: Facts = WELL, **others: object) -> Facts:
    parts = [other for other in facts.parts if other.report.address != one.report.address]
    return replace(facts, parts=[*parts, one], **others)  # type: ignore[arg-type]


def without(kind: str, **others: object) -> Facts:
    parts = [one for one in WELL.parts if one.report.part != kind]
    return replace(WELL, parts=parts, **others)  # type: ignore[arg-type]


def failures(facts: Facts) -> list[Finding]:
    return [one for one in diagnose(facts, NOW) if one.verdict == "failed"]


def cause(facts: Facts) -> Finding:
    found = failures(facts)
    assert found, "nothing was found"
    for one in found:
        assert "\n" not in one.found
        assert one.hint, f"what to type about {one.found}?"
    return found[0]


def test_all_is_well() -> None:
    assert {one.verdict for one in diagnose(WELL, NOW)} == {"ok"}
    names = [one.name for one in diagnose(WELL, NOW)]
    assert names == [
        "bus", "disk", "clock", "adapter:adapter-1", "broker:broker-1", "service:matcher-1",
        "service:pipeline", "round trip", "Java",
    ]  # fmt: skip


KINDS = ["adapter", "broker", "matcher", "pipeline"]


def own(kind: str) -> dict[str, object]:
    return {"name": "pipeline"} if kind == "pipeline" else {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_whose_process_is_gone_has_died(kind: str) -> None:
    facts = with_part(part(kind, process="gone", age_s=3.0, **own(kind)))
    if kind == "adapter":
        facts = replace(facts, round_trip=NO_ADAPTER)
    found = cause(facts)
    assert "died: process" in found.found
    assert "its last report came 3 s ago" in found.found
    assert found.hint == f"mercury {kind}"
    # It is said once, and where the echo fails because of it.
    assert [one.name for one in failures(facts)[1:]] == ["round trip"] * (kind == "adapter")


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_a_running_up_is_started_again_by_it(kind: str) -> None:
    up = Holder(77, KINDS)
    gone = with_part(part(kind, process="gone", age_s=3.0, **own(kind)), up=up)
    found = cause(gone)
    assert found.found.endswith("ago; `mercury up`, process 77, starts it again")
    assert found.hint == "mercury tail status --since 1m"
    assert [one.name for one in failures(gone)] == [found.name]  # what answers is its successor
    silent = with_part(part(kind, age_s=14.0, pid=42, **own(kind)), up=up)
    assert cause(silent).hint == "kill -KILL 42"
    # Not one of another name, nor of another machine.
    second = part(kind, name="second", process="gone")
    assert cause(replace(WELL, parts=[*WELL.parts, second], up=up)).hint.startswith("mercury ")
    far = with_part(part(kind, process="unknown", age_s=150.0, host="two", **own(kind)), up=up)
    assert cause(far).hint == f"mercury {kind}"


def test_a_part_with_a_port_of_its_own_is_started_with_it() -> None:
    moved = part("adapter", process="gone", listens="udp://127.0.0.1:7410")
    assert cause(with_part(moved, round_trip=NO_ADAPTER)).hint == "mercury adapter --port 7410"


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_was_stopped_by_a_signal_hangs(kind: str) -> None:
    found = cause(with_part(part(kind, process="stopped", pid=42, **own(kind))))
    assert "hangs: process 42 was stopped by a signal" in found.found
    assert found.hint == "kill -CONT 42"


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_whose_process_says_nothing_hangs(kind: str) -> None:
    found = cause(with_part(part(kind, age_s=14.0, pid=42, **own(kind))))
    assert "hangs: process 42 runs, but has said nothing for 14 s" in found.found
    assert found.hint == f"kill -KILL 42 && mercury {kind}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_another_machine_that_says_nothing_is_silent(kind: str) -> None:
    found = cause(with_part(part(kind, process="unknown", age_s=150.0, host="two", **own(kind))))
    assert "has said nothing for 2 min" in found.found
    assert "on two" in found.found
    assert found.hint == f"mercury {kind}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_lags_says_so(kind: str) -> None:
    lag = "it is 12 s behind what is on the bus"
    found = cause(with_part(part(kind, problem=lag, **own(kind))))
    assert (found.name.endswith(f"{kind}-1") or kind == "pipeline", found.found) == (
        True,
        f"fails: {lag}",
    )
    assert found.hint.startswith("mercury tail status")


def test_what_a_part_answers_now_counts_more_than_its_last_report() -> None:
    hung = "hangs: /healthz at port 9 does not answer within 1 s"
    found = cause(with_part(part("broker", health=hung, pid=42)))
    assert (found.found, found.hint) == (hung, "kill -KILL 42 && mercury broker")
    fails = "fails: the event loop stood still for 3.2 s"
    found = cause(with_part(part("broker", health=fails)))
    assert (found.found, found.hint) == (fails, "mercury tail status --since 1m")


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_ended_by_itself_says_why(kind: str) -> None:
    why = "Spark does not answer: connection refused"
    facts = with_part(part(kind, process="gone", state="stopped", problem=why, **own(kind)))
    assert f"ended 2 s ago: {why}" in cause(facts).found
    assert cause(facts).hint == f"mercury {kind}"


@pytest.mark.parametrize("kind", ["adapter", "broker"])
def test_what_was_stopped_on_purpose_is_missed_where_it_is_needed(kind: str) -> None:
    facts = with_part(part(kind, process="gone", state="stopped", age_s=180.0))
    assert f"no {kind} runs, so " in cause(facts).found
    assert "was stopped 3 min ago" in cause(facts).found
    assert cause(facts).hint == f"mercury {kind}"


@pytest.mark.parametrize("kind", ["matcher", "pipeline"])
def test_what_was_stopped_on_purpose_or_never_ran_is_a_warning(kind: str) -> None:
    stopped = with_part(part(kind, process="gone", state="stopped", **own(kind)))
    for facts in (stopped, without(kind)):
        assert failures(facts) == []
        (found,) = [one for one in diagnose(facts, NOW) if one.verdict == "warning"]
        assert (found.name, found.hint) == (kind, f"mercury {kind}")


@pytest.mark.parametrize("kind", ["adapter", "broker"])
def test_what_never_ran_is_missed_where_it_is_needed(kind: str) -> None:
    assert f"no {kind} runs" in cause(without(kind)).found
    assert cause(replace(without(kind), options=" --bus x")).hint == f"mercury {kind} --bus x"


def test_one_of_two_brokers_that_died_is_told_with_its_name() -> None:
    facts = replace(WELL, parts=[*WELL.parts, part("broker", name="broker-2", process="gone")])
    assert cause(facts).name == "broker:broker-2"
    assert cause(facts).hint == "mercury broker --id broker-2"


def test_a_part_of_an_earlier_run_is_listed_and_fails_nothing() -> None:
    earlier = part("broker", name="broker-2", process="gone", age_s=7200.0)
    facts = replace(WELL, parts=[*WELL.parts, earlier])
    assert failures(facts) == []
    states = {one.report.address: one for one in part_states(facts, NOW)}
    assert (states["broker:broker-2"].state, states["broker:broker-2"].age_s) == ("died", 7200.0)


def test_a_part_that_was_started_again_is_well() -> None:
    again = part("broker", instance="b", started_us=NOW - 3 * S, age_s=1.0)
    died = part("broker", process="gone", age_s=9.0)
    assert failures(replace(without("broker"), parts=[*without("broker").parts, died, again])) == []


def test_a_second_one_that_could_not_start_does_not_hide_the_first() -> None:
    second = part("adapter", instance="b", process="gone", state="stopped", age_s=0.5,
                  problem="UDP port 7400 is in use")  # fmt: skip
    assert failures(replace(WELL, parts=[*WELL.parts, second])) == []


def test_a_part_may_start_but_not_for_ever() -> None:
    young = part("pipeline", name="pipeline", state="starting", started_us=NOW - 30 * S)
    assert failures(with_part(young)) == []
    old = part("pipeline", name="pipeline", state="starting", started_us=NOW - 300 * S)
    assert "has been starting for 5 min" in cause(with_part(old)).found


def test_a_part_that_crashed_and_is_started_again_fails() -> None:
    why = "Spark does not answer: connection refused"
    again = part("pipeline", name="pipeline", instance="b", state="starting",
                 started_us=NOW - 3 * S, age_s=1.0)  # fmt: skip
    ended = part("pipeline", name="pipeline", process="gone", state="stopped", problem=why,
                 age_s=4.0)  # fmt: skip
    killed = part("pipeline", name="pipeline", process="gone", age_s=8.0)
    for before, said in ((ended, f"ended 4 s ago: {why}"), (killed, "died: process 108 is gone")):
        facts = replace(WELL, parts=[*without("pipeline").parts, before, again])
        found = cause(facts)
        assert found.found.startswith(said)
        assert found.found.endswith("; has been starting for 3 s")
        assert found.hint == "mercury tail status --since 1m"
    # Who starts it the next day starts it anew.
    earlier = replace(ended, report=replace(ended.report, at_us=NOW - 90_000 * S))
    assert failures(replace(WELL, parts=[*without("pipeline").parts, earlier, again])) == []


def test_a_further_part_that_could_not_start_is_a_note_after_a_while() -> None:
    def second(age_s: float, lived_s: float = 0.2) -> PartFacts:
        started_us = NOW - int((age_s + lived_s) * S)
        return part("matcher", name="m2", process="gone", state="stopped", age_s=age_s,
                    problem="TCP port 7480 is in use", started_us=started_us)  # fmt: skip

    fresh = replace(WELL, parts=[*WELL.parts, second(20.0)])
    assert cause(fresh).found == "ended 20 s ago: TCP port 7480 is in use"
    facts = replace(WELL, parts=[*WELL.parts, second(76.0)])
    assert failures(facts) == []
    (note,) = [one for one in diagnose(facts, NOW) if one.verdict == "warning"]
    assert note.found == "ended 76 s ago: TCP port 7480 is in use"
    assert note.hint == "mercury matcher --id m2"
    # The only one of its kind is missed, and so is one that has served.
    assert failures(replace(WELL, parts=[*without("matcher").parts, second(76.0)]))
    assert failures(replace(WELL, parts=[*WELL.parts, second(76.0, lived_s=300.0)]))


def test_nothing_runs() -> None:
    never = replace(
        WELL,
        bus=BusFacts("embedded:m.db", "missing", "embedded:m.db does not exist yet", "m.db"),
        parts=[],
        round_trip=NO_ADAPTER,
    )
    assert (cause(never).found, cause(never).hint) == ("nothing runs here", "mercury up")
    parts = [replace(one, process="gone") for one in WELL.parts]
    dead = replace(WELL, parts=parts, round_trip=NO_ADAPTER)
    assert cause(dead).found.startswith("nothing runs here (adapter:adapter-1 died")
    assert {one.hint for one in failures(dead)} == {"mercury up"}
    long_ago = [part(kind, process="unknown", age_s=7200.0) for kind in KINDS]
    assert "nothing runs here" in cause(replace(dead, parts=long_ago)).found


def test_an_adapter_of_another_bus_answers() -> None:
    dead = [replace(one, process="gone") for one in WELL.parts]
    for parts in ([], dead):
        facts = replace(WELL, parts=parts, round_trip=OTHER)
        found = trip(facts)
        assert found.verdict == "failed"
        assert found.found == (
            f"the adapter that answers at {URI}, process 9 (mercury adapter) is of another bus"
        )
        assert found.hint == cause(facts).hint == "mercury up --port 7410"
    # It answers as well while this one's own does not report.
    silent = part("adapter", age_s=60.0)
    assert trip(with_part(silent, round_trip=OTHER)).verdict == "ok"


def test_of_a_bus_that_fails_it_is_not_known_whose_adapter_answers() -> None:
    broken = replace(WELL.bus, trouble="corrupt", found="the bus file m.db is damaged at byte 7")
    found = trip(replace(WELL, bus=broken, parts=[], round_trip=OTHER))
    assert found.verdict == "warning"
    assert found.found == (
        f"an adapter answers at {URI}, process 9 (mercury adapter); "
        "whether it is of this bus is not known"
    )


def test_an_adapter_that_listens_everywhere_is_the_one_at_this_address() -> None:
    full = RoundTrip(URI, error="refuses a session: full")
    everywhere = part("adapter", listens="udp://0.0.0.0:7400")
    found = diagnose(with_part(everywhere, round_trip=full), NOW)
    [trip] = [one for one in found if one.name == "round trip"]
    assert "full" in trip.found


def test_two_of_the_same_id() -> None:
    twin = part("broker", instance="b", pid=7, host="two", process="unknown",
                started_us=NOW - 60 * S)  # fmt: skip
    facts = replace(WELL, parts=[*WELL.parts, twin])
    found = cause(facts)
    assert "two parts call themselves broker:broker-1: process 106 on one and process 7 on two" in (
        found.found
    )
    assert found.hint == "kill 7"
    stopped = replace(twin, report=replace(twin.report, state="stopped"))
    assert failures(replace(WELL, parts=[*WELL.parts, stopped])) == []
    # It took the place of one that reported last before.
    heir = replace(twin, report=replace(twin.report, started_us=NOW - 1 * S, at_us=NOW))
    assert failures(replace(WELL, parts=[*WELL.parts, heir])) == []


TROUBLES: list[tuple[Trouble, str, str]] = [
    ("full", "no space is left to append to the bus file m.db", "df -h m.db"),
    (
        "corrupt",
        "the bus file m.db is damaged at byte 7",
        "mv m.db m.db-lock m.db-records $(mktemp -d damaged-XXX) && mercury up",
    ),
    ("unavailable", "the bus file m.db is read-only", "ls -ld m.db*; findmnt -T m.db"),
]


@pytest.mark.parametrize(("trouble", "sentence", "command"), TROUBLES)
def test_a_bus_that_cannot_be_used_is_the_cause(
    trouble: Trouble, sentence: str, command: str
) -> None:
    bus = replace(WELL.bus, trouble=trouble, found=sentence)
    silent = [part(kind, age_s=60.0, **own(kind)) for kind in KINDS]
    facts = replace(WELL, bus=bus, parts=silent, round_trip=NO_ECHO)
    assert (cause(replace(facts, parts=WELL.parts)).found) == sentence
    found = diagnose(facts, NOW)[0]
    assert (found.verdict, found.found) == ("failed", sentence)
    assert command in found.hint
    assert all("hangs" not in one.found for one in failures(facts))  # the bus explains the silence
    assert sentence in failures(facts)[-1].found  # and the echo that does not come


def test_what_is_not_a_bus_is_left_where_it_is() -> None:
    foreign = replace(
        WELL.bus, trouble="corrupt", found="m.db is not a Mercury bus file", files=["m.db"]
    )
    assert cause(replace(WELL, bus=foreign)).hint == "mercury up --bus embedded:m.db-mercury"
    folder = replace(WELL.bus, trouble="unavailable", found="m.db is a directory", files=["m.db"])
    assert cause(replace(WELL, bus=folder)).hint == "mercury up --bus embedded:m.db/mercury.db"
    typo = BusFacts("kafka://k:90x2", "unavailable", "kafka://k:90x2: no such port")
    assert cause(replace(WELL, bus=typo, parts=[])).hint == "mercury config"


def test_kafka_is_away() -> None:
    said = "kafka://k:9092 cannot be reached"
    facts = replace(WELL, bus=BusFacts("kafka://k:9092,l:9092/x", "unavailable", said), parts=[])
    assert (cause(facts).found, cause(facts).hint) == (said, "nc -vz k 9092")
    assert [one.name for one in failures(facts)] == ["bus"]  # of the parts nothing is known
    needs = "a kafka:// bus needs the package confluent-kafka"
    missing = replace(facts.bus, found=f"{needs}: pip install 'mercury-messaging[kafka]'")
    found = cause(replace(facts, bus=missing))
    assert (found.found, found.hint) == (needs, "pip install 'mercury-messaging[kafka]'")
    away = replace(facts, round_trip=NO_ADAPTER)
    assert trip(away).found == f"no adapter answers at {URI}: {said}"


def test_a_kafka_that_was_started_again_without_its_topics() -> None:
    bus = BusFacts("kafka://k:9092", "", "kafka://k:9092, 3 topics", missing=["replies"])
    facts = replace(WELL, bus=bus, round_trip=NO_ECHO, options=" --bus kafka://k:9092")
    found = cause(facts)
    assert found.found == (
        "kafka://k:9092 lacks topics that its parts use (replies): start them again"
    )
    assert found.hint == "mercury down --bus kafka://k:9092 && mercury up --bus kafka://k:9092"
    # Where nothing has run yet, that is said.
    assert cause(replace(facts, parts=[])).found.startswith("nothing ")


@pytest.mark.parametrize(
    ("free", "disk", "fails"),
    [(2 * GB, 100 * GB, False), (GB, 100 * GB, True), (GB, 4 * GB, False), (10**8, 4 * GB, True)],
)
def test_a_disk_that_is_nearly_full(free: int, disk: int, fails: bool) -> None:
    facts = replace(WELL, bus=replace(WELL.bus, free_bytes=free, disk_bytes=disk))
    assert bool(failures(facts)) == fails
    if fails:
        assert "the disk of the bus is nearly full" in cause(facts).found
        assert cause(facts).hint == "df -h m.db"
        full = replace(facts, bus=replace(facts.bus, free_bytes=0))
        assert (
            cause(full).found == f"the disk of the bus is full: 0.0 MB free of {disk / 1e6:,.0f} MB"
        )


def test_a_part_whose_clock_is_off() -> None:
    ahead = part("broker", sent_us=NOW + 58 * S)
    assert "the clock of one, where broker:broker-1 runs, is 60 s ahead" in (
        cause(with_part(ahead)).found
    )
    behind = part("broker", sent_us=NOW - 62 * S)
    assert "60 s behind that of the bus" in cause(with_part(behind)).found
    assert cause(with_part(behind)).hint == "timedatectl status"
    late = part("broker", sent_us=NOW - 8 * S)  # it waited until the bus could be written
    assert failures(with_part(late)) == []


def test_this_machine_s_clock_is_off() -> None:
    facts = replace(WELL, bus=replace(WELL.bus, newest_us=NOW + 7200 * S))
    assert cause(facts).found == "what is on the bus is 2 h ahead of this machine's clock"
    from_the_future = with_part(part("broker", age_s=-30.0))
    assert "30 s ahead of this machine's clock" in cause(from_the_future).found
    adrift = replace(WELL, clock_synchronised=False)
    assert failures(adrift) == []
    assert ("clock", "warning") in [(one.name, one.verdict) for one in diagnose(adrift, NOW)]


@pytest.mark.parametrize("ahead_s", [10.0, 3600.0])
def test_this_machine_s_clock_is_ahead(ahead_s: float) -> None:
    ages_s = dict(zip(KINDS, (0.5, 2.0, 4.9, 3.0), strict=True))
    parts = [part(kind, age_s=ahead_s + age_s, **own(kind)) for kind, age_s in ages_s.items()]
    facts = replace(WELL, parts=parts)
    (found,) = failures(facts)
    age = "60 min" if ahead_s > 60 else "10 s"
    assert found.name == "clock"
    assert found.found == (
        f"parts that work look silent for {age}: this machine's clock is ahead of that of the bus"
    )
    assert found.hint == "timedatectl status"
    assert {one.state for one in part_states(facts, NOW)} == {"running"}
    # It is not the clock if nothing works, or if somebody reports in time.
    for other in (
        replace(facts, round_trip=NO_ECHO),
        replace(facts, parts=[*parts[1:], WELL.parts[0]]),
        replace(facts, parts=[*parts, part("broker", name="b2", process="unknown", host="two")]),
    ):
        assert "clock" not in [one.name for one in failures(other)]
        assert "kill -KILL" in str(failures(other))
    # What died in an earlier run does not matter.
    dead = part("broker", name="b3", process="unknown", host="two", age_s=90_000.0)
    assert failures(replace(facts, parts=[*parts, dead])) == [found]


def test_java_is_missing() -> None:
    java = "Spark and Kafka need Java: install Java 17 or later"
    facts = without("pipeline", java=java)
    assert "the pipeline cannot run: Spark and Kafka need Java" in cause(facts).found
    assert cause(facts).hint == "install Java 17 or later"
    assert failures(replace(facts, spark_installed=False)) == []
    assert failures(replace(WELL, java=java)) == []  # it runs, elsewhere


def trip(facts: Facts) -> Finding:
    (found,) = [one for one in diagnose(facts, NOW) if one.name == "round trip"]
    return found


def test_a_round_trip_that_fails_names_the_cause() -> None:
    dead = trip(with_part(part("adapter", process="gone"), round_trip=NO_ADAPTER))
    assert "no adapter answers at udp://127.0.0.1:7400: adapter:adapter-1 died" in dead.found
    assert dead.hint == "mercury adapter"
    elsewhere = trip(replace(WELL, round_trip=replace(NO_ADAPTER, uri="udp://127.0.0.1:7500")))
    assert (
        "no adapter answers at udp://127.0.0.1:7500: one listens at udp://127.0.0.1:7400"
        in elsewhere.found
    )
    assert elsewhere.hint == f"MERCURY_CLIENT__ADAPTER={URI} mercury doctor"
    no_broker = trip(without("broker", round_trip=NO_ECHO))
    assert "the echo does not come back: no broker runs" in no_broker.found
    assert no_broker.hint == "mercury broker"
    lagging = part("broker", problem="it is 12 s behind what is on the bus")
    lag = trip(with_part(lagging, round_trip=NO_ECHO))
    assert "broker:broker-1 fails: it is 12 s behind" in lag.found
    unknown = trip(replace(WELL, round_trip=NO_ECHO))
    assert unknown.found.endswith("no reply to 'echo' within 2 s")
    all_hang = replace(
        WELL,
        parts=[replace(one, process="stopped") for one in WELL.parts],
        round_trip=NO_ADAPTER,
    )
    hung = trip(all_hang)
    assert "no adapter answers at udp://127.0.0.1:7400: adapter:adapter-1 hangs" in hung.found
    assert hung.hint.startswith("kill -CONT ")
    for one in (dead, elsewhere, no_broker, lag, unknown, hung):
        assert one.verdict == "failed"
        assert one.hint
    slow = trip(replace(WELL, round_trip=replace(WELL.round_trip, median_s=0.9)))
    assert slow.verdict == "warning"
