"""The embedded bus: append-only segments beside an SQLite catalogue, shared by the processes of a machine."""
