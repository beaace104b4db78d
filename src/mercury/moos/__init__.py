"""MOOS communities, bridged to each other and to Mercury (pMediator)."""

from mercury.moos.gateway import MoosGateway
from mercury.moos.mission_file import read_moos_file
from mercury.moos.settings import bridge_settings

__all__ = ["MoosGateway", "bridge_settings", "read_moos_file"]
