"""Adds the reference pages that follow from the code to the site, whenever it is built."""

from __future__ import annotations

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parents[1]))

from generate import pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for uri, page in pages.PAGES.items():
        files.append(File.generated(config, uri, content=page()))
    return files
