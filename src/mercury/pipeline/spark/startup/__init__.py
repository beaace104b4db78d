"""Why Spark starts soon enough."""
