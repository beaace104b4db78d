from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[Kind]
    INIT: _ClassVar[Kind]
    ACKNOWLEDGE: _ClassVar[Kind]
    HEARTBEAT: _ClassVar[Kind]
    REPORT: _ClassVar[Kind]
    CLOSE: _ClassVar[Kind]
    REFUSE: _ClassVar[Kind]
    RECEIPT: _ClassVar[Kind]
    GROUPS: _ClassVar[Kind]
    CHALLENGE: _ClassVar[Kind]
    EVENT: _ClassVar[Kind]
    ALERT: _ClassVar[Kind]
    REQUEST: _ClassVar[Kind]
    REPLY: _ClassVar[Kind]
    CONTENT: _ClassVar[Kind]
    SUBSCRIBE: _ClassVar[Kind]
    UNSUBSCRIBE: _ClassVar[Kind]

class DeliveryPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FIRE_AND_FORGET: _ClassVar[DeliveryPolicy]
    REPEAT: _ClassVar[DeliveryPolicy]
    CRITICAL: _ClassVar[DeliveryPolicy]
UNSPECIFIED: Kind
INIT: Kind
ACKNOWLEDGE: Kind
HEARTBEAT: Kind
REPORT: Kind
CLOSE: Kind
REFUSE: Kind
RECEIPT: Kind
GROUPS: Kind
CHALLENGE: Kind
EVENT: Kind
ALERT: Kind
REQUEST: Kind
REPLY: Kind
CONTENT: Kind
SUBSCRIBE: Kind
UNSUBSCRIBE: Kind
FIRE_AND_FORGET: DeliveryPolicy
REPEAT: DeliveryPolicy
CRITICAL: DeliveryPolicy

class Envelope(_message.Message):
    __slots__ = ("version", "id", "session", "kind", "source", "destination", "topic", "priority", "sent_us", "expires_us", "correlation", "policy", "sequence", "auth", "seen", "received", "refused", "ordered", "groups", "receipts_sent", "receipts_resent", "telemetry", "event", "attributes", "subscription", "grant", "deliveries", "declaration", "withdrawal", "query", "matches")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SENT_US_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_US_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_SENT_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_RESENT_FIELD_NUMBER: _ClassVar[int]
    TELEMETRY_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWAL_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    version: int
    id: bytes
    session: bytes
    kind: Kind
    source: Address
    destination: Address
    topic: str
    priority: int
    sent_us: int
    expires_us: int
    correlation: bytes
    policy: DeliveryPolicy
    sequence: int
    auth: bytes
    seen: _containers.RepeatedScalarFieldContainer[bytes]
    received: _containers.RepeatedScalarFieldContainer[bytes]
    refused: _containers.RepeatedCompositeFieldContainer[Refusal]
    ordered: bool
    groups: _containers.RepeatedScalarFieldContainer[str]
    receipts_sent: int
    receipts_resent: int
    telemetry: Telemetry
    event: Event
    attributes: Attributes
    subscription: Subscription
    grant: Grant
    deliveries: Deliveries
    declaration: Declaration
    withdrawal: Withdrawal
    query: NearQuery
    matches: Matches
    def __init__(self, version: _Optional[int] = ..., id: _Optional[bytes] = ..., session: _Optional[bytes] = ..., kind: _Optional[_Union[Kind, str]] = ..., source: _Optional[_Union[Address, _Mapping]] = ..., destination: _Optional[_Union[Address, _Mapping]] = ..., topic: _Optional[str] = ..., priority: _Optional[int] = ..., sent_us: _Optional[int] = ..., expires_us: _Optional[int] = ..., correlation: _Optional[bytes] = ..., policy: _Optional[_Union[DeliveryPolicy, str]] = ..., sequence: _Optional[int] = ..., auth: _Optional[bytes] = ..., seen: _Optional[_Iterable[bytes]] = ..., received: _Optional[_Iterable[bytes]] = ..., refused: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., ordered: _Optional[bool] = ..., groups: _Optional[_Iterable[str]] = ..., receipts_sent: _Optional[int] = ..., receipts_resent: _Optional[int] = ..., telemetry: _Optional[_Union[Telemetry, _Mapping]] = ..., event: _Optional[_Union[Event, _Mapping]] = ..., attributes: _Optional[_Union[Attributes, _Mapping]] = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ..., grant: _Optional[_Union[Grant, _Mapping]] = ..., deliveries: _Optional[_Union[Deliveries, _Mapping]] = ..., declaration: _Optional[_Union[Declaration, _Mapping]] = ..., withdrawal: _Optional[_Union[Withdrawal, _Mapping]] = ..., query: _Optional[_Union[NearQuery, _Mapping]] = ..., matches: _Optional[_Union[Matches, _Mapping]] = ...) -> None: ...

class Address(_message.Message):
    __slots__ = ("client", "service", "broker", "adapter", "group", "everyone", "area")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EVERYONE_FIELD_NUMBER: _ClassVar[int]
    AREA_FIELD_NUMBER: _ClassVar[int]
    client: str
    service: str
    broker: str
    adapter: str
    group: str
    everyone: bool
    area: Area
    def __init__(self, client: _Optional[str] = ..., service: _Optional[str] = ..., broker: _Optional[str] = ..., adapter: _Optional[str] = ..., group: _Optional[str] = ..., everyone: _Optional[bool] = ..., area: _Optional[_Union[Area, _Mapping]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("lat", "lon")
    LAT_FIELD_NUMBER: _ClassVar[int]
    LON_FIELD_NUMBER: _ClassVar[int]
    lat: float
    lon: float
    def __init__(self, lat: _Optional[float] = ..., lon: _Optional[float] = ...) -> None: ...

class Area(_message.Message):
    __slots__ = ("circle", "ellipse", "rectangle", "polygon", "corridor", "heading", "valid_from_us", "valid_until_us")
    CIRCLE_FIELD_NUMBER: _ClassVar[int]
    ELLIPSE_FIELD_NUMBER: _ClassVar[int]
    RECTANGLE_FIELD_NUMBER: _ClassVar[int]
    POLYGON_FIELD_NUMBER: _ClassVar[int]
    CORRIDOR_FIELD_NUMBER: _ClassVar[int]
    HEADING_FIELD_NUMBER: _ClassVar[int]
    VALID_FROM_US_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    circle: Circle
    ellipse: Ellipse
    rectangle: Rectangle
    polygon: Polygon
    corridor: Corridor
    heading: HeadingSector
    valid_from_us: int
    valid_until_us: int
    def __init__(self, circle: _Optional[_Union[Circle, _Mapping]] = ..., ellipse: _Optional[_Union[Ellipse, _Mapping]] = ..., rectangle: _Optional[_Union[Rectangle, _Mapping]] = ..., polygon: _Optional[_Union[Polygon, _Mapping]] = ..., corridor: _Optional[_Union[Corridor, _Mapping]] = ..., heading: _Optional[_Union[HeadingSector, _Mapping]] = ..., valid_from_us: _Optional[int] = ..., valid_until_us: _Optional[int] = ...) -> None: ...

class Circle(_message.Message):
    __slots__ = ("center", "radius_m")
    CENTER_FIELD_NUMBER: _ClassVar[int]
    RADIUS_M_FIELD_NUMBER: _ClassVar[int]
    center: Position
    radius_m: float
    def __init__(self, center: _Optional[_Union[Position, _Mapping]] = ..., radius_m: _Optional[float] = ...) -> None: ...

class Ellipse(_message.Message):
    __slots__ = ("center", "semi_major_m", "semi_minor_m", "azimuth_deg")
    CENTER_FIELD_NUMBER: _ClassVar[int]
    SEMI_MAJOR_M_FIELD_NUMBER: _ClassVar[int]
    SEMI_MINOR_M_FIELD_NUMBER: _ClassVar[int]
    AZIMUTH_DEG_FIELD_NUMBER: _ClassVar[int]
    center: Position
    semi_major_m: float
    semi_minor_m: float
    azimuth_deg: float
    def __init__(self, center: _Optional[_Union[Position, _Mapping]] = ..., semi_major_m: _Optional[float] = ..., semi_minor_m: _Optional[float] = ..., azimuth_deg: _Optional[float] = ...) -> None: ...

class Rectangle(_message.Message):
    __slots__ = ("south", "west", "north", "east")
    SOUTH_FIELD_NUMBER: _ClassVar[int]
    WEST_FIELD_NUMBER: _ClassVar[int]
    NORTH_FIELD_NUMBER: _ClassVar[int]
    EAST_FIELD_NUMBER: _ClassVar[int]
    south: float
    west: float
    north: float
    east: float
    def __init__(self, south: _Optional[float] = ..., west: _Optional[float] = ..., north: _Optional[float] = ..., east: _Optional[float] = ...) -> None: ...

class Ring(_message.Message):
    __slots__ = ("latlon",)
    LATLON_FIELD_NUMBER: _ClassVar[int]
    latlon: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, latlon: _Optional[_Iterable[float]] = ...) -> None: ...

class Polygon(_message.Message):
    __slots__ = ("exterior", "holes")
    EXTERIOR_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    exterior: Ring
    holes: _containers.RepeatedCompositeFieldContainer[Ring]
    def __init__(self, exterior: _Optional[_Union[Ring, _Mapping]] = ..., holes: _Optional[_Iterable[_Union[Ring, _Mapping]]] = ...) -> None: ...

class Corridor(_message.Message):
    __slots__ = ("line", "width_m")
    LINE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_M_FIELD_NUMBER: _ClassVar[int]
    line: Ring
    width_m: float
    def __init__(self, line: _Optional[_Union[Ring, _Mapping]] = ..., width_m: _Optional[float] = ...) -> None: ...

class HeadingSector(_message.Message):
    __slots__ = ("center_deg", "half_width_deg")
    CENTER_DEG_FIELD_NUMBER: _ClassVar[int]
    HALF_WIDTH_DEG_FIELD_NUMBER: _ClassVar[int]
    center_deg: float
    half_width_deg: float
    def __init__(self, center_deg: _Optional[float] = ..., half_width_deg: _Optional[float] = ...) -> None: ...

class Telemetry(_message.Message):
    __slots__ = ("lat", "lon", "heading_deg", "speed_mps", "accuracy_m", "altitude_m", "time_us")
    LAT_FIELD_NUMBER: _ClassVar[int]
    LON_FIELD_NUMBER: _ClassVar[int]
    HEADING_DEG_FIELD_NUMBER: _ClassVar[int]
    SPEED_MPS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_M_FIELD_NUMBER: _ClassVar[int]
    ALTITUDE_M_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    lat: float
    lon: float
    heading_deg: float
    speed_mps: float
    accuracy_m: float
    altitude_m: float
    time_us: int
    def __init__(self, lat: _Optional[float] = ..., lon: _Optional[float] = ..., heading_deg: _Optional[float] = ..., speed_mps: _Optional[float] = ..., accuracy_m: _Optional[float] = ..., altitude_m: _Optional[float] = ..., time_us: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("kind", "position", "radius_m", "speed_mps", "text", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    RADIUS_M_FIELD_NUMBER: _ClassVar[int]
    SPEED_MPS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    position: Position
    radius_m: float
    speed_mps: float
    text: str
    values: _containers.MessageMap[str, Value]
    def __init__(self, kind: _Optional[str] = ..., position: _Optional[_Union[Position, _Mapping]] = ..., radius_m: _Optional[float] = ..., speed_mps: _Optional[float] = ..., text: _Optional[str] = ..., values: _Optional[_Mapping[str, Value]] = ...) -> None: ...

class Attributes(_message.Message):
    __slots__ = ("values", "position")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    values: _containers.MessageMap[str, Value]
    position: Position
    def __init__(self, values: _Optional[_Mapping[str, Value]] = ..., position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("text", "integer", "real", "boolean", "blob")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    text: str
    integer: int
    real: float
    boolean: bool
    blob: bytes
    def __init__(self, text: _Optional[str] = ..., integer: _Optional[int] = ..., real: _Optional[float] = ..., boolean: _Optional[bool] = ..., blob: _Optional[bytes] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("id", "topic", "filter", "near_m", "since_us", "heard")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    NEAR_M_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    topic: str
    filter: str
    near_m: float
    since_us: int
    heard: bytes
    def __init__(self, id: _Optional[bytes] = ..., topic: _Optional[str] = ..., filter: _Optional[str] = ..., near_m: _Optional[float] = ..., since_us: _Optional[int] = ..., heard: _Optional[bytes] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("token", "incarnation", "heartbeat_interval_s", "report_interval_s", "adapter")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    REPORT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    incarnation: int
    heartbeat_interval_s: float
    report_interval_s: float
    adapter: str
    def __init__(self, token: _Optional[bytes] = ..., incarnation: _Optional[int] = ..., heartbeat_interval_s: _Optional[float] = ..., report_interval_s: _Optional[float] = ..., adapter: _Optional[str] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("id", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    reason: str
    def __init__(self, id: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class Deliveries(_message.Message):
    __slots__ = ("message", "source", "topic", "kind", "priority", "policy", "sent_us", "expires_us", "client", "state", "reason", "tries", "addressed_us", "first_sent_us", "settled_us", "reasons", "acks", "acks_again")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SENT_US_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_US_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    ADDRESSED_US_FIELD_NUMBER: _ClassVar[int]
    FIRST_SENT_US_FIELD_NUMBER: _ClassVar[int]
    SETTLED_US_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    ACKS_AGAIN_FIELD_NUMBER: _ClassVar[int]
    message: bytes
    source: str
    topic: str
    kind: int
    priority: int
    policy: DeliveryPolicy
    sent_us: int
    expires_us: int
    client: _containers.RepeatedScalarFieldContainer[str]
    state: _containers.RepeatedScalarFieldContainer[int]
    reason: _containers.RepeatedScalarFieldContainer[int]
    tries: _containers.RepeatedScalarFieldContainer[int]
    addressed_us: _containers.RepeatedScalarFieldContainer[int]
    first_sent_us: _containers.RepeatedScalarFieldContainer[int]
    settled_us: _containers.RepeatedScalarFieldContainer[int]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    acks: _containers.RepeatedScalarFieldContainer[int]
    acks_again: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, message: _Optional[bytes] = ..., source: _Optional[str] = ..., topic: _Optional[str] = ..., kind: _Optional[int] = ..., priority: _Optional[int] = ..., policy: _Optional[_Union[DeliveryPolicy, str]] = ..., sent_us: _Optional[int] = ..., expires_us: _Optional[int] = ..., client: _Optional[_Iterable[str]] = ..., state: _Optional[_Iterable[int]] = ..., reason: _Optional[_Iterable[int]] = ..., tries: _Optional[_Iterable[int]] = ..., addressed_us: _Optional[_Iterable[int]] = ..., first_sent_us: _Optional[_Iterable[int]] = ..., settled_us: _Optional[_Iterable[int]] = ..., reasons: _Optional[_Iterable[str]] = ..., acks: _Optional[_Iterable[int]] = ..., acks_again: _Optional[_Iterable[int]] = ...) -> None: ...

class MovingPublication(_message.Message):
    __slots__ = ("id", "topic", "values", "radius_m", "ttl_s")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    RADIUS_M_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    id: str
    topic: str
    values: _containers.MessageMap[str, Value]
    radius_m: float
    ttl_s: float
    def __init__(self, id: _Optional[str] = ..., topic: _Optional[str] = ..., values: _Optional[_Mapping[str, Value]] = ..., radius_m: _Optional[float] = ..., ttl_s: _Optional[float] = ...) -> None: ...

class NearSubscription(_message.Message):
    __slots__ = ("id", "topic", "radius_m", "polygon", "where", "inside", "dwell_s", "hysteresis_m", "ttl_s")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RADIUS_M_FIELD_NUMBER: _ClassVar[int]
    POLYGON_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    INSIDE_FIELD_NUMBER: _ClassVar[int]
    DWELL_S_FIELD_NUMBER: _ClassVar[int]
    HYSTERESIS_M_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    id: str
    topic: str
    radius_m: float
    polygon: Polygon
    where: str
    inside: bool
    dwell_s: float
    hysteresis_m: float
    ttl_s: float
    def __init__(self, id: _Optional[str] = ..., topic: _Optional[str] = ..., radius_m: _Optional[float] = ..., polygon: _Optional[_Union[Polygon, _Mapping]] = ..., where: _Optional[str] = ..., inside: _Optional[bool] = ..., dwell_s: _Optional[float] = ..., hysteresis_m: _Optional[float] = ..., ttl_s: _Optional[float] = ...) -> None: ...

class Declaration(_message.Message):
    __slots__ = ("key", "time_us", "publication", "subscription")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    PUBLICATION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    key: int
    time_us: int
    publication: MovingPublication
    subscription: NearSubscription
    def __init__(self, key: _Optional[int] = ..., time_us: _Optional[int] = ..., publication: _Optional[_Union[MovingPublication, _Mapping]] = ..., subscription: _Optional[_Union[NearSubscription, _Mapping]] = ...) -> None: ...

class Declarations(_message.Message):
    __slots__ = ("declaration",)
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    declaration: _containers.RepeatedCompositeFieldContainer[Declaration]
    def __init__(self, declaration: _Optional[_Iterable[_Union[Declaration, _Mapping]]] = ...) -> None: ...

class Description(_message.Message):
    __slots__ = ("key", "publication")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PUBLICATION_FIELD_NUMBER: _ClassVar[int]
    key: int
    publication: MovingPublication
    def __init__(self, key: _Optional[int] = ..., publication: _Optional[_Union[MovingPublication, _Mapping]] = ...) -> None: ...

class Descriptions(_message.Message):
    __slots__ = ("description",)
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    description: _containers.RepeatedCompositeFieldContainer[Description]
    def __init__(self, description: _Optional[_Iterable[_Union[Description, _Mapping]]] = ...) -> None: ...

class RefusedDeclaration(_message.Message):
    __slots__ = ("key", "reason", "sentence")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    key: int
    reason: str
    sentence: str
    def __init__(self, key: _Optional[int] = ..., reason: _Optional[str] = ..., sentence: _Optional[str] = ...) -> None: ...

class RefusedDeclarations(_message.Message):
    __slots__ = ("refused",)
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedDeclaration]
    def __init__(self, refused: _Optional[_Iterable[_Union[RefusedDeclaration, _Mapping]]] = ...) -> None: ...

class Withdrawal(_message.Message):
    __slots__ = ("publication", "id")
    PUBLICATION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    publication: bool
    id: str
    def __init__(self, publication: _Optional[bool] = ..., id: _Optional[str] = ...) -> None: ...

class NearQuery(_message.Message):
    __slots__ = ("subscription", "limit")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    subscription: NearSubscription
    limit: int
    def __init__(self, subscription: _Optional[_Union[NearSubscription, _Mapping]] = ..., limit: _Optional[int] = ...) -> None: ...

class MatchedSubscription(_message.Message):
    __slots__ = ("id", "incarnation")
    ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    incarnation: int
    def __init__(self, id: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Matches(_message.Message):
    __slots__ = ("subscriptions", "publications", "subscription", "publication", "number", "event_type", "reason", "time_us", "lat_e7", "lon_e7", "distance_m")
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    PUBLICATIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PUBLICATION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    LAT_E7_FIELD_NUMBER: _ClassVar[int]
    LON_E7_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_M_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[MatchedSubscription]
    publications: _containers.RepeatedCompositeFieldContainer[MovingPublication]
    subscription: _containers.RepeatedScalarFieldContainer[int]
    publication: _containers.RepeatedScalarFieldContainer[int]
    number: _containers.RepeatedScalarFieldContainer[int]
    event_type: _containers.RepeatedScalarFieldContainer[int]
    reason: _containers.RepeatedScalarFieldContainer[int]
    time_us: _containers.RepeatedScalarFieldContainer[int]
    lat_e7: _containers.RepeatedScalarFieldContainer[int]
    lon_e7: _containers.RepeatedScalarFieldContainer[int]
    distance_m: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[MatchedSubscription, _Mapping]]] = ..., publications: _Optional[_Iterable[_Union[MovingPublication, _Mapping]]] = ..., subscription: _Optional[_Iterable[int]] = ..., publication: _Optional[_Iterable[int]] = ..., number: _Optional[_Iterable[int]] = ..., event_type: _Optional[_Iterable[int]] = ..., reason: _Optional[_Iterable[int]] = ..., time_us: _Optional[_Iterable[int]] = ..., lat_e7: _Optional[_Iterable[int]] = ..., lon_e7: _Optional[_Iterable[int]] = ..., distance_m: _Optional[_Iterable[float]] = ...) -> None: ...
