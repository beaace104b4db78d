"""One WebSocket client: what it declares, sends and is notified of; no socket."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Generator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mercury.matcher.backend import Participant
from mercury.matcher.gateway import requests
from mercury.matcher.gateway.declarations import Declarations, GatewayEntity
from mercury.matcher.gateway.event_json import (
    event_objects,
    event_rows,
    found_object,
    introduction,
    to_text,
)
from mercury.matcher.gateway.numbering import NO_REFERENCE, Introductions
from mercury.matcher.gateway.register import Register
from mercury.matching import Events, NearbyPublication
from mercury.matching.layout import SLOT_MASK
from mercury.model.errors import MatchingError, PacketError
from mercury.model.matching import MAX_TTL_S
from mercury.wire.declarations import Refusal
from mercury.wire.gateway_frames import (
    NO_HANDLE,
    pack_events,
    pack_progress,
    read_moves,
    rows_within,
)

log = logging.getLogger(__name__)

# Work in steps: between them other clients are served, or an answer is awaited.
Steps = Generator[asyncio.Future[list[NearbyPublication]] | None, None, None]
Answering = Generator[asyncio.Future[list[NearbyPublication]] | None, None, dict[str, Any]]

OPS_AT_ONCE = 256  # of a batch, so that no client delays the others for long
WITHDRAWN_AT_ONCE = 500
NAMES_A_FRAME = 1000
TRY_AGAIN_LATER = 1013  # RFC 6455, registered close code


class Wire(Protocol):
    """The transport to a client."""

    def send_text(self, text: str) -> None: ...

    def send_binary(self, data: bytes) -> None: ...

    def waiting_bytes(self) -> int:
        """How many bytes were sent that the client has not read yet."""

    def hold(self, held: bool) -> None:
        """Whether to stop reading for now."""

    def close(self, code: int, reason: str) -> None: ...


class GatewaySession(Participant):
    """A client's session, from its first frame to its last."""

    def __init__(self, register: Register, wire: Wire, *, binary: bool) -> None:
        self.binary = binary
        self.taken = 0  # rows of binary frames
        self.dropped = 0
        self._register = register
        self._hub = register.hub
        self._wire = wire
        self._prefix = register.new_client()
        self._declared = Declarations(self._hub, register.settings.max_entities)
        self._wants_names = True
        self._introduced = Introductions()
        self._reported = (0, 0)
        self._inbox: deque[str | bytes] = deque()
        self._unfinished: Steps | None = None
        self._has_left = False
        register.connections += 1
        register.counts["connections_opened"] += 1

    # What comes from the client

    def receive(self, frame: str | bytes) -> None:
        """Process a frame of the client; a large one takes several event-loop iterations."""
        self._inbox.append(frame)
        if self._unfinished is None:
            self._work()

    def leave(self) -> None:
        """The client has disconnected: withdraw its declarations."""
        if self._has_left:
            return
        self._has_left = True
        self._inbox.clear()
        self._register.connections -= 1
        self._hub.forget(self)
        self._withdraw_rest(self._declared.publications())

    def _withdraw_rest(self, refs: list[int]) -> None:
        for ref in refs[:WITHDRAWN_AT_ONCE]:
            self._register.withdraw_publication(ref, self)
        if len(refs) > WITHDRAWN_AT_ONCE:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._withdraw_rest, refs[WITHDRAWN_AT_ONCE:])

    def _work(self) -> None:
        while not self._has_left:
            if self._unfinished is None:
                if not self._inbox:
                    return
                frame = self._inbox.popleft()
                if not isinstance(frame, str):
                    self._take_rows(frame)
                    continue
                self._unfinished = self._answer_text(frame)
                self._wire.hold(True)
            for awaited in self._unfinished:
                if awaited is None:
                    asyncio.get_running_loop().call_soon(self._work)
                else:
                    awaited.add_done_callback(self._go_on)
                return
            self._unfinished = None
            self._wire.hold(False)

    def _go_on(self, asked: asyncio.Future[list[NearbyPublication]]) -> None:
        if self._has_left and not asked.cancelled():
            asked.exception()  # mark it as retrieved
        self._work()

    def _take_rows(self, data: bytes) -> None:
        self._register.counts["frames"] += 1
        try:
            if not self.binary:
                raise PacketError("binary frames need the subprotocol mercury.binary.v1")
            rows = read_moves(data, self._register.settings.max_rows)
        except PacketError as error:
            self._drop("frame", max(rows_within(data), 1))
            self._send_text({"error": str(error), "reason": "frame"})
            return
        refs = self._declared.handles.look_up(rows["handle"])
        lats, lons = rows["lat_e7"] * 1e-7, rows["lon_e7"] * 1e-7
        times_us = np.where(rows["time_us"] == 0, self._hub.clock(), rows["time_us"])
        known = refs != NO_REFERENCE
        placed = (np.abs(lats) <= 90.0) & (np.abs(lons) <= 180.0)
        timely = (times_us >= 0) & (times_us <= self._register.latest_us())
        columns = (refs, lats, lons, times_us, rows["accuracy_dm"] * 0.1)
        good = known & placed & timely
        count = int(np.count_nonzero(good))
        if count < len(rows):
            self._drop("handle", int(np.count_nonzero(~known)))
            self._drop("no-position", int(np.count_nonzero(known & ~placed)))
            self._drop("time", int(np.count_nonzero(known & placed & ~timely)))
            columns = tuple(column[good] for column in columns)
        self.taken += count
        self._register.counts["rows"] += count
        if count:
            self._hub.move(*columns)

    def _drop(self, reason: str, rows: int) -> None:
        if rows:
            self.dropped += rows
            self._register.dropped[reason] += rows

    def _answer_text(self, text: str) -> Steps:
        """Process a text frame; yields to let other clients run."""
        self._register.counts["texts"] += 1
        try:
            said = requests.read_json(text)
        except MatchingError as error:
            self._send_text(self._register.refused(error))
            return
        if not isinstance(said, list):
            self._send_text((yield from self._answer(said)))
            return
        answers = []
        for number, one in enumerate(said, 1):
            answers.append((yield from self._answer(one)))
            if number % OPS_AT_ONCE == 0:
                yield None
        self._send_text(answers)

    def _answer(self, said: Any) -> Answering:
        try:
            if not isinstance(said, dict):
                raise MatchingError("a text is a JSON object with an op, or a list of them", "json")
            answer = yield from self._do(said)
        except requests.REFUSED as error:
            answer = self._register.refused(error)
        if isinstance(said, dict) and isinstance(said.get("n"), str | int | float):
            answer["n"] = said["n"]
        return answer

    def _do(self, said: dict[str, Any]) -> Answering:
        match said.get("op"):
            case "hello":
                self._wants_names = requests.read_flag(said, "names", True)
            case "publish":
                self._publish(said)
            case "near":
                self._near(said)
            case "move":
                self._move(said)
            case "withdraw":
                self._withdraw(said)
            case "ask":
                wanted = requests.read_ask(said, self._register.settings.max_found)
                asked = self._register.ask(wanted)
                if not asked.done():
                    yield asked
                return {"ok": True, "found": [found_object(one) for one in asked.result()]}
            case _:
                raise MatchingError("op must be hello, publish, near, move, withdraw or ask", "op")
        return {"ok": True}

    def _publish(self, said: dict[str, Any]) -> None:
        publication, update = requests.read_publication(said)
        handle = self._declared.admit(said, "publication", publication.id)
        ref = self._register.publish(publication, update, self)
        entity = GatewayEntity(ref, publication.id, handle)
        self._declared.put("publication", publication.id, entity)

    def _near(self, said: dict[str, Any]) -> None:
        subscription, update, _ = requests.read_near(said, self._prefix)
        engine_id = subscription.id
        name = engine_id.removeprefix(self._prefix)
        handle = self._declared.admit(said, "subscription", name)
        if subscription.polygon is not None and subscription.ttl_s is None:
            # It never moves and so would expire: it is kept as long as the connection.
            subscription = replace(subscription, ttl_s=MAX_TTL_S)
        time_us = self._register.checked_time_us(update)
        before = self._hub.find("subscription", engine_id)
        ref = self._hub.subscribe(subscription, self, time_us)
        self._register.handles.put(ref & SLOT_MASK, NO_HANDLE if handle is None else handle)
        self._declared.named[ref] = ("subscription", name)
        if before not in (None, ref):
            self._hub.flush()  # another topic or kind of scope: end its former pairs first
        self._declared.put("subscription", name, GatewayEntity(ref, engine_id, handle))
        self._register.move(ref, update if subscription.polygon is None else None, time_us)

    def _move(self, said: dict[str, Any]) -> None:
        update = requests.read_move(said)
        _, _, declared = self._declared.find(said)
        self._register.move(declared.ref, update, self._register.checked_time_us(update))

    def _withdraw(self, said: dict[str, Any]) -> None:
        side, name, declared = self._declared.find(said)
        if side == "publication":
            self._register.withdraw_publication(declared.ref, self)
        else:
            self._hub.withdraw(declared.ref)
            self._hub.flush()  # its last events, while its name is known
        self._declared.remove(side, name)

    # What the client is notified of

    def notify(self, events: Events) -> None:
        """Send events of our subscriptions: as rows if they have a handle, else as text."""
        # The limits are checked once for all events of an event-loop iteration.
        if not self._may_send():
            return
        events = self._register.thinned(events, self._wire.waiting_bytes())
        self._register.counts["events"] += len(events)
        if self.binary:
            handles = self._register.handles.look_up(events.subscription & SLOT_MASK)
            rows = handles != NO_HANDLE
            if rows.all():
                self._send_rows(events, handles)
                return
            self._send_rows(events.take(rows), handles[rows])
            events = events.take(~rows)
        for one in event_objects(events, self._hub, self._declared.name_of):
            self._wire.send_text(to_text(one))

    def refuse(self, ref: int, refusal: Refusal) -> None:
        """Report that a declaration was refused after it was answered."""
        named = self._declared.named.get(ref)
        if named is None:
            return
        side, name = named
        self._declared.remove(side, name)
        if side == "publication":
            self._register.withdraw_publication(ref, self)
        self._register.dropped[f"refused-{refusal.reason}"] += 1
        self._send_text({"error": refusal.sentence, "reason": refusal.reason, side: name})

    def report_progress(self) -> None:
        """Send the counts of rows taken and dropped, if they have changed."""
        if self.binary and self._reported != (self.taken, self.dropped):
            self._reported = (self.taken, self.dropped)
            if self._may_send():
                self._wire.send_binary(pack_progress(self.taken, self.dropped))

    def _send_rows(self, events: Events, handles: NDArray[np.uint32]) -> None:
        if not len(events):
            return
        numbers = self._register.numbers.look_up(events.publication)
        if self._wants_names:
            self._introduce(events.publication, numbers)
        self._wire.send_binary(pack_events(event_rows(events, handles, numbers)))

    def _introduce(self, refs: NDArray[np.int64], numbers: NDArray[np.uint32]) -> None:
        """Send what numbers refer to, before they are used."""
        rows = self._introduced.unknown(refs, self._hub.revisions(refs))
        introductions = []
        for number, ref in zip(numbers[rows].tolist(), refs[rows].tolist(), strict=True):
            publication = self._hub.publication(ref)
            if publication is not None:
                introductions.append(introduction(number, publication))
        for start in range(0, len(introductions), NAMES_A_FRAME):
            some = introductions[start : start + NAMES_A_FRAME]
            self._wire.send_text(to_text({"publications": some}))

    def _send_text(self, value: Any) -> None:
        if self._may_send():
            self._wire.send_text(to_text(value))

    def _may_send(self) -> bool:
        if self._has_left:
            return False
        if self._wire.waiting_bytes() <= self._register.settings.high_mark_bytes:
            return True
        self._register.counts["connections_too_slow"] += 1
        self._wire.close(TRY_AGAIN_LATER, "too much waits to be read")
        self.leave()
        return False
