"""What the commands on stored tables share: the folder, the Spark session, the output."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.cli.common.spinner import waiting
from mercury.config import Settings
from mercury.model.errors import ConfigurationError
from mercury.model.printable import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from mercury.pipeline.history.files import HistoryFolder

FolderOption = Annotated[
    Path | None, option("Folder of the stored tables; default beside the bus file", "DIR")
]
MasterOption = Annotated[
    str | None, option("local[N] or spark://HOST:PORT; default local[3]", "URL")
]
FromOption = Annotated[str | None, option(f"Since {reading.TIME_HELP}", "TIME", names="--from")]
ToOption = Annotated[str | None, option("Until this time, exclusive", "TIME", names="--to")]


def load(
    config: Path | None,
    folder: Path | None,
    spark_master: str | None = None,
    bus: str | None = None,
) -> Settings:
    return command.settings_for(
        config, bus__uri=bus, pipeline__history_folder=folder, pipeline__spark_master=spark_master
    )


def folder_of(settings: Settings) -> Path:
    """The folder of the stored tables."""
    folder = settings.pipeline.history_folder
    if folder is not None:
        return folder
    scheme, _, path = settings.bus.uri.partition(":")
    if scheme != "embedded":
        raise ConfigurationError("with this bus, say where history is: --folder")
    return Path(f"{path}-history")


def opened(settings: Settings, *, to_write: bool = False) -> HistoryFolder:
    """Open the folder; raises if nothing was stored in it."""
    folder = folder_of(settings)
    from mercury.pipeline.folders import check_writable
    from mercury.pipeline.history.files import HistoryFolder

    if not folder.is_dir():
        raise ConfigurationError(f"nothing was stored in {folder}: there is no such folder")
    if to_write:
        check_writable(folder)
    return HistoryFolder(folder)


@contextmanager
def session(
    settings: Settings, interrupted: Callable[[], str] = lambda: "interrupted"
) -> Iterator[SparkSession]:
    """Spark; on Ctrl-C it is stopped, and the command ends with what `interrupted` says."""
    from mercury.pipeline.spark.session import spark_session

    starting = spark_session(settings.pipeline.spark_master, name="mercury-history")
    signal.signal(signal.SIGINT, _interrupt)
    try:
        with ExitStack() as running:
            with waiting("Spark is starting"):
                spark = running.enter_context(starting)
            yield spark
    except KeyboardInterrupt:
        command.fail(interrupted(), 130)


def _interrupt(*_signal: object) -> NoReturn:
    logging.disable()  # Py4J would write the traceback of the call that is cut short
    raise KeyboardInterrupt


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Positions to a centimetre, the rest to the precision of measurement."""
    return {
        name: round(value, 7 if name in ("lat", "lon") else 2)
        if isinstance(value, float)
        else value
        for name, value in values.items()
    }


def counted(number: int, noun: str) -> str:
    """A number of things, of one as well."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def show(result: dict[str, Any], rows: list[dict[str, Any]], as_json: bool, none: str) -> None:
    """Print the result for programs, or a line for each row."""
    if as_json:
        command.print_json(result)
        return
    if not rows:
        print(none)
        return
    # As wide as it is: an id that is cut or broken cannot be pasted.
    cells = [list(rows[0]), *([_cell(*item) for item in row.items()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [any(isinstance(row[name], int | float) for row in rows) for name in rows[0]]
    for line in cells:
        aligned = zip(line, widths, numeric, strict=True)
        parts = (
            text.rjust(width) if right else text.ljust(width) for text, width, right in aligned
        )
        print("  ".join(parts).rstrip())


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if name == "time":
        return str(value)[:23].replace("T", " ")  # UTC, to the millisecond
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return printable(" ".join(text.split()))  # a message's text may have several lines
