"""What was on the bus, kept as Parquet by day and tile."""
