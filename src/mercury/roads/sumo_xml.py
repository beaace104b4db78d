"""The XML files of SUMO, read as streams.

Expat calls back for each element, so that no tree is built however long the file is. A document
type is refused: without one there are no entities, neither to expand nor to fetch.
"""

from __future__ import annotations

import gzip
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from xml.parsers import expat

_CHUNK = 1 << 16
_MAX_ELEMENT = 1 << 22  # Expat holds an unfinished element in memory


class SumoFile(ABC):
    """What was met in a file so far."""

    root: ClassVar[str]  # the outermost element
    kind: ClassVar[str]  # of file, in words
    error: ClassVar[type[Exception]]

    def read(self, path: Path) -> Iterator[None]:
        """Read a file, which may be packed: a piece of it at each step."""
        parser = expat.ParserCreate()

        def refuse(*_declaration: object) -> None:
            raise self.error("refused: the file declares a document type")

        def open_root(name: str, _values: dict[str, str]) -> None:
            if name != self.root:
                raise self.error(f"the file is a <{name}>, not {self.kind}")
            parser.StartElementHandler, parser.EndElementHandler = self.begin, self.end

        parser.StartDoctypeDeclHandler = refuse
        parser.StartElementHandler = open_root
        zipped = path.name.lower().endswith(".gz")
        fed = 0
        try:
            with gzip.open(path) if zipped else path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    fed += len(chunk)
                    parser.Parse(chunk, False)
                    if fed - parser.CurrentByteIndex > _MAX_ELEMENT:
                        raise self.error("an element is longer than four megabytes")
                    yield
                parser.Parse(b"", True)
        except (expat.ExpatError, zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise self.error(f"not well-formed from here: {error}") from None

    @abstractmethod
    def begin(self, name: str, values: dict[str, str]) -> None:
        """An element begins inside of the outermost."""

    def end(self, name: str) -> None:  # noqa: B027
        """An element ends; not all want to know."""
