from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from mercury.net import Blackout, DropOff, Link, LinkSettings
from mercury.testing import HostileNetwork

SEED = 20240607
PACKETS = 20_000


def perfect(seed: int = SEED, **changes: float) -> HostileNetwork[str]:
    shares = {"deliver": 1.0, "drop": 0.0, "duplicate": 0.0, "delay": 0.0}
    return HostileNetwork(seed, **(shares | changes))


def numbered(number: int) -> bytes:
    return number.to_bytes(4, "big")


def run(network: HostileNetwork[str], packets: int = PACKETS) -> list[tuple[float, bytes]]:
    """Send a packet every millisecond; return times of arrival and data, in order of arrival."""
    arrived = []
    for number in range(packets):
        network.send(numbered(number), "car", "adapter", number / 1000)
    while (time := network.next_due()) is not None:
        arrived += [(time, packet.data) for packet in network.due(time)]
    return arrived


def assert_share(count: int, of: int, share: float) -> None:
    deviation = math.sqrt(of * share * (1 - share))
    assert abs(count - of * share) < 4 * deviation, (count, of, share, SEED)


def test_shares_of_lost_and_duplicated_packets_are_as_set() -> None:
    network: HostileNetwork[str] = HostileNetwork(SEED)
    copies = Counter(data for _, data in run(network))
    seen = network.statistics
    assert seen.sent == PACKETS
    assert_share(seen.dropped, PACKETS, 0.1)
    assert_share(seen.duplicated, PACKETS, 0.1)
    assert_share(seen.delayed, PACKETS, 0.1)
    assert seen.delivered == seen.sent - seen.dropped + seen.duplicated == copies.total()
    assert Counter(copies.values()) == {
        1: PACKETS - seen.dropped - seen.duplicated,
        2: seen.duplicated,
    }
    assert seen.corrupted == seen.cut_off == 0


def test_own_shares_come_out() -> None:
    network: HostileNetwork[str] = HostileNetwork(
        SEED, deliver=0.2, drop=0.5, duplicate=0.05, delay=0.25
    )
    run(network)
    assert_share(network.statistics.dropped, PACKETS, 0.5)
    assert_share(network.statistics.duplicated, PACKETS, 0.05)
    assert_share(network.statistics.delayed, PACKETS, 0.25)


def test_same_seed_same_history() -> None:
    first, second, other = (
        HostileNetwork[str](seed, corrupt=0.1) for seed in (SEED, SEED, SEED + 1)
    )
    history = run(first, 500)
    assert run(second, 500) == history
    assert second.statistics == first.statistics
    assert run(other, 500) != history


def test_delays_are_bounded_and_reorder() -> None:
    network: HostileNetwork[str] = HostileNetwork(SEED, latency_s=0.02, max_delay_s=0.3)
    arrived = run(network, 2000)
    times = [time for time, _ in arrived]
    assert times == sorted(times)
    taken = [time - int.from_bytes(data, "big") / 1000 for time, data in arrived]
    assert min(taken) == pytest.approx(0.02)
    assert 0.25 < max(taken) <= 0.32 + 1e-9
    numbers = [data for _, data in arrived]
    assert numbers != sorted(numbers)


def test_packets_of_one_moment_stay_in_order() -> None:
    network = perfect()
    for number in range(100):
        network.send(numbered(number), "car", "adapter", 1.0)
    assert [packet.data for packet in network.due(2.0)] == [numbered(n) for n in range(100)]


def test_nothing_is_due_before_its_time() -> None:
    network = perfect(latency_s=0.5)
    assert network.next_due() is None
    assert network.due(99.0) == []
    network.send(b"hello", "car", "adapter", 10.0)
    assert network.next_due() == 10.5
    assert network.due(10.4) == []
    assert network.in_flight == 1
    [packet] = network.due(10.5)
    assert packet == (b"hello", "car", "adapter")
    assert (packet.data, packet.source, packet.destination) == packet
    assert network.in_flight == 0


def test_sender_may_reuse_its_buffer() -> None:
    network = perfect()
    buffer = bytearray(b"one")
    network.send(buffer, "car", "adapter", 0.0)  # type: ignore[arg-type]
    buffer[:] = b"two"
    assert network.due(1.0)[0].data == b"one"


@pytest.mark.parametrize("end", ["car", "adapter"])
def test_cut_until_healed(end: str) -> None:
    network = perfect(latency_s=0.1)
    network.send(b"before", "car", "adapter", 0.0)
    assert len(network.due(0.1)) == 1
    network.send(b"in flight", "car", "adapter", 0.2)
    network.cut(end)
    assert network.due(1.0) == []  # the blackout also swallows what would arrive in it
    network.send(b"into the dark", "car", "adapter", 1.0)
    network.send(b"of others", "bus", "broker", 1.0)
    network.heal(end)
    assert [packet.data for packet in network.due(2.0)] == [b"of others"]
    network.send(b"after", "car", "adapter", 2.0)
    assert [packet.data for packet in network.due(3.0)] == [b"after"]
    assert network.statistics.cut_off == 2
    network.heal("never cut")


def test_corruption_changes_the_data() -> None:
    network = perfect(corrupt=0.25)
    original = bytes(range(50))
    for number in range(4000):
        network.send(original, "car", "adapter", float(number))
    arrived = [packet.data for packet in network.due(math.inf)]
    damaged = [data for data in arrived if data != original]
    assert len(arrived) == 4000
    assert len(damaged) == network.statistics.corrupted
    assert_share(len(damaged), 4000, 0.25)
    truncated = [data for data in damaged if len(data) < 50]
    assert_share(len(truncated), len(damaged), 0.5)
    assert all(original.startswith(data) for data in truncated)


def test_shortest_packets_are_damaged_for_sure() -> None:
    network = perfect(corrupt=1.0)
    for _ in range(5000):
        network.send(b"x", "car", "adapter", 0.0)
    assert b"x" not in {packet.data for packet in network.due(1.0)}
    network.send(b"", "car", "adapter", 2.0)
    assert [packet.data for packet in network.due(3.0)] == [b""]  # nothing there to damage
    assert network.statistics.corrupted == 5000


def test_shows_its_seed() -> None:
    assert repr(perfect(7)).startswith("HostileNetwork(seed=7, deliver=1.0, ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"drop": 0.2}, "add up to 1.1"),
        ({"drop": -0.1, "deliver": 0.9}, "drop is a share between 0 and 1, not -0.1"),
        ({"corrupt": 2.0}, "corrupt is a share"),
        ({"corrupt": math.nan}, "corrupt is a share"),
        ({"latency_s": -1.0}, "latency_s=-1.0"),
        ({"max_delay_s": -1.0}, "max_delay_s=-1.0"),
    ],
)
def test_refuses_impossible_networks(arguments: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        HostileNetwork(1, **arguments)


# Over links


def linked(settings: LinkSettings, seed: int = SEED, **more: float) -> HostileNetwork[str]:
    return HostileNetwork(seed, link=settings, **more)


def test_a_link_decides_in_place_of_the_shares() -> None:
    network = linked(LinkSettings(loss=0.4, duplicate=0.2, delay_s=0.05))
    copies = Counter(data for _, data in run(network))
    seen = network.statistics
    assert_share(seen.dropped, PACKETS, 0.4)
    assert_share(seen.duplicated, seen.sent - seen.dropped, 0.2)
    assert seen.delivered == seen.sent - seen.dropped + seen.duplicated == copies.total()
    assert network.way("car", "adapter").statistics.lost["random"] == seen.dropped
    assert network.way("adapter", "car").statistics.sent == 0


def test_a_link_delays_and_goes_dark() -> None:
    network = linked(LinkSettings(delay_s=0.5, blackouts=(Blackout(1.0, 1.0),)))
    for number in range(30):
        network.send(numbered(number), "car", "adapter", number / 10)
    assert network.next_due() == 0.5
    arrived = [int.from_bytes(packet.data, "big") for packet in network.due(math.inf)]
    assert arrived == [*range(10), *range(20, 30)]


def test_over_links_the_same_seed_has_the_same_history() -> None:
    settings = LinkSettings(loss=0.3, jitter_s=0.5, duplicate=0.1)
    first, again, other = (linked(settings, seed, corrupt=0.1) for seed in (1, 1, 2))
    history = run(first, 500)
    assert run(again, 500) == history != run(other, 500)
    assert "seed=1, link=LinkSettings(loss=0.3" in repr(first)


def test_each_pair_of_ends_has_a_link_of_its_own() -> None:
    network = linked(LinkSettings(packets_per_s=1.0, burst_s=0.0))
    for source in ("car", "bus", "car"):
        network.send(source.encode(), source, "adapter", 0.0)
    network.send(b"back", "adapter", "car", 0.0)
    assert [packet.data for packet in network.due(1.0)] == [b"car", b"bus", b"back"]


def test_a_function_may_say_what_carries() -> None:
    beyond = LinkSettings(loss_by_range=DropOff.between(300, 300))
    link = Link(beyond, LinkSettings(delay_s=1.0), random.Random(SEED))
    network: HostileNetwork[str] = HostileNetwork(
        SEED, link=lambda source, _: link.up if source == "car" else link.down
    )
    for range_m in (299.0, 301.0):
        link.range_m = range_m
        network.send(b"up", "car", "adapter", 0.0)
        network.send(b"down", "adapter", "car", 0.0)
    assert [packet.data for packet in network.due(9.0)] == [b"up", b"down", b"down"]
    assert link.up.statistics.lost == {"range": 1}


def test_over_links_ends_are_cut_and_packets_damaged_as_ever() -> None:
    network = linked(LinkSettings(), corrupt=1.0)
    network.send(b"data", "car", "adapter", 0.0)
    network.cut("car")
    network.send(b"lost", "car", "adapter", 0.0)
    network.heal("car")
    [packet] = network.due(0.0)
    assert packet.data != b"data"
    assert network.statistics.cut_off == 1


def test_a_network_of_shares_has_no_link() -> None:
    with pytest.raises(ValueError, match="has shares, no link"):
        perfect().way("car", "adapter")
