"""What a part says of itself is read again as it was said, and leads to its process."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace

import pytest

from mercury.bus import Record
from mercury.model import topics
from mercury.model.message import Address
from mercury.service.status import (
    Status,
    new_identity,
    process_name,
    process_state,
    read_status,
)
from mercury.wire import encode


def of(pid: int) -> Status:
    identity = {**new_identity(7), "pid": pid, "process": process_name(pid)[0]}
    return Status(**identity, part="broker", state="running", interval_s=5.0)


def test_a_report_is_read_as_it_was_said() -> None:
    said = replace(of(os.getpid()), behind_s=1.5, problem="no", numbers={"echoes": 3, "cpu_s": 0.5})
    message = said.message(Address.broker("broker-1"))
    record = Record(topics.STATUS, 0, 1, 99, b"broker:broker-1", (), encode(message))
    read = read_status(record)
    expected = replace(said, address="broker:broker-1", at_us=99, sent_us=message.sent_us)
    assert read == expected
    long = replace(said, numbers={"cpu_s": 0.447442088}).message(Address.broker("broker-1"))
    assert long.values["cpu_s"] == 0.447


@pytest.mark.parametrize("value", [b"", b"junk"])
def test_what_is_no_report_is_none(value: bytes) -> None:
    assert read_status(Record(topics.STATUS, 0, 1, 99, b"x", (), value)) is None


def test_two_instances_of_a_process_differ() -> None:
    assert new_identity(1)["instance"] != new_identity(1)["instance"]


def test_a_process_is_there_stopped_and_gone() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        report = of(process.pid)
        assert process_state(report) == "there"
        process.send_signal(signal.SIGSTOP)
        while process_name(process.pid)[1] != "T":
            pass
        assert process_state(report) == "stopped"
        process.kill()
        process.wait()
    assert process_state(report) == "gone"


def test_another_process_with_the_same_number_is_not_it() -> None:
    report = of(os.getpid())
    earlier = report.process.rpartition("/")[0] + "/1"
    assert process_state(replace(report, process=earlier)) == "gone"


def test_of_another_machine_nothing_is_known() -> None:
    report = of(os.getpid())
    elsewhere = "0" * 36 + report.process[36:]
    assert process_state(replace(report, host="elsewhere", process=elsewhere)) == "unknown"
    # The same machine after a restart: none of its processes runs any more.
    assert process_state(replace(report, process=elsewhere)) == "gone"
    # Another container of this machine.
    other = report.process.replace("pid:[", "pid:[9")
    assert process_state(replace(report, process=other)) == "unknown"
