"""Every setting: its name, type, bounds, default and what it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import PrivateAttr, field_validator

from mercury.bus.api import Sync
from mercury.config.detection import DetectionSettings
from mercury.config.mediator import MediatorSettings
from mercury.config.section import Section, ServiceSection, mistake, setting
from mercury.model.errors import ConfigurationError
from mercury.model.matching import MAX_RADIUS_M, MAX_TTL_S
from mercury.model.topics import valid_name
from mercury.net import parse_link

Origin = Literal["default", "file", "environment", "flag"]

MIB, GIB = 1024**2, 1024**3


class BusSettings(Section):
    uri: str = setting(
        "embedded:mercury.db",
        "The topics are kept at embedded:PATH, kafka://HOST:PORT[/PREFIX] or memory:",
        min_length=1,
    )
    sync: Sync = setting(
        "process",
        "What acknowledged records of an embedded bus survive: the death of every process; with "
        "batch (many share a write to the disk) or always (each has its own) the machine's, too",
    )
    retention_age_s: float | None = setting(
        86400.0, "Records older than this are dropped; none keeps them for ever", gt=0
    )
    retention_bytes: int | None = setting(
        4 * GIB,
        "The oldest records of the largest topics are dropped above this; none has no limit",
        gt=0,
    )
    partitions: int | None = setting(
        None,
        "Partitions of a topic: how many of a group can share it; none is 16, and 4 on Kafka",
        ge=1,
        le=1024,
    )


class SessionSection(Section):
    report_interval_s: float = setting(1.0, "Interval of a client's position reports", gt=0)
    heartbeat_interval_s: float = setting(
        5.0, "Interval of an adapter's heartbeats to its clients", gt=0
    )
    missed_reports: int = setting(3, "Missed reports after which the adapter ends a session", ge=1)
    missed_heartbeats: int = setting(
        3, "Missed heartbeats after which the client looks for another session", ge=1
    )
    init_retry_s: float = setting(
        0.5, "Each retry to open a session waits this much longer than the last", gt=0
    )
    init_retry_max_s: float = setting(10.0, "No retry waits longer than this", gt=0)
    jitter: float = setting(
        0.2, "Share by which waits vary, so that clients do not fall in step", ge=0, lt=1
    )
    max_sessions: int = setting(200_000, "An adapter refuses further sessions above this", ge=1)
    flood_rate_per_s: float = setting(
        1000.0, "Packets a second from one client, above which they are dropped", gt=0
    )
    flood_burst: int = setting(
        2000, "Packets that one client may send at once before its rate counts", ge=1
    )

    ascending = (("init_retry_s", "init_retry_max_s"),)


class AdapterSettings(ServiceSection):
    id: str = setting("adapter-1", "Name of this adapter, unique on the bus", min_length=1)
    host: str = setting("127.0.0.1", "Address to receive packets on", min_length=1)
    port: int = setting(7400, "UDP port to receive packets on; 0 takes a free one", ge=0, le=65535)
    coverage: str | None = setting(
        None, "Area this adapter serves: a GeoJSON file, or GeoJSON text; none is all"
    )
    standing_tick_s: float = setting(
        0.02, "Interval at which area alerts in force look for newcomers", gt=0
    )
    fanout_chunk: int = setting(
        512, "Packets of a fan-out that are sent before the event loop serves others", ge=1
    )
    traffic_radius_m: float = setting(
        1000.0, "Radius around an emergency in which the speed of traffic is measured", gt=0
    )
    max_subscriptions: int = setting(
        1_000_000,
        "Subscriptions to content of all clients, of each at most 256; further ones are refused",
        ge=1,
    )
    max_entities: int = setting(
        1_000_000,
        "Moving publications and subscriptions of all clients, of each at most 64; further ones "
        "are refused",
        ge=1,
    )
    stall_probe_s: float = setting(
        0.05, "Interval at which the event loop is probed for stalls", gt=0
    )


class BrokerSettings(ServiceSection):
    id: str = setting("broker-1", "Name of this broker, unique on the bus", min_length=1)
    emergency_radius_m: float = setting(500.0, "Smallest radius alerted around an emergency", gt=0)
    emergency_horizon_s: float = setting(
        20.0, "The radius is at least what traffic drives in this time", ge=0
    )
    emergency_max_radius_m: float = setting(
        5000.0, "Largest radius alerted around an emergency", gt=0
    )
    emergency_validity_s: float = setting(
        60.0, "Time for which an emergency alert also reaches those who enter the area", gt=0
    )
    merge_distance_m: float = setting(300.0, "Emergencies within this distance are one", ge=0)
    merge_window_s: float = setting(10.0, "Emergencies within this time are one", ge=0)
    max_interests: int = setting(
        100_000, "Different topics and filters of subscriptions; further ones are refused", ge=1
    )
    max_conditions: int = setting(
        100_000,
        "Conditions that queries are answered from; above, the least urgent are forgotten, of "
        "those who have the most, and no emergency",
        ge=1,
    )
    max_conditions_per_client: int = setting(
        1000, "Conditions of one client among them; above, its own are forgotten", ge=1
    )
    max_recent_emergencies: int = setting(
        100_000,
        "Emergencies remembered to merge others with; above, the oldest are alerted again",
        ge=1,
    )

    ascending = (("emergency_radius_m", "emergency_max_radius_m"),)


class PipelineSettings(ServiceSection):
    id: str = setting("pipeline", "Name of the pipeline, unique on the bus", min_length=1)
    spark_master: str = setting("local[3]", "Spark cluster to run on", min_length=1)
    spark_conf: dict[str, str] = setting(
        {}, "Further settings of Spark, such as spark.executor.memory"
    )
    checkpoint: Path | None = setting(
        None, "Folder of the jobs' state; none is beside the bus file"
    )
    history: bool = setting(True, "Whether what was on the bus is kept as Parquet")
    history_folder: Path | None = setting(
        None, "Folder of the stored tables; none is beside the bus file"
    )
    history_interval_s: float = setting(
        10.0, "Interval at which what came is added to the stored tables", gt=0
    )
    share_classes: bool = setting(
        True, "Whether what Java needs for a quicker start is kept, once, in the background"
    )
    ledger: bool = setting(True, "Whether what became of messages is added up in the stored tables")
    ledger_interval_s: float = setting(
        30.0, "Interval at which messages that are over enter the ledger", gt=0
    )


class ClientSettings(Section):
    adapter: str = setting("udp://127.0.0.1:7400", "Adapter to open a session with", min_length=1)
    identity: str | None = setting(
        None, "Name of this client; none draws one at random", min_length=1
    )
    relay_port: int | None = setting(
        None, "Loopback UDP port for local applications; none opens none", ge=0, le=65535
    )


class SimSettings(Section):
    vehicles: int = setting(100, "Vehicles that drive", ge=1)
    seed: int = setting(1, "Same seed, same traffic", ge=0)
    report_interval_s: float = setting(1.0, "Interval of a vehicle's reports", gt=0)
    origin_lat: float = setting(40.7608, "Latitude of the city's origin", ge=-90, le=90)
    origin_lon: float = setting(-111.8910, "Longitude of the city's origin", ge=-180, le=180)
    width_m: float = setting(4000.0, "Extent of the city to the east", gt=0)
    height_m: float = setting(4000.0, "Extent of the city to the north", gt=0)
    link: str | None = setting(
        None, "Lossy link of each vehicle, such as cellular,loss=0.1; see docs/reference/links.md"
    )
    antenna_x_m: float | None = setting(
        None, "Range is the distance from here, to the east; none is the middle"
    )
    antenna_y_m: float | None = setting(None, "Range is the distance from here, to the north")

    @field_validator("link")
    @classmethod
    def _read_link(cls, link: str | None) -> str | None:
        try:
            if link is not None:
                parse_link(link)
        except ConfigurationError as error:
            raise mistake(str(error), "link") from None  # one source of what a link may be
        return link

    @property
    def antenna(self) -> tuple[float, float]:
        """Where range is measured from."""
        x_m = self.width_m / 2 if self.antenna_x_m is None else self.antenna_x_m
        y_m = self.height_m / 2 if self.antenna_y_m is None else self.antenna_y_m
        return x_m, y_m


class MoosSettings(Section):
    """The names are those of pMediator (§6), besides where its datagrams go."""

    vname: str | None = setting(
        None, "Name of this vehicle in messages; none is the community's", min_length=1
    )
    community: str | None = setting(
        None, "Name of the MOOS community; none is the vehicle's", min_length=1
    )
    group: str | None = setting(
        None, "Group of this vehicle; its members are the mates", min_length=1
    )
    mates: str = setting("", "Vehicles of our group, comma-separated; empty is all with a route")
    mate: str = setting("", "The same as mates, for one more")
    no_ack_vars: str = setting("", "Variables, comma-separated, that are sent once and never again")
    no_ack_var: str = setting("", "The same as no_ack_vars, for one more")
    max_tries: int = setting(5, "Repetitions before a message is given up", ge=1)
    resend_thresh: float = setting(
        2.0, "Seconds without an acknowledgement until it is sent again", gt=0
    )
    listen: str = setting(
        "9300",
        "[HOST:]PORT for datagrams of the own pShare and of mates; 0 takes a free one",
        min_length=1,
    )
    local: str = setting(
        "127.0.0.1:9200", "HOST:PORT where the pShare of the own community listens", min_length=1
    )
    routes: dict[str, str] = setting({}, "HOST:PORT of each mate; * stands for all that have none")
    adapter: str | None = setting(
        None, "udp://HOST:PORT of a Mercury adapter; none bridges vehicles only", min_length=1
    )

    @field_validator("mates", "mate", "no_ack_vars", "no_ack_var", mode="before")
    @classmethod
    def _join_a_list(cls, value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            return ",".join(value)
        return value

    @field_validator("listen", mode="before")
    @classmethod
    def _port_alone(cls, value: Any) -> Any:
        is_port = isinstance(value, int) and not isinstance(value, bool)
        return str(value) if is_port else value


# Defaults are those of `matching.MatchingRules`; that package compiles itself, which no other
# command should wait for.
class MatcherSettings(ServiceSection):
    id: str = setting("matcher-1", "Name of this matcher, unique on the bus", min_length=1)
    shared: bool = setting(False, "Share the work with other matchers over the bus")
    gateway: bool = setting(True, "Whether the gateway is open; see [gateway]")
    overlap: bool = setting(
        False, "Whether scopes that overlap match, not a publication's centre alone"
    )
    hysteresis_m: float = setting(
        10.0,
        "Distance outside a scope at which a match ends, unless the subscription says otherwise",
        ge=0,
        le=MAX_RADIUS_M,
    )
    ttl_s: float = setting(
        60.0,
        "Silence after which an entity is forgotten, unless it said otherwise",
        gt=0,
        le=MAX_TTL_S,
    )
    max_radius_m: float = setting(50_000.0, "Widest scope of a subscription", gt=0, le=MAX_RADIUS_M)
    max_publication_radius_m: float = setting(
        5_000.0,
        "Widest scope of a publication, where scopes that overlap match",
        ge=0,
        le=MAX_RADIUS_M,
    )
    topics: list[str] | None = setting(None, "Topics that may be used; none allows any")
    snapshot_interval_s: float = setting(
        5.0,
        "Interval of a shared matcher's snapshots; who takes over repeats the work since the last",
        gt=0,
    )
    tile_m: float = setting(
        4000.0,
        "Width of the tiles that shared work is cut into; the same for all matchers",
        ge=500.0,
        le=100000.0,
    )
    split_above: int = setting(
        20_000, "A tile with more publications of a topic is shared by several matchers", ge=100
    )

    @field_validator("topics")
    @classmethod
    def _are_names(cls, names: list[str] | None) -> list[str] | None:
        for name in names or ():
            if not valid_name(name):
                raise mistake(f"{name!r} is no name for a topic", name)
        return names


class GatewaySettings(Section):
    host: str = setting("127.0.0.1", "Address to serve HTTP and websockets on", min_length=1)
    port: int = setting(7480, "TCP port to serve on; 0 takes a free one", ge=0, le=65535)
    max_connections: int = setting(1000, "Websockets and streams; further ones are refused", ge=1)
    max_entities: int = setting(
        200_000, "Publications and subscriptions that one websocket may declare", ge=1
    )
    max_rows: int = setting(65_536, "Updates in one binary frame", ge=1, le=65536)
    max_text_bytes: int = setting(
        2 * MIB, "Length of a text frame, or of a request's body", ge=1024
    )
    max_found: int = setting(1000, "Most matches in the answer to a query", ge=1)
    low_mark_bytes: int = setting(
        4 * MIB,
        "When this much waits for a client that reads slowly, it is not notified of inside",
        ge=1024,
    )
    high_mark_bytes: int = setting(
        32 * MIB,
        "When this much waits for it, it is closed; halfway there, dwell is left out",
        ge=1024,
    )
    request_timeout_s: float = setting(
        10.0, "Time in which the head of a request must come, and as long again its body", gt=0
    )
    ping_interval_s: float = setting(20.0, "Interval of pings to a websocket", gt=0)
    ping_timeout_s: float = setting(
        20.0, "Time without an answer to a ping after which a websocket is closed", gt=0
    )
    close_timeout_s: float = setting(5.0, "Time for the closing handshake of a websocket", gt=0)
    max_ahead_s: float = setting(
        60.0, "Updates whose time is further ahead of ours are dropped", ge=0
    )

    ascending = (("low_mark_bytes", "high_mark_bytes"),)


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "Least severe entry that is written"
    )
    json_lines: bool = setting(False, "Write one JSON object a line instead of text")

    @field_validator("level", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value


class Settings(Section):
    """All settings; made by `load_settings`, or from explicit values alone, as in tests."""

    bus: BusSettings = setting(BusSettings(), "Durable topics")
    session: SessionSection = setting(SessionSection(), "Between client and adapter")
    adapter: AdapterSettings = setting(AdapterSettings(), "Accepts client sessions over UDP")
    mediator: MediatorSettings = setting(MediatorSettings(), "Delivery over links that lose")
    broker: BrokerSettings = setting(BrokerSettings(), "Emergencies, content and requests")
    pipeline: PipelineSettings = setting(PipelineSettings(), "Detection and history, on Spark")
    client: ClientSettings = setting(ClientSettings(), "The endpoint on the vehicle or device")
    sim: SimSettings = setting(SimSettings(), "A simulated city")
    detection: DetectionSettings = setting(DetectionSettings(), "Collisions, jams and the like")
    moos: MoosSettings = setting(MoosSettings(), "A MOOS community, bridged to others")
    matcher: MatcherSettings = setting(MatcherSettings(), "Finds who is near whom")
    gateway: GatewaySettings = setting(GatewaySettings(), "Matching over HTTP and websockets")
    log: LogSettings = setting(LogSettings(), "What is written to stderr")

    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)

    def origin(self, name: str) -> Origin:
        """Where the value of a dotted name came from."""
        return self._origins.get(name, "default")
