"""Short checkpoints on a local disk, where a Java compiler is at hand.

Spark writes two small files a batch, and Hadoop's local file system starts a process for each.
One class of ten lines does without; it is compiled at first use and kept in the cache folder.
Half of the batches take 161–317 ms with it and 722 ms without, beside other work.
"""

from __future__ import annotations

import hashlib
import logging
import subprocess
import tempfile
from pathlib import Path
from zipfile import ZipFile

import pyspark

from mercury.java.archives import cache_folder

log = logging.getLogger(__name__)

_SOURCE = Path(__file__).parent / "java" / "QuickLocalFileSystem.java"
_COMPILE_S = 60.0
_QUICKLY = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-proc:none", "--release", "17")


def settings(java: str) -> dict[str, str]:
    """Settings of Spark; empty if this Java has no compiler."""
    archive = _archive(java)
    if archive is None:
        return {}
    return {
        "spark.driver.extraClassPath": str(archive),
        "spark.hadoop.fs.file.impl": "mercury.QuickLocalFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        ),
    }


def _archive(java: str) -> Path | None:
    """The compiled class: an archive, since Java shares no classes beside a folder of them."""
    digest = hashlib.sha256(_SOURCE.read_bytes() + pyspark.__version__.encode()).hexdigest()[:16]
    ready = cache_folder(f"spark-{digest}.jar")
    if ready.exists():
        return ready
    compiler = Path(java).resolve().with_name("javac")
    if not compiler.exists():
        log.info("no javac beside %s: checkpoints take longer", java)
        return None
    try:
        ready.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ready.parent) as folder:
            classes, archive = Path(folder) / "classes", Path(folder) / ready.name
            subprocess.run(
                [compiler, *_QUICKLY, "-cp", _needed(), "-d", classes, _SOURCE],
                check=True,
                capture_output=True,
                timeout=_COMPILE_S,
            )
            with ZipFile(archive, "w") as file:
                for one in classes.rglob("*.class"):
                    file.write(one, one.relative_to(classes))
            if not ready.exists():
                archive.rename(ready)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("checkpoints take longer, %s failed: %s", compiler, error)
        return None
    return ready


def _needed() -> str:
    """The archives that the class needs: with all, compiling takes four times as long."""
    jars = Path(pyspark.__file__).parent / "jars"
    return ":".join(map(str, jars.glob("hadoop-client-api-*.jar"))) or f"{jars}/*"
