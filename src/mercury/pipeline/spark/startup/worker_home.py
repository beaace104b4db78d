"""Python workers import Spark as it is installed and compiled."""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path

import pyspark

from mercury.java.archives import cache_folder

log = logging.getLogger(__name__)


def use_installed_spark() -> None:
    """Have Python workers import Spark as it is installed, compiled.

    In its home Spark finds an archive of its Python sources, which every worker would compile
    anew; a home without that has workers look where we found it.
    """
    if "SPARK_HOME" in os.environ:
        return
    installed = Path(pyspark.__file__).parent
    digest = hashlib.sha256(f"{installed}".encode()).hexdigest()[:16]
    home = cache_folder(f"spark-home-{digest}")
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in ("bin", "jars"):
            if not (home / name).exists():
                with suppress(FileExistsError):  # another process has just made it
                    (home / name).symlink_to(installed / name)
    except OSError as error:
        log.debug("Python workers start more slowly: %s", error)
        return
    os.environ["SPARK_HOME"] = str(home)
