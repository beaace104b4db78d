"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from mercury.java.runtime import find_java
from mercury.model.errors import JavaError
from mercury.pipeline.session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        find_java()
    except JavaError as error:
        pytest.skip(str(error))
    # Tests are over before the JVM's better compiler pays.
    quick = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m"}
    session = start_session("local[2]", name="mercury-tests", settings=quick)
    yield session
    session.stop()
