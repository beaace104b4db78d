"""The one message that travels everywhere (Mercury Table 1, and what delivery needs)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from uuid import UUID

from mercury.model.area import Area, Position
from mercury.model.declarations import Declaration, Matches, NearQuery, Withdrawal
from mercury.model.delivery import Deliveries
from mercury.model.errors import MessageError
from mercury.model.identity import new_uuid

VERSION = 1
# UDP over IPv4 carries 65,507 bytes (Mercury §4.1: a message is one packet, at most 64K).
MAX_PACKET_BYTES = 65_507

Value = str | int | float | bool | bytes
Values = Mapping[str, Value]


class Kind(IntEnum):
    """What a message is for; session kinds are between client and adapter only."""

    INIT = 1
    ACKNOWLEDGE = 2
    HEARTBEAT = 3
    REPORT = 4
    CLOSE = 5
    REFUSE = 6
    RECEIPT = 7
    GROUPS = 8
    CHALLENGE = 9
    EVENT = 16
    ALERT = 17
    REQUEST = 18
    REPLY = 19
    CONTENT = 20
    SUBSCRIBE = 21
    UNSUBSCRIBE = 22


class DeliveryPolicy(IntEnum):
    """Whether and how long the delivery of a message is retried."""

    FIRE_AND_FORGET = 0
    REPEAT = 1
    CRITICAL = 2


class Priority(IntEnum):
    """Named points on the scale 0–9; emergencies before consumer content (Mercury §3)."""

    BACKGROUND = 1
    CONTENT = 3
    NORMAL = 4
    REPLY = 5
    WARNING = 7
    EMERGENCY = 9


class EventKind(StrEnum):
    """The kinds of events vehicles sense (Mercury §4.1); others may be configured."""

    EMERGENCY = "emergency"
    COLLISION = "collision"
    OBSTACLE = "obstacle"
    MOVING_OBJECT = "moving-object"
    CONGESTION = "congestion"
    BLOCKED = "blocked"


class AddressKind(StrEnum):
    """Who or what an address names."""

    CLIENT = "client"
    SERVICE = "service"
    BROKER = "broker"
    ADAPTER = "adapter"
    GROUP = "group"
    EVERYONE = "everyone"
    AREA = "area"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a message comes from or goes to."""

    kind: AddressKind
    name: str = ""
    area: Area | None = None

    def __post_init__(self) -> None:
        if self.kind is AddressKind.AREA:
            if self.area is None:
                raise MessageError("an area address needs an area")
        elif self.kind is not AddressKind.EVERYONE and not self.name:
            raise MessageError(f"a {self.kind} address needs a name")

    @staticmethod
    def client(name: str) -> Address:
        return Address(AddressKind.CLIENT, name)

    @staticmethod
    def service(name: str) -> Address:
        return Address(AddressKind.SERVICE, name)

    @staticmethod
    def broker(name: str = "any") -> Address:
        return Address(AddressKind.BROKER, name)

    @staticmethod
    def adapter(name: str) -> Address:
        return Address(AddressKind.ADAPTER, name)

    @staticmethod
    def group(name: str) -> Address:
        return Address(AddressKind.GROUP, name)

    @staticmethod
    def everyone() -> Address:
        return Address(AddressKind.EVERYONE)

    @staticmethod
    def to_area(area: Area) -> Address:
        return Address(AddressKind.AREA, area=area)

    def __str__(self) -> str:
        return self.kind.value if not self.name else f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Where a client is and how it moves."""

    position: Position
    heading_deg: float | None = None
    speed_mps: float | None = None
    accuracy_m: float | None = None
    altitude_m: float | None = None
    time_us: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Something sensed (in an EVENT) or announced (in an ALERT)."""

    kind: str
    position: Position | None = None
    radius_m: float | None = None
    speed_mps: float | None = None
    text: str = ""
    values: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attributes:
    """Key/value pairs that applications interpret, optionally tied to a position."""

    values: Values = field(default_factory=dict)
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription to content: a topic, a filter over its values, and optionally only near me."""

    id: bytes
    topic: str
    filter: str = ""
    near_m: float | None = None
    since_us: int = 0  # if it is renewed: it still wants content since then
    heard: bytes = b""  # of that, ids of the newest that arrived


@dataclass(frozen=True, slots=True)
class Grant:
    """What an adapter grants with ACKNOWLEDGE."""

    token: bytes
    incarnation: int
    heartbeat_interval_s: float
    report_interval_s: float
    adapter: str = ""


Payload = (
    Telemetry
    | Event
    | Attributes
    | Subscription
    | Grant
    | Deliveries
    | Declaration
    | Withdrawal
    | NearQuery
    | Matches
    | None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The envelope and its payload."""

    kind: Kind
    source: Address
    destination: Address
    topic: str = ""
    payload: Payload = None
    priority: int = Priority.NORMAL
    id: UUID = field(default_factory=new_uuid)
    session: bytes = b""
    sent_us: int = field(default_factory=lambda: time.time_ns() // 1000)
    expires_us: int = 0
    correlation: UUID | None = None  # the message that this one answers or follows from
    policy: DeliveryPolicy = DeliveryPolicy.FIRE_AND_FORGET
    sequence: int = 0
    ordered: bool = False  # messages of its source arrive in the order of sending
    auth: bytes = b""
    version: int = VERSION
    unknown: bytes = b""  # fields of a newer version, kept as they came

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= 9:
            raise MessageError(f"priority {self.priority} is not between 0 and 9")
        if not isinstance(self.id, UUID):
            raise MessageError(f"a message's id is a UUID, not {self.id!r}")

    def expired(self, now_us: int) -> bool:
        return 0 < self.expires_us <= now_us

    @property
    def is_for_subscribers(self) -> bool:
        """Whether it is content that brokers match with subscriptions."""
        return self.kind is Kind.CONTENT and self.destination.kind is AddressKind.BROKER

    @property
    def event(self) -> Event | None:
        return self.payload if isinstance(self.payload, Event) else None

    @property
    def values(self) -> Values:
        return self.payload.values if isinstance(self.payload, Attributes | Event) else {}
