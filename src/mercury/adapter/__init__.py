"""The adapter: sessions, positions of clients, coverage, fan-out."""

from mercury.adapter.adapter import Adapter

__all__ = ["Adapter"]
