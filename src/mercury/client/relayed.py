"""What moves, declared by applications behind a client: their names, in the client's name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mercury.model.declarations import WITHDRAW, Declaration, Matches, Withdrawal
from mercury.model.identity import new_uuid
from mercury.model.matching import Publication, Side
from mercury.model.message import Address, Kind, Message

Declared = dict[tuple[Side, str], Message]


class RelayedDeclarations:
    """Keeps applications apart: each may call what it declares as it likes.

    To the adapter it is all the client's; there the application's name stands before its own.
    """

    def __init__(self, client: Address) -> None:
        self._client = client
        self._declared: dict[str, Declared] = {}  # by application

    def __iter__(self) -> Iterator[Message]:
        """What has been declared, to be said again to an adapter that knows nothing of it."""
        for declared in self._declared.values():
            for message in declared.values():
                yield replace(message, id=new_uuid(), source=self._client, session=b"")

    def outward(self, app: str, message: Message) -> Message:
        """What an application says, as the client says it."""
        payload = message.payload
        if isinstance(payload, Declaration):
            what = payload.what
            side: Side = "publication" if isinstance(what, Publication) else "subscription"
            message = replace(message, payload=Declaration(replace(what, id=f"{app}/{what.id}")))
            self._declared.setdefault(app, {})[side, what.id] = message
        elif isinstance(payload, Withdrawal):
            self._declared.get(app, {}).pop((payload.side, payload.id), None)
            message = replace(message, payload=replace(payload, id=f"{app}/{payload.id}"))
        return message

    def inward(self, app: str, message: Message, matches: Matches) -> Message | None:
        """What a client hears, as one of the applications does; none if nothing of it is its."""
        begin = f"{app}/"
        rows = tuple(
            row._replace(match=row.match._replace(subscription=name.removeprefix(begin)))
            for row in matches.rows
            if (name := row.match.subscription).startswith(begin)
        )
        return replace(message, payload=Matches(rows)) if rows else None

    def forget(self, app: str) -> list[Message]:
        """An application is gone; returns what to say to the adapter."""
        return [
            Message(
                kind=Kind.REQUEST,
                source=self._client,
                destination=Address.broker(),
                topic=WITHDRAW,
                payload=Withdrawal(side, f"{app}/{id}"),
            )
            for side, id in self._declared.pop(app, {})
        ]
