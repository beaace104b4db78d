"""Streaming jobs that judge events and congestion."""
