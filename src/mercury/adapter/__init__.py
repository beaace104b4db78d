"""The adapter: sessions, who is where, coverage, fan-out."""

from mercury.adapter.adapter import Adapter

__all__ = ["Adapter"]
