"""Spark's classes as Java shares them: loaded and checked once, and mapped at later starts.

A pipeline lists the classes that it loads, and after a while has another Java make an archive of
them. Without one, or where it does not fit, Java reads the classes as ever.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import pyspark
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from mercury.java.archives import cache_folder
from mercury.java.runtime import find_java
from mercury.model.errors import MercuryError

log = logging.getLogger(__name__)

_PREFIX, _SUFFIX = "spark-classes-", ".jsa"
_KEPT = 3  # of 170 MB each: other versions, other virtual environments
_NICE = ("nice", "-n", "10")  # lowest priority on this machine


def options(java: str, class_path: str, class_list: Path | None = None) -> str:
    """Java's options to use the archive; without one, to list its classes."""
    ready = path(java, class_path)
    if ready.exists():
        # What Java has to say of archives goes to stdout, which is for results.
        return f"{quote(f'-XX:SharedArchiveFile={ready}')} -Xshare:auto -Xlog:cds*=off"
    return quote(f"-XX:DumpLoadedClassList={class_list}") if class_list is not None else ""


def path(java: str, class_path: str) -> Path:
    """The archive's path, from everything that makes Java refuse one."""
    runs = Path(java).resolve()
    jars = Path(pyspark.__file__).parent / "jars"
    home = os.environ.get("SPARK_HOME")
    digest = hashlib.sha256(f"{pyspark.__version__} {class_path} {home}".encode())
    for file in (runs, *sorted(jars.iterdir())):
        found = file.stat()
        digest.update(f"{file} {found.st_size} {found.st_mtime_ns}".encode())
    return cache_folder(f"{_PREFIX}{digest.hexdigest()[:16]}{_SUFFIX}")


def keep(made: Path, ready: Path) -> None:
    """Give a finished archive its name, and delete old ones."""
    made.replace(ready)
    others = ready.parent.glob(f"{_PREFIX}*{_SUFFIX}")
    for one in sorted(others, key=lambda other: other.stat().st_mtime_ns)[:-_KEPT]:
        one.unlink(missing_ok=True)


async def make_later(spark: SparkSession, class_list: Path, delay_s: float) -> None:
    """Make the archive for the next start: later, in a process that ends with this one."""
    await asyncio.sleep(delay_s)
    try:
        needed = await asyncio.to_thread(_needed, spark, class_list)
        if needed is not None:
            java, class_path, ready = needed
            await make((*_NICE, java), class_list, class_path, ready)
    except (MercuryError, OSError, Py4JError) as error:
        log.debug("the next start will be no quicker: %s", error)


def _needed(spark: SparkSession, class_list: Path) -> tuple[str, str, Path] | None:
    """Java, the class path and the name of the archive; None, if it is there."""
    java = find_java()
    ready = path(java, spark.conf.get("spark.driver.extraClassPath", "") or "")
    if ready.exists() or not class_list.exists():
        return None
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return java, jvm.java.lang.System.getProperty("java.class.path"), ready


async def make(java: Sequence[str], class_list: Path, class_path: str, ready: Path) -> None:
    """Make an archive of the listed classes with Java, atomically."""
    ready.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=ready.parent) as folder:
        made = Path(folder) / ready.name
        files = (f"-XX:SharedClassListFile={class_list}", f"-XX:SharedArchiveFile={made}")
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *(*java, "-Xshare:dump", *files, "-cp", class_path),
            stdin=quiet, stdout=quiet, stderr=quiet,
        )  # fmt: skip
        try:
            if await process.wait() == 0:
                keep(made, ready)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
