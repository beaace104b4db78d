"""What Spark and Kafka need: a Java runtime, and archives from Maven Central."""
