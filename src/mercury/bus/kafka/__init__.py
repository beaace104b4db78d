"""The bus on Apache Kafka."""
