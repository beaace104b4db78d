"""Spark itself: session, sources, start-up."""
