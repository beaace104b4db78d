"""Which parts are started, and on which ports, so that two Mercurys keep apart."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from integration.processes import free_udp_port

from mercury.cli.run.machine import adapter_uri, claimed_parts, plan
from mercury.config import load_settings
from mercury.model.errors import AddressInUseError, AlreadyRunningError, PipelineError


def option(arguments: list[str], name: str) -> str | None:
    return arguments[arguments.index(name) + 1] if name in arguments else None


def test_a_chosen_adapter_port_moves_the_gateway_along() -> None:
    port = free_udp_port()
    parts = plan(load_settings(None, {"adapter.port": port}), pipeline=False)
    assert parts.matcher is not None
    gateway_port = int(option(list(parts.matcher.arguments), "--gateway-port") or 0)
    assert port + 80 <= gateway_port < port + 100
    assert parts.gateway == f"http://127.0.0.1:{gateway_port}"
    with socket.create_server(("127.0.0.1", gateway_port)):
        again = plan(load_settings(None, {"adapter.port": port}), pipeline=False)
        assert again.gateway != parts.gateway


def test_a_chosen_gateway_port_must_be_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        chosen = {"adapter.port": free_udp_port(), "gateway.port": port}
        with pytest.raises(AddressInUseError, match=f"TCP port {port} on .*, for the gateway, is"):
            plan(load_settings(None, chosen), pipeline=False)
        without = plan(load_settings(None, chosen), pipeline=False, matcher=False)
    assert (without.matcher, without.gateway) == (None, None)
    assert [part.name for part in without.all()] == ["broker-1", "adapter"]


def test_brokers_have_metrics_ports_of_their_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        first = free.getsockname()[1]
    settings = load_settings(None, {"adapter.port": free_udp_port(), "broker.metrics_port": first})
    parts = plan(settings, brokers=3, matcher=False, pipeline=False)
    ports = [option(list(part.arguments), "--metrics-port") for part in parts.core]
    assert ports == [str(first), str(first + 1), str(first + 2), None]


@pytest.mark.parametrize(
    ("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("10.0.0.7", "10.0.0.7")]
)
def test_clients_on_this_machine_reach_an_adapter_that_listens_everywhere(
    host: str, reached: str
) -> None:
    settings = load_settings(None, {"adapter.host": host, "adapter.port": 7})
    assert adapter_uri(settings) == f"udp://{reached}:7"


def test_a_pipeline_that_is_asked_for_must_be_possible() -> None:
    settings = load_settings(None, {"adapter.port": free_udp_port(), "bus.uri": "kafka://x:1"})
    with pytest.raises(PipelineError, match="pipeline.checkpoint"):
        plan(settings, matcher=False, pipeline=True)
    assert plan(settings, matcher=False).pipeline is None


def test_the_first_on_a_bus_is_named_not_its_port(tmp_path: Path) -> None:
    settings = load_settings(
        None, {"adapter.port": free_udp_port(), "bus.uri": f"embedded:{tmp_path / 'bus.db'}"}
    )
    options = {"pipeline": False, "matcher": False}
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with claimed_parts(settings, None, **options), taken:
        taken.bind((settings.adapter.host, settings.adapter.port))
        second = claimed_parts(settings, None, **options)
        with pytest.raises(AlreadyRunningError):
            second.__enter__()
    with claimed_parts(settings, None, **options):
        pass
