"""What became of a message, in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from mercury.geo import contains_point
from mercury.mediator.ledger import Entry, LedgerSummary, never_addressed
from mercury.model.delivery import Delivery, DeliveryState, Reason
from mercury.model.message import Address, AddressKind, Kind, Message

Clock = Callable[[int], str]  # microseconds since the epoch -> a time of day for people

_NO_ANSWER_ASKED = "whether it arrived is not known: fire-and-forget asks for no answer"
_REFUSALS = {
    "expired": "it had expired",
    "outside-area": "the client had left the area",
    "": "without saying why",
}
# Kinds without recipients: they go to the readers of a topic.
_NOT_ADDRESSED = {
    Kind.CONTENT: "Content goes to whoever has subscribed to it; nobody is asked for a receipt.",
    Kind.EVENT: "An event goes to the brokers, who decide whom to alert.",
    Kind.REQUEST: "A request goes to the brokers; who asked hears the answer, or asks again.",
}


def address_text(address: Address) -> str:
    if address.area is None:
        return str(address)
    shape = address.area.shape
    center = getattr(shape, "center", None)
    if center is not None and hasattr(shape, "radius_m"):
        return f"everyone within {shape.radius_m:g} m of {center.lat:.5f},{center.lon:.5f}"
    return f"everyone in a {type(shape).__name__.lower()}"


def end_of(message: Message) -> int:
    """When a message expires, in microseconds; 0 if it does not."""
    area = message.destination.area
    ends = [end for end in (message.expires_us, area.valid_until_us if area else 0) if end]
    return min(ends, default=0)


def about_message(message: Message, clock: Clock) -> str:
    """Who sent what to whom, when, and until when it holds."""
    event, ends_us = message.event, end_of(message)
    said = f" {event.text!r}" if event and event.text else ""
    until = f", valid until {clock(ends_us)}" if ends_us else ""
    what = message.topic or (event.kind if event else message.kind.name.lower())
    return (
        f"{message.id}: {what}{said} from {message.source} "
        f"at {clock(message.sent_us)} to {address_text(message.destination)}{until}."
    )


def about_one(row: Delivery, ends_us: int, now_us: int, clock: Clock, *, asked: bool = True) -> str:
    """What became of a message for one recipient; `asked` is whether it was to answer."""
    match row.state:
        case DeliveryState.ACKNOWLEDGED:
            return _acknowledged(row, ends_us, clock)
        case DeliveryState.REFUSED:
            return _refused(row, clock)
        case DeliveryState.EXPIRED:
            return _expired(row, clock)
        case DeliveryState.UNREACHABLE:
            return _unreachable(row, clock)
        case DeliveryState.WAITING:
            return _waiting(row, ends_us, now_us, clock, asked)


def _acknowledged(row: Delivery, ends_us: int, clock: Clock) -> str:
    name, at = row.client, clock(row.settled_us)
    if not row.tries:
        return f"{name} has it: it said so when it came back."
    sent = f" (sent {_times(row.tries)})" if row.tries > 1 else ""
    took = f", {_seconds(row.settled_us - row.addressed_us)} after it was addressed"
    if 0 < ends_us <= row.settled_us:
        return f"{name} acknowledged it at {at}, after it had expired at {clock(ends_us)}{sent}."
    return f"{name} acknowledged it at {at}{took if row.addressed_us else ''}{sent}."


def _refused(row: Delivery, clock: Clock) -> str:
    reason = _REFUSALS.get(row.reason, row.reason)
    return f"{row.client} received it and refused it at {clock(row.settled_us)}: {reason}."


def refusal_reasons(refusals: Mapping[str, int]) -> str:
    """Why recipients refused it, to follow their number."""
    parts = [
        _REFUSALS.get(reason, reason) + (f": {count:,}" if len(refusals) > 1 else "")
        for reason, count in refusals.items()
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _expired(row: Delivery, clock: Clock) -> str:
    name, end = row.client, clock(row.settled_us)
    if row.reason == Reason.NOT_ASKED:
        return f"{name} was sent it {_times(row.tries)}, and {_NO_ANSWER_ASKED}."
    if row.reason == Reason.NOT_SENT:
        return (
            f"{name} was there, and it was not sent before it expired at {end}: the link was full."
        )
    return (
        f"{name} did not answer: it was sent {_times(row.tries)} from {clock(row.first_sent_us)} "
        f"until it expired at {end}."
    )


def _unreachable(row: Delivery, clock: Clock) -> str:
    name, end = row.client, clock(row.settled_us)
    if row.reason == Reason.GAVE_UP:
        return (
            f"{name} did not answer: it was sent {_times(row.tries)} from "
            f"{clock(row.first_sent_us)}, and given up at {end}."
        )
    if row.reason == Reason.NEVER_ADDRESSED:
        return (
            f"{name} was there at {clock(row.addressed_us)}, and no adapter sent it: it had no "
            "session then, its adapter was down, or the area is outside its adapter's coverage."
        )
    if row.reason == Reason.NO_ROOM:
        return f"{name} was given up at {end}: too many messages were waiting."
    if row.tries:
        return (
            f"{name} did not answer: it was sent {_times(row.tries)}, then its session ended, "
            f"and none was opened until the message ended at {end}."
        )
    return f"{name} had no session until it ended at {end}."


def _waiting(row: Delivery, ends_us: int, now_us: int, clock: Clock, asked: bool) -> str:
    """The open deliveries, as reported when they were addressed: they may have been sent since."""
    name, end = row.client, clock(ends_us) if ends_us else ""
    is_over = 0 < ends_us <= now_us
    if row.tries and not asked:
        return f"{name} was sent it at {clock(row.first_sent_us)}, and {_NO_ANSWER_ASKED}."
    if row.tries and is_over:
        return (
            f"{name} did not answer before it expired at {end}: it was sent from "
            f"{clock(row.first_sent_us)} on."
        )
    if is_over:
        return f"{name} had no session, or the link was full, until it expired at {end}."
    until = f" until {end}" if ends_us else ""
    if row.tries:
        since = clock(row.first_sent_us)
        return f"{name} has not answered yet: it was first sent at {since}, and is repeated{until}."
    goes_on = f"; Mercury tries{until}" if until else ""
    return f"{name} has not been sent it yet: it has no session, or the link is full{goes_on}."


def about_all(entry: Entry, summary: LedgerSummary, ends_us: int, now_us: int, clock: Clock) -> str:
    """What became of a message, for all recipients together."""
    if not entry.rows:
        if not ends_us:
            return "Nobody was addressed."
        if now_us < ends_us:
            return f"Nobody has been addressed yet; it holds until {clock(ends_us)}."
        return f"Nobody was addressed before it ended at {clock(ends_us)}."
    states = summary.states
    parts = []
    heard = states[DeliveryState.ACKNOWLEDGED]
    if heard:
        median, last = summary.delay_s(0.5), summary.delay_s(1.0)
        took = ""
        if median is not None and last is not None:  # often a few milliseconds
            took = f" (median {round(median, 4):g} s, last {round(last, 4):g} s)"
        parts.append(f"{heard} acknowledged it{took}")
    is_over = 0 < ends_us <= now_us
    words = {
        DeliveryState.EXPIRED: "expired without an answer",
        DeliveryState.REFUSED: f"refused it{refusal_reasons(summary.refusals)}",
        DeliveryState.UNREACHABLE: "could not be reached",
        DeliveryState.WAITING: "did not answer in time" if is_over else "have not answered yet",
    }
    parts += [f"{states[state]} {text}" for state, text in words.items() if states[state]]
    count = len(entry.rows)
    return f"{count} {'was' if count == 1 else 'were'} addressed: {', '.join(parts)}."


class Whereabouts:
    """Where one client's reports placed it, with respect to a message's area and time.

    Reports come in the order of time, from some time before the message was sent.
    """

    def __init__(self, message: Message) -> None:
        self.area = message.destination.area
        valid_from_us = (self.area.valid_from_us if self.area else 0) or 0
        self.from_us = max(message.sent_us, valid_from_us)
        self.ends_us = end_of(message)
        # Without an end it is only for those who were inside when it came.
        self.is_momentary = self.area is not None and not self.ends_us
        self.reports = 0  # while it was valid
        self.first_us = 0
        self.last_us = 0
        self.inside_us = 0  # the first time inside while it was valid; 0: never
        self.turned_us = 0  # inside while it was valid, with another heading
        self.heading_deg = math.nan
        self.earlier_us = 0  # the last report before it was valid
        self.before_us = 0  # the last time inside before it was valid
        self.before_turned_us = 0  # the same, with another heading
        self.after_us = 0  # the first time inside after it

    def report(self, lat: float, lon: float, heading_deg: float, time_us: int) -> None:
        is_before = time_us < self.from_us and not self.is_momentary
        is_after = time_us > self.from_us if self.is_momentary else 0 < self.ends_us <= time_us
        if self.is_momentary and not is_after:
            self.inside_us = self.turned_us = 0  # only the last report before it came counts
        if not is_before and not is_after:
            self.reports += 1
            self.first_us = self.first_us or time_us
            self.last_us = time_us
        elif is_before:
            self.earlier_us = time_us
        if self.area is None or not contains_point(self.area.shape, lat, lon):
            return
        timeless = replace(self.area, valid_from_us=None, valid_until_us=None)
        if not contains_point(timeless, lat, lon, heading_deg):
            if is_before:
                self.before_turned_us, self.heading_deg = time_us, heading_deg
            elif not is_after:
                self.turned_us, self.heading_deg = time_us, heading_deg
        elif is_before:
            self.before_us = time_us
        elif is_after:
            self.after_us = self.after_us or time_us
        else:
            self.inside_us = self.inside_us or time_us


def about_unaddressed(
    client: str, message: Message, seen: Whereabouts, now_us: int, clock: Clock
) -> str:
    """Why no adapter wrote a receipt for this client."""
    to, ends_us = message.destination, seen.ends_us
    is_over = 0 < ends_us <= now_us
    if message.source == Address.client(client):
        return f"{client} was not addressed: it sent the message itself."
    if to.kind is AddressKind.CLIENT:
        if to.name != client:
            return f"{client} was not addressed: it was for {to.name} alone."
        if is_over:
            return f"{client} had no session until it ended at {clock(ends_us)}."
        until = f" before {clock(ends_us)}" if ends_us else ""
        return f"{client} has had no session since it was sent: it gets it if it comes back{until}."
    if now_us < seen.from_us:
        from_us = clock(seen.from_us)
        return f"{client} has not been addressed yet: the message holds from {from_us} on."
    if seen.inside_us:
        return about_one(never_addressed(client, seen.inside_us, 0), ends_us, now_us, clock)
    if not seen.reports:
        return f"{client} was not addressed: {_silent(seen, clock)}."
    reason = _elsewhere(seen, clock)
    if to.kind is AddressKind.GROUP:
        return f"{client} was not addressed: it was not in the group {to.name}."
    if to.area is None:
        return about_one(never_addressed(client, seen.first_us, 0), ends_us, now_us, clock)
    so_far = (
        "" if is_over or not ends_us else f" It gets it if it comes in before {clock(ends_us)}."
    )
    none = (
        f"none of its {seen.reports:,} reports between "
        f"{clock(seen.first_us)} and {clock(seen.last_us)} was inside the area."
        if seen.reports > 1
        else f"its only report, at {clock(seen.last_us)}, was outside the area."
    )
    return f"{client} was not addressed: {reason or none}{so_far}"


def _silent(seen: Whereabouts, clock: Clock) -> str:
    """The sentence on a client that did not report while the message was valid."""
    silent = "it was silent while the message held"
    if not seen.earlier_us:
        return f"{silent}: it had no session, or there is no client of this name"
    at = clock(seen.earlier_us)
    if seen.area is None:
        return f"{silent}: its last report was at {at}"
    if seen.earlier_us == seen.before_us:
        return f"{silent}: its last report was inside the area at {at}"
    if seen.earlier_us == seen.before_turned_us:
        return f"at its last report before, at {at}, it was inside the area, {_wrong_heading(seen)}"
    return f"its last report before, at {at}, was outside the area, and none came while it held"


def _wrong_heading(seen: Whereabouts) -> str:
    sector = seen.area.heading if seen.area else None
    if sector is None:
        return ""
    return (
        f"heading {seen.heading_deg:.0f}°, and the message is for headings of "
        f"{sector.center_deg:.0f}° ± {sector.half_width_deg:.0f}° only"
    )


def _elsewhere(seen: Whereabouts, clock: Clock) -> str:
    """The sentence on a client that was inside at another time or with another heading."""
    if seen.turned_us:
        return f"it was inside the area at {clock(seen.turned_us)}, {_wrong_heading(seen)}."
    if seen.after_us:
        after = f"had ended at {clock(seen.ends_us)}" if seen.ends_us else "was sent"
        return f"it was inside the area at {clock(seen.after_us)}, after the message {after}."
    if seen.before_us:
        return (
            f"it was last inside the area at {clock(seen.before_us)}, "
            f"before the message held from {clock(seen.from_us)} on."
        )
    return ""


def about_unaddressable(message: Message, followed_by: Message | None) -> str:
    """What became of a message without recipients."""
    sentence = _NOT_ADDRESSED.get(message.kind, "It is not addressed to anybody.")
    if followed_by is not None:
        sentence += f" It became the alert {followed_by.id}: ask for that one."
    return sentence


def about_uplink(state: DeliveryState, reason: str) -> str:
    """What became of a client's message that its adapter does not have."""
    match state:
        case DeliveryState.WAITING:
            return "It is on its way: the adapter has not answered yet, and it is repeated."
        case DeliveryState.REFUSED:
            return f"The adapter refused it: {reason}."
        case DeliveryState.EXPIRED:
            return "It expired before the adapter answered."
    if reason == Reason.GAVE_UP:
        return "It was given up: the adapter did not answer."
    return "It expired while there was no session with an adapter."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _seconds(us: int) -> str:
    seconds = us / 1e6
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
