"""Settings for the tests of the matcher."""

from __future__ import annotations

import pytest

from mercury.matching import warm_up


@pytest.fixture(scope="session", autouse=True)
def _machine_code() -> None:
    """The first test of a fresh checkout would wait half a minute for it, in vain."""
    warm_up()
