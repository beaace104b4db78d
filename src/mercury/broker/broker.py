"""The broker: decides at once what one message is enough for (Mercury §4.1–§4.3)."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from dataclasses import replace
from uuid import UUID

from mercury.broker.conditions import Condition, Conditions
from mercury.broker.emergencies import Emergencies
from mercury.broker.explanations import Explanations
from mercury.broker.interest_index import InterestIndex
from mercury.bus import Bus, Consumer, FromTime, Record
from mercury.config.settings import BrokerSettings
from mercury.model import topics
from mercury.model.area import Area, Circle, Position
from mercury.model.errors import (
    AreaError,
    FilterError,
    MessageError,
    PacketError,
    TooManyInterestsError,
)
from mercury.model.identity import derived_id, new_id
from mercury.model.message import (
    VERSION,
    Address,
    DeliveryPolicy,
    Event,
    EventKind,
    Kind,
    Message,
    Priority,
    Subscription,
    Value,
)
from mercury.service import Service, Statistics, now, now_us
from mercury.service.statistics import with_limits
from mercury.wire import MAX_BODY_BYTES, decode, encode, from_envelope, mercury_pb2, parse
from mercury.wire.fields import area_from_pb, values_from_pb, values_to_pb
from mercury.wire.records import (
    envelope_route,
    fix_header,
    interests_header,
    message_route,
    read_fix,
    read_traffic,
    route_header,
)

log = logging.getLogger(__name__)

_EMERGENCIES = topics.EVENTS_PREFIX + EventKind.EMERGENCY
_CONDITIONS_LOOKBACK_S = 24 * 3600.0
_INTERESTS_LOOKBACK_S = 120.0  # adapters renew them; clocks may differ
_LEARN_BATCH = 4096
_LARGEST_BATCH = 512
_TICK_S = 0.05  # about the time for what is read at once: an emergency waits no longer for it
_HOUSEKEEPING_S = 1.0
_UNKNOWN = float("nan")
_BRIEF = "Emergency ahead"


class Broker(Service):
    """Answers requests, turns emergencies into alerts, matches content with interests.

    Any number of brokers form one consumer group. What all must know in full
    (interests, conditions), every broker reads by itself.
    """

    part = "broker"

    def __init__(self, bus: Bus, settings: BrokerSettings) -> None:
        super().__init__(bus, Address.broker(settings.id), metrics=settings.metrics)
        self.settings = settings
        self.counters: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.interests = InterestIndex(max_interests=settings.max_interests)
        self.conditions = Conditions(settings.max_conditions, settings.max_conditions_per_client)
        self.explanations = Explanations(bus)
        self.emergencies = Emergencies(settings)
        self._consumers: list[Consumer] = []

    def statistics(self) -> Statistics:
        settings = self.settings
        dropped = self.dropped.copy()
        dropped["shed-condition"] += self.conditions.shed
        return Statistics(
            gauges=with_limits(
                {
                    "interests": (len(self.interests), settings.max_interests),
                    "conditions": (len(self.conditions), settings.max_conditions),
                    "recent_emergencies": (
                        len(self.emergencies),
                        settings.max_recent_emergencies,
                    ),
                }
            ),
            counters={**self.counters, "cpu_s": time.process_time()},
            dropped=+dropped,  # without those that are 0
        )

    async def _start(self) -> None:
        interests = self.bus.subscribe((topics.SUBSCRIPTIONS,), start=_back(_INTERESTS_LOOKBACK_S))
        self._consumers.append(interests)
        conditions = self.bus.subscribe(
            (topics.CONDITIONS, *topics.ALERTS), start=_back(_CONDITIONS_LOOKBACK_S)
        )
        self._consumers.append(conditions)
        for consumer in (interests, conditions):
            await self._learn(consumer)
            self.spawn(self._keep_learning(consumer))
        # Emergencies first, content last: a backlog of the lower never delays the higher.
        work = self.bus.subscribe(
            (_EMERGENCIES, topics.REQUESTS, topics.CONTENT_PREFIX + "*"),
            group="brokers",
            start="earliest",
        )
        self._consumers.append(work)
        self.spawn(self._serve(work, interests, conditions))
        self.spawn(self._keep_house())

    async def _stop(self) -> None:
        for consumer in self._consumers:
            consumer.close()

    async def _serve(self, work: Consumer, interests: Consumer, conditions: Consumer) -> None:
        batch = 1
        while True:
            records = await self.read(work, batch)
            begun = now()
            later = [record for record in records if not self._handle(record, informed=False)]
            try:
                for is_request in {record.topic == topics.REQUESTS for record in later}:
                    await self._learn(conditions if is_request else interests)
            finally:  # stopped now: finish the batch, so that no other broker repeats it
                for record in later:
                    self._handle(record, informed=True)
                if records:
                    work.commit()
            # A broker that does not poll for seconds would lose its partitions to another.
            within = int(_TICK_S / max(now() - begun, 1e-6) * len(records))
            batch = max(1, min(2 * batch, within, _LARGEST_BATCH))

    def _handle(self, record: Record, *, informed: bool) -> bool:
        """Process a record; False if earlier records of other topics must be read first."""
        try:
            if record.topic == topics.REQUESTS:
                return self._on_request(record, informed)
            if record.topic == _EMERGENCIES:
                self._on_emergency(record)
            elif informed:  # an interest confirmed before this content is known
                self._on_content(record)
            else:
                return False
        except (PacketError, AreaError, MessageError) as error:
            reason = error.reason if isinstance(error, PacketError) else "malformed"
            self.dropped[reason] += 1
        return True

    # Requests

    def _on_request(self, record: Record, informed: bool) -> bool:
        envelope = parse(record.value)
        if 0 < envelope.expires_us <= now_us():
            raise PacketError("expired")
        client = envelope.source.client
        if not client:
            raise PacketError("no-address")
        kind = int(envelope.kind)
        if kind == Kind.REQUEST and envelope.topic == "echo":
            self.counters["echoes"] += 1
            reply = self._echo(envelope)
        elif kind == Kind.SUBSCRIBE:
            reply = self._answer(envelope, self._subscribe(envelope))
        elif kind == Kind.UNSUBSCRIBE:
            reply = self._answer(envelope, {"ok": True})
        elif kind == Kind.REQUEST and envelope.topic == "conditions":
            if not informed:
                return False
            reply = self._answer(envelope, self._query(envelope))
        elif kind == Kind.REQUEST and envelope.topic == "why":
            if self.explanations.begin(envelope.id):
                self.spawn(self._explain(envelope))
            return True
        elif kind == Kind.REQUEST:
            reply = self._answer(envelope, {"error": f"no such request: {envelope.topic!r}"})
        else:
            raise PacketError("unknown-kind")
        body = reply.SerializeToString()
        if len(body) > MAX_BODY_BYTES:
            error = f"the answer would be {len(body)} bytes, one packet carries {MAX_BODY_BYTES}"
            body = self._answer(parse(record.value), {"error": error}).SerializeToString()
        self._reply(body, record.key or client.encode(), envelope.priority)
        return True

    def _reply(self, body: bytes, key: bytes, priority: int) -> None:
        self.bus.append(topics.REPLIES, body, key, (route_header(Kind.REPLY, priority, 0),))

    def _echo(self, envelope: mercury_pb2.Envelope) -> mercury_pb2.Envelope:
        # From the request's bytes, without the model's classes: echo measures the cost of a
        # message.
        client = envelope.source.client
        time_us = now_us()
        envelope.correlation = envelope.id
        envelope.id = new_id(time_us)
        envelope.kind = mercury_pb2.REPLY
        envelope.sent_us = time_us
        envelope.source.broker = self.settings.id
        envelope.destination.client = client
        return envelope

    def _answer(
        self, envelope: mercury_pb2.Envelope, values: dict[str, Value]
    ) -> mercury_pb2.Envelope:
        self.counters["requests"] += 1
        time_us = now_us()
        reply = mercury_pb2.Envelope(
            version=VERSION,
            id=new_id(time_us),
            kind=mercury_pb2.REPLY,
            topic=envelope.topic,
            priority=envelope.priority,
            sent_us=time_us,
            correlation=envelope.id,
        )
        reply.source.broker = self.settings.id
        reply.destination.client = envelope.source.client
        reply.attributes.SetInParent()
        values_to_pb(values, reply.attributes.values)
        return reply

    def _subscribe(self, envelope: mercury_pb2.Envelope) -> dict[str, Value]:
        subscription = envelope.subscription
        if not topics.valid_name(subscription.topic):
            return {"error": f"{subscription.topic!r} is no name for a topic"}
        if subscription.HasField("near_m") and not subscription.near_m > 0:
            return {"error": f"near_m must be more than 0, not {subscription.near_m:g}"}
        try:
            interest = self.interests.add(subscription.topic, subscription.filter, now())
        except FilterError as error:
            return {"error": f"the filter does not parse: {error}"}
        except TooManyInterestsError as error:
            return {"error": str(error)}
        message = Message(
            kind=Kind.SUBSCRIBE,
            source=self.address,
            destination=Address.broker(),
            payload=Subscription(interest, subscription.topic, subscription.filter),
        )
        self.bus.append(topics.SUBSCRIPTIONS, encode(message), interest, (message_route(message),))
        return {"ok": True}

    def _query(self, envelope: mercury_pb2.Envelope) -> dict[str, Value]:
        if envelope.destination.WhichOneof("target") != "area":
            return {"error": "a query of conditions is addressed to an area"}
        found = self.conditions.inside(area_from_pb(envelope.destination.area), now_us())
        shown = [condition.to_json() for condition in found[:50]]  # an answer is one packet
        return {"count": len(found), "conditions": json.dumps(shown)}

    async def _explain(self, envelope: mercury_pb2.Envelope) -> None:
        reply = self._answer(envelope, await self.explanations.answer(envelope))
        self._reply(reply.SerializeToString(), envelope.source.client.encode(), envelope.priority)

    # Emergencies

    def _on_emergency(self, record: Record) -> None:
        message = decode(record.value)
        event = message.event
        fix = read_fix(record.headers)
        position = event.position if event else None
        if position is None and fix is not None:
            position = Position(fix.lat, fix.lon)
        if event is None or position is None:
            raise PacketError("malformed")
        time_us = now_us()
        # A record may be from before the clock was set back.
        since_us = min(record.timestamp_us, time_us)
        until_us = since_us + int(self.settings.emergency_validity_s * 1e6)
        if until_us <= time_us or message.expired(time_us):
            raise PacketError("expired")
        self.counters["emergencies"] += 1
        if not self.emergencies.is_new(position, record.timestamp_us / 1e6):
            self.counters["emergencies_merged"] += 1
            return
        traffic_mps = read_traffic(record.headers)
        if traffic_mps is None:
            traffic_mps = event.speed_mps
        radius_m = self.emergencies.radius_for(traffic_mps, event.radius_m)
        alert = Message(
            kind=Kind.ALERT,
            # The same id if this work is repeated.
            id=UUID(bytes=derived_id(message.id.bytes, "alert")),
            source=self.address,
            destination=Address.to_area(Area(Circle(position, radius_m), valid_until_us=until_us)),
            priority=Priority.EMERGENCY,
            expires_us=until_us,
            correlation=message.id,
            policy=DeliveryPolicy.CRITICAL,
            payload=Event(
                kind=event.kind,
                position=position,
                radius_m=radius_m,
                text=event.text or _BRIEF,
                values=event.values,
            ),
        )
        body = encode(alert)
        if len(body) > MAX_BODY_BYTES:  # the kind and place matter more than the details
            brief = replace(alert, payload=Event(event.kind, position, radius_m, text=_BRIEF))
            body = encode(brief)
        self.counters["alerts"] += 1
        self.bus.append(topics.ALERTS_URGENT, body, record.key, (message_route(alert),))
        self._note_condition(alert)  # for queries before it comes back by the bus

    # Content

    def _on_content(self, record: Record) -> None:
        envelope = parse(record.value)
        if 0 < envelope.expires_us <= now_us():
            raise PacketError("expired")
        topic = record.topic.removeprefix(topics.CONTENT_PREFIX)
        attributes = envelope.attributes
        self.counters["content"] += 1
        matched = self.interests.match(topic, values_from_pb(attributes.values))
        if not matched:
            return
        self.counters["content_matched"] += 1
        headers = [envelope_route(envelope), interests_header(matched)]
        if attributes.HasField("position"):
            position = attributes.position
            headers.append(fix_header(position.lat, position.lon, _UNKNOWN, _UNKNOWN))
        self.bus.append(topics.MATCHED_CONTENT, record.value, record.key, tuple(headers))

    # What every broker must know

    async def _keep_learning(self, consumer: Consumer) -> None:
        while True:
            self._take_in(await self.read(consumer))

    async def _learn(self, consumer: Consumer) -> None:
        while records := await consumer.read_now(_LEARN_BATCH):
            self._take_in(records)

    def _take_in(self, records: list[Record]) -> None:
        for record in records:
            try:
                message = from_envelope(parse(record.value))
                if record.topic == topics.SUBSCRIPTIONS:
                    subscription = message.payload
                    if isinstance(subscription, Subscription):
                        age_s = (now_us() - record.timestamp_us) / 1e6
                        self.interests.add(subscription.topic, subscription.filter, now() - age_s)
                else:
                    self._note_condition(message)
            except (PacketError, FilterError):
                self.dropped["malformed"] += 1
            except TooManyInterestsError:
                self.dropped["no-room"] += 1

    def _note_condition(self, message: Message) -> None:
        event, area = message.event, message.destination.area
        if event is None or area is None:
            return
        until_us = area.valid_until_us or message.expires_us
        if until_us:
            condition = Condition(event, area, message.sent_us, until_us)
            self.conditions.put(message.id, condition, str(message.source), message.priority)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            self.interests.expire(now())
            self.conditions.expire(now_us())


def _back(seconds: float) -> FromTime:
    return FromTime(now_us() - int(seconds * 1e6))
