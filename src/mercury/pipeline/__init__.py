"""The data pipeline on Spark: whatever looks at many messages."""
