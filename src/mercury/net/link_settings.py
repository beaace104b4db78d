"""How bad a link is: what it loses and why, how long it takes, what it repeats."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from mercury.model.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class DropOff:
    """Loss by a quantity (metres, bytes): points in rising order, with lines between them.

    Before the first point the loss is that of the first, beyond the last that of the last. Two
    points at one quantity are a step: up to it the first counts, beyond it the second. `smooth`
    bends the lines so that the loss sets in and levels out gently.
    """

    points: tuple[tuple[float, float], ...]
    smooth: bool = False
    _quantities: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        quantities = tuple(quantity for quantity, _ in self.points)
        if not quantities:
            raise ConfigurationError("a drop-off needs at least one point")
        if not all(0 <= quantity < math.inf for quantity in quantities) or list(
            quantities
        ) != sorted(quantities):
            raise ConfigurationError("the points of a drop-off are not negative and rise")
        for _, loss in self.points:
            _check_share("the loss of a drop-off", loss)
        object.__setattr__(self, "_quantities", quantities)

    @classmethod
    def between(cls, safe: float, lost: float, *, smooth: bool = False) -> DropOff:
        """Nothing is lost up to `safe`, everything beyond `lost`."""
        if not safe <= lost:
            raise ConfigurationError(f"a drop-off cannot begin at {safe:g} and end at {lost:g}")
        return cls(((safe, 0.0), (lost, 1.0)), smooth)

    def __call__(self, at: float) -> float:
        """The share that is lost at this quantity."""
        after = bisect_left(self._quantities, at)
        if after == 0:
            return self.points[0][1]
        if after == len(self.points):
            return self.points[-1][1]
        (near, before_loss), (far, after_loss) = self.points[after - 1], self.points[after]
        way = (at - near) / (far - near)
        if self.smooth:
            way = way * way * (3.0 - 2.0 * way)
        return before_loss + way * (after_loss - before_loss)


class Blackout(NamedTuple):
    """Nothing passes for `length_s`, first `start_s` after the link began, then every `every_s`."""

    start_s: float
    length_s: float
    every_s: float | None = None

    def covers(self, age_s: float) -> bool:
        """Whether nothing passes when the link has this age."""
        since = age_s - self.start_s
        if since < 0.0:
            return False
        return (since if self.every_s is None else since % self.every_s) < self.length_s


class Outages(NamedTuple):
    """Good and bad times that follow one another at random, exponentially distributed.

    In a bad time `loss` is lost: all of it is a blackout, less a burst of errors
    (the channel of Gilbert and Elliott).
    """

    mean_up_s: float
    mean_down_s: float
    loss: float = 1.0


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """One direction of a link; without arguments it carries everything at once.

    Arguments:
        loss: share that is lost at random, whatever else happens.
        loss_by_range: by the distance in metres; counts where the distance is known.
        loss_by_size: by the size of the packet in bytes.
        packets_per_s: what the link can carry; the surplus waits for up to `queue_s` or is lost.
        bytes_per_s: the same in bytes.
        burst_s: after a pause, as much as it carries in this time passes at once.
        delay_s: what every packet takes.
        jitter_s: at most this much more, drawn for each packet, so that they overtake one another.
        keep_order: nobody overtakes; who would must wait.
        duplicate: share that arrives twice.
        reorder: share that is held up for `reorder_by_s`, so that others overtake it.
    """

    loss: float = 0.0
    loss_by_range: DropOff | None = None
    loss_by_size: DropOff | None = None
    packets_per_s: float | None = None
    bytes_per_s: float | None = None
    burst_s: float = 1.0
    queue_s: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    keep_order: bool = False
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_by_s: float = 0.1
    blackouts: tuple[Blackout, ...] = ()
    outages: Outages | None = None

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder"):
            _check_share(name, getattr(self, name))
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name.endswith("per_s") and value is not None:
                _check_positive(setting.name, value)
            elif setting.name.endswith("_s") and value is not None:
                _check_not_negative(setting.name, value)
        if self.keep_order and self.reorder:
            raise ConfigurationError("a link that keeps the order cannot reorder")
        for blackout in self.blackouts:
            _check_blackout(blackout)
        if self.outages is not None:
            _check_positive("the mean time up", self.outages.mean_up_s)
            _check_positive("the mean time down", self.outages.mean_down_s)
            _check_share("the loss in an outage", self.outages.loss)


class LinkPair(NamedTuple):
    """A link's two directions: up from the vehicle, down to it."""

    up: LinkSettings
    down: LinkSettings


def _check_blackout(blackout: Blackout) -> None:
    _check_not_negative("the start of a blackout", blackout.start_s)
    _check_positive("the length of a blackout", blackout.length_s)
    every_s = blackout.every_s
    if every_s is not None and not blackout.length_s < every_s < math.inf:
        raise ConfigurationError(
            f"a blackout of {blackout.length_s:g} s every {every_s:g} s never ends"
        )


def _check_share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ConfigurationError(f"{name} is a share between 0 and 1, not {value:g}")


def _check_not_negative(name: str, value: float) -> None:
    if not 0.0 <= value < math.inf:
        raise ConfigurationError(f"{name} is not negative and has an end, unlike {value:g}")


def _check_positive(name: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise ConfigurationError(f"{name} is above 0 and has an end, unlike {value:g}")
