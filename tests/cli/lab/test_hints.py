"""What is missing is said with the command that installs it, brackets and all, on one line."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("scipy", ("load", "--to", "null:", "--entities", "10", "--for", "1s")),
        ("redis", ("load", "--to", "redis://127.0.0.1:1", "--entities", "10", "--for", "1s")),
        ("scipy", ("bench", "match", "--entities", "1000", "--no-redis")),
    ],
)
def test_a_hint_is_whole(missing: str, arguments: tuple[str, ...]) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv = {['mercury', *arguments]!r}\n"
        "from mercury.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("mercury: ")
    assert last.endswith("pip install 'mercury-messaging[load]'")
