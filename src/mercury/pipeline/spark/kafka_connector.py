"""Spark's own Kafka connector, which no Python package holds: from Maven Central, once.

`python -m mercury.pipeline.spark.kafka_connector` prints the archives for `spark-submit --jars`.
"""

from __future__ import annotations

import logging
from pathlib import Path

from mercury.java.archives import cache_folder, fetch, read_lock

log = logging.getLogger(__name__)

_LOCK = Path(__file__).with_name("kafka-connector.lock")


def jars() -> list[Path]:
    """The connector's archives; downloaded if they are not cached."""

    def say(done: int, total: int) -> None:
        log.info("fetching Spark's Kafka connector: %.1f of %.1f MB", done / 1e6, total / 1e6)

    return fetch(read_lock(_LOCK), cache_folder("spark-kafka"), progress=say)


if __name__ == "__main__":
    print(",".join(map(str, jars())))
