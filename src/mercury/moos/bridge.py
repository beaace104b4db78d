"""What pMediator does on a vehicle, as a core: postings of MOOS variables in, postings out.

A message of the own community gets a tracked copy for each mate, is sent again to who did not
acknowledge, and is given up at last. A message of a mate is acknowledged each time it comes, and
posted to the own community once (pMediator §4 and §5).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mercury.mediator import Arrival, Incoming, Outgoing, Report
from mercury.mediator.policy import FIRE_AND_FORGET, REPEAT
from mercury.mediator.report import report
from mercury.model.errors import MoosError
from mercury.model.message import MAX_PACKET_BYTES
from mercury.moos.packet import NOTIFY, MoosPacket, read_packet, write_packet
from mercury.moos.settings import ANY, BridgeSettings
from mercury.moos.text_forms import (
    ALL,
    AckMessage,
    NodeMessage,
    NodeReport,
    read_ack_message,
    read_mediated_message,
    read_node_message,
    read_node_report,
    write_ack_message,
    write_node_message,
)

NODE_MESSAGE = "NODE_MESSAGE"
MEDIATED_MESSAGE = "MEDIATED_MESSAGE"
ACK_MESSAGE = "ACK_MESSAGE"

# A mate that restarts may restart its count: then the same id is another message. Long enough
# for any usual max_tries * resend_thresh of a mate.
_REMEMBER_S = 120.0
_REMEMBERED = 100_000  # room for 800 messages a second of each mate, as long as it remembers them
_RESENDS_PER_S = 1000.0
_ROOM_BYTES = 1024  # for names, the id and the head of a datagram
_MAX_MATES = 1000


class Posting(NamedTuple):
    """A variable to be posted at a mate, or in the own community."""

    mate: str | None  # in small letters; None is the own community
    key: str
    text: str


class MoosBridge:
    """The bridge of one vehicle.

    Each copy has an id of its own, made of the vehicle's name and a counter. That goes on from
    `begun_us`, the wall clock when this incarnation of the vehicle began, so that no id of an
    earlier one comes again. `carries_all` says that mates without a route of their own can be sent
    to, too.
    """

    def __init__(
        self,
        settings: BridgeSettings,
        rng: random.Random,
        *,
        begun_us: int,
        carries_all: bool = False,
        on_report: Callable[[NodeReport], None] | None = None,
    ) -> None:
        self.settings = settings
        self.bad: Counter[str] = Counter()  # malformed, by reason
        self.dropped: Counter[str] = Counter()  # valid, but not sent on
        self.posted = 0  # to the own community
        self.outgoing = Outgoing(rng, resends_per_s=_RESENDS_PER_S)
        self.incoming = Incoming(ack_after_s=0.0, max_ids=_REMEMBERED)
        self._repeat = replace(
            REPEAT, resend_after_s=settings.resend_thresh_s, max_tries=settings.max_tries
        )
        self._counter = begun_us
        self._name = settings.name.lower()
        self._carries_all = carries_all or ANY in settings.routes
        self._on_report = on_report
        self._spelling: dict[str, str] = {}  # of mates, by their names in small letters
        self._outbox: list[Posting] = []
        for mate in (*settings.mates, *settings.routes):
            if mate != ANY:
                self._meet(mate)

    @property
    def mates(self) -> list[str]:
        """The mates with a route, in small letters."""
        return sorted(self._spelling)

    # In

    def receive(self, data: bytes, now: float) -> None:
        """Take a datagram of the own pShare or of a mate."""
        try:
            packet = read_packet(data)
            if packet.message_type != NOTIFY:
                raise MoosError("not-a-notification", f"message of type {packet.message_type!r}")
            text = packet.text
        except MoosError as error:
            self.bad[error.reason] += 1
        else:
            self.take(packet.key, text, now)

    def take(self, key: str, text: str, now: float) -> None:
        """Process a variable from any source."""
        try:
            match key.upper():
                case "NODE_MESSAGE_LOCAL":
                    self._send(read_node_message(text), now)
                case "MEDIATED_MESSAGE" | "MEDIATED_MESSAGE_LOCAL":  # renamed on the way, or not
                    self._receive_copy(read_mediated_message(text), now)
                case "ACK_MESSAGE" | "ACK_MESSAGE_LOCAL":
                    self._acknowledged(read_ack_message(text), now)
                case "NODE_REPORT" | "NODE_REPORT_LOCAL":
                    self._reported(read_node_report(text))
                case _:
                    self.dropped["unknown-variable"] += 1
        except MoosError as error:
            self.bad[error.reason] += 1

    # Out

    def post_locally(self, key: str, text: str) -> None:
        self._outbox.append(Posting(None, key, text))
        self.posted += 1

    def due(self, now: float) -> list[Posting]:
        """The postings to send now; they count as sent."""
        for dispatch, peers in self.outgoing.due(now):
            self.outgoing.sent(dispatch, peers, now)
            [mate] = self.outgoing.peers.names(peers)
            mediated = replace(
                dispatch.content,
                dest_nodes=(self._spelling[mate],),
                dest_group="",
                ack_id=str(dispatch.id),
                ack=dispatch.policy.acknowledge,
            )
            self._outbox.append(Posting(mate, MEDIATED_MESSAGE, write_node_message(mediated)))
        self.outgoing.take_changes(now)
        for mate, answers in self.incoming.answers_due(now):
            for received, _refusal in answers:
                assert isinstance(received, tuple)  # the id, and what it came with
                ack = AckMessage(str(received[0]), self.settings.name, self._spelling[mate])
                self._outbox.append(Posting(mate, ACK_MESSAGE, write_ack_message(ack)))
        postings, self._outbox = self._outbox, []
        return postings

    def datagram(self, posting: Posting, time_s: float) -> bytes:
        """The datagram of a posting, in pShare's form."""
        return write_packet(
            MoosPacket(
                posting.key,
                posting.text,
                source="mercury",
                community=self.settings.community,
                time_s=time_s,
            )
        )

    def next_timer(self) -> float | None:
        """When to call `due` next; 0 if something is waiting."""
        if self._outbox:
            return 0.0
        times = (self.outgoing.next_timer(), self.incoming.next_timer())
        return min((at for at in times if at is not None), default=None)

    def report(self, now: float) -> Report:
        """What was sent, repeated and lost, by mate and by variable (pMediator §8)."""
        return report(self.settings.name, self.outgoing, self.incoming, now)

    # Inside

    def _send(self, message: NodeMessage, now: float) -> None:
        if message.src_node.lower() != self._name:
            self.dropped["source-is-not-us"] += 1
            return
        size = len((message.string_val or "").encode("utf-8", "surrogateescape"))
        if size + _ROOM_BYTES > MAX_PACKET_BYTES:
            self.dropped["too-large"] += 1
            return
        mates = self._destinations(message)
        if not mates:
            return
        forget = message.var_name in self.settings.no_ack_vars
        for mate in mates:
            self._counter += 1
            self.outgoing.post(
                f"{self.settings.name}_{self._counter}",
                message.plain,
                np.array([self.outgoing.peers.number(mate)], np.int32),
                now,
                policy=FIRE_AND_FORGET if forget else self._repeat,
                topic=message.var_name,
            )

    def _destinations(self, message: NodeMessage) -> list[str]:
        """A message's destinations, in small letters; those without a route are counted."""
        wanted: dict[str, None] = {}
        for node in message.dest_nodes:
            if node.lower() == ALL:
                wanted |= dict.fromkeys(self.mates)
            elif node.lower() == self._name:
                self.dropped["to-ourselves"] += 1
            elif self._meet(node, by_name=True):
                wanted[node.lower()] = None
            else:
                self.dropped["unknown-node"] += 1
        if message.dest_group:
            group = self.settings.group
            if group is None or message.dest_group.lower() != group.lower():
                self.dropped["unknown-group"] += 1
            else:
                named = [mate.lower() for mate in self.settings.mates]
                wanted |= dict.fromkeys(named or self.mates)
        if not wanted and ALL in map(str.lower, message.dest_nodes):
            self.dropped["nobody-known"] += 1
        return list(wanted)

    def _receive_copy(self, message: NodeMessage, now: float) -> None:
        if message.src_node.lower() == self._name:
            self.dropped["from-ourselves"] += 1
            return
        nodes = {node.lower() for node in message.dest_nodes}
        group = (self.settings.group or "").lower()
        if not (nodes & {self._name, ALL} or (group and message.dest_group.lower() == group)):
            self.dropped["not-for-us"] += 1
            return
        if not self._meet(message.src_node):
            self.dropped["no-way-back"] += 1
            return
        text = write_node_message(message.plain)
        arrival = self.incoming.receive(
            message.src_node.lower(),
            (message.ack_id, hash(text)),
            now,
            acknowledge=message.ack,
            until=now + _REMEMBER_S,
        )
        if arrival is Arrival.NEW:
            self.post_locally(NODE_MESSAGE, text)
        elif arrival is Arrival.NO_ROOM:
            self.dropped["no-room"] += 1

    def _acknowledged(self, ack: AckMessage, now: float) -> None:
        mate = self.outgoing.peers.find(ack.src.lower())
        if ack.dest.lower() != self._name:
            self.dropped["not-for-us"] += 1
        elif mate is None or not self.outgoing.acknowledged(mate, ack.id, now):
            self.dropped["ack-not-awaited"] += 1  # acknowledged before, or given up long ago

    def _reported(self, report: NodeReport) -> None:
        if report.name.lower() != self._name:
            self.dropped["report-of-another"] += 1
        elif self._on_report is not None:
            self._on_report(report)

    def _meet(self, mate: str, *, by_name: bool = False) -> bool:
        """Add a mate, if it has a route; False if not."""
        known = mate.lower()
        if known not in self._spelling:
            is_named = known in map(str.lower, self.settings.mates)
            if not (is_named or known in self.settings.routes or self._carries_all):
                return False
            if len(self._spelling) >= _MAX_MATES:
                return False
            self._spelling[known] = mate
            self.outgoing.arrived(self.outgoing.peers.number(known), 0.0)
        elif not by_name:
            self._spelling[known] = mate  # as it writes itself
        return True
