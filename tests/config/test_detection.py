"""Kinds and predicates are configuration: added, changed and refused without code."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from mercury.config import Settings, describe, load_settings, to_toml
from mercury.detection import DEFAULT_RULES, CongestionRule
from mercury.model.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _empty_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.upper().startswith("MERCURY_")]:
        monkeypatch.delenv(variable)


def write(text: str) -> Path:
    path = Path("city.toml")
    path.write_text(text, "utf-8")
    return path


def test_the_defaults_are_the_rules_of_the_cores() -> None:
    detection = Settings().detection
    assert detection.rules() == list(DEFAULT_RULES.values())
    assert detection.congestion_rule() == CongestionRule()


def test_a_kind_is_added_changed_and_switched_off() -> None:
    settings = load_settings(
        write(
            "[detection.kinds.pothole]\npredicate = 'count >= 2'\nevery_s = 30\n"
            "[detection.kinds.collision]\npredicate = 'count >= 4'\n"
            "[detection.kinds.moving-object]\nenabled = false\n"
            "[detection.congestion]\nenabled = false\n"
        )
    )
    rules = {rule.kind: rule for rule in settings.detection.rules()}
    assert (rules["pothole"].predicate, rules["pothole"].every_s) == ("count >= 2", 30.0)
    assert rules["collision"].predicate == "count >= 4"
    assert rules["collision"].text == DEFAULT_RULES["collision"].text
    assert "moving-object" not in rules
    assert rules["blocked"] == DEFAULT_RULES["blocked"]
    assert settings.detection.congestion_rule() is None
    assert settings.origin("detection.kinds.pothole.every_s") == "file"
    assert settings.origin("detection.kinds.pothole.reach_m") == "default"


def test_environment_and_flags_reach_into_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("[detection.kinds.pothole]\npredicate = 'count >= 2'\nreach_m = 50\n")
    monkeypatch.setenv("MERCURY_DETECTION__KINDS__POTHOLE__REACH_M", "60")
    monkeypatch.setenv("MERCURY_DETECTION__CONGESTION__CELL_M", "100")
    settings = load_settings(path, {"detection.congestion.slow_share": 0.4})
    pothole = settings.detection.kinds["pothole"]
    assert (pothole.predicate, pothole.reach_m) == ("count >= 2", 60.0)
    assert settings.detection.congestion.cell_m == 100.0
    assert settings.detection.congestion.slow_share == 0.4
    assert settings.origin("detection.kinds.pothole.reach_m") == "environment"
    assert settings.origin("detection.congestion.slow_share") == "flag"


def test_a_table_of_the_environment_may_be_json(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = '{"moving-object": {"predicate": "count >= 5"}}'
    monkeypatch.setenv("MERCURY_DETECTION__KINDS", kinds)
    assert load_settings().detection.kinds["moving-object"].predicate == "count >= 5"


KNOWN = "count, reports, spread_m, speed_mps, slowest_mps, fastest_mps, heading_deg, alignment, "


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[detection.kinds.pothole]\npredicate = 'cuont >= 2'",
            "detection.kinds.pothole.predicate: the predicate asks for 'cuont', known are "
            f"{KNOWN}duration_s",
        ),
        (
            "[detection.kinds.pothole]\npredicate = 'count >'",
            "detection.kinds.pothole.predicate: the predicate 'count >' cannot be read: "
            "expected a value after '>' at column 8",
        ),
        ("[detection.kinds.pothole]\nevery_s = 3", "detection.kinds.pothole needs a predicate"),
        ("[detection.kinds.pothole]", "detection.kinds.pothole needs a predicate"),
        (
            "[detection.kinds.collision]\npredicates = 'count > 1'",
            "detection.kinds.collision.predicates is not a setting, "
            "did you mean detection.kinds.collision.predicate?",
        ),
        (
            "[detection.kinds.collision]\nevery_s = 'x'",
            "detection.kinds.collision.every_s should be a valid number, not 'x'",
        ),
        (
            "[detection.kinds.collision]\nreach_m = true",
            "detection.kinds.collision.reach_m should be a number, not True",
        ),
        (
            "[detection.kinds.collision]\nreach_m = -1",
            "detection.kinds.collision.reach_m: reach_m -1 is not between 1 and 100000",
        ),
        (
            "[detection.kinds.collision]\nmax_radius_m = 100",
            "detection.kinds.collision.max_radius_m: min_radius_m 500 is above max_radius_m 100",
        ),
        ("[detection]\nkinds = 5", "detection.kinds should be a table, [detection.kinds]"),
        (
            "[detection.kinds]\npothole = 'count > 2'",
            "detection.kinds.pothole should be a table, [detection.kinds.pothole]",
        ),
        (
            "[detection.kinds.'a b']\npredicate = 'count > 2'",
            "detection.kinds.a b: 'a b' is no name for a kind",
        ),
        (
            "[detection.congestion]\nslow_share = 0.9",
            "detection.congestion.slow_share: slow_share 0.9 is above free_share 0.7",
        ),
        (
            "[detection.congestion]\ncell = 100",
            "detection.congestion.cell is not a setting, did you mean detection.congestion.cell_m?",
        ),
        (
            "[detection.pothole]\npredicate = 'count > 1'",
            "detection.pothole.predicate is not a setting, "
            "did you mean detection.kinds.<name>.predicate?",
        ),
    ],
)
def test_mistakes_are_one_clear_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(write(text))
    assert str(caught.value) == f"city.toml: {sentence}"


def test_what_is_written_can_be_read_back() -> None:
    path = write("[detection.kinds.'ice.black']\npredicate = 'count >= 1'\n")
    with pytest.raises(ConfigurationError, match=r"detection\.kinds\.ice"):
        load_settings(path)  # a dot would make the name of the setting ambiguous
    settings = load_settings(write("[detection.kinds.ice-1]\npredicate = 'count >= 1'\n"))
    again = load_settings(write(to_toml(settings)))
    assert again.detection == settings.detection
    assert set(tomllib.loads(to_toml(settings))["detection"]["kinds"]) == {*DEFAULT_RULES, "ice-1"}


def test_every_setting_is_shown_with_what_it_is_for() -> None:
    rows = [row for row in describe(Settings()) if row.name.startswith("detection.")]
    assert all(row.description for row in rows)
    names = {row.name for row in rows}
    assert {"detection.kinds.moving-object.predicate", "detection.congestion.cell_m"} <= names
