"""A query to many workers: a subscription that ends with its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from mercury.matcher.backend import Participant
from mercury.matching import Events, NearbyPublication
from mercury.model.errors import MatchingError
from mercury.model.matching import EventType, Publication
from mercury.wire.declarations import Refusal

# Workers send no end mark: the answer is what came within this time, or until a pause.
ANSWER_AFTER_S = 0.5
QUIET_S = 0.1
TTL_S = 10.0  # in case its withdrawal is lost

_ENTER, _EXIT = int(EventType.ENTER), int(EventType.EXIT)


class OneShotQuery(Participant):
    """Listens to the query's subscription until the answer is complete, as far as can be known."""

    def __init__(
        self,
        limit: int,
        publication_of: Callable[[int], Publication | None],
        end: Callable[[OneShotQuery], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[list[NearbyPublication]] = loop.create_future()
        self._limit = limit
        self._publication_of = publication_of
        self._end = end
        self._found: dict[int, NearbyPublication] = {}
        self._due = loop.call_later(ANSWER_AFTER_S, self.finish)
        self._quiet: asyncio.TimerHandle | None = None
        # The caller may have been cancelled.
        self.answer.add_done_callback(lambda _: self._release())

    def notify(self, events: Events) -> None:
        """Add matches, or remove those that have left."""
        columns = (
            events.publication.tolist(),
            events.event_type.tolist(),
            events.lat.tolist(),
            events.lon.tolist(),
            events.distance_m.astype(np.float64).tolist(),
            events.time_us.tolist(),
        )
        for ref, event_type, *found in zip(*columns, strict=True):
            publication = self._publication_of(ref)
            if event_type == _ENTER and publication is not None:
                self._found[ref] = NearbyPublication(publication, ref, *found)
            elif event_type == _EXIT:
                self._found.pop(ref, None)
        if not self.answer.done():
            if self._quiet is not None:
                self._quiet.cancel()
            self._quiet = asyncio.get_running_loop().call_later(QUIET_S, self.finish)

    def refuse(self, ref: int, refusal: Refusal) -> None:
        """A matcher refused it."""
        if not self.answer.done():
            self.answer.set_exception(MatchingError(refusal.sentence, refusal.reason))

    def finish(self) -> None:
        """Answer with what was found."""
        if not self.answer.done():
            nearest = sorted(self._found.values(), key=lambda one: one.distance_m)
            self.answer.set_result(nearest[: self._limit])

    def _release(self) -> None:
        self._due.cancel()
        if self._quiet is not None:
            self._quiet.cancel()
        self._end(self)
