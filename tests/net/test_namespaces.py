"""The wire between two namespaces does what it says: 30 % lost is 30 % lost, and nothing stays."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from net import namespaces
from net.namespaces import Joined, NamespacesUnavailableError, Wire, joined_namespaces, why_not

PACKETS = 2000

ECHO = """
import socket
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.bind(("192.0.2.2", 7))
print("ready", flush=True)
while True:
    data, sender = echo.recvfrom(2048)
    echo.sendto(data, sender)
"""

ASK = """
import json, select, socket, sys, time
ask = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ask.connect(("192.0.2.2", 7))
sent, took = {}, []
def listen(wait_s):
    while select.select([ask], [], [], wait_s)[0]:
        took.append(time.monotonic() - sent[int(ask.recv(2048))])
for number in range(int(sys.argv[1])):
    sent[number] = time.monotonic()
    ask.send(b"%d" % number)
    listen(0.0005)
listen(1.0)
print(json.dumps(took))
"""


@pytest.fixture(params=["netem", "tun"])
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    reason = why_not(found)
    if reason is not None:
        pytest.skip(reason)
    return found


def echoes(world: Joined, packets: int) -> list[float]:
    """Ask from the left, echo on the right; returns how long what came back took."""
    echo = world.right.popen(sys.executable, "-Sc", ECHO, stdout=subprocess.PIPE, text=True)
    assert echo.stdout is not None
    assert echo.stdout.readline() == "ready\n"
    ask = world.left.popen(
        sys.executable, "-Sc", ASK, str(packets), stdout=subprocess.PIPE, text=True
    )
    output, _ = ask.communicate(timeout=30)
    took: list[float] = json.loads(output)
    return took


def ours(*command: str) -> list[str]:
    """The lines of a command that name this process; others may have namespaces meanwhile."""
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if f"{os.getpid()}-" in line]  # as both are named


def listed() -> list[str]:
    return ours("ip", "netns", "list")


def devices() -> list[str]:
    return ours("ip", "-o", "link")


def test_thirty_percent_are_lost_each_way(wire: Wire) -> None:
    with joined_namespaces(loss=0.3, wire=wire) as world:
        came = len(echoes(world, PACKETS))
    share = 0.7 * 0.7
    deviation = math.sqrt(PACKETS * share * (1 - share))
    assert abs(came - PACKETS * share) < 4 * deviation, (came, wire)


def test_delay_is_paid_each_way_and_without_loss_all_comes(wire: Wire) -> None:
    with joined_namespaces(delay_s=0.02, wire=wire) as world:
        took = echoes(world, 100)
    assert len(took) == 100
    assert 0.038 < min(took) < 0.2


def test_nothing_stays_when_all_went_well(wire: Wire) -> None:
    with joined_namespaces(wire=wire) as world:
        sleeper = world.left.popen("sleep", "100")
        names = {line.split()[0] for line in listed()}
        assert names == {world.left.name, world.right.name}
        assert len(names) == 2
    assert sleeper.poll() is not None
    assert listed() == devices() == []


def test_nothing_stays_when_it_fails_in_use(wire: Wire) -> None:
    with pytest.raises(ZeroDivisionError), joined_namespaces(wire=wire):
        raise ZeroDivisionError
    assert listed() == []


def test_nothing_stays_when_it_fails_halfway(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = namespaces._do

    def failing(*command: str) -> None:
        if "address" in command:
            raise NamespacesUnavailableError("no more addresses")
        honest(*command)

    monkeypatch.setattr(namespaces, "_do", failing)
    with pytest.raises(NamespacesUnavailableError, match="no more"), joined_namespaces(wire=wire):
        raise AssertionError("never here")
    assert listed() == devices() == []


def test_two_worlds_at_once(wire: Wire) -> None:
    with joined_namespaces(wire=wire) as one, joined_namespaces(loss=1.0, wire=wire) as other:
        assert len(echoes(one, 10)) == 10
        assert echoes(other, 10) == []


def test_a_client_and_an_adapter_with_nothing_but_the_wire_between(tmp_path: Path) -> None:
    try:
        world = joined_namespaces(loss=0.3, delay_s=0.01)
        with world as (left, right, _):
            mercury = (sys.executable, "-m", "mercury.cli.main")
            # Half of the first packets or their answers are lost: they are repeated often.
            often = "[session]\ninit_retry_s = 0.2\ninit_retry_max_s = 0.4\n"
            (tmp_path / "mercury.toml").write_text(often)
            adapter = right.popen(
                *mercury, "adapter", "--bus", "embedded:bus.db", "--host", right.address,
                cwd=tmp_path, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert adapter.stderr is not None
            assert adapter.stderr.readline()  # it says that it is there
            client = left.popen(
                *mercury, "client", "--position", "40.76,-111.89", "--identity", "car-7",
                "--adapter", f"udp://{right.address}:7400",
                cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert client.stderr is not None
            assert "car-7 is connected" in client.stderr.readline()
    except NamespacesUnavailableError as error:
        pytest.skip(str(error))


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    why_not.cache_clear()
    try:
        sentence = "netem: network namespaces need root; tun: network namespaces need root"
        with pytest.raises(NamespacesUnavailableError, match=sentence), joined_namespaces():
            raise AssertionError("never here")
    finally:
        why_not.cache_clear()
