"""The README stays short, names the two commands, and leads to what there is."""

from __future__ import annotations

import re
from pathlib import Path

from docs.walkthrough import ROOT

TEXT = (ROOT / "README.md").read_text("utf-8")


def test_it_is_short_and_names_the_two_commands() -> None:
    assert len(TEXT.splitlines()) <= 125
    for command in ("make demo", "make test"):
        assert f"\n{command} " in TEXT
        target = command.removeprefix("make ")
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def test_its_links_and_pictures_are_there() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT)
    assert len(links) > 10
    missing = [link for link in links if not Path(ROOT / link).exists()]
    assert missing == []


def test_the_extras_that_it_names_exist() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for extras in re.findall(r"'\.\[([\w,]+)\]'", TEXT):
        for extra in extras.split(","):
            assert re.search(rf"^{extra} = \[", text, re.MULTILINE), extra
