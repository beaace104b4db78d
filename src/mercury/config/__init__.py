"""Configuration: one TOML file, environment over it, flags over that."""

from mercury.config.loading import load_settings
from mercury.config.report import Setting, describe, to_toml
from mercury.config.settings import GatewaySettings, MatcherSettings, MoosSettings, Settings

__all__ = [
    "GatewaySettings",
    "MatcherSettings",
    "MoosSettings",
    "Setting",
    "Settings",
    "describe",
    "load_settings",
    "to_toml",
]
