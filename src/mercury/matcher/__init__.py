"""The matcher: one engine of matching, and the gateways through which the world reaches it."""

from __future__ import annotations

from mercury.matcher.hub import Hub, Listener

__all__ = ["Hub", "Listener"]
