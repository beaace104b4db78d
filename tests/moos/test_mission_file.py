"""A .moos file: its pMediator block is read, and every mistake is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercury.model.errors import ConfigurationError
from mercury.moos.settings import read_mediator_block, read_moos_file

# pMediator Listing 5.1, in a file of the usual shape.
MISSION = """\
ServerHost = localhost   // where the MOOSDB is
ServerPort = 9000
Community  = abe
//----------------------------------------
ProcessConfig = ANTLER
{
  Run = MOOSDB @ NewConsole = false
  max_trys = whatever, this is not ours
}
ProcessConfig = pMediator
{
  AppTick   = 4
  CommsTick = 4
  resend_thresh = 3
  max_tries = 6 // rather than 5
  // and not all of them
  no_ack_vars = MUSTER_STATUS
  group = blue_team
  mates = deb,fin
}
"""


def test_the_block_of_the_paper() -> None:
    assert read_mediator_block(MISSION) == {
        "community": "abe",
        "resend_thresh": 3.0,
        "max_tries": 6,
        "no_ack_vars": "MUSTER_STATUS",
        "group": "blue_team",
        "mates": "deb,fin",
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Community = abe\n", "there is no block ProcessConfig = pMediator"),
        (
            "ProcessConfig = pMediator\n{\nmax_trys = 6\n}",
            "line 3: max_trys is no setting of pMediator, did you mean max_tries?",
        ),
        ("ProcessConfig = pMediator\n{\nzzz = 6\n}", "line 3: zzz is no setting of pMediator"),
        (
            "ProcessConfig = pMediator\n{\nmax_tries = six\n}",
            "line 3: max_tries = six is no number from 1 on",
        ),
        (
            "ProcessConfig = pMediator\n{\nmax_tries = 0\n}",
            "line 3: max_tries = 0 is no number from 1 on",
        ),
        (
            "ProcessConfig = pMediator\n{\nresend_thresh = 0\n}",
            "line 3: resend_thresh = 0 is no time in seconds",
        ),
        ("ProcessConfig = pMediator\n{\ngroup = \n}", "line 3: group is empty"),
        ("ProcessConfig = pMediator\n{\nmates\n}", "line 3: expected NAME = VALUE, not 'mates'"),
        ("ProcessConfig = pMediator\n{\nmate = deb\n", "the block of pMediator is not closed"),
        (
            "ProcessConfig = pShare\n{\nProcessConfig = pMediator\n{\n}",
            "line 3: the block of pShare is not closed",
        ),
        (
            "ProcessConfig = pMediator\nmate = deb\n",
            "line 2: expected { after ProcessConfig = pMediator",
        ),
        ("#include plug.moos\n", "line 1: #include is for nsplug, expand it first"),
    ],
)
def test_mistakes_in_a_moos_file(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_mediator_block(text)
    assert str(caught.value) == sentence


def test_a_mistake_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "abe.moos"
    with pytest.raises(ConfigurationError, match=r"abe\.moos cannot be read: No such file"):
        read_moos_file(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"abe\.moos is not UTF-8 text"):
        read_moos_file(path)
    path.write_text("ProcessConfig = pMediator { mates }")
    with pytest.raises(ConfigurationError, match=r"abe\.moos: line 1: "):
        read_moos_file(path)


@given(
    st.lists(
        st.sampled_from(
            [
                "ProcessConfig",
                "=",
                " pMediator",
                "{",
                "}",
                "\n",
                "mates",
                "a",
                "//",
                "#",
                "max_tries",
            ]
        )
    ).map("".join)
    | st.text()
)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_mediator_block(text)
    except ConfigurationError as error:
        assert "\n" not in str(error)
