"""The gateway: matching over HTTP and websockets, in the matcher's own process."""

from __future__ import annotations

from mercury.matcher.gateway.server import Gateway

__all__ = ["Gateway"]
