"""`mercury why`: what became of a message, in a sentence."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mercury.bus import Bus, FromTime, catch_up
from mercury.cli.common import command
from mercury.cli.common.spinner import waiting
from mercury.cli.data import history_folder
from mercury.cli.data.history_folder import FolderOption
from mercury.cli.messages.describe import address_text, clock_time, iso_time
from mercury.cli.messages.live_ledger import LedgerReader, find_message, message_id, time_of
from mercury.config import Settings
from mercury.geo import contains_point
from mercury.mediator.explain import about_all, about_one
from mercury.mediator.ledger import Entry, Ledger, never_addressed
from mercury.model import topics
from mercury.model.area import Area
from mercury.model.delivery import Deliveries, Delivery, DeliveryState
from mercury.model.errors import ConfigurationError
from mercury.model.message import AddressKind, Message
from mercury.service import now_us
from mercury.wire.records import read_fix

_LIVE_US = 3_600_000_000  # what is older is asked of the history
_READ_BATCH = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of one message."""

    id: bytes
    sent: str  # who told whom, when and until when
    entry: Entry
    ends_us: int
    origin: str  # "bus" or "history"
    found: str = ""  # what else is known, where there is no receipt

    @property
    def clock(self) -> Callable[[int], str]:
        """How times are written: of the last hour by the clock, older ones with their date."""
        return clock_time if self.origin == "bus" else iso_time


def why(
    message: Annotated[str, typer.Argument(help="Its id, or the first digits")],
    client: Annotated[str | None, typer.Option(help="What became of it for this one")] = None,
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    folder: FolderOption = None,
    as_json: command.JsonOption = False,
) -> None:
    """Say what became of a message, for one recipient or for all."""
    settings = command.settings_for(config, bus__uri=bus, pipeline__history_folder=folder)
    id, whole = message_id(message)
    answer = None
    if not whole or now_us() - time_of(id) < _LIVE_US:
        answer = _from_bus(settings, message, client)
    if answer is None:
        answer = _from_history(settings, message, id if whole else None)
    if as_json:
        command.print_json(_as_dict(answer, client))
        return
    print(answer.sent)
    print(_said(answer, client))


def sentence_for(settings: Settings, message: str, client: str) -> str:
    """What became of a message for one client, by what the bus holds; empty if it holds nothing."""
    answer = _from_bus(settings, message, client)
    return "" if answer is None else _said(answer, client)


def _said(answer: Answer, client: str | None) -> str:
    rows = answer.entry.rows
    if client is None:
        return answer.found or about_all(answer.entry, Ledger().summary([answer.entry]))
    if client in rows:
        return about_one(rows[client], answer.ends_us, answer.clock)
    return answer.found or f"{client} was not addressed."


# From the bus


def _from_bus(settings: Settings, text: str, client: str | None) -> Answer | None:
    uri = settings.bus.uri
    if uri.startswith("embedded:") and not Path(uri.removeprefix("embedded:")).exists():
        return None
    bus = command.bus_of(settings)
    try:
        with waiting("looking for the message"):
            message = find_message(bus, text, now_us() - _LIVE_US)
        if message is None:
            return None
        reader = LedgerReader(bus, min(time_of(message.id), message.sent_us) - 1_000_000)
        ledger = reader.catch_up()
        reader.close()
        entry = ledger.get(message.id) or Entry(_about(message))
        ends_us = _end_of(message)
        found = ""
        if client is not None and client not in entry.rows:
            with waiting(f"looking where {client} was"):
                found = _without_receipt(bus, message, client, ends_us)
        return Answer(message.id, _sent(message, ends_us), entry, ends_us, "bus", found)
    finally:
        bus.close()


def _about(message: Message) -> Deliveries:
    return Deliveries(message.id, str(message.source), (), message.topic)


def _end_of(message: Message) -> int:
    area = message.destination.area
    ends = [end for end in (message.expires_us, area.valid_until_us if area else 0) if end]
    return min(ends, default=0)


def _sent(message: Message, ends_us: int) -> str:
    event = message.event
    said = f" {event.text!r}" if event and event.text else ""
    until = f", valid until {clock_time(ends_us)}" if ends_us else ""
    what = message.topic or (event.kind if event else message.kind.name.lower())
    return (
        f"{uuid.UUID(bytes=message.id)}: {what}{said} from {message.source} "
        f"at {clock_time(message.sent_us)} to {address_text(message.destination)}{until}."
    )


def _without_receipt(bus: Bus, message: Message, client: str, ends_us: int) -> str:
    """Why there is no receipt of a client."""
    to = message.destination
    if to.kind is AddressKind.CLIENT:
        if to.name != client:
            return f"{client} was not addressed: it was for {to.name} alone."
        return f"{client} has had no session since it was sent: it gets it when it comes back."
    seen = _seen(bus, client, message.sent_us, ends_us or now_us(), to.area)
    if seen.reports == 0:
        return f"{client} was not addressed: nothing was heard of it while the message held."
    if to.area is None:
        if to.kind is AddressKind.GROUP:
            return f"{client} was not addressed: it was not in the group {to.name}."
        return about_one(never_addressed(client, seen.first_us, now_us()), ends_us, clock_time)
    if seen.inside_us:
        return about_one(never_addressed(client, seen.inside_us, now_us()), ends_us, clock_time)
    return (
        f"{client} was not addressed: none of its {seen.reports:,} reports between "
        f"{clock_time(seen.first_us)} and {clock_time(seen.last_us)} was inside the area."
    )


@dataclass(slots=True)
class _Seen:
    reports: int = 0
    first_us: int = 0
    last_us: int = 0
    inside_us: int = 0  # the first time inside; 0: never


def _seen(bus: Bus, client: str, from_us: int, to_us: int, area: Area | None) -> _Seen:
    """What the reports of a client say about where it was."""
    seen = _Seen()
    key = client.encode()
    consumer = bus.subscribe((topics.REPORTS,), start=FromTime(from_us))
    try:
        for records in catch_up(consumer, _READ_BATCH):
            for record in records:
                if record.key != key or record.timestamp_us > to_us:
                    continue
                fix = read_fix(record.headers)
                if fix is None:
                    continue
                seen.reports += 1
                seen.first_us = seen.first_us or record.timestamp_us
                seen.last_us = record.timestamp_us
                heading = None if fix.heading_deg != fix.heading_deg else fix.heading_deg
                if area is not None and contains_point(
                    area, fix.lat, fix.lon, heading, record.timestamp_us
                ):
                    seen.inside_us = seen.inside_us or record.timestamp_us
                    return seen
            if min(record.timestamp_us for record in records) > to_us:
                break
    finally:
        consumer.close()
    return seen


# From the history


def _from_history(settings: Settings, text: str, id: bytes | None) -> Answer:
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
    folder = history_folder.folder_of(settings)
    message = stored_message(folder, id.hex()) if folder.is_dir() else None
    if message is None:
        raise ConfigurationError(
            f"no message {text!r} on the bus in the last hour, and none in {folder}"
        )
    rows = {
        row.client: Delivery(
            row.client,
            DeliveryState[row.state.upper()],
            row.reason or "",
            row.tries,
            row.addressed_us or row.inside_us or 0,
            row.first_sent_us or 0,
            row.settled_us or 0,
        )
        for row in stored_ledger(folder, id.hex())
    }
    source = message.source or "unknown"
    entry = Entry(Deliveries(id, source, (), message.subject or ""), rows)
    said = f" {message.text!r}" if message.text else ""
    until = f", valid until {iso_time(message.ends_us)}" if message.ends_us else ""
    sent = (
        f"{uuid.UUID(bytes=id)}: {message.kind or message.message_kind}{said} from {source} at "
        f"{iso_time(message.sent_us or message.time_us)} to {message.destination}{until}."
    )
    found = "" if rows else "The ledger has no row of it: nobody was to hear it, or it is too new."
    return Answer(id, sent, entry, message.ends_us or 0, "history", found)


def _as_dict(answer: Answer, client: str | None) -> dict[str, Any]:
    rows = answer.entry.rows
    chosen = rows if client is None else {client: rows[client]} if client in rows else {}
    return {
        "id": str(uuid.UUID(bytes=answer.id)),
        "sent": answer.sent,
        "from": answer.origin,
        "summary": Ledger().summary([answer.entry]).as_dict(),
        "answer": _said(answer, client),
        "recipients": [_row(row) for row in chosen.values()],
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
