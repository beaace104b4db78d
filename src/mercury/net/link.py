"""A lossy link between a vehicle and its adapter, without sockets and without a clock.

It decides when each packet arrives, if at all: loss by range, by size and by rate, blackouts,
delay, duplicates and reordering, each direction by its own settings, the same way for the same
seed. pMediator's simulator asks for "a variety of manners of performance drop-off"; these are ours.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from mercury.net.link_settings import LinkSettings, Outages

Direction = Literal["up", "down"]
Reason = Literal["blackout", "rate", "range", "size", "random"]
Range = float | Callable[[], float | None] | None

REASONS: tuple[Reason, ...] = ("blackout", "rate", "range", "size", "random")

_ROUNDING_S = 1e-9  # a packet that comes just in time is in time
_FORGOTTEN = 64  # mean cycles without a packet after which the earlier state does not matter


@dataclass(slots=True)
class LinkStatistics:
    """Packet counts of one direction; `arrived` counts copies, too."""

    sent: int = 0
    arrived: int = 0
    duplicated: int = 0
    reordered: int = 0  # held up, so that others overtake
    lost: Counter[str] = field(default_factory=Counter)  # by reason

    def add(self, other: LinkStatistics) -> None:
        """Add the counts of another link."""
        self.sent += other.sent
        self.arrived += other.arrived
        self.duplicated += other.duplicated
        self.reordered += other.reordered
        self.lost.update(other.lost)

    def to_json(self) -> dict[str, Any]:
        lost = {reason: self.lost[reason] for reason in REASONS if self.lost[reason]}
        return {name: getattr(self, name) for name in self.__slots__} | {"lost": lost}

    def phrase(self) -> str:
        lost = self.lost.total()
        if not lost:
            return f"none of {self.sent:,} packets"
        reasons = ", ".join(f"{name} {self.lost[name]:,}" for name in REASONS if self.lost[name])
        return f"{100 * lost / self.sent:.1f} % of {self.sent:,} packets ({reasons})"


class ChannelState:
    """Whether the channel is good or bad (Gilbert and Elliott), for one direction or both."""

    def __init__(self, outages: Outages, rng: random.Random) -> None:
        self.outages = outages
        self._rng = rng
        self._bad = False
        self._changes: float | None = None  # when it will; None before it began

    def begin(self, now: float) -> None:
        """Start the state changes; the first state is good."""
        if self._changes is None:
            self._changes = now + self._lasts_s()

    def is_bad(self, now: float) -> bool:
        """Whether it is bad now; `now` does not go back."""
        assert self._changes is not None
        mean_up_s, mean_down_s, _ = self.outages
        if now - self._changes > _FORGOTTEN * (mean_up_s + mean_down_s):
            # Exponential times have no memory: begin anew instead of living through all of them.
            self._bad = self._rng.random() < mean_down_s / (mean_up_s + mean_down_s)
            self._changes = now + self._lasts_s()
        while now >= self._changes:
            self._bad = not self._bad
            self._changes += self._lasts_s()
        return self._bad

    def _lasts_s(self) -> float:
        mean_s = self.outages.mean_down_s if self._bad else self.outages.mean_up_s
        return self._rng.expovariate(1.0 / mean_s)


class OneWay:
    """One direction of a link."""

    def __init__(
        self, settings: LinkSettings, rng: random.Random, channel: ChannelState | None = None
    ) -> None:
        self.settings = settings
        self.statistics = LinkStatistics()
        self.range_m: Range = None  # or something to call that knows; None is unknown
        self._rng = rng
        if channel is None and settings.outages is not None:
            channel = ChannelState(settings.outages, random.Random(rng.getrandbits(64)))
        self._channel = channel
        self.begun: float | None = None
        # When the link will have carried all that it took, by count and by bytes.
        self._packets_due = self._bytes_due = 0.0
        self._latest = 0.0  # arrival, where order is kept

    def begin(self, now: float) -> None:
        """Blackouts count from here; without it, from the first packet."""
        if self.begun is None:
            self.begun = self._packets_due = self._bytes_due = self._latest = now
            if self._channel is not None:
                self._channel.begin(now)

    def carry(self, size: int, now: float, range_m: Range = None) -> list[float]:
        """Take a packet; returns when its copies arrive, none if it is lost."""
        self.begin(now)
        statistics, settings, rng = self.statistics, self.settings, self._rng
        statistics.sent += 1
        # All dice are rolled before it is lost: then more loss, of whatever kind, loses the same
        # packets and further ones, and the others fare as before.
        roll = rng.random()
        held_up = bool(settings.reorder) and rng.random() < settings.reorder
        twice = bool(settings.duplicate) and rng.random() < settings.duplicate
        late_s = [settings.jitter_s and settings.jitter_s * rng.random() for _ in range(1 + twice)]
        wait_s = self._wait_s(size, now)
        if wait_s is None:  # surplus is lost at the sender, also in a blackout
            return self._lose("rate")
        reason = self._lost_by(roll, size, now, range_m)
        if reason is not None:
            return self._lose(reason)
        arrivals = [now + wait_s + settings.delay_s + jitter_s for jitter_s in late_s]
        if held_up:
            statistics.reordered += 1
            arrivals[0] += settings.reorder_by_s
        if twice:
            statistics.duplicated += 1
            arrivals.sort()
        if settings.keep_order:
            arrivals = [max(arrival, self._latest) for arrival in arrivals]
            self._latest = arrivals[-1]
        statistics.arrived += len(arrivals)
        return arrivals

    def _lose(self, reason: Reason) -> list[float]:
        self.statistics.lost[reason] += 1
        return []

    def _wait_s(self, size: int, now: float) -> float | None:
        """How long the packet queues; None if there is no room, else it takes its share.

        A token bucket that counts time: each packet defers when the link will have carried all.
        """
        settings = self.settings
        packets_per_s, bytes_per_s = settings.packets_per_s, settings.bytes_per_s
        if packets_per_s is None and bytes_per_s is None:
            return 0.0
        due = max(self._packets_due, self._bytes_due)
        wait_s = due - now - settings.burst_s
        if wait_s < _ROUNDING_S:
            wait_s = 0.0
        elif wait_s > settings.queue_s + _ROUNDING_S:
            return None
        if packets_per_s is not None:
            self._packets_due = max(self._packets_due, now) + 1.0 / packets_per_s
        if bytes_per_s is not None:
            self._bytes_due = max(self._bytes_due, now) + size / bytes_per_s
        return wait_s

    def _lost_by(self, roll: float, size: int, now: float, range_m: Range) -> Reason | None:
        """The cause of a loss: causes are independent, so the shares that pass multiply."""
        settings = self.settings
        if settings.blackouts and self.begun is not None:
            age_s = now - self.begun
            for blackout in settings.blackouts:
                if blackout.covers(age_s):
                    return "blackout"
        passing = 1.0
        if self._channel is not None and self._channel.is_bad(now):
            passing = 1.0 - self._channel.outages.loss
            if roll >= passing:
                return "blackout"
        if settings.loss_by_range is not None:
            if range_m is None:
                range_m = self.range_m
            distance_m = range_m() if callable(range_m) else range_m
            if distance_m is not None:
                passing *= 1.0 - settings.loss_by_range(distance_m)
                if roll >= passing:
                    return "range"
        if settings.loss_by_size is not None:
            passing *= 1.0 - settings.loss_by_size(size)
            if roll >= passing:
                return "size"
        return "random" if roll >= passing * (1.0 - settings.loss) else None


class Link:
    """Both directions of a link: up from the vehicle to its adapter, down to the vehicle.

    Each has its own random numbers, so packets up do not change what happens to packets down; but
    bad times that are common to both come at the same time.
    """

    def __init__(self, up: LinkSettings, down: LinkSettings, rng: random.Random) -> None:
        up_seed, down_seed, channel_seed = (rng.getrandbits(64) for _ in range(3))
        channel = None
        if up.outages is not None and up.outages == down.outages:
            channel = ChannelState(up.outages, random.Random(channel_seed))
        self.up = OneWay(up, random.Random(up_seed), channel)
        self.down = OneWay(down, random.Random(down_seed), channel)

    def begin(self, now: float) -> None:
        """Blackouts count from here; without it, from the first packet."""
        self.up.begin(now)
        self.down.begin(now)

    def carry(
        self, direction: Direction, size: int, now: float, range_m: Range = None
    ) -> list[float]:
        """Take a packet; returns when its copies arrive, in order: none if it is lost."""
        self.begin(now)
        way = self.up if direction == "up" else self.down
        return way.carry(size, now, range_m)

    @property
    def range_m(self) -> Range:
        """How far apart the ends are, or something to call that knows; None is unknown."""
        return self.up.range_m

    @range_m.setter
    def range_m(self, range_m: Range) -> None:
        self.up.range_m = self.down.range_m = range_m

    @property
    def statistics(self) -> dict[Direction, LinkStatistics]:
        """Packet counts, by direction."""
        return {"up": self.up.statistics, "down": self.down.statistics}
