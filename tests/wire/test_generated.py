"""The committed code is what protoc makes of the committed mercury.proto."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WIRE = Path(__file__).parents[2] / "src" / "mercury" / "wire"


def code_of(path: Path) -> list[str]:
    """The lines that do something; comments and the check carry the versions of the tools."""
    lines = path.read_text("utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def without_version_check(lines: list[str]) -> list[str]:
    """Leave out the call that checks protoc's version against the run-time's."""
    start = next(i for i, line in enumerate(lines) if "ValidateProtobufRuntimeVersion(" in line)
    end = next(i for i in range(start, len(lines)) if lines[i].strip() == ")")
    return lines[:start] + lines[end + 1 :]


def test_generated_code_is_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={WIRE}",
            f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", "mercury.proto",
        ],
        check=True,
    )  # fmt: skip
    fresh, committed = (code_of(folder / "mercury_pb2.py") for folder in (tmp_path, WIRE))
    assert without_version_check(fresh) == without_version_check(committed)
    assert code_of(tmp_path / "mercury_pb2.pyi") == code_of(WIRE / "mercury_pb2.pyi")
