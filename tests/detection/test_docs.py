"""The page about detection says what is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from mercury.config import Settings
from mercury.detection import MEASURES

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "detection-rule.md").read_text("utf-8")


def test_its_examples_are_settings() -> None:
    examples = re.findall(r"```toml.*?\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 2
    first, second = (Settings.model_validate(tomllib.loads(text)) for text in examples)
    assert "pothole" in {rule.kind for rule in first.detection.rules()}
    assert "moving-object" not in {rule.kind for rule in second.detection.rules()}
    assert second.detection.congestion.on_after_s == 180.0


def test_it_lists_all_names_of_predicates() -> None:
    table = PAGE[PAGE.index("| name | what it is |") : PAGE.index("A speed or heading")]
    assert re.findall(r"`(\w+)`", table) == list(MEASURES)
