"""What cannot be written is refused at once, in one sentence, before Spark is waited for."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mercury.cli.main import app
from mercury.model.errors import ConfigurationError, MercuryError
from mercury.pipeline.folders import check_output, check_writable

# Where nobody can make anything, root neither.
NOWHERE = Path("/proc/nowhere")


def test_a_folder_to_be_made_is_as_writable_as_the_one_it_is_in(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "newer")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigurationError, match=f"^{NOWHERE} cannot be written: No such file"):
        check_writable(NOWHERE)


def test_what_is_there_is_replaced_only_on_purpose(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is not empty: choose another, or say"):
        check_output(tmp_path, overwrite=False)
    check_output(tmp_path, overwrite=True)
    with pytest.raises(ConfigurationError, match="is a file, not a folder"):
        check_output(tmp_path / "file", overwrite=True)


@pytest.mark.parametrize(
    "command",
    [
        "import a.csv --to parquet {}",
        "import a.csv --to parquet table --rejects {}",
        "import a.csv --bus embedded:{}",
        "history compact --folder /proc/self/task",
        "history ledger --folder /proc/self/task",
        "history encounters --folder h --out {}",
        "replay --from 2h --to 1h --folder h --bus embedded:{}",
        "pipeline --bus embedded:bus.db --checkpoint {}",
    ],
)
def test_a_target_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "a.csv").write_text("id,time,lat,lon\n1,1,45,9\n")
    (tmp_path / "h").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # whoever looks for Java fails otherwise
    arguments = command.format(NOWHERE / "x").split()
    with pytest.raises(MercuryError, match=r"^\S+ cannot be written: .*|the folder \S+ of the bus"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
