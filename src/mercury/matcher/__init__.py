"""The matcher: one engine of matching, and the gateways through which the world reaches it."""
