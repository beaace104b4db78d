"""The matcher: one matching engine, and its gateways over the bus, HTTP and WebSocket."""
