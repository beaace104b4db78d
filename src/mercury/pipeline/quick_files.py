"""Short checkpoints on a local disk, where a Java compiler is at hand.

Spark writes two small files a batch, and Hadoop's local file system starts a process for each.
One class of ten lines does without; it is compiled at first use and kept in the cache folder.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

from mercury.java.archives import cache_folder

log = logging.getLogger(__name__)

_SOURCE = Path(__file__).parent / "java" / "QuickLocalFileSystem.java"
_COMPILE_S = 60.0


def settings(java: str) -> dict[str, str]:
    """What to tell Spark; nothing, if there is no compiler beside this Java."""
    classes = _classes(java)
    if classes is None:
        return {}
    return {
        "spark.driver.extraClassPath": str(classes),
        "spark.hadoop.fs.file.impl": "mercury.QuickLocalFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        ),
    }


def _classes(java: str) -> Path | None:
    """The folder of the compiled class."""
    jars = Path(pyspark.__file__).parent / "jars"
    mark = hashlib.sha256(_SOURCE.read_bytes() + pyspark.__version__.encode()).hexdigest()[:16]
    ready = cache_folder(f"spark-{mark}")
    cache = ready.parent
    if ready.exists():
        return ready
    compiler = Path(java).resolve().with_name("javac")
    if not compiler.exists():
        log.info("no javac beside %s: checkpoints take longer", java)
        return None
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            target = Path(folder) / "classes"
            subprocess.run(
                [compiler, "--release", "17", "-cp", f"{jars}/*", "-d", target, _SOURCE],
                check=True,
                capture_output=True,
                timeout=_COMPILE_S,
            )
            if not ready.exists():
                shutil.move(target, ready)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("checkpoints take longer, %s failed: %s", compiler, error)
        return None
    return ready
