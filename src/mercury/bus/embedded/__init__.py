"""The embedded bus: append-only segments and an SQLite catalogue, shared by processes."""
