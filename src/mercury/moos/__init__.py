"""MOOS communities, bridged to each other and to Mercury (pMediator)."""

from mercury.moos.service import MoosService
from mercury.moos.settings import bridge_settings, read_moos_file

__all__ = ["MoosService", "bridge_settings", "read_moos_file"]
