"""The data pipeline on Spark: jobs that need many messages."""
