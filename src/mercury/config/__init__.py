"""Configuration: one TOML file, environment over it, flags over that."""

from mercury.config.detection import CongestionSettings, DetectionSettings, KindSettings
from mercury.config.gateway import GatewaySettings
from mercury.config.loading import load_settings
from mercury.config.matcher import MatcherSettings
from mercury.config.moos import MoosSettings
from mercury.config.report import Setting, describe, to_toml
from mercury.config.settings import (
    AdapterSettings,
    BrokerSettings,
    BusSettings,
    ClientSettings,
    LogSettings,
    PipelineSettings,
    SessionSettings,
    Settings,
)
from mercury.config.simulation import SimSettings

__all__ = [
    "AdapterSettings",
    "BrokerSettings",
    "BusSettings",
    "ClientSettings",
    "CongestionSettings",
    "DetectionSettings",
    "GatewaySettings",
    "KindSettings",
    "LogSettings",
    "MatcherSettings",
    "MoosSettings",
    "PipelineSettings",
    "SessionSettings",
    "Setting",
    "Settings",
    "SimSettings",
    "describe",
    "load_settings",
    "to_toml",
]
