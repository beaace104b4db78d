"""The archive of Spark's classes: used where it fits, never missed, and made by nobody for long."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from faults.family import wait_for

from mercury.java.runtime import find_java
from mercury.model.errors import JavaError
from mercury.pipeline.spark.startup import class_archive
from mercury.pipeline.spark.startup.worker_home import use_installed_spark


@pytest.fixture
def java() -> str:
    try:
        return find_java()
    except JavaError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with nothing in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "mercury").mkdir()
    return tmp_path / "mercury"


def test_it_is_used_when_it_is_there(java: str) -> None:
    assert class_archive.options(java, "a.jar") == ""
    ready = class_archive.path(java, "a.jar")
    ready.touch()
    assert f"-XX:SharedArchiveFile={ready} " in class_archive.options(java, "a.jar")
    assert class_archive.options(java, "b.jar") == ""
    listing = class_archive.options(java, "b.jar", Path("list"))
    assert listing == "-XX:DumpLoadedClassList=list"


def test_another_java_and_another_home_have_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java"
    java.write_bytes(b"17")
    paths = {class_archive.path(str(java), "")}
    java.write_bytes(b"17.1")
    paths.add(class_archive.path(str(java), ""))
    monkeypatch.setenv("SPARK_HOME", "/elsewhere")
    paths.add(class_archive.path(str(java), ""))
    assert len(paths) == 3


def test_java_passes_over_a_broken_one_in_silence(java: str) -> None:
    class_archive.path(java, "").write_bytes(b"no archive" * 1000)
    options = shlex.split(class_archive.options(java, ""))
    assert options
    done = subprocess.run([java, *options, "-version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == ""
    assert "archive" not in done.stderr


def test_old_archives_are_deleted(cache: Path, java: str) -> None:
    ready = class_archive.path(java, "")
    for age in range(4):
        other = cache / f"spark-classes-{age}.jsa"
        other.touch()
        os.utime(other, (1e9 - age, 1e9 - age))
    made = cache / "made"
    made.write_bytes(b"whole")
    class_archive.keep(made, ready)
    assert ready.read_bytes() == b"whole"
    names = {one.name for one in cache.iterdir()}
    assert names == {ready.name, "spark-classes-0.jsa", "spark-classes-1.jsa"}


def test_workers_find_spark_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    use_installed_spark()
    home = Path(os.environ["SPARK_HOME"])
    installed = Path(pyspark.__file__).parent
    assert (home / "jars").resolve() == (installed / "jars").resolve()
    assert (home / "bin" / "spark-submit").exists()
    assert not (home / "python").exists()
    use_installed_spark()
    assert Path(os.environ["SPARK_HOME"]) == home
    monkeypatch.setenv("SPARK_HOME", "/chosen")
    use_installed_spark()
    assert os.environ["SPARK_HOME"] == "/chosen"


def test_java_makes_one_of_the_listed_classes(java: str, tmp_path: Path) -> None:
    listed, ready = tmp_path / "list", tmp_path / "new" / "a.jsa"
    listed.write_text("java/lang/Object\njava/util/ArrayList\n")
    asyncio.run(class_archive.make((java,), listed, "", ready))
    used = [java, f"-XX:SharedArchiveFile={ready}", "-Xshare:on", "-version"]
    assert subprocess.run(used, capture_output=True).returncode == 0
    assert list(ready.parent.iterdir()) == [ready]


def test_who_makes_one_ends_with_us(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    script = f"import os, time; open({str(mark)!r}, 'w').write(f'{{os.getpid()}} '); time.sleep(60)"

    async def cut_short() -> None:
        java = (sys.executable, "-c", script)
        work = class_archive.make(java, tmp_path / "list", "", tmp_path / "a.jsa")
        task = asyncio.create_task(work)
        begun = lambda: mark.exists() and mark.read_text().endswith(" ")  # noqa: E731
        await asyncio.to_thread(wait_for, begun, 30.0, "its start")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cut_short())
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_one_that_cannot_be_made_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, ready = tmp_path / "list", tmp_path / "a.jsa"
    listed.touch()
    failing = (sys.executable, "-c", "raise SystemExit(1)")
    asyncio.run(class_archive.make(failing, listed, "", ready))
    assert not ready.exists()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    spark: Any = None  # it is not asked: there is no Java
    asyncio.run(class_archive.make_later(spark, listed, 0.0))
