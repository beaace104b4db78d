"""Fetching archives: checked, kept, and one sentence when it cannot be."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mercury.dev.kafka import LOCK, KafkaBroker, kafka_version
from mercury.java import archives
from mercury.java.archives import Jar, cache_folder, fetch, read_lock
from mercury.java.runtime import find_java
from mercury.model.errors import JavaError


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, list[Jar]]:
    """A Maven repository in a folder."""
    folder = tmp_path / "repository"
    found = []
    for name, data in (("a", b"first"), ("b", b"second")):
        path = f"org/{name}/1/{name}-1.jar"
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(data)
        found.append(Jar(path, len(data), hashlib.sha256(data).hexdigest()))
    return folder, found


def test_archives_are_fetched_once(
    repository: tuple[Path, list[Jar]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, wanted = repository
    seen: list[tuple[int, int]] = []
    monkeypatch.setenv(archives.MAVEN_VARIABLE, folder.as_uri() + "/")
    paths = fetch(wanted, tmp_path / "cache", progress=lambda *amount: seen.append(amount))
    assert [path.name for path in paths] == ["a-1.jar", "b-1.jar"]
    assert [path.read_bytes() for path in paths] == [b"first", b"second"]
    assert seen == [(0, 11), (5, 11), (11, 11)]
    monkeypatch.setenv(archives.MAVEN_VARIABLE, "http://127.0.0.1:1")
    assert fetch(wanted, tmp_path / "cache") == paths
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"a-1.jar", "b-1.jar"}


def test_what_differs_from_the_lock_is_refused(
    repository: tuple[Path, list[Jar]], tmp_path: Path
) -> None:
    folder, wanted = repository
    (folder / wanted[1].path).write_bytes(b"secand")
    with pytest.raises(JavaError, match=r"b-1.jar is not what the lock file expects"):
        fetch(wanted, tmp_path / "cache", url=folder.as_uri())
    assert not (tmp_path / "cache" / "b-1.jar").exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "file:///nowhere"])
def test_an_unreachable_repository_is_one_sentence(
    repository: tuple[Path, list[Jar]], tmp_path: Path, url: str
) -> None:
    with pytest.raises(JavaError, match=r"cannot be fetched .*MERCURY_MAVEN_URL") as caught:
        fetch(repository[1], tmp_path / "cache", url=url)
    assert "\n" not in str(caught.value)


def test_a_repository_is_a_web_address(repository: tuple[Path, list[Jar]], tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="not the address of a Maven repository"):
        fetch(repository[1], tmp_path / "cache", url="ftp.example")


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder("kafka-1") == Path("/somewhere/mercury/kafka-1")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("kafka-1") == Path.home() / ".cache/mercury/kafka-1"


def test_the_lock_file_pins_kafka_and_its_logging() -> None:
    found = read_lock(LOCK)
    names = {jar.name for jar in found}
    assert {f"kafka_2.13-{kafka_version()}.jar"} < names
    assert any(name.startswith("log4j-slf4j-impl") for name in names)
    assert len(names) == len(found)
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in found)


def _java(folder: Path, says: str) -> str:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "do not run on Java 11: install Java 17"),
        ('java version "1.8.0_392"', "do not run on Java 8: install Java 17"),
        ("what?", "install Java 17"),
    ],
)
def test_an_old_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, sentence: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", _java(tmp_path, says))
    with pytest.raises(JavaError, match=sentence):
        find_java()


def test_a_new_java_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", _java(tmp_path, 'openjdk version "21" 2023-09-19'))
    assert find_java() == str(tmp_path / "bin" / "java")


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match="Kafka need Java: install Java 17"):
        KafkaBroker(tmp_path / "data").prepare()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="does not run: install Java 17"):
        find_java()
