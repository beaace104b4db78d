"""What Spark and Kafka stand on: a Java to run them, and archives from Maven Central."""
