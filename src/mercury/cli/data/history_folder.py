"""What the commands on stored tables share: the folder, and a Spark session to ask with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mercury.cli.common import command, times
from mercury.config import Settings
from mercury.model.errors import ConfigurationError, PipelineError

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


def opened(settings: Settings) -> HistoryFolder:
    """The folder, if anything was ever stored in it."""
    folder = folder_of(settings)
    try:
        from mercury.pipeline.history.files import HistoryFolder
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    if not folder.is_dir():
        raise ConfigurationError(f"nothing was stored in {folder}: there is no such folder")
    return HistoryFolder(folder)


@contextmanager
def session(settings: Settings) -> Iterator[SparkSession]:
    """Spark, for as long as it takes."""
    try:
        from mercury.pipeline.spark.session import start_session
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    master = settings.pipeline.spark_master
    command.progress.print(f"waiting for Spark to start ({master})", markup=False)
    spark = start_session(master, name="mercury-history")
    try:
        command.progress.print("Spark is up; reading what is stored")
        yield spark
    finally:
        spark.stop()


def _missing(error: ModuleNotFoundError) -> PipelineError:
    return PipelineError(f"history needs {error.name}: pip install 'mercury-messaging[pipeline]'")
