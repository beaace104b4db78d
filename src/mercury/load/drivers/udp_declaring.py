"""What the sessions of a load declare: asked until it is answered, and renewed as clients do."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple
from uuid import UUID

from mercury.client.asking import RETRY_S
from mercury.client.composing import compose
from mercury.client.moving_entities import RENEW_S
from mercury.load.sessions import LoadClients
from mercury.load.workload import Workload
from mercury.model.declarations import DECLARE, Declaration
from mercury.model.message import Address, Kind, Message
from mercury.session import SessionState
from mercury.wire import encode

# An adapter answers after 0.15 s, so this declares about 3,000 entities a second.
AT_ONCE = 512


class _Request(NamedTuple):
    id: UUID
    priority: int
    body: bytes


class Declaring:
    """One entity for each session, declared in every new session that it gets."""

    def __init__(self, workload: Workload, clients: LoadClients) -> None:
        self.answered: set[int] = set()  # those that the adapter has, or had
        self.refusals: dict[int, str] = {}  # by entity; it is not declared again
        self._workload = workload
        self._clients = clients
        self._waiting: OrderedDict[int, None] = OrderedDict()  # for their turn
        self._requests: dict[int, _Request] = {}  # the last of each entity
        self._asked: OrderedDict[int, float] = OrderedDict()  # without an answer; asked again when
        self._renewed: OrderedDict[int, float] = OrderedDict()  # declared; and when again

    @property
    def is_done(self) -> bool:
        """Whether the adapter has all of them."""
        return len(self.answered) == len(self._workload)

    def connected(self, entity: int) -> None:
        """It has a session that knows of nothing."""
        self._asked.pop(entity, None)
        self._renewed.pop(entity, None)
        if entity not in self.refusals:
            self._waiting[entity] = None

    def replied(self, entity: int, reply: Message, now: float) -> None:
        """The adapter says whether it takes an entity; a refusal may come after a yes."""
        request = self._requests.get(entity)
        if request is None or reply.correlation != request.id:
            return
        asked = self._asked.pop(entity, None)
        if "error" in reply.values:
            self.refusals[entity] = str(reply.values["error"])
            self._renewed.pop(entity, None)
            self._waiting.pop(entity, None)
        elif asked is not None:
            self.answered.add(entity)
            self._renewed[entity] = now + RENEW_S

    def work(self, now: float) -> list[int]:
        """Say what is due; returns who has something to send."""
        for entity in _due(self._renewed, now):
            self._waiting[entity] = None
        said = [entity for entity in _due(self._asked, now) if self._say(entity, now)]
        while self._waiting and len(self._asked) < AT_ONCE:
            entity, _ = self._waiting.popitem(last=False)
            address = Address.client(self._workload.id_of(entity))
            what = Declaration(self._workload.declaration(entity))
            message = compose(address, Kind.REQUEST, DECLARE, what)
            self._requests[entity] = _Request(message.id, message.priority, encode(message))
            if self._say(entity, now):
                said.append(entity)
        return said

    def _say(self, entity: int, now: float) -> bool:
        session, request = self._clients.sessions[entity], self._requests[entity]
        if session.state is not SessionState.ESTABLISHED:
            return False  # its next session begins anew
        session.send_body(Kind.REQUEST, request.priority, request.body)
        self._asked[entity] = now + RETRY_S
        return True


def _due(times: OrderedDict[int, float], now: float) -> list[int]:
    """Take out those whose time has come; they stand in its order."""
    due = []
    while times and next(iter(times.values())) <= now:
        due.append(times.popitem(last=False)[0])
    return due
