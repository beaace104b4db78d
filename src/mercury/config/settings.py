"""Every setting: its name, type, bounds, default and what it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import PrivateAttr, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from mercury.config.detection import DetectionSettings
from mercury.config.gateway import GatewaySettings
from mercury.config.matcher import MatcherSettings
from mercury.config.mediator import MediatorSettings
from mercury.config.moos import MoosSettings
from mercury.config.section import Section, ServiceSection, setting
from mercury.config.simulation import SimSettings

Origin = Literal["default", "file", "environment", "flag"]

GIB = 1024**3


class BusSettings(Section):
    uri: str = setting(
        "embedded:mercury.db",
        "The topics are kept at embedded:PATH, kafka://HOST:PORT[/PREFIX] or memory:",
        min_length=1,
    )
    retention_age_s: float | None = setting(
        86400.0, "Records older than this are dropped; none keeps them for ever", gt=0
    )
    retention_bytes: int | None = setting(
        4 * GIB, "The oldest records are dropped above this; none has no limit", gt=0
    )
    partitions: int | None = setting(
        None,
        "Partitions of a topic: how many of a group can share it; none is 16, and 4 on Kafka",
        ge=1,
        le=1024,
    )


class SessionSettings(Section):
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


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "Least severe entry that is written"
    )
    json_lines: bool = setting(False, "Write one JSON object a line instead of text")

    @field_validator("level", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value


class Settings(BaseSettings):
    """All settings; made by `load_settings`, or from explicit values alone, as in tests."""

    model_config = SettingsConfigDict(
        env_prefix="MERCURY_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
    )

    bus: BusSettings = setting(BusSettings(), "Durable topics")
    session: SessionSettings = setting(SessionSettings(), "Between client and adapter")
    adapter: AdapterSettings = setting(AdapterSettings(), "Where moving things meet the bus")
    mediator: MediatorSettings = setting(MediatorSettings(), "Delivery over links that lose")
    broker: BrokerSettings = setting(BrokerSettings(), "Immediate decisions")
    pipeline: PipelineSettings = setting(
        PipelineSettings(), "What is found in many messages, by Spark"
    )
    client: ClientSettings = setting(ClientSettings(), "The endpoint on the vehicle or device")
    sim: SimSettings = setting(SimSettings(), "A city to try it in")
    detection: DetectionSettings = setting(DetectionSettings(), "What is found in many messages")
    moos: MoosSettings = setting(MoosSettings(), "A MOOS community, bridged to others")
    matcher: MatcherSettings = setting(MatcherSettings(), "What moves finds what is near it")
    gateway: GatewaySettings = setting(GatewaySettings(), "Matching over HTTP and websockets")
    log: LogSettings = setting(LogSettings(), "What is written to stderr")

    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `load_settings` merges the sources itself: it has to know where each value came from.
        return (init_settings,)

    def origin(self, name: str) -> Origin:
        """Where the value of a dotted name came from."""
        return self._origins.get(name, "default")
