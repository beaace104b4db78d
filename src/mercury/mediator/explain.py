"""What became of a message, in sentences a person understands."""

from __future__ import annotations

from collections.abc import Callable

from mercury.mediator.ledger import Entry, Summary
from mercury.model.delivery import Delivery, DeliveryState, Reason

Clock = Callable[[int], str]  # microseconds since the epoch -> a time of day for people


def about_one(row: Delivery, ends_us: int, clock: Clock) -> str:
    """What became of a message for one recipient."""
    name = row.client
    if row.state is DeliveryState.ACKNOWLEDGED:
        if not row.tries:
            return f"{name} has it: it said so when it came back."
        took = _seconds(row.settled_us - row.addressed_us)
        return (
            f"{name} acknowledged it at {clock(row.settled_us)}, {took} after it was addressed"
            f"{_tries(row, ' (sent {})')}."
        )
    if row.state is DeliveryState.REFUSED:
        reason = {
            "expired": "when it arrived it had expired",
            "outside-area": "when it arrived the client was no longer in the area",
        }.get(row.reason, row.reason or "without saying why")
        return f"{name} received it and refused it at {clock(row.settled_us)}: {reason}."
    if row.state is DeliveryState.EXPIRED:
        return _expired(row, clock)
    if row.state is DeliveryState.UNREACHABLE:
        return _unreachable(row, clock)
    until = f", and tries until {clock(ends_us)}" if ends_us else ""
    if row.tries:
        since = clock(row.first_sent_us)
        return (
            f"{name} has not answered yet: Mercury sent it {_times(row.tries)} "
            f"since {since}{until}."
        )
    return f"{name} is away: Mercury sends it when it comes back{until}."


def _expired(row: Delivery, clock: Clock) -> str:
    name, end = row.client, clock(row.settled_us)
    if row.reason == Reason.NOT_ASKED:
        return (
            f"{name} was sent it {_times(row.tries)}, and whether it arrived is not known: "
            "fire-and-forget asks for no answer."
        )
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
            f"{name} was there at {clock(row.addressed_us)}, and no adapter sent it: "
            "it had no session then, or its adapter was down."
        )
    if row.reason == Reason.NO_ROOM:
        return f"{name} was given up at {end}: too many messages were waiting."
    sent = f" after it was sent {_times(row.tries)} without an answer" if row.tries else ""
    return f"{name} had no session{sent} until it ended at {end}."


def about_all(entry: Entry, summary: Summary) -> str:
    """What became of a message, for all recipients together."""
    if not entry.rows:
        return "Nobody was addressed."
    states = summary.states
    parts = []
    heard = states[DeliveryState.ACKNOWLEDGED]
    if heard:
        median, last = summary.delay_s(0.5), summary.delay_s(1.0)
        took = (
            "" if median is None or last is None else f" (median {median:.2f} s, last {last:.2f} s)"
        )
        parts.append(f"{heard} acknowledged it{took}")
    words = {
        DeliveryState.EXPIRED: "expired without an answer",
        DeliveryState.REFUSED: "refused it",
        DeliveryState.UNREACHABLE: "could not be reached",
        DeliveryState.WAITING: "have not answered yet",
    }
    parts += [f"{states[state]} {text}" for state, text in words.items() if states[state]]
    count = len(entry.rows)
    return f"{count} {'was' if count == 1 else 'were'} addressed: {', '.join(parts)}."


def _tries(row: Delivery, text: str) -> str:
    return text.format(_times(row.tries)) if row.tries > 1 else ""


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _seconds(us: int) -> str:
    seconds = us / 1e6
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
