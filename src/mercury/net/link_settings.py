"""How bad a link is: what it loses and why, how long it takes, what it repeats.

It is also read from one line of text: `cellular,loss=0.1` or `up:loss=30%;down:range=300m..1km`.
Parts are separated by `;`. A part begins with `up:` or `down:`, or counts for both directions; in
it stand names of presets and `key=value`, separated by `,`, later ones over earlier ones. Without
a unit, times are in seconds, distances in metres, sizes in bytes, rates per second.
"""

from __future__ import annotations

import difflib
import math
import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import Any, NamedTuple

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

    def __post_init__(self) -> None:
        quantities = [quantity for quantity, _ in self.points]
        if not quantities:
            raise ConfigurationError("a drop-off needs at least one point")
        rise = quantities == sorted(quantities)
        if not rise or not all(0 <= quantity < math.inf for quantity in quantities):
            raise ConfigurationError("the points of a drop-off are not negative and rise")
        for _, loss in self.points:
            _check_share("the loss of a drop-off", loss)

    @classmethod
    def between(cls, safe: float, lost: float, *, smooth: bool = False) -> DropOff:
        """Nothing is lost up to `safe`, everything beyond `lost`."""
        if not safe <= lost:
            raise ConfigurationError(f"a drop-off cannot begin at {safe:g} and end at {lost:g}")
        return cls(((safe, 0.0), (lost, 1.0)), smooth)

    def __call__(self, at: float) -> float:
        """The share that is lost at this quantity."""
        after = bisect_left(self.points, at, key=itemgetter(0))
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
        keep_order: no packet overtakes another; it is delayed instead.
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
            _check_not_negative("the start of a blackout", blackout.start_s)
            _check_positive("the length of a blackout", blackout.length_s)
            every_s = blackout.every_s
            if every_s is not None and not blackout.length_s < every_s < math.inf:
                raise ConfigurationError(
                    f"a blackout of {blackout.length_s:g} s every {every_s:g} s never ends"
                )
        if self.outages is not None:
            _check_positive("the mean time up", self.outages.mean_up_s)
            _check_positive("the mean time down", self.outages.mean_down_s)
            _check_share("the loss in an outage", self.outages.loss)


class LinkPair(NamedTuple):
    """A link's two directions: up from the vehicle, down to it."""

    up: LinkSettings
    down: LinkSettings


def _check_share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ConfigurationError(f"{name} is a share between 0 and 1, not {value:g}")


def _check_not_negative(name: str, value: float) -> None:
    if not 0.0 <= value < math.inf:
        raise ConfigurationError(f"{name} is not negative and has an end, unlike {value:g}")


def _check_positive(name: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise ConfigurationError(f"{name} is above 0 and has an end, unlike {value:g}")


# A link as text

# Round numbers of what such links do on an ordinary day, not of one product.
PRESETS = {
    "perfect": "loss=0",
    # Wi-Fi at a depot or a junction: fine in sight, gone behind the next house.
    "wifi": "loss=1%,range=80m..250m~smooth,bandwidth=2.5MB/s,queue=100ms,delay=2ms,jitter=8ms",
    # Short-range radio for vehicles (ITS-G5, 802.11p): a channel of 6 Mbit/s; long packets meet
    # more collisions on the air than short ones.
    "v2x": "loss=2%,range=300m..1km~smooth,size=300:0/1500:10%,bandwidth=750kB/s,queue=50ms,"
    "delay=1ms,jitter=4ms",
    # A public mobile network while driving: little loss, queues, and now and then a hole.
    "cellular": "loss=0.5%,queue=500ms,outage=300s+3s;up:bandwidth=1MB/s,delay=30ms,jitter=30ms;"
    "down:bandwidth=4MB/s,delay=25ms,jitter=20ms",
    # A geostationary satellite: 36,000 km up and down again; bridges and trees hide it.
    "satellite": "loss=1%,queue=1s,delay=270ms,jitter=30ms,outage=120s+5s;up:bandwidth=32kB/s;"
    "down:bandwidth=256kB/s",
    # An acoustic modem under water: sound takes a second for 1.5 km, and 5 kbit/s are shared.
    "acoustic": "loss=10%,range=1km..3km~smooth,size=100:0/1000:50%/2000:100%,bandwidth=625,"
    "queue=5s,delay=0.7s,jitter=0.6s,order=keep",
    "lossy10": "loss=10%",
    "lossy30": "loss=30%",
    "lossy50": "loss=50%",
    # Everything goes wrong now and then: what a protocol must live with.
    "hostile": "loss=10%,duplicate=10%,reorder=10%+1s,delay=10ms,jitter=20ms",
}

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_METRES = {"": 1.0, "m": 1.0, "km": 1e3}
_BYTES = {"": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "KiB": 1024.0, "MiB": 1024.0**2}
_BITS = {"bit": 1 / 8, "kbit": 1e3 / 8, "Mbit": 1e6 / 8}
_SHARES = {"": 1.0, "%": 0.01}

_NUMBER = re.compile(r"([0-9]+\.?[0-9]*(?:e-?[0-9]+)?|\.[0-9]+)\s*([A-Za-z%]*)")

_Units = dict[str, float]
_Read = Callable[[str], dict[str, Any]]


class _Malformed(ValueError):
    """A value that is not of its form."""


def parse_link(text: str) -> LinkPair:
    """Parse a link; raises with one sentence on what is wrong."""
    settings = {"up": LinkSettings(), "down": LinkSettings()}
    for part in text.split(";"):
        head, colon, rest = part.partition(":")
        names = [head.strip()] if colon and head.strip() in settings else list(settings)
        items = rest if len(names) == 1 else part
        for name in names:
            settings[name] = _changed(settings[name], name, items, text)
    return LinkPair(**settings)


def _changed(settings: LinkSettings, direction: str, items: str, text: str) -> LinkSettings:
    changes: dict[str, Any] = {}
    for item in items.split(","):
        key, equals, value = (piece.strip() for piece in item.partition("="))
        if not key:
            raise ConfigurationError(f"the link {text!r} has an empty item: {_FORM}")
        if not equals:
            settings, changes = _preset(key, direction), {}
            continue
        read, form = _KEYS.get(key, (None, ""))
        if read is None and key.startswith(("up:", "down:")):
            raise ConfigurationError(f"in the link {text!r} a ; is missing before {key!r}")
        if read is None:
            raise ConfigurationError(f"a link has no {key!r}{_suggestion(key, [*_KEYS])}")
        try:
            change = read(value)
        except _Malformed:
            raise ConfigurationError(f"the link's {key} is {form}, not {value!r}") from None
        if change.get("blackouts"):  # several may be given, and replace those of the preset
            change["blackouts"] = changes.get("blackouts", ()) + change["blackouts"]
        changes |= change
    return replace(settings, **changes)


def _preset(name: str, direction: str) -> LinkSettings:
    if name not in PRESETS:
        known = [*PRESETS, *_KEYS]
        hint = _suggestion(name, known) or f", there are {', '.join(PRESETS)}"
        raise ConfigurationError(f"there is no link named {name!r}{hint}")
    pair = parse_link(PRESETS[name])
    return pair.up if direction == "up" else pair.down


def _suggestion(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {near[0]}?" if near else ""


# Values


def _number(text: str, units: _Units) -> float:
    found = _NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in units:
        raise _Malformed
    return float(found[1]) * units[found[2]]


def _pair(text: str, separator: str) -> tuple[str, str]:
    first, found, second = text.partition(separator)
    if not found:
        raise _Malformed
    return first, second


def _one(name: str, units: _Units) -> _Read:
    return lambda text: {name: _number(text, units)}


def _drop_off(name: str, units: _Units) -> _Read:
    def read(text: str) -> dict[str, Any]:
        text, colon, bend = text.rpartition("~") if "~" in text else (text, "", "")
        if colon and bend.strip() != "smooth":
            raise _Malformed
        if ".." in text:
            safe, lost = (_number(end, units) for end in _pair(text, ".."))
            return {name: DropOff.between(safe, lost, smooth=bool(colon))}
        if ":" in text:
            points = (_pair(point, ":") for point in text.split("/"))
            curve = tuple((_number(at, units), _number(loss, _SHARES)) for at, loss in points)
            return {name: DropOff(curve, bool(colon))}
        limit = _number(text, units)
        return {name: DropOff.between(limit, limit)}

    return read


def _rate(text: str) -> dict[str, Any]:
    count, slash, per = text.partition("/")
    per = per.strip()
    span = 1.0 if not slash else _SECONDS.get(per) or _number(per, _SECONDS)
    if not span:
        raise _Malformed
    return {"packets_per_s": _number(count, {"": 1.0}) / span}


def _bandwidth(text: str) -> dict[str, Any]:
    return {"bytes_per_s": _number(text.strip().removesuffix("/s"), _BYTES | _BITS)}


def _order(text: str) -> dict[str, Any]:
    if text not in ("keep", "free"):
        raise _Malformed
    return {"keep_order": text == "keep"}


def _reorder(text: str) -> dict[str, Any]:
    share, plus, by = text.partition("+")
    change: dict[str, Any] = {"reorder": _number(share, _SHARES)}
    if plus:
        change["reorder_by_s"] = _number(by, _SECONDS)
    return change


def _blackout(text: str) -> dict[str, Any]:
    if text == "none":
        return {"blackouts": ()}
    window, slash, every = text.partition("/")
    start_s, length_s = (_number(end, _SECONDS) for end in _pair(window, "+"))
    every_s = _number(every, _SECONDS) if slash else None
    return {"blackouts": (Blackout(start_s, length_s, every_s),)}


def _outage(text: str) -> dict[str, Any]:
    if text == "none":
        return {"outages": None}
    times, colon, loss = text.partition(":")
    up_s, down_s = (_number(end, _SECONDS) for end in _pair(times, "+"))
    return {"outages": Outages(up_s, down_s, _number(loss, _SHARES) if colon else 1.0)}


_FORM = "write a preset or KEY=VALUE,KEY=VALUE, and up:...;down:... for each direction"
_A_SHARE = "a share such as 0.3 or 30%"
_A_TIME = "a time such as 50ms or 2s"
_CURVE = "a limit {0}, a drop-off {1}, with ~smooth if it is to be, or points {2}"

_KEYS: dict[str, tuple[_Read, str]] = {
    "loss": (_one("loss", _SHARES), _A_SHARE),
    "range": (
        _drop_off("loss_by_range", _METRES),
        _CURVE.format("500m", "300m..1km", "0m:0/300m:10%/1km:100%"),
    ),
    "size": (
        _drop_off("loss_by_size", _BYTES),
        _CURVE.format("1000", "500..1400", "500:0/1400:20%"),
    ),
    "rate": (_rate, "a number of packets such as 10/s or 1/30s"),
    "bandwidth": (_bandwidth, "bytes or bits a second such as 50kB/s or 64kbit/s"),
    "burst": (_one("burst_s", _SECONDS), _A_TIME),
    "queue": (_one("queue_s", _SECONDS), _A_TIME),
    "delay": (_one("delay_s", _SECONDS), _A_TIME),
    "jitter": (_one("jitter_s", _SECONDS), _A_TIME),
    "order": (_order, "keep or free"),
    "duplicate": (_one("duplicate", _SHARES), _A_SHARE),
    "reorder": (_reorder, "a share such as 5%, and by how much, 5%+200ms"),
    "blackout": (_blackout, "START+LENGTH such as 30s+5s, 30s+5s/60s to repeat it, or none"),
    "outage": (_outage, "mean times good+bad such as 60s+3s, 60s+3s:80% to lose less, or none"),
}
