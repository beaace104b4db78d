"""A matcher among others: the stages of many workers, each a member of its group."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping

from mercury.bus import Bus
from mercury.config import GatewaySettings, MatcherSettings
from mercury.matcher.front import Front
from mercury.matcher.gateway import Gateway
from mercury.matcher.rules import rules_of
from mercury.matcher.shared.lanes import Lanes
from mercury.matcher.shared.meetings import Meetings
from mercury.matcher.shared.roster import Roster
from mercury.matcher.shared.runner import StageRunner
from mercury.matcher.shared.stage import StageNumber
from mercury.matcher.shared.state_log import StateLog
from mercury.matching import warm_up
from mercury.model import topics
from mercury.model.message import Address
from mercury.service import Service, Statistics, now_us

log = logging.getLogger(__name__)


class SharedMatcher(Service):
    """One of any number of workers; they share entities, places and subscriptions."""

    part = "matcher"

    def __init__(
        self, bus: Bus, settings: MatcherSettings, gateway: GatewaySettings | None = None
    ) -> None:
        address = Address.service(settings.id)
        super().__init__(bus, address, metrics=settings.metrics)
        rules = rules_of(settings)
        self.settings = settings
        # What comes in by the gateway is for all workers, over the bus.
        self.front = None if gateway is None else Front(bus, rules)
        self.gateway = (
            None
            if self.front is None or gateway is None
            else Gateway(self.front, gateway, self.condition)
        )
        self._states = StateLog(bus, now_us)
        self.runners = [
            StageRunner(
                bus, self._states, number, topic, make,
                snapshot_interval_s=settings.snapshot_interval_s, clock=now_us,
            )
            for number, topic, make in (
                (
                    StageNumber.ROSTER,
                    topics.ENTITIES,
                    lambda part: Roster(part, rules, settings.tile_m, settings.split_above),
                ),
                (StageNumber.LANES, topics.TILES, lambda part: Lanes(part, rules)),
                (StageNumber.MEETINGS, topics.SIGHTINGS, Meetings),
            )
        ]  # fmt: skip

    def statistics(self) -> Statistics:
        numbers: Counter[str] = Counter()
        dropped: Counter[str] = Counter()
        for runner in self.runners:
            name = runner.number.name.lower()
            numbers[f"{name}_partitions"] = len(runner.units)
            for counter, value in runner.counters.items():
                numbers[f"{name}_{counter}"] += value
            for unit in runner.units.values():
                numbers.update(unit.stage.statistics())
                dropped.update(unit.stage.dropped)
        gauges = ("publications", "subscriptions", "pairs", "publications_matched", "pairs_matched")
        front = Statistics() if self.front is None else self.front.statistics()
        gateway = Statistics() if self.gateway is None else self.gateway.statistics()
        dropped.update(gateway.dropped)
        dropped.update({f"front.{reason}": count for reason, count in front.dropped.items()})
        return Statistics(
            gauges={**_named_front(front.gauges), **gateway.gauges,
                    **{name: value for name, value in numbers.items() if name in gauges
                    or name.endswith("_partitions")}},
            counters={
                **_named_front(front.counters),
                **gateway.counters,
                **{name: value for name, value in numbers.items() if name not in gauges
                   and not name.endswith("_partitions")},
                "cpu_s": time.process_time(),
            },
            dropped=dropped,
        )  # fmt: skip

    async def _start(self) -> None:
        await asyncio.to_thread(warm_up)
        await self._states.open()
        self.spawn(self._states.keep_reading())
        for runner in self.runners:
            runner.join()
            self.spawn(runner.run())
        if self.front is not None and self.gateway is not None:
            self.front.open()
            await self.gateway.start()
            log.info("the gateway is open at port %d", self.gateway.port)
            self.spawn(self.front.listen())
            self.spawn(self.front.run())

    async def _stop(self) -> None:
        if self.front is not None and self.gateway is not None:
            await self.gateway.stop()
            self.front.close()
        for runner in self.runners:
            await runner.leave()
        self._states.close()


def _named_front(numbers: Mapping[str, float]) -> dict[str, float]:
    return {f"front_{name}": value for name, value in numbers.items()}
