"""What a Kafka bus knows before it meets a broker."""

from __future__ import annotations

import sys
import time

import pytest

import mercury.bus
from mercury.bus import Retention, open_bus
from mercury.bus.kafka.cluster import KafkaAddress, topic_config
from mercury.model.errors import BusUnavailableError


@pytest.mark.parametrize(
    ("rest", "servers", "prefix"),
    [
        ("//localhost:9092", "localhost:9092", ""),
        ("//localhost:9092/", "localhost:9092", ""),
        ("//a:1,b.example:65535,[::1]:9092/test-1", "a:1,b.example:65535,[::1]:9092", "test-1."),
    ],
)
def test_an_address_is_read(rest: str, servers: str, prefix: str) -> None:
    address = KafkaAddress.parse(rest)
    assert address == (servers, prefix)
    assert str(address) == "kafka:" + rest.rstrip("/")


@pytest.mark.parametrize(
    "uri",
    [
        "kafka:",
        "kafka://",
        "kafka:localhost:9092",
        "kafka://localhost",
        "kafka://localhost:0",
        "kafka://localhost:65536",
        "kafka://localhost:nine",
        "kafka://a:1,,b:2",
        "kafka://a:1,b",
        "kafka://a b:1",
        "kafka://a:1/two/parts",
        "kafka://a:1/sp ace",
        "kafka://user:secret@a:1",
    ],
)
def test_what_is_no_address_is_refused_in_one_sentence(uri: str) -> None:
    with pytest.raises(BusUnavailableError, match="it looks like kafka://HOST:PORT") as caught:
        open_bus(uri)
    assert uri in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreachable_broker_is_noticed_soon_and_said_once(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = time.monotonic()
    with pytest.raises(BusUnavailableError, match="kafka://127.0.0.1:1 cannot be reached"):
        open_bus("kafka://127.0.0.1:1")
    assert time.monotonic() - begun < 8.0
    assert [one.getMessage() for one in caplog.records] == []  # the error says it
    assert capfd.readouterr().err == ""


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Also the package's attribute: what is imported below is another module, without its own.
    monkeypatch.setattr(mercury.bus, "kafka", mercury.bus.kafka)
    for name in [name for name in sys.modules if name.startswith("mercury.bus.kafka")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(BusUnavailableError, match=r"pip install 'mercury-messaging\[kafka\]'"):
        open_bus("kafka://127.0.0.1:1")


def test_retention_becomes_settings_of_a_topic() -> None:
    day_ms = 24 * 3600 * 1000
    config = topic_config(Retention(), 16)
    assert config["retention.ms"] == str(day_ms)
    assert config["retention.bytes"] == str(4 * 1024**3 // 16)
    # Only whole segments are dropped: a quarter of what is kept, by size and by age.
    assert config["segment.bytes"] == str(4 * 1024**3 // 16 // 4)
    assert config["segment.ms"] == str(day_ms // 4)


def test_retention_without_limits_and_with_tiny_ones() -> None:
    config = topic_config(Retention(None, None), 16)
    assert (config["retention.ms"], config["retention.bytes"]) == ("-1", "-1")
    config = topic_config(Retention(0.0, 10), 16)
    assert (config["retention.ms"], config["retention.bytes"]) == ("0", "1")
    assert int(config["segment.bytes"]) >= 1024**2  # what Kafka allows
