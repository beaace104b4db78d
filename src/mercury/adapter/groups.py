"""Who is in which group: by configuration, and by what clients say themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from mercury.session import Session

MAX_PER_CLIENT = 100


class Groups:
    """The groups of the clients that have a session here."""

    def __init__(self, configured: Mapping[str, Iterable[str]]) -> None:
        self._configured: dict[str, set[str]] = {}  # by client
        for group, members in configured.items():
            for member in members:
                self._configured.setdefault(member, set()).add(group)
        self._of: dict[str, set[str]] = {}  # by client
        self._members: dict[str, dict[str, Session]] = {}  # by group

    def set(self, session: Session, said: Iterable[str]) -> set[str]:
        """A client says which groups it is in; returns those it is new in."""
        before = self._of.get(session.identity, set())
        groups = self._configured.get(session.identity, set()) | set(said)
        for group in before - groups:
            self._leave(group, session)
        for group in groups:
            self._members.setdefault(group, {})[session.identity] = session
        if groups:
            self._of[session.identity] = groups
        else:
            self._of.pop(session.identity, None)
        return groups - before

    def closed(self, session: Session) -> None:
        """A client is gone; when it comes back it says its groups anew."""
        for group in self._of.pop(session.identity, ()):
            self._leave(group, session)

    def of(self, session: Session) -> Iterable[str]:
        """The groups of a client."""
        return self._of.get(session.identity, ())

    def slots(self, group: str) -> NDArray[np.intp]:
        """Where the members of a group sit."""
        members = self._members.get(group, {})
        return np.array([session.slot for session in members.values()], np.intp)

    def _leave(self, group: str, session: Session) -> None:
        members = self._members.get(group, {})
        members.pop(session.identity, None)
        if not members:
            self._members.pop(group, None)
