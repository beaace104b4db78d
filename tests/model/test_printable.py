from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from mercury.model.printable import printable, printable_lines

DANGEROUS = {"Cc", "Zl", "Zp"}


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not any(unicodedata.category(one) in DANGEROUS for one in printable(text))
    left = {one for one in printable_lines(text) if unicodedata.category(one) in DANGEROUS}
    assert left <= {"\n", "\t"}


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_what_people_write_is_left_as_it_is(text: str) -> None:
    assert printable(text) == text
    assert printable_lines(f"{text}\n\t{text}") == f"{text}\n\t{text}"


def test_escapes_are_seen() -> None:
    assert printable("\x1b[2Jall\r\nclear\x9b\u202e") == r"\x1b[2Jall\r\nclear\x9b\u202e"
