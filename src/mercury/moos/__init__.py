"""MOOS communities, bridged to each other and to Mercury (pMediator)."""

from mercury.moos.gateway import MoosGateway
from mercury.moos.settings import bridge_settings, read_moos_file

__all__ = ["MoosGateway", "bridge_settings", "read_moos_file"]
