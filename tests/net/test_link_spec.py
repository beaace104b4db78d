"""Links as text: every key, presets and what stands over them, and errors in one sentence."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercury.model.errors import ConfigurationError
from mercury.net import (
    Blackout,
    DropOff,
    Link,
    LinkPair,
    LinkSettings,
    Outages,
    link_from,
    parse_link,
)
from mercury.net.link_settings import _KEYS, PRESETS

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "links.md"


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("loss=0.3", {"loss": 0.3}),
        ("loss=30%", {"loss": 0.3}),
        ("loss=.5", {"loss": 0.5}),
        ("loss = 1 , delay = 2", {"loss": 1.0, "delay_s": 2.0}),
        ("delay=50ms,jitter=1.5s", {"delay_s": 0.05, "jitter_s": 1.5}),
        ("delay=2min", {"delay_s": 120.0}),
        ("range=300m..1km", {"loss_by_range": DropOff.between(300, 1000)}),
        ("range=300..1km~smooth", {"loss_by_range": DropOff.between(300, 1000, smooth=True)}),
        ("range=500", {"loss_by_range": DropOff.between(500, 500)}),
        (
            "range=0m:0/300m:10%/1km:1",
            {"loss_by_range": DropOff(((0, 0), (300, 0.1), (1000, 1)))},
        ),
        ("size=1000", {"loss_by_size": DropOff.between(1000, 1000)}),
        ("size=500..1kB", {"loss_by_size": DropOff.between(500, 1000)}),
        ("size=1KiB:0/2KiB:20%", {"loss_by_size": DropOff(((1024, 0), (2048, 0.2)))}),
        ("rate=10", {"packets_per_s": 10.0}),
        ("rate=10/s", {"packets_per_s": 10.0}),
        ("rate=600/min", {"packets_per_s": 10.0}),
        ("rate=1/20s", {"packets_per_s": 0.05}),
        ("bandwidth=500", {"bytes_per_s": 500.0}),
        ("bandwidth=50kB/s", {"bytes_per_s": 50e3}),
        ("bandwidth=64kbit/s,burst=0,queue=2s",
         {"bytes_per_s": 8000.0, "burst_s": 0.0, "queue_s": 2.0}),
        ("order=keep", {"keep_order": True}),
        ("order=free", {}),
        ("duplicate=1%", {"duplicate": 0.01}),
        ("reorder=5%", {"reorder": 0.05}),
        ("reorder=5%+200ms", {"reorder": 0.05, "reorder_by_s": 0.2}),
        ("blackout=30s+5s", {"blackouts": (Blackout(30, 5),)}),
        ("blackout=30s+5s/1min,blackout=2+1",
         {"blackouts": (Blackout(30, 5, 60), Blackout(2, 1))}),
        ("blackout=30s+5s,blackout=none", {}),
        ("outage=60s+3s", {"outages": Outages(60, 3)}),
        ("outage=60s+3s:80%", {"outages": Outages(60, 3, 0.8)}),
    ],
)  # fmt: skip
def test_every_form_of_a_setting_is_read(text: str, settings: dict[str, Any]) -> None:
    expected = LinkSettings(**settings)
    assert parse_link(text) == LinkPair(expected, expected)


def test_each_direction_for_itself() -> None:
    pair = parse_link("up:loss=0.3;down:loss=0.1,delay=1s")
    assert pair == (LinkSettings(loss=0.3), LinkSettings(loss=0.1, delay_s=1.0))
    assert parse_link("up:loss=0.3") == (LinkSettings(loss=0.3), LinkSettings())


def test_later_parts_stand_over_earlier_ones() -> None:
    pair = parse_link("loss=0.1,delay=1s; down: loss=0.2")
    assert pair == (LinkSettings(loss=0.1, delay_s=1), LinkSettings(loss=0.2, delay_s=1))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_by_name(name: str) -> None:
    assert parse_link(name) == parse_link(PRESETS[name])


def test_a_preset_says_what_it_says() -> None:
    wifi = LinkSettings(
        loss=0.01,
        loss_by_range=DropOff.between(80.0, 250.0, smooth=True),
        bytes_per_s=2.5e6,
        queue_s=0.1,
        delay_s=0.002,
        jitter_s=0.008,
    )
    assert parse_link("wifi") == (wifi, wifi)
    both = LinkSettings(loss=0.005, queue_s=0.5, outages=Outages(300.0, 3.0))
    assert parse_link("cellular") == (
        replace(both, bytes_per_s=1e6, delay_s=0.03, jitter_s=0.03),
        replace(both, bytes_per_s=4e6, delay_s=0.025, jitter_s=0.02),
    )


def test_presets_with_changes() -> None:
    up, down = parse_link("cellular")
    assert up != down
    changed = parse_link("cellular,loss=0.25,outage=none")
    assert changed == (
        replace(up, loss=0.25, outages=None),
        replace(down, loss=0.25, outages=None),
    )
    assert parse_link("up:satellite;down:cellular,delay=0") == (
        parse_link("satellite").up,
        replace(down, delay_s=0.0),
    )
    assert parse_link("loss=0.25,blackout=1+1,wifi") == parse_link("wifi")
    # A contradiction counts only at the end.
    assert parse_link("acoustic,reorder=10%,order=free").up.reorder == 0.1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the link '' has an empty item"),
        ("loss=0.1,,delay=1", "has an empty item"),
        ("up:", "the link 'up:' has an empty item"),
        ("loss=0.1;", "has an empty item"),
        ("lss=1", "a link has no 'lss', did you mean loss?"),
        ("sideways:loss=1", "a link has no 'sideways:loss'"),
        ("loss=0.1,up:delay=1", "a ; is missing before 'up:delay'"),
        ("celular", "there is no link named 'celular', did you mean cellular?"),
        ("zzz", "there is no link named 'zzz', there are perfect, wifi,"),
        ("loss", "there is no link named 'loss', did you mean loss?"),
        ("loss=", "the link's loss is a share such as 0.3 or 30%, not ''"),
        ("loss=2", "loss is a share between 0 and 1, not 2"),
        ("loss=3s", "the link's loss is a share such as"),
        ("loss=nan", "the link's loss is a share such as"),
        ("delay=-1", "the link's delay is a time such as 50ms or 2s, not '-1'"),
        ("delay=1e400", "delay_s is not negative and has an end"),
        ("delay=5m", "the link's delay is a time such as"),
        ("range=1km..300m", "a drop-off cannot begin at 1000 and end at 300"),
        ("range=1..2~wavy", "the link's range is a limit 500m, a drop-off"),
        ("range=0:0/x", "the link's range is"),
        ("range=1..2..3", "the link's range is"),
        ("range=5:0/1:1", "not negative and rise"),
        ("size=big", "the link's size is a limit 1000"),
        ("rate=1/0s", "the link's rate is a number of packets such as 10/s or 1/30s"),
        ("rate=fast", "the link's rate is"),
        ("rate=0", "packets_per_s is above 0"),
        ("bandwidth=3furlongs", "the link's bandwidth is bytes or bits a second"),
        ("order=maybe", "the link's order is keep or free, not 'maybe'"),
        ("order=keep,reorder=1%", "keeps the order cannot reorder"),
        ("blackout=5", "the link's blackout is START[+]LENGTH such as 30s[+]5s"),
        ("blackout=1+5/3", "a blackout of 5 s every 3 s never ends"),
        ("outage=5", "the link's outage is mean times good[+]bad"),
        ("outage=0+5", "the mean time up is above 0"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=re.sub(r"([?|()])", r"\\\1", sentence)) as caught:
        parse_link(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30) | st.text("updownls=:;,.+/~%0123e", max_size=30))
def test_any_text_is_a_link_or_a_clear_error(text: str) -> None:
    try:
        pair = parse_link(text)
    except ConfigurationError as error:
        assert len(str(error).splitlines()) == 1
        return
    arrivals = link_from(pair, 1).carry("up", 100, 0.0)
    assert arrivals == sorted(arrivals)
    assert all(0.0 <= at < math.inf for at in arrivals)


def fates(link: Link) -> list[list[float]]:
    return [link.carry("up", 1, 0.0) for _ in range(64)]


def test_a_text_and_a_seed_make_a_link() -> None:
    assert fates(link_from("lossy50", 1)) == fates(link_from(parse_link("loss=50%"), 1))
    assert fates(link_from("lossy50", 1)) != fates(link_from("lossy50", 2))
    assert fates(link_from("lossy50", None)) != fates(link_from("lossy50", None))
    link = Link(LinkSettings(), LinkSettings(), random.Random(1))
    assert link_from(link, 2) is link


# What the documentation says


def test_the_docs_name_every_key_and_preset() -> None:
    text = DOCS.read_text("utf-8")
    rows = set(re.findall(r"^\| `(\w+)", text, re.MULTILINE))
    assert rows == {*_KEYS, *PRESETS}


def test_the_links_of_the_docs_are_links() -> None:
    text = DOCS.read_text("utf-8")
    links = re.findall(r"--link '?([^\s'`]+)", text) + re.findall(r'link ?= ?"([^"]+)"', text)
    assert len(links) > 5
    for link in links:
        if link != "none":
            parse_link(link)


def test_the_python_of_the_docs_runs() -> None:
    first, second = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(first, names)
    assert names["client"].link.carry("up", 100, 0.0, range_m=251.0) == []
    exec(second, names)
    assert names["arrivals"] in ([], [0.0])
    assert names["link"].up.statistics.sent == 1
