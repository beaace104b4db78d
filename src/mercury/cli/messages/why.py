"""`mercury why`: what became of a message, in a sentence."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from mercury.cli.common import command
from mercury.cli.common.command import option
from mercury.cli.common.spinner import waiting
from mercury.cli.data import stored_tables
from mercury.cli.data.stored_tables import FolderOption
from mercury.cli.messages.describe import iso_time
from mercury.config import Settings
from mercury.mediator.explain import about_all, about_message, about_one
from mercury.mediator.ledger import Entry, Ledger
from mercury.model.delivery import Deliveries, Delivery, DeliveryState
from mercury.model.errors import ConfigurationError
from mercury.service.clock import clock_time, now_us
from mercury.service.message_trail import LIVE_US, TrailReader, id_digits, time_of


@dataclass(frozen=True, slots=True)
class Answer:
    id: UUID
    sent: str  # who sent what to whom, when and until when
    said: str  # what became of it
    entry: Entry
    origin: str  # "bus" or "history"


def why(
    message: Annotated[
        str | None, typer.Argument(help="Message id, or its first digits", show_default=False)
    ] = None,
    last: Annotated[
        bool, option("Instead of an id: the newest message with a recipient", names="--last")
    ] = False,
    client: Annotated[str | None, option("Only this recipient; default all")] = None,
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    folder: FolderOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Print what became of a message: who received it, who did not, and why."""
    if (message is None) != last:
        raise ConfigurationError("say which message: either its id or --last")
    settings = stored_tables.load(config, folder, bus=bus)
    digits = id_digits(message) if message is not None else ""
    id = UUID(digits) if len(digits) == 32 else None
    if id is None or not stored_tables.folder_of(settings).is_dir():
        command.require_bus(settings)
    answer = None
    if _has_bus(settings) and (id is None or now_us() - time_of(id) < LIVE_US):
        answer = command.run(answer_from_bus(settings, digits, client))
    if answer is None:
        if message is None:
            raise ConfigurationError("nothing was sent to anybody over the bus in the last hour")
        answer = _from_history(settings, message, id, client)
    if as_json:
        command.print_json(_as_dict(answer, client))
        return
    command.show(answer.sent)
    command.show(answer.said)


def _has_bus(settings: Settings) -> bool:
    uri = settings.bus.uri
    return not uri.startswith("embedded:") or Path(uri.removeprefix("embedded:")).exists()


async def answer_from_bus(settings: Settings, id: str, client: str | None) -> Answer | None:
    """What the bus has on a message, or on the last one if `id` is empty; None if nothing."""
    with contextlib.closing(command.bus_of(settings)) as bus, waiting("looking for the message"):
        reader = TrailReader(bus)
        message = await (reader.find(id) if id else reader.last())
        if message is None:
            return None
        entry, said = await reader.why(message, client, clock_time)
    return Answer(message.id, about_message(message, clock_time), said, entry, "bus")


def _from_history(settings: Settings, text: str, id: UUID | None, client: str | None) -> Answer:
    try:
        from mercury.pipeline.ledger.reading import stored_ledger, stored_message
    except ModuleNotFoundError:
        raise ConfigurationError(
            f"no message {text!r} on the bus in the last hour; to look in the history as well: "
            "pip install 'mercury-messaging[pipeline]'"
        ) from None
    if id is None:
        raise ConfigurationError(
            f"no message {text!r}… on the bus in the last hour; the history needs the whole id"
        )
    folder = stored_tables.folder_of(settings)
    message = stored_message(folder, id.hex) if folder.is_dir() else None
    if message is None:
        raise ConfigurationError(
            f"no message {text!r} on the bus in the last hour, and none in {folder}"
        )
    rows = {
        row["client"]: Delivery(
            row["client"],
            DeliveryState[row["state"].upper()],
            row["reason"] or "",
            row["tries"],
            row["addressed_us"] or row["inside_us"] or 0,
            row["first_sent_us"] or 0,
            row["settled_us"] or 0,
        )
        for row in stored_ledger(folder, id.hex)
    }
    source = message["source"] or "unknown"
    entry = Entry(Deliveries(id, source, (), message["subject"] or ""), rows)
    said = f" {message['text']!r}" if message["text"] else ""
    ends_us = message["ends_us"] or 0
    until = f", valid until {iso_time(ends_us)}" if ends_us else ""
    sent = (
        f"{id}: {message['kind'] or message['message_kind']}{said} from {source} at "
        f"{iso_time(message['sent_us'] or message['time_us'])} to {message['destination']}{until}."
    )
    if not rows:
        answer = "The ledger has no row of it: nobody was to hear it, or it is too new."
    elif client is None:
        summary = Ledger().summary([entry])
        answer = about_all(entry, summary, ends_us, now_us(), iso_time)
    elif client in rows:
        answer = about_one(rows[client], ends_us, now_us(), iso_time)
    else:
        answer = f"{client} was not addressed."
    return Answer(id, sent, answer, entry, "history")


def _as_dict(answer: Answer, client: str | None) -> dict[str, Any]:
    rows = answer.entry.rows.values()
    return {
        "id": str(answer.id),
        "sent": answer.sent,
        "from": answer.origin,
        "summary": Ledger().summary([answer.entry]).as_dict(),
        "answer": answer.said,
        "recipients": [_row(row) for row in rows if client in (None, row.client)],
    }


def _row(row: Delivery) -> dict[str, Any]:
    return {
        "client": row.client,
        "state": row.state.label,
        "reason": row.reason,
        "tries": row.tries,
        "addressed": _time(row.addressed_us),
        "first_sent": _time(row.first_sent_us),
        "settled": _time(row.settled_us),
    }


def _time(time_us: int) -> str | None:
    return iso_time(time_us) if time_us else None
