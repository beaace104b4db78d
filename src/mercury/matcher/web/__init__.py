"""The web door: matching over HTTP and websockets, in the matcher's own process."""

from __future__ import annotations

from mercury.matcher.web.door import Door

__all__ = ["Door"]
