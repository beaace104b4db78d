"""The settings of matching."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from mercury.config import MatcherSettings
from mercury.matcher.service import rules_of
from mercury.matching import MatchingRules


def test_the_defaults_are_those_of_the_engine() -> None:
    assert rules_of(MatcherSettings()) == MatchingRules()


def test_topics_are_names() -> None:
    settings = MatcherSettings(topics=["taxi", "parking"])
    assert rules_of(settings).topics == frozenset({"taxi", "parking"})
    with pytest.raises(ValidationError, match="'two words' is no name for a topic"):
        MatcherSettings(topics=["two words"])
