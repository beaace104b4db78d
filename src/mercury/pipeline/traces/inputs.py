"""Which files to import, their formats, and which can be read together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from mercury.model.errors import ConfigurationError
from mercury.pipeline.traces.columns import Reading
from mercury.pipeline.traces.text_rows import UnreadableFileError

Layout = TypeVar("Layout")

SUFFIXES = {
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz"),
    "parquet": (".parquet",),
    "gtfs-realtime": (".pb", ".protobuf"),
    "sumo-fcd": (".xml", ".xml.gz"),
}


def find(paths: Iterable[Path], wanted: str = "auto") -> dict[str, list[str]]:
    """The files by format; folders are searched for files with a known ending."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted({file.absolute() for path in paths for file in _files(path)}):
        kind = _format_of(file) if wanted == "auto" else wanted
        if not kind:
            raise ConfigurationError(
                f"the ending of {file.name} does not show its format: say --format"
                f" {'|'.join(SUFFIXES)}"
            )
        if kind in ("csv", "parquet") and file.name.startswith(("_", ".")):
            raise ConfigurationError(f"Spark passes by files such as {file.name}: rename it")
        found[kind].append(str(file))
    if not found:
        raise ConfigurationError("there are no files to import in the folders given")
    return found


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        if not path.exists():
            raise ConfigurationError(f"there is no file {path}")
        yield path
        return
    for file in path.rglob("*"):
        # As Spark does, for its own notes among the data.
        inside = file.relative_to(path).parts
        if file.is_file() and _format_of(file) and not any(p[0] in "._" for p in inside):
            yield file


def _format_of(file: Path) -> str:
    name = file.name.lower()
    if name.endswith(".gz") and not file.name.endswith(".gz"):
        return ""  # Spark would not unpack it
    return next((kind for kind, ends in SUFFIXES.items() if name.endswith(ends)), "")


class Alike(NamedTuple):
    """Files that are read together."""

    paths: list[str]
    reading: Reading  # with all columns and units
    layout: Any = None  # what else their format knows of them


def alike(
    paths: Iterable[str],
    layout_of: Callable[[str], Layout],
    header_of: Callable[[Layout], Sequence[str]],
    reading: Reading,
) -> tuple[list[Alike], list[str]]:
    """Tables by their layout, and the files that have none because they cannot be read."""
    groups: dict[Layout, list[str]] = defaultdict(list)
    unreadable = []
    for path in paths:
        try:
            groups[layout_of(path)].append(path)
        except UnreadableFileError:
            unreadable.append(path)
    found = [
        Alike(same, reading.of_table(header_of(layout), same[0]), layout)
        for layout, same in groups.items()
    ]
    return found, unreadable


def literal_path(path: str) -> str:
    """A path in which Spark sees no pattern."""
    return re.sub(r"([\\{}\[\]*?^,])", r"\\\1", path)


def source_path() -> Column:
    """The file of a row, its path as people write it."""
    encoded = F.regexp_replace(F.col("_metadata.file_path"), r"^file:/+", "/")
    return F.url_decode(F.regexp_replace(encoded, r"\+", "%2B"))
