"""Makes the archive of Spark's classes, by running the jobs for a moment on a bus of their own.

`python -m mercury.pipeline.spark.startup.class_training` takes half a minute, once for each version
of Java and Spark; it does nothing where the archive is there already.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext

from mercury.bus import Bus, open_bus
from mercury.config.detection import DetectionSettings
from mercury.config.settings import PipelineSettings
from mercury.java.runtime import find_java
from mercury.model import topics
from mercury.model.area import Position
from mercury.model.errors import MercuryError
from mercury.model.message import Address, Event, Kind, Message, Telemetry
from mercury.pipeline.service import Pipeline
from mercury.pipeline.spark.session import submitted
from mercury.pipeline.spark.startup import class_archive, local_files
from mercury.pipeline.spark.startup.worker_home import use_installed_spark
from mercury.service import now
from mercury.wire import encode
from mercury.wire.records import telemetry_fix

_JOBS_S = 120.0
_WRITE_S = 120.0
_NICE = 10


def make() -> None:
    """Make the archive, unless it is there."""
    java = find_java()
    use_installed_spark()
    ready = class_archive.path(java, local_files.class_path(java))
    if ready.exists():
        return
    ready.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spark-classes-", dir=ready.parent) as folder:
        made = Path(folder) / ready.name
        asyncio.run(_run_jobs(Path(folder), made))
        _end_java()
        class_archive.keep(made, ready)


async def _run_jobs(folder: Path, made: Path) -> None:
    bus = open_bus(uri := f"embedded:{folder / 'bus.db'}")
    settings = PipelineSettings(
        spark_conf={
            "spark.driver.extraJavaOptions": (
                "-XX:+UseParallelGC -Xss4m -XX:TieredStopAtLevel=1 -Xlog:cds*=off"
                f" -XX:ArchiveClassesAtExit={made}"
            ),
            "spark.driver.memory": "512m",
        },
        history_interval_s=1.0,
        share_classes=False,
    )
    detection = DetectionSettings()
    pipeline = Pipeline(bus, uri, settings, detection.rules(), detection.congestion_rule())
    for number in range(3):
        _put(bus, f"car-{number}")
    bus.flush_now()
    try:
        await pipeline.start()
        try:
            await _until_all_ran(pipeline)
        finally:
            await pipeline.stop()
    finally:
        bus.close()


def _put(bus: Bus, vehicle: str) -> None:
    """What a vehicle says that is at a collision."""
    where = Position(40.76, -111.89)
    seen = Telemetry(where, 90.0, 14.0)
    for kind, topic, payload in (
        (Kind.EVENT, f"{topics.EVENTS_PREFIX}collision", Event("collision", where)),
        (Kind.REPORT, topics.REPORTS, seen),
    ):
        message = Message(
            kind=kind,
            source=Address.client(vehicle),
            destination=Address.broker(),
            payload=payload,
        )
        bus.append(topic, encode(message), vehicle.encode(), (telemetry_fix(seen),))


async def _until_all_ran(pipeline: Pipeline) -> None:
    deadline = now() + _JOBS_S
    while now() < deadline:
        numbers = pipeline.statistics().flat()
        if all(
            numbers.get(key)
            for key in ("events_position", "congestion_position", "alerts", "history_rows")
        ):
            return
        await asyncio.sleep(0.1)


def _end_java() -> None:
    """Java writes the archive when it ends, which it does when nobody talks to it."""
    gateway = SparkContext._gateway
    assert gateway is not None
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    assert process.stdin is not None
    process.stdin.close()
    process.wait(_WRITE_S)


def main() -> None:
    if submitted():  # it would join the Spark that runs here
        sys.exit("this is not for spark-submit")
    os.nice(_NICE)  # whatever else runs here comes first
    try:
        make()
    except (MercuryError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"Spark starts as before, its classes were not kept: {error}")


if __name__ == "__main__":
    main()
