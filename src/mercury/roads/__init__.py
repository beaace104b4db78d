"""Road networks, routes and movement."""
