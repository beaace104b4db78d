"""Geo-aware messaging and alerting for things that move."""
