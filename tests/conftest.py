"""Settings for all tests; makes the tests' own modules importable as `session.world` and so on."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# A loaded machine is no failure; what is too slow shows in `--durations`.
settings.register_profile("mercury", deadline=None, print_blob=True)
settings.load_profile("mercury")
