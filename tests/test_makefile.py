"""`make` notices when its environment has lost Mercury, or has it from elsewhere."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("found", ["here", "elsewhere", "nowhere"])
def test_what_is_installed_is_these_sources(found: str, tmp_path: Path) -> None:
    at = {"here": ROOT / "src" / "mercury" / "__init__.py", "elsewhere": tmp_path, "nowhere": ""}
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\necho {at[found]}\n")
    python.chmod(0o755)
    (tmp_path / ".ready").touch()
    (tmp_path / ".develop").touch()
    done = subprocess.run(
        ["make", "--dry-run", f"VENV={tmp_path}", "style"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{tmp_path}/bin/ruff check ." in done.stdout
    assert ("--editable" in done.stdout) is (found != "here")
