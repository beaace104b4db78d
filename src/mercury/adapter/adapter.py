"""The adapter: between the clients' network and the bus (Mercury §4.5)."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain, islice
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from mercury.adapter.addressing import LOOKBACK_US, MAX_GROUPS, Addressing
from mercury.adapter.interests import Interests
from mercury.adapter.kept_content import CONTENT_KEPT_US, Content, KeptContent
from mercury.adapter.match_events import MAX_DESCRIPTIONS, MatchEvents
from mercury.adapter.mediator import AdapterMediator, FanOut
from mercury.adapter.moving_clients import MAX_ANSWERS, MovingClients
from mercury.adapter.outbound import Outbound
from mercury.adapter.queries import AT_ONCE as MAX_QUERIES
from mercury.adapter.routing import BusRecord, bus_record, traffic_speed
from mercury.bus import Bus, Consumer, FromTime, Record, catch_up
from mercury.config.mediator import MediatorSettings
from mercury.config.settings import AdapterSettings
from mercury.geo import contains, overlaps
from mercury.model import topics
from mercury.model.area import Area, Circle, Position
from mercury.model.declarations import REQUESTS as ABOUT_MOVING
from mercury.model.delivery import RECEIPTS
from mercury.model.errors import AreaError, BusError, MessageError, PacketError
from mercury.model.identity import ID_BYTES
from mercury.model.message import Address, Attributes, Kind, Message, Priority, Subscription, Values
from mercury.net import Packets, UdpEndpoint, bind_udp
from mercury.service import Service, Statistics, epoch_us, instant, now, now_us
from mercury.service.stall import WINDOW_S
from mercury.service.statistics import with_limits
from mercury.session import (
    AdapterSessions,
    Closed,
    Opened,
    Received,
    Reported,
    Session,
    SessionSettings,
)
from mercury.wire import MAX_BODY_BYTES, encode, mercury_pb2, parse, to_envelope
from mercury.wire.packet import MAX_PRIORITY, TOKEN_BYTES
from mercury.wire.records import Route, message_route, read_fix, read_interests, read_route

log = logging.getLogger(__name__)

# Intervals
_HOUSEKEEPING_S = 0.1  # prune and heartbeats
_RECEIPTS_S = 0.1  # to write the outcomes of messages
_INTEREST_REFRESH_S = 10.0
_REPORT_S = 5.0
_MOVING_S = 0.05  # to answer declarations and queries
_READ_BATCH = 512
_LONGEST_TICK_S = 0.005


class Adapter(Service):
    """Keeps sessions with clients and passes messages between them and the bus."""

    part = "adapter"

    def __init__(
        self,
        bus: Bus,
        settings: AdapterSettings,
        session: SessionSettings,
        coverage: Area | None = None,
        mediator: MediatorSettings | None = None,
    ) -> None:
        mediator = mediator or MediatorSettings()
        super().__init__(
            bus,
            Address.adapter(settings.id),
            metrics=settings.metrics,
            stall_probe_s=settings.stall_probe_s,
        )
        self.settings = settings
        self.sessions = AdapterSessions(
            settings.id, session, lambda: secrets.token_bytes(TOKEN_BYTES), epoch_us=epoch_us()
        )
        self.interests = Interests(self.sessions.table, settings.max_subscriptions)
        self.content = KeptContent()
        self.mediator = AdapterMediator(
            settings.id,
            self.sessions,
            mediator,
            random.Random(os.urandom(16)),
            now=now(),
            epoch_us=epoch_us(),
        )
        self.counters = self.mediator.counters
        self.dropped = self.mediator.dropped
        self.addressing = Addressing(self.mediator, mediator.groups, coverage)
        self.moving = MovingClients(
            self.address,
            self.mediator,
            repeat_after_s=session.missed_reports * session.report_interval_s + 1.0,
            max_entities=settings.max_entities,
        )
        self._match_events = MatchEvents(self.moving)
        self._to_confirm = asyncio.Event()
        self._is_collecting = False  # what is due, so that it goes out in order of urgency
        self._outbound: Outbound | None = None
        self._consumers: list[Consumer] = []
        self._changes: Iterator[BusRecord] = iter(())  # what became of messages, for the bus
        self._unwritten: list[BusRecord] = []  # of that, the next
        self._report_at = 0.0  # rate limit of the log on a failing bus

    @property
    def port(self) -> int:
        assert self._outbound is not None
        return self._outbound.endpoint.address[1]

    def statistics(self) -> Statistics:
        dropped = self.sessions.dropped + self.dropped
        counters: dict[str, float] = dict(self.counters)
        if self._outbound is not None:
            dropped += self._outbound.dropped
            if self._outbound.endpoint.unsendable:
                dropped["unsendable"] = self._outbound.endpoint.unsendable
            counters["packets_sent"] = self._outbound.packets_sent
        counters["address_changes"] = self.sessions.address_changes
        counters["challenges"] = self.sessions.challenges
        outgoing = self.mediator.outgoing
        dropped["shed-message"] += outgoing.shed
        dropped["shed-standing"] += self.addressing.standing.shed
        for state, count in outgoing.ended.items():
            counters[f"deliveries_{state.label}"] = count
        return Statistics(
            gauges=with_limits(self._tables())
            | {
                "deliveries_waiting": outgoing.waiting,
                "resends_allowed_per_s": outgoing.repeat_rate.per_s,
                "loop_stall_s": self.stalls.longest_s,
                "loop_stall_window_s": WINDOW_S,
            },
            counters=counters,
            dropped=+dropped,  # without those that are 0
        )

    def _tables(self) -> dict[str, tuple[int, int]]:
        """How much each table holds, and at most."""
        mediator, sessions = self.mediator, self.sessions.settings.max_sessions
        limits = mediator.settings
        return {
            "sessions": (len(self.sessions.table), sessions),
            "messages": (len(mediator.outgoing), limits.max_messages),
            "copies": (mediator.outgoing.held, limits.max_copies),
            "standing_alerts": (len(self.addressing.standing), limits.max_standing),
            "kept_alerts": (len(self.addressing.missed), limits.max_messages),
            "recipients": (mediator.outgoing.peers.known, limits.max_copies + sessions),
            "groups": (len(self.addressing.groups), sessions * MAX_GROUPS),
            "senders": (len(mediator.incoming), sessions),
            "ids": (mediator.incoming.ids, limits.max_ids),
            "kept_content": (len(self.content), self.content.max_messages),
            "subscriptions": (len(self.interests), self.settings.max_subscriptions),
            "moving_entities": (len(self.moving.entities), self.settings.max_entities),
            "open_queries": (len(self.moving.queries), sessions * MAX_QUERIES),
            "kept_answers": (self.moving.kept_answers, MAX_ANSWERS),
            "descriptions": (len(self._match_events), MAX_DESCRIPTIONS),
            "packets_waiting": (
                (self._outbound.waiting, self._outbound.max_waiting) if self._outbound else (0, 0)
            ),
        }

    def about(self) -> dict[str, str]:
        if self._outbound is None:
            return {}
        host, port = self._outbound.endpoint.address
        return {"listens": f"udp://[{host}]:{port}" if ":" in host else f"udp://{host}:{port}"}

    async def _start(self) -> None:
        settings = self.settings
        endpoint = UdpEndpoint(bind_udp(settings.host, settings.port), self._on_packets)
        self._outbound = Outbound(
            endpoint, self.sessions, now=now, now_us=now_us, chunk=settings.fanout_chunk
        )
        self._warm_up()
        lookback = FromTime(now_us() - LOOKBACK_US)
        alerts = self.bus.subscribe(topics.ALERTS, start=lookback)
        kept = FromTime(now_us() - CONTENT_KEPT_US)
        content = self.bus.subscribe((topics.MATCHED_CONTENT,), start=kept)
        answers = self.bus.subscribe((topics.REPLIES,))
        ends = self.bus.subscribe((topics.DELIVERIES,), start=lookback)
        match_events = self.bus.subscribe((topics.MATCHES,))
        self._consumers = [alerts, answers, content, ends, match_events]
        # All that holds must be known before the first client connects.
        past = chain.from_iterable(catch_up(one, _READ_BATCH) for one in (alerts, ends, content))
        for records in past:
            self._on_records(records)
        for consumer in self._consumers:
            self.spawn(self._consume(consumer))
        self.spawn(self._every(_MOVING_S, self._update_moving))
        self.spawn(self._every(_HOUSEKEEPING_S, self._keep_house))
        self.spawn(self._every(_INTEREST_REFRESH_S, self._refresh_interests))
        self.spawn(self._every(settings.standing_tick_s, self._update_standing))
        self.spawn(self._publish_receipts())
        self.spawn(self._confirm())

    def _warm_up(self) -> None:
        """Run the code of an alert once: libraries initialise at their first use."""
        here = Area(Circle(Position(0.0, 0.0), 1000.0))
        contains(here, np.array([0.0, 0.009]), np.array([0.0, 0.0]), np.array([0.0, 0.0]), 0)
        if self.addressing.coverage is not None:
            overlaps(here, self.addressing.coverage)
        traffic_speed(self.sessions.table, 0.0, 0.0, 1000.0)

    async def _stop(self) -> None:
        for consumer in self._consumers:
            consumer.close()
        if self._outbound is None:
            return
        # Tell clients to seek another adapter at once, not after missed heartbeats.
        self._outbound.endpoint.stop_receiving()
        everyone = np.flatnonzero(self.sessions.table.active)
        body = self.sessions.refusal_body("adapter-stops", now())
        self._fan_out(everyone, Kind.REFUSE, Priority.BACKGROUND, body, 0)
        await self._outbound.drained(timeout_s=5.0)
        # The next incarnation goes on from there.
        for record in chain(self._unwritten, self._changes, self.mediator.changes(now())):
            self.bus.append(*record)
        self._outbound.endpoint.close()

    # From the clients to the bus

    def _on_packets(self, packets: Packets) -> None:
        time = now()
        sessions = self.sessions
        self.counters["packets_received"] += len(packets)
        for data, address in packets:
            event = sessions.receive(data, address, time)
            if event is None:
                continue
            try:
                if isinstance(event, Reported):
                    self._on_report(event.session, event.body, event.envelope)
                elif isinstance(event, Received):
                    self._on_received(event)
                elif isinstance(event, Opened):
                    self._on_opened(event)
                else:
                    self._on_closed(event)
            except PacketError as error:
                self.dropped[error.reason] += 1
                if isinstance(event, Received) and event.wants_receipt:
                    self.mediator.refuse(event.session, event.envelope.id, error.reason, time)
            except BusError as error:  # the bus is full or unreachable: log it and continue
                self._report_bus_error(error)
        self._flush_moving()
        if sessions.answers:
            self.counters["receipts"] += len(sessions.answers)
            self.mediator.answered(sessions.answers, time)
            sessions.answers = []
        if self.mediator.unconfirmed:
            self._to_confirm.set()
        self._send_queued()

    def _report_bus_error(self, error: BusError) -> None:
        self.dropped["bus-unavailable"] += 1
        self._log_failure("messages are lost, the bus does not take them", error)

    def _log_failure(self, sentence: str, error: BusError) -> None:
        self.bus_failed(error)
        if now() >= self._report_at:
            self._report_at = now() + _REPORT_S
            log.error("%s: %s", sentence, error)

    def _flush_moving(self) -> None:
        records, declared = self.moving.flush(now_us())
        try:
            for record in records:
                self.bus.append(*record)
        except BusError as error:
            self.moving.rejected(declared, error, instant())
            self._report_bus_error(error)

    def _send_queued(self) -> None:
        """Send the single packets that are queued."""
        assert self._outbound is not None
        for packet, address in self.sessions.outbox:
            self._outbound.put(packet, address, MAX_PRIORITY)
        self.sessions.outbox.clear()
        for single in self.mediator.outbox:
            self._outbound.put(*single)
        self.mediator.outbox.clear()
        self._outbound.kick()

    def _send_due(self) -> None:
        """Start the fan-outs that are due."""
        assert self._outbound is not None
        if not self._is_collecting:
            for job in self.mediator.due(now()):
                self._outbound.put_fan_out(job)
        self._send_queued()

    def _on_opened(self, event: Opened) -> None:
        self.counters["sessions_opened"] += 1
        self._send_queued()  # alerts need the grant first
        if event.replaced is not None:
            # It renews its subscriptions, and is sent alerts again that it does not list as seen:
            # what was sent to its earlier incarnation may not have arrived.
            self.counters["sessions_replaced"] += 1
            self._forget(event.replaced)
        envelope = event.envelope
        self.addressing.opened(event.session, envelope.groups, set(envelope.seen), instant())
        if envelope.WhichOneof("payload") == "telemetry":
            self._on_report(event.session, event.body, envelope)

    def _on_closed(self, event: Closed) -> None:
        self.counters[f"sessions_{event.reason}"] += 1
        self._forget(event.session)

    def _forget(self, session: Session) -> None:
        self.interests.closed(session)
        self.addressing.closed(session)
        self.moving.closed(session, now_us() - int((now() - session.last_message) * 1e6))

    def _on_report(self, session: Session, body: bytes, envelope: mercury_pb2.Envelope) -> None:
        # No route header: reports are not routed further.
        self.counters["reports"] += 1
        self.moving.report(session, envelope.telemetry)
        self.bus.append(topics.REPORTS, body, session.key, (session.fix_header,))

    def _on_received(self, event: Received) -> None:
        if not event.wants_receipt:
            self._on_message(event.session, event.body, event.envelope)
        elif self.mediator.take(event.session, event.envelope, now()):
            try:
                self._on_message(event.session, event.body, event.envelope)
            except BusError:
                self.mediator.incoming.disown(event.session.identity, event.envelope.id)
                raise
            self.mediator.unconfirmed.append((event.session, event.envelope.id))

    def _on_message(self, session: Session, body: bytes, envelope: mercury_pb2.Envelope) -> None:
        if 0 < envelope.expires_us <= now_us():
            raise PacketError("expired")
        kind = int(envelope.kind)
        if kind == Kind.GROUPS:
            self.addressing.regrouped(session, envelope.groups, now_us())
            return
        if kind == Kind.REQUEST and envelope.topic in ABOUT_MOVING:
            self.moving.request(session, envelope, instant())
            return
        if kind == Kind.REQUEST and envelope.topic == RECEIPTS:
            self.mediator.tell_again(session, envelope, instant())
            reply = self._reply_to(session, envelope, {"ok": True})
            self.mediator.send(session, reply, instant())
            return
        if kind == Kind.SUBSCRIBE and not self._subscribe(session, envelope):
            return
        if kind == Kind.UNSUBSCRIBE:
            self.interests.remove(session, envelope.subscription.id)
        record = bus_record(
            session,
            envelope,
            body,
            self.sessions.table,
            self.settings.traffic_radius_m,
            self.mediator.settings.max_area_m,
        )
        self.counters["messages"] += 1
        self.bus.append(*record)

    def _subscribe(self, session: Session, envelope: mercury_pb2.Envelope) -> bool:
        wanted = envelope.subscription
        why_full = self.interests.why_full(session, wanted.id)
        if why_full:
            self.mediator.send(
                session, self._reply_to(session, envelope, {"error": why_full}), instant()
            )
            return False
        subscription = Subscription(
            id=wanted.id,
            topic=wanted.topic,
            filter=wanted.filter,
            near_m=wanted.near_m if wanted.HasField("near_m") else None,
        )
        is_renewed = not self.interests.holds(session, wanted.id)
        interest = self.interests.add(session, subscription)
        if interest is not None and is_renewed and wanted.since_us:
            self._send_owed(session, interest, wanted)
        return True

    def _reply_to(
        self, session: Session, request: mercury_pb2.Envelope, values: Values
    ) -> mercury_pb2.Envelope:
        reply = Message(
            kind=Kind.REPLY,
            source=self.address,
            destination=Address.client(session.identity),
            correlation=UUID(bytes=request.id),
            payload=Attributes(values),
        )
        return to_envelope(reply)

    def _send_owed(
        self, session: Session, interest: bytes, wanted: mercury_pb2.Subscription
    ) -> None:
        """Send the content that came while a subscriber was away."""
        ids = range(0, len(wanted.heard), ID_BYTES)
        heard = {wanted.heard[at : at + ID_BYTES] for at in ids}
        for content in self.content.owed(interest, wanted.since_us, heard, now_us()):
            if self.interests.is_near(session, wanted.id, content.position):
                self._send_content(content, np.array([session.slot], np.intp))
        self._send_due()

    # From the bus to the clients

    async def _consume(self, consumer: Consumer) -> None:
        while True:
            self._on_records(await self.read(consumer, _READ_BATCH))

    def _on_records(self, records: list[Record]) -> None:
        for record in records:
            try:
                if record.topic == topics.MATCHES:
                    self._match_events.take(record.value, record.key, record.headers, instant())
                elif len(record.value) > MAX_BODY_BYTES:
                    raise PacketError("oversized")
                elif record.topic == topics.REPLIES:
                    self._on_reply(record)
                elif record.topic == topics.MATCHED_CONTENT:
                    self._on_match(record)
                elif record.topic == topics.DELIVERIES:
                    self.mediator.learn(record.value, now())
                else:
                    envelope = parse(record.value)
                    self.addressing.address(envelope, record.value, record.timestamp_us, instant())
            except (PacketError, AreaError, MessageError) as error:
                reason = error.reason if isinstance(error, PacketError) else "malformed"
                self.dropped[f"bus-{reason}"] += 1
        self._send_queued()
        # In the next iteration: finding the recipients of a large alert took long enough.
        asyncio.get_running_loop().call_soon(self._send_due)

    def _on_reply(self, record: Record) -> None:
        client = record.key.decode("utf-8", "replace")
        route = read_route(record.headers)
        if route is None:
            envelope = parse(record.value)
            route = Route(envelope.kind, envelope.priority, envelope.expires_us)
        kind, priority, expires_us = route
        if kind == Kind.RECEIPT:
            self.mediator.tell_sender(client, record.value, expires_us, now())
            return
        session = self.sessions.table.by_identity.get(client)
        if session is not None:  # else it is another adapter's client
            self.mediator.send_body(session, kind, priority, record.value, expires_us, now())

    def _on_match(self, record: Record) -> None:
        route = read_route(record.headers)
        if route is None:
            raise PacketError("malformed")
        fix = read_fix(record.headers)
        position = Position(fix.lat, fix.lon) if fix else None
        until_us = record.timestamp_us + CONTENT_KEPT_US
        if route.expires_us:
            until_us = min(until_us, route.expires_us)
        envelope = parse(record.value)
        content = Content(envelope, record.value, position, record.timestamp_us, until_us)
        interests = self.content.add(content, read_interests(record.headers), now_us())
        if not interests:
            self.dropped["repeated-content"] += 1
            return
        self._send_content(content, self.interests.recipients(interests, position))

    def _send_content(self, content: Content, slots: NDArray[np.intp]) -> None:
        envelope, body = content.envelope, content.body
        self.counters["addressed"] += len(slots)
        if len(slots) and not self.mediator.post_content(
            envelope, body, content.until_us, slots, now()
        ):
            self._fan_out(slots, envelope.kind, envelope.priority, body, envelope.expires_us)

    def _fan_out(
        self, slots: NDArray[np.intp], kind: int, priority: int, body: bytes, expires_us: int
    ) -> None:
        assert self._outbound is not None
        generations = self.sessions.table.generation[slots]
        self._outbound.put_fan_out(FanOut(kind, priority, body, expires_us, slots, generations))

    # By itself

    async def _every(self, interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await work()
            except BusError as error:
                self._report_bus_error(error)

    async def _update_standing(self) -> None:
        begun = now()
        self._is_collecting = True
        try:
            for id, slots, counter in self.addressing.due(now_us()):
                if len(slots):
                    self.counters[counter] += self.mediator.address(id, slots, now())
                begun = await self._yield_loop(begun)
        finally:
            self._is_collecting = False
        self._send_due()

    async def _update_moving(self) -> None:
        self.moving.handle_timer(instant())
        self._flush_moving()
        self._send_due()

    async def _publish_receipts(self) -> None:
        while True:
            await asyncio.sleep(_RECEIPTS_S)
            begun = now()
            try:
                # What the bus did not take must be appended next: it is produced only once.
                if not self._unwritten:
                    self._changes = self.mediator.changes(begun)
                    self._unwritten = list(islice(self._changes, 1))
                while self._unwritten:
                    self.bus.append(*self._unwritten[0])
                    self._unwritten = list(islice(self._changes, 1))
                    begun = await self._yield_loop(begun)
            except BusError as error:
                self._log_failure("what became of messages is not written down yet", error)

    async def _confirm(self) -> None:
        """Acknowledge what clients sent once it is durable."""
        while True:
            await self._to_confirm.wait()
            self._to_confirm.clear()
            unconfirmed, self.mediator.unconfirmed = self.mediator.unconfirmed, []
            try:
                await self.bus.flush()
            except BusError as error:  # clients repeat what was not confirmed
                self.bus_failed(error)
                for session, id in unconfirmed:
                    self.mediator.incoming.disown(session.identity, id)
                log.error("the bus does not take what clients say: %s", error)
            else:
                self.mediator.confirmed(unconfirmed, now())
                self._send_queued()

    async def _yield_loop(self, begun: float) -> float:
        """Yield to the event loop after some time of work; returns when this turn began."""
        if now() - begun <= _LONGEST_TICK_S:
            return begun
        self._send_queued()
        await asyncio.sleep(0)
        return now()

    async def _keep_house(self) -> None:
        assert self._outbound is not None
        time = now()
        for closed in self.sessions.handle_timer(time):
            self._on_closed(closed)
        self._flush_moving()
        slots = self.sessions.heartbeats_due(time)
        if len(slots):
            self.counters["heartbeats"] += len(slots)
            body = self.sessions.heartbeat_body(time)
            self.sessions.table.last_sent[slots] = time  # due again only after an interval
            self._fan_out(slots, Kind.HEARTBEAT, Priority.BACKGROUND, body, 0)
            self._outbound.kick()

    async def _refresh_interests(self) -> None:
        # Brokers drop interests that no adapter renews.
        begun = now()
        self.content.expire(now_us())
        for interest, (topic, text) in list(self.interests.wanted.items()):
            message = Message(
                kind=Kind.SUBSCRIBE,
                source=self.address,
                destination=Address.broker(),
                payload=Subscription(interest, topic, text),
            )
            headers = (message_route(message),)
            self.bus.append(topics.SUBSCRIPTIONS, encode(message), interest, headers)
            begun = await self._yield_loop(begun)
