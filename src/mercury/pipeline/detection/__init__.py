"""Streaming jobs that detect incidents and congestion."""
