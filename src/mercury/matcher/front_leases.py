"""How long what a front declared lives with the workers, so that nothing outlives a dead front."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mercury.matcher.front_things import NEVER_US, Things
from mercury.model.matching import NearSubscription, Publication

LEASE_US = 120_000_000  # what may live longer is said to live so long, and said again
RENEW_US = 40_000_000
# Whose updates are older than this when they come would be over before it is renewed.
LONG_LAG_US = 60_000_000
RENEWALS_A_TICK = 2000


class Leases:
    """Says what to declare again, when, and with which TTL.

    A publication is declared a second time, too, once another door that its owner came from
    has certainly noticed, and withdrawn it.
    """

    def __init__(self, things: Things, ttl_s: float) -> None:
        self._things = things
        self._ttl_s = ttl_s  # of what does not say

    def begin(self, slot: int, now: int) -> None:
        """Something is declared, or declared anew."""
        things = self._things
        what = things.declared[slot]
        ttl_us = round((self._ttl_s if what.ttl_s is None else what.ttl_s) * 1e6)
        things.ttl_us[slot] = ttl_us
        lag_us = now - int(things.time_us[slot])
        owned = slot in things.participant
        leased = owned and ttl_us > LEASE_US and lag_us <= LONG_LAG_US
        things.leased[slot] = leased
        again = leased or (owned and isinstance(what, Publication))
        things.renew_us[slot] = now + RENEW_US if again else NEVER_US

    def end(self, slot: int) -> None:
        """It lives by its own TTL, from its next declaration on."""
        self._things.leased[slot] = False

    def as_said(self, slot: int, time_us: int) -> Publication | NearSubscription:
        """What is told the workers, as of a time."""
        things = self._things
        what = things.declared[slot]
        if not things.leased[slot]:
            return what
        left_us = int(things.time_us[slot] + things.ttl_us[slot]) - time_us
        return replace(what, ttl_s=max(min(LEASE_US, left_us), 1) / 1e6)

    def due(self, now: int) -> Iterator[tuple[int, int, bool]]:
        """What to declare again now: its slot, as of which time, and whether to place it anew."""
        things = self._things
        own = things.own_slots()
        due = own[(things.renew_us[own] <= now) & (things.expires_us(own) > now)]
        for slot in due[:RENEWALS_A_TICK].tolist():
            time_us = int(things.time_us[slot])
            silent = now - int(things.heard_us[slot]) >= RENEW_US
            if things.leased[slot]:
                things.renew_us[slot] = now + RENEW_US
                if silent:
                    # Its next update will be as late as its last: it must not be older than this.
                    time_us = now - max(int(things.heard_us[slot]) - time_us, 0)
            else:
                things.renew_us[slot] = NEVER_US
            # Once: each place that is said is an update, of which others are told.
            first = now - int(things.heard_us[slot]) < 2 * RENEW_US
            publishes = isinstance(things.declared[slot], Publication)
            yield slot, time_us, publishes and silent and first and bool(things.placed[slot])
