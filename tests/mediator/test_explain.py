"""Every way a message can end has a sentence, and the sentence is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mercury.mediator.explain import (
    Whereabouts,
    about_all,
    about_message,
    about_one,
    about_unaddressable,
    about_unaddressed,
    about_uplink,
)
from mercury.mediator.ledger import Entry, Ledger
from mercury.model.area import Area, Circle, HeadingSector, Position
from mercury.model.delivery import Deliveries, Delivery, DeliveryState, Reason
from mercury.model.message import Address, Event, Kind, Message

S = 1_000_000
SENT, END = 100 * S, 160 * S
ACKNOWLEDGED, EXPIRED, REFUSED, UNREACHABLE, WAITING = (
    DeliveryState.ACKNOWLEDGED, DeliveryState.EXPIRED, DeliveryState.REFUSED,
    DeliveryState.UNREACHABLE, DeliveryState.WAITING,
)  # fmt: skip
CENTER, INSIDE, OUTSIDE = Position(40.0, -111.0), (40.001, -111.0), (40.1, -111.0)


def clock(time_us: int) -> str:
    return f"t{time_us / S:g}"


def row(
    state: DeliveryState,
    reason: str = "",
    tries: int = 1,
    settled: float = 0,
    addressed: float = 101,
) -> Delivery:
    sent = 102 * S if tries else 0
    return Delivery("car", state, reason, tries, int(addressed * S), sent, int(settled * S))


@pytest.mark.parametrize(
    ("delivery", "now", "sentence"),
    [
        (
            row(ACKNOWLEDGED, settled=101.25),
            110,
            "acknowledged it at t101.25, 250 ms after it was addressed.",
        ),
        (
            row(ACKNOWLEDGED, tries=3, settled=106),
            110,
            "acknowledged it at t106, 5.0 s after it was addressed (sent 3 times).",
        ),
        (
            row(ACKNOWLEDGED, settled=161),
            170,
            "acknowledged it at t161, after it had expired at t160.",
        ),
        (row(ACKNOWLEDGED, settled=110, addressed=0), 120, "acknowledged it at t110."),
        (row(ACKNOWLEDGED, tries=0, settled=110), 120, "has it: it said so when it came back."),
        (
            row(REFUSED, "expired", settled=161),
            170,
            "received it and refused it at t161: it had expired.",
        ),
        (
            row(REFUSED, "outside-area", settled=110),
            120,
            "received it and refused it at t110: the client had left the area.",
        ),
        (
            row(REFUSED, "no-such-task", settled=110),
            120,
            "received it and refused it at t110: no-such-task.",
        ),
        (row(REFUSED, settled=110), 120, "received it and refused it at t110: without saying why."),
        (
            row(EXPIRED, Reason.NOT_ACKNOWLEDGED, 4, 160),
            170,
            "did not answer: it was sent 4 times from t102 until it expired at t160.",
        ),
        (
            row(EXPIRED, Reason.NOT_ASKED, 1, 160),
            170,
            "was sent it once, and whether it arrived is not known: "
            "fire-and-forget asks for no answer.",
        ),
        (
            row(EXPIRED, Reason.NOT_SENT, 0, 160),
            170,
            "was there, and it was not sent before it expired at t160: the link was full.",
        ),
        (row(UNREACHABLE, Reason.AWAY, 0, 160), 170, "had no session until it ended at t160."),
        (
            row(UNREACHABLE, Reason.AWAY, 2, 160),
            170,
            "did not answer: it was sent twice, then its session ended, "
            "and none was opened until the message ended at t160.",
        ),
        (
            row(UNREACHABLE, Reason.GAVE_UP, 6, 114),
            120,
            "did not answer: it was sent 6 times from t102, and given up at t114.",
        ),
        (
            row(UNREACHABLE, Reason.NO_ROOM, 0, 114),
            120,
            "was given up at t114: too many messages were waiting.",
        ),
        (
            row(UNREACHABLE, Reason.NEVER_ADDRESSED, 0, 160),
            170,
            "was there at t101, and no adapter sent it: it had no session then, "
            "its adapter was down, or the area is outside its adapter's coverage.",
        ),
        (
            row(WAITING),
            110,
            "has not answered yet: it was first sent at t102, and is repeated until t160.",
        ),
        (
            row(WAITING, tries=0),
            110,
            "has not been sent it yet: it has no session, or the link is full; "
            "Mercury tries until t160.",
        ),
        # It has expired, and no adapter has lived to say how it ended.
        (row(WAITING), 160, "did not answer before it expired at t160: it was sent from t102 on."),
        (
            row(WAITING, tries=0),
            160,
            "had no session, or the link was full, until it expired at t160.",
        ),
    ],
)
def test_how_it_ended_for_one(delivery: Delivery, now: float, sentence: str) -> None:
    assert about_one(delivery, END, int(now * S), clock) == f"car {sentence}"


def test_what_is_open_without_an_end_or_an_answer() -> None:
    assert about_one(row(WAITING), 0, 10**15, clock) == (
        "car has not answered yet: it was first sent at t102, and is repeated."
    )
    assert about_one(row(WAITING, tries=0), 0, 10**15, clock) == (
        "car has not been sent it yet: it has no session, or the link is full."
    )
    for now_us in (SENT, END):
        assert about_one(row(WAITING), END, now_us, clock, asked=False) == (
            "car was sent it at t102, and whether it arrived is not known: "
            "fire-and-forget asks for no answer."
        )


def test_every_state_and_reason_has_a_sentence_of_its_own() -> None:
    """So that a new one cannot be forgotten here."""
    said = {
        (state, reason): about_one(row(state, reason, settled=110), END, 120 * S, clock)
        for state in DeliveryState
        for reason in Reason
    }
    assert all(one.startswith("car ") and one.endswith(".") for one in said.values())
    ends = {
        said[EXPIRED, Reason.NOT_ACKNOWLEDGED], said[EXPIRED, Reason.NOT_ASKED],
        said[EXPIRED, Reason.NOT_SENT], said[UNREACHABLE, Reason.AWAY],
        said[UNREACHABLE, Reason.GAVE_UP], said[UNREACHABLE, Reason.NO_ROOM],
        said[UNREACHABLE, Reason.NEVER_ADDRESSED], said[ACKNOWLEDGED, Reason.NONE],
        said[REFUSED, Reason.NONE], said[WAITING, Reason.NONE],
    }  # fmt: skip
    assert len(ends) == len(Reason) + 2


def to_area(
    *, sector: HeadingSector | None = None, begins: float | None = None, end_us: int = END
) -> Message:
    area = Area(
        Circle(CENTER, 500.0), sector, None if begins is None else int(begins * S), end_us or None
    )
    return addressed(Address.to_area(area), end_us)


def addressed(to: Address, end_us: int = END) -> Message:
    return Message(
        kind=Kind.ALERT, source=Address.service("office"), destination=to, sent_us=SENT,
        expires_us=end_us, payload=Event("flood", text="Flood"),
    )  # fmt: skip


def unaddressed(
    message: Message, *reports: tuple[float, tuple[float, float], float], now: float = 200.0
) -> str:
    seen = Whereabouts(message)
    for time, (lat, lon), heading in reports:
        seen.report(lat, lon, heading, int(time * S))
    said = about_unaddressed("car", message, seen, int(now * S), clock)
    assert said.startswith("car ")
    return said.removeprefix("car ")


NO_HEADING = float("nan")


def test_who_stood_in_the_centre_with_the_wrong_heading() -> None:
    eastward = to_area(sector=HeadingSector(90.0, 45.0))
    said = unaddressed(eastward, (110, (40.0, -111.0), 270.0))
    assert said == (
        "was not addressed: it was inside the area at t110, heading 270°, "
        "and the message is for headings of 90° ± 45° only."
    )
    # Who says nothing of its heading is inside.
    assert unaddressed(eastward, (110, INSIDE, NO_HEADING)).startswith("was there at t110, and no")
    before = unaddressed(eastward, (90, INSIDE, 90.0), (99, INSIDE, 270.0))
    assert before == (
        "was not addressed: at its last report before, at t99, it was inside the area, "
        "heading 270°, and the message is for headings of 90° ± 45° only."
    )
    # Who turned was to hear it.
    turned = unaddressed(eastward, (110, INSIDE, 270.0), (111, INSIDE, 80.0))
    assert turned.startswith("was there at t111, and no adapter sent it")


def test_who_was_outside_the_area() -> None:
    reports = [(110.0, OUTSIDE, 0.0), (120.0, OUTSIDE, 0.0)]
    sentence = "was not addressed: none of its 2 reports between t110 and t120 was inside the area."
    assert unaddressed(to_area(), *reports) == sentence
    assert unaddressed(to_area(), reports[0]) == (
        "was not addressed: its only report, at t110, was outside the area."
    )
    holds = unaddressed(to_area(), *reports, now=130.0)
    assert holds == f"{sentence} It gets it if it comes in before t160."


def test_who_was_inside_only_before_or_after_it_held() -> None:
    before = unaddressed(to_area(), (90, INSIDE, 0.0), (110, OUTSIDE, 0.0))
    assert before == (
        "was not addressed: it was last inside the area at t90, "
        "before the message held from t100 on."
    )
    early = unaddressed(to_area(begins=130), (110, INSIDE, 0.0), (140, OUTSIDE, 0.0))
    assert early == (
        "was not addressed: it was last inside the area at t110, "
        "before the message held from t130 on."
    )
    after = unaddressed(to_area(), (110, OUTSIDE, 0.0), (165, INSIDE, 0.0))
    assert after == (
        "was not addressed: it was inside the area at t165, after the message had ended at t160."
    )
    said = "was not addressed: it was silent while the message held: its last report was"
    assert unaddressed(to_area(), (90, INSIDE, 0.0)) == f"{said} inside the area at t90."
    assert unaddressed(to_area(), (90, OUTSIDE, 0.0)) == (
        "was not addressed: its last report before, at t90, was outside the area, "
        "and none came while it held."
    )
    assert unaddressed(addressed(Address.group("blue")), (90, INSIDE, 0.0)) == f"{said} at t90."


def test_what_has_no_end_is_for_those_who_were_there_when_it_came() -> None:
    moment = to_area(end_us=0)
    assert unaddressed(moment, (90, OUTSIDE, 0.0), (99, INSIDE, 0.0)).startswith("was there at t99")
    left = unaddressed(moment, (90, INSIDE, 0.0), (99, OUTSIDE, 0.0))
    assert left == (
        "was not addressed: none of its 2 reports between t90 and t99 was inside the area."
    )
    late = unaddressed(moment, (99, OUTSIDE, 0.0), (120, INSIDE, 0.0))
    assert late == (
        "was not addressed: it was inside the area at t120, after the message was sent."
    )


def test_what_does_not_hold_yet() -> None:
    later = to_area(begins=130)
    sentence = "has not been addressed yet: the message holds from t130 on."
    assert unaddressed(later, now=110.0) == sentence
    assert unaddressed(later, (105, INSIDE, 0.0), now=129.0) == sentence
    assert unaddressed(later, now=131.0).startswith("was not addressed: it was silent")


def test_of_whom_nothing_is_known() -> None:
    sentence = (
        "was not addressed: it was silent while the message held: "
        "it had no session, or there is no client of this name."
    )
    for to in (Address.everyone(), Address.group("blue")):
        assert unaddressed(addressed(to)) == sentence
    assert unaddressed(to_area()) == sentence


def test_who_was_there_and_was_not_meant_or_not_found() -> None:
    there = (110.0, OUTSIDE, 0.0)
    assert unaddressed(addressed(Address.group("blue")), there) == (
        "was not addressed: it was not in the group blue."
    )
    assert unaddressed(addressed(Address.everyone()), there).startswith(
        "was there at t110, and no adapter sent it"
    )
    assert unaddressed(addressed(Address.client("ben")), there) == (
        "was not addressed: it was for ben alone."
    )


def test_who_is_named_and_has_not_come() -> None:
    mine = addressed(Address.client("car"))
    assert unaddressed(mine, now=110.0) == (
        "has had no session since it was sent: it gets it if it comes back before t160."
    )
    assert unaddressed(mine, now=160.0) == "had no session until it ended at t160."
    for_ever = addressed(Address.client("car"), end_us=0)
    assert unaddressed(for_ever) == (
        "has had no session since it was sent: it gets it if it comes back."
    )


def test_who_sent_it_is_not_addressed() -> None:
    own = replace(addressed(Address.group("blue")), source=Address.client("car"))
    assert unaddressed(own) == "was not addressed: it sent the message itself."


def test_the_sentence_about_all_recipients() -> None:
    message = addressed(Address.group("blue"))
    entry = Entry(Deliveries(message.id, "service:office", ()))

    def said(now: float, end_us: int = END) -> str:
        return about_all(entry, Ledger().summary([entry]), end_us, int(now * S), clock)

    assert said(110) == "Nobody has been addressed yet; it holds until t160."
    assert said(160) == "Nobody was addressed before it ended at t160."
    assert said(160, 0) == "Nobody was addressed."
    states = [ACKNOWLEDGED, ACKNOWLEDGED, EXPIRED, REFUSED, UNREACHABLE, WAITING]
    for number, state in enumerate(states):
        entry.rows[str(number)] = row(state, settled=102 if state is not WAITING else 0)
    rest = "1 expired without an answer, 1 refused it (without saying why), 1 could not be reached"
    heard = "6 were addressed: 2 acknowledged it (median 1 s, last 1 s)"
    assert said(110) == f"{heard}, {rest}, 1 have not answered yet."
    assert said(160) == f"{heard}, {rest}, 1 did not answer in time."
    entry.rows = {"0": row(ACKNOWLEDGED, settled=101.0042)}
    assert said(110) == "1 was addressed: 1 acknowledged it (median 0.0042 s, last 0.0042 s)."
    assert about_message(message, clock) == (
        f"{message.id}: flood 'Flood' from service:office at t100 to group:blue, valid until t160."
    )


@pytest.mark.parametrize(
    ("state", "reason", "sentence"),
    [
        (WAITING, "", "It is on its way: the adapter has not answered yet, and it is repeated."),
        (REFUSED, "bad-topic", "The adapter refused it: bad-topic."),
        (EXPIRED, Reason.NOT_ACKNOWLEDGED, "It expired before the adapter answered."),
        (UNREACHABLE, Reason.AWAY, "It expired while there was no session with an adapter."),
        (UNREACHABLE, Reason.GAVE_UP, "It was given up: the adapter did not answer."),
    ],
)
def test_what_never_reached_the_adapter(state: DeliveryState, reason: str, sentence: str) -> None:
    assert about_uplink(state, reason) == sentence


def test_what_is_not_addressed_to_anybody() -> None:
    event = Message(kind=Kind.EVENT, source=Address.client("car"), destination=Address.broker())
    alert = addressed(Address.everyone())
    assert about_unaddressable(event, None) == (
        "An event goes to the brokers, who decide whom to alert."
    )
    assert about_unaddressable(event, alert).endswith(
        f"It became the alert {alert.id}: ask for that one."
    )
