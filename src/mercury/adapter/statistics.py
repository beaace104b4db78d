"""The adapter in numbers, for whoever watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mercury.service import Statistics
from mercury.service.stall import WINDOW_S, StallMeter

if TYPE_CHECKING:
    from mercury.adapter.adapter import Adapter
    from mercury.adapter.outbound import Outbound
    from mercury.net import UdpEndpoint


def adapter_statistics(
    adapter: Adapter,
    outbound: Outbound | None,
    endpoint: UdpEndpoint | None,
    stalls: StallMeter,
) -> Statistics:
    """What an adapter holds, has done and has dropped."""
    dropped = adapter.sessions.dropped + adapter.dropped + adapter.deliveries.dropped
    counters: dict[str, float] = dict(adapter.counters)
    if outbound is not None and endpoint is not None:
        dropped += outbound.dropped
        if endpoint.unsendable:
            dropped["unsendable"] = endpoint.unsendable
        counters["packets_sent"] = outbound.packets_sent
    counters["address_changes"] = adapter.sessions.address_changes
    outgoing = adapter.deliveries.outgoing
    for state, count in outgoing.ended.items():
        counters[f"deliveries_{state.label}"] = count
    return Statistics(
        gauges={
            "sessions": len(adapter.sessions.table),
            "standing_alerts": len(adapter.addressing.standing),
            "kept_alerts": len(adapter.addressing.missed),
            "subscriptions": len(adapter.interests),
            "moving_entities": len(adapter.moving.entities),
            "deliveries_waiting": outgoing.waiting,
            "resends_allowed_per_s": outgoing.pace.per_s,
            "packets_waiting": outbound.waiting if outbound else 0,
            "loop_stall_s": stalls.longest_s,
            "loop_stall_window_s": WINDOW_S,
        },
        counters=counters,
        dropped=dropped,
    )
