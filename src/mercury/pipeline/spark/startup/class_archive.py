"""Spark's classes as Java shares them: loaded and checked once, and mapped at later starts.

Reading 16,000 classes is a third of the work of starting Spark. `class_training` makes the
archive; without one, or where it does not fit, Java reads the classes as ever.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark

from mercury.java.archives import cache_folder

log = logging.getLogger(__name__)

_TRAINING = (sys.executable, "-m", "mercury.pipeline.spark.startup.class_training")
_PREFIX, _SUFFIX = "spark-classes-", ".jsa"
_KEPT = 3  # of 170 MB each: other versions, other virtual environments


def options(java: str, class_path: str) -> str:
    """What to tell Java to use the archive; nothing, if there is none."""
    ready = path(java, class_path)
    # What Java has to say of archives goes to stdout, which is for results.
    return f"-XX:SharedArchiveFile={ready} -Xshare:auto -Xlog:cds*=off" if ready.exists() else ""


def path(java: str, class_path: str) -> Path:
    """Where the archive is, or would be: by all that makes Java refuse one."""
    runs = Path(java).resolve()
    jars = Path(pyspark.__file__).parent / "jars"
    home = os.environ.get("SPARK_HOME")
    mark = hashlib.sha256(f"{pyspark.__version__} {class_path} {home}".encode())
    for file in (runs, *sorted(jars.iterdir())):
        found = file.stat()
        mark.update(f"{file} {found.st_size} {found.st_mtime_ns}".encode())
    return cache_folder(f"{_PREFIX}{mark.hexdigest()[:16]}{_SUFFIX}")


def keep(made: Path, ready: Path) -> None:
    """Give a whole archive its name, and drop those that are old."""
    made.replace(ready)
    others = ready.parent.glob(f"{_PREFIX}*{_SUFFIX}")
    for one in sorted(others, key=lambda other: other.stat().st_mtime_ns)[:-_KEPT]:
        one.unlink(missing_ok=True)


async def make_aside(calm_s: float, command: Sequence[str] = _TRAINING) -> None:
    """Have the next start be quicker: after a while, by a process that ends with us."""
    await asyncio.sleep(calm_s)
    quiet = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
    except OSError as error:
        log.debug("the next start will be no quicker: %s", error)
        return
    try:
        if await process.wait() != 0:
            log.debug("the next start will be no quicker: %s failed", command)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # its Java, too
            await process.wait()
