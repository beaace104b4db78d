"""The matcher: one engine of matching, and the gateways through which the world reaches it."""

from __future__ import annotations

from mercury.matcher.hub import Hub, Listener, warm_up

__all__ = ["Hub", "Listener", "warm_up"]
