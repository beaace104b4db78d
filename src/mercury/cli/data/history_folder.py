"""What the commands on stored tables share: the folder, and a Spark session to ask with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mercury.cli.common import command, times
from mercury.cli.common.spinner import waiting
from mercury.config import Settings
from mercury.model.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mercury.pipeline.history.files import HistoryFolder

FolderOption = Annotated[
    Path | None,
    typer.Option(help="Folder of the stored tables; default beside the bus file", metavar="DIR"),
]
MasterOption = Annotated[
    str | None, typer.Option("--spark-master", help="local[N], spark://HOST:PORT, …", metavar="URL")
]
FromOption = Annotated[str | None, typer.Option("--from", help=times.TIME_HELP, metavar="TIME")]
ToOption = Annotated[str | None, typer.Option("--to", help="Just before this", metavar="TIME")]


def load(config: Path | None, folder: Path | None, spark_master: str | None = None) -> Settings:
    """The settings that these commands look at."""
    return command.settings_for(
        config, pipeline__history_folder=folder, pipeline__spark_master=spark_master
    )


def folder_of(settings: Settings) -> Path:
    """Where the tables are stored, if any are."""
    folder = settings.pipeline.history_folder
    if folder is not None:
        return folder
    scheme, _, path = settings.bus.uri.partition(":")
    if scheme != "embedded":
        raise ConfigurationError("with this bus, say where history is: --folder")
    return Path(f"{path}-history")


def opened(settings: Settings, *, to_write: bool = False) -> HistoryFolder:
    """The folder, if anything was ever stored in it."""
    folder = folder_of(settings)
    from mercury.pipeline.folders import check_writable
    from mercury.pipeline.history.files import HistoryFolder

    if not folder.is_dir():
        raise ConfigurationError(f"nothing was stored in {folder}: there is no such folder")
    if to_write:
        check_writable(folder)
    return HistoryFolder(folder)


@contextmanager
def session(settings: Settings) -> Iterator[SparkSession]:
    """Spark, for as long as it takes."""
    from mercury.pipeline.spark.session import spark_session

    with waiting("Spark is starting"), ExitStack() as started:
        spark = started.enter_context(
            spark_session(settings.pipeline.spark_master, name="mercury-history")
        )
        left = started.pop_all()
    with left:
        yield spark


def pace(text: str) -> float:
    """Read `--speed`: how many times as fast as it was; `max` is infinity."""
    try:
        found = math.inf if text == "max" else float(text)
    except ValueError:
        found = math.nan
    if not found > 0.0 or (found == math.inf and text != "max"):
        raise ConfigurationError(f"--speed takes max or a positive number, not {text!r}")
    return found
