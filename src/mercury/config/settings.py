"""Every setting: its name, type, bounds, default and what it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from mercury.config.detection import DetectionSettings
from mercury.config.gateway import GatewaySettings
from mercury.config.matcher import MatcherSettings
from mercury.config.mediator import MediatorSettings
from mercury.config.moos import MoosSettings
from mercury.config.section import Section
from mercury.config.simulation import SimSettings

Origin = Literal["default", "file", "environment", "flag"]

GIB = 1024**3


class BusSettings(Section):
    uri: str = Field(
        default="embedded:mercury.db",
        min_length=1,
        description="The topics are kept at embedded:PATH, kafka://HOST:PORT[/PREFIX] or memory:",
    )
    retention_age_s: float | None = Field(
        default=86400.0,
        gt=0,
        description="Records older than this are dropped; none keeps them for ever",
    )
    retention_bytes: int | None = Field(
        default=4 * GIB,
        gt=0,
        description="The oldest records are dropped above this; none has no limit",
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Partitions of a topic: how many of a group can share it; "
        "none is 16, and 4 on Kafka, where more of them cost time",
    )


class SessionSettings(Section):
    report_interval_s: float = Field(
        default=1.0, gt=0, description="A client reports where it is so often"
    )
    heartbeat_interval_s: float = Field(
        default=5.0, gt=0, description="An adapter tells its clients that it lives so often"
    )
    missed_reports: int = Field(
        default=3, ge=1, description="The adapter ends a session after so many missed reports"
    )
    missed_heartbeats: int = Field(
        default=3,
        ge=1,
        description="The client looks for another session after so many missed heartbeats",
    )
    init_retry_s: float = Field(
        default=0.5,
        gt=0,
        description="Each retry to open a session waits this much longer than the last",
    )
    init_retry_max_s: float = Field(
        default=10.0, gt=0, description="No retry waits longer than this"
    )
    jitter: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="Share by which waits vary, so that clients do not fall in step",
    )
    max_sessions: int = Field(
        default=200_000, ge=1, description="An adapter refuses further sessions above this"
    )
    flood_rate_per_s: float = Field(
        default=1000.0,
        gt=0,
        description="Packets a second from one client, above which they are dropped",
    )
    flood_burst: int = Field(
        default=2000,
        ge=1,
        description="Packets that one client may send at once before its rate counts",
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        self._refuse_above("init_retry_s", "init_retry_max_s")
        return self


class AdapterSettings(Section):
    id: str = Field(
        default="adapter-1", min_length=1, description="Name of this adapter, unique on the bus"
    )
    host: str = Field(
        default="127.0.0.1", min_length=1, description="Address to receive packets on"
    )
    port: int = Field(
        default=7400,
        ge=0,
        le=65535,
        description="UDP port to receive packets on; 0 takes a free one",
    )
    coverage: str | None = Field(
        default=None,
        description="Area this adapter serves: a GeoJSON file, or GeoJSON text; none is all",
    )
    standing_tick_s: float = Field(
        default=0.02, gt=0, description="Standing area messages look for newcomers so often"
    )
    fanout_chunk: int = Field(
        default=512, ge=1, description="Packets sent to an area before others get their turn"
    )
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="TCP port of metrics and health; none serves neither",
    )
    traffic_radius_m: float = Field(
        default=1000.0, gt=0, description="Traffic speed is measured so far around an emergency"
    )
    stall_probe_s: float = Field(
        default=0.05, gt=0, description="The event loop is probed for stalls so often"
    )


class BrokerSettings(Section):
    id: str = Field(
        default="broker-1", min_length=1, description="Name of this broker, unique on the bus"
    )
    emergency_radius_m: float = Field(
        default=500.0, gt=0, description="Smallest radius alerted around an emergency"
    )
    emergency_horizon_s: float = Field(
        default=20.0, ge=0, description="The radius is at least what traffic drives in this time"
    )
    emergency_max_radius_m: float = Field(
        default=5000.0, gt=0, description="Largest radius alerted around an emergency"
    )
    emergency_validity_s: float = Field(
        default=60.0,
        gt=0,
        description="An emergency alert also reaches who enters the area for so long",
    )
    merge_distance_m: float = Field(
        default=300.0, ge=0, description="Emergencies within this distance are one"
    )
    merge_window_s: float = Field(
        default=10.0, ge=0, description="Emergencies within this time are one"
    )
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="TCP port of metrics and health; none serves neither",
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        self._refuse_above("emergency_radius_m", "emergency_max_radius_m")
        return self


class PipelineSettings(Section):
    id: str = Field(
        default="pipeline", min_length=1, description="Name of the pipeline, unique on the bus"
    )
    spark_master: str = Field(
        default="local[3]", min_length=1, description="Spark cluster to run on"
    )
    spark_conf: dict[str, str] = Field(
        default={}, description="Further settings of Spark, such as spark.executor.memory"
    )
    checkpoint: Path | None = Field(
        default=None, description="Folder of the jobs' state; none is beside the bus file"
    )
    history: bool = Field(
        default=True, description="Whether what was on the bus is kept as Parquet"
    )
    history_folder: Path | None = Field(
        default=None, description="Folder of the stored tables; none is beside the bus file"
    )
    history_interval_s: float = Field(
        default=10.0, gt=0, description="What came is added to the stored tables so often"
    )
    share_classes: bool = Field(
        default=True,
        description="Whether what Java needs for a quicker start is kept, once, in the background",
    )
    ledger: bool = Field(
        default=True,
        description="Whether what became of messages is added up in the stored tables",
    )
    ledger_interval_s: float = Field(
        default=30.0, gt=0, description="Messages that are over enter the ledger so often"
    )
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="TCP port of metrics and health; none serves neither",
    )


class ClientSettings(Section):
    adapter: str = Field(
        default="udp://127.0.0.1:7400", min_length=1, description="Adapter to open a session with"
    )
    identity: str | None = Field(
        default=None, min_length=1, description="Name of this client; none draws one at random"
    )
    relay_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Loopback UDP port for local applications; none opens none",
    )


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe entry that is written"
    )
    json_lines: bool = Field(
        default=False, description="Write one JSON object a line instead of text"
    )

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

    bus: BusSettings = Field(default_factory=BusSettings, description="Durable topics")
    session: SessionSettings = Field(
        default_factory=SessionSettings, description="Between client and adapter"
    )
    adapter: AdapterSettings = Field(
        default_factory=AdapterSettings, description="Where moving things meet the bus"
    )
    mediator: MediatorSettings = Field(
        default_factory=MediatorSettings, description="Delivery over links that lose"
    )
    broker: BrokerSettings = Field(
        default_factory=BrokerSettings, description="Immediate decisions"
    )
    pipeline: PipelineSettings = Field(
        default_factory=PipelineSettings, description="What is found in many messages, by Spark"
    )
    client: ClientSettings = Field(
        default_factory=ClientSettings, description="The endpoint on the vehicle or device"
    )
    sim: SimSettings = Field(default_factory=SimSettings, description="A city to try it in")
    detection: DetectionSettings = Field(
        default_factory=DetectionSettings, description="What is found in many messages"
    )
    moos: MoosSettings = Field(
        default_factory=MoosSettings, description="A MOOS community, bridged to others"
    )
    matcher: MatcherSettings = Field(
        default_factory=MatcherSettings, description="What moves finds what is near it"
    )
    gateway: GatewaySettings = Field(
        default_factory=GatewaySettings, description="Matching over HTTP and websockets"
    )
    log: LogSettings = Field(default_factory=LogSettings, description="What is written to stderr")

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
