"""The reference pages that are made from the code."""

from __future__ import annotations

from collections.abc import Callable

from .api import api
from .commands import commands
from .gateway import gateway
from .settings import settings
from .tables import tables
from .topics import topics
from .wire import wire

PAGES: dict[str, Callable[[], str]] = {
    "reference/api.md": api,
    "reference/commands.md": commands,
    "reference/gateway.md": gateway,
    "reference/settings.md": settings,
    "reference/tables.md": tables,
    "reference/topics.md": topics,
    "reference/wire.md": wire,
}
