"""Links by name: round figures of what such links do on an ordinary day, not of one product."""

from __future__ import annotations

from mercury.net.link_settings import DropOff, LinkPair, LinkSettings, Outages


def _both(settings: LinkSettings) -> LinkPair:
    return LinkPair(settings, settings)


# Wi-Fi at a depot or a junction: fine in sight, gone behind the next house.
_WIFI = LinkSettings(
    loss=0.01,
    loss_by_range=DropOff.between(80.0, 250.0, smooth=True),
    bytes_per_s=2.5e6,
    queue_s=0.1,
    delay_s=0.002,
    jitter_s=0.008,
)

# Short-range radio for vehicles (ITS-G5, 802.11p): a channel of 6 Mbit/s; long packets meet more
# collisions on the air than short ones.
_V2X = LinkSettings(
    loss=0.02,
    loss_by_range=DropOff.between(300.0, 1000.0, smooth=True),
    loss_by_size=DropOff(((300.0, 0.0), (1500.0, 0.1))),
    bytes_per_s=750e3,
    queue_s=0.05,
    delay_s=0.001,
    jitter_s=0.004,
)

# A public mobile network while driving: little loss, queues, and now and then a hole.
_HOLES = Outages(mean_up_s=300.0, mean_down_s=3.0)
_CELLULAR = LinkPair(
    LinkSettings(
        loss=0.005, bytes_per_s=1e6, queue_s=0.5, delay_s=0.03, jitter_s=0.03, outages=_HOLES
    ),
    LinkSettings(
        loss=0.005, bytes_per_s=4e6, queue_s=0.5, delay_s=0.025, jitter_s=0.02, outages=_HOLES
    ),
)

# A geostationary satellite: 36,000 km up and down again; bridges and trees hide it.
_SHADOWS = Outages(mean_up_s=120.0, mean_down_s=5.0)
_SATELLITE = LinkPair(
    LinkSettings(
        loss=0.01, bytes_per_s=32e3, queue_s=1.0, delay_s=0.27, jitter_s=0.03, outages=_SHADOWS
    ),
    LinkSettings(
        loss=0.01, bytes_per_s=256e3, queue_s=1.0, delay_s=0.27, jitter_s=0.03, outages=_SHADOWS
    ),
)

# An acoustic modem under water: sound takes a second for 1.5 km, and 5 kbit/s are shared by all.
_ACOUSTIC = LinkSettings(
    loss=0.1,
    loss_by_range=DropOff.between(1000.0, 3000.0, smooth=True),
    loss_by_size=DropOff(((100.0, 0.0), (1000.0, 0.5), (2000.0, 1.0))),
    bytes_per_s=625.0,
    queue_s=5.0,
    delay_s=0.7,
    jitter_s=0.6,
    keep_order=True,
)

# Everything goes wrong now and then: what a protocol must live with.
_HOSTILE = LinkSettings(
    loss=0.1, duplicate=0.1, reorder=0.1, reorder_by_s=1.0, delay_s=0.01, jitter_s=0.02
)

PRESETS: dict[str, LinkPair] = {
    "perfect": _both(LinkSettings()),
    "wifi": _both(_WIFI),
    "v2x": _both(_V2X),
    "cellular": _CELLULAR,
    "satellite": _SATELLITE,
    "acoustic": _both(_ACOUSTIC),
    "lossy10": _both(LinkSettings(loss=0.1)),
    "lossy30": _both(LinkSettings(loss=0.3)),
    "lossy50": _both(LinkSettings(loss=0.5)),
    "hostile": _both(_HOSTILE),
}
