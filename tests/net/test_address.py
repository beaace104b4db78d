"""Addresses: `udp://host:port`, and the raw form that the kernel takes."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercury.model.errors import ConfigurationError
from mercury.net.udp import from_sockaddr, parse_udp_uri, resolve, to_sockaddr

PORTS = st.integers(0, 65_535)


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("udp://127.0.0.1:7400", ("127.0.0.1", 7400)),
        ("udp://adapter.example.org:1", ("adapter.example.org", 1)),
        ("udp://[::1]:65535", ("::1", 65_535)),
    ],
)
def test_a_uri_names_host_and_port(uri: str, parts: tuple[str, int]) -> None:
    assert parse_udp_uri(uri) == parts


@pytest.mark.parametrize(
    "uri",
    ["", "127.0.0.1:7400", "tcp://127.0.0.1:7400", "udp://:7400", "udp://host", "udp://host:0",
     "udp://host:65536", "udp://host:x", "udp://[::1:7400"],
)  # fmt: skip
def test_another_uri_is_a_clear_error(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected udp://HOST:PORT") as caught:
        parse_udp_uri(uri)
    assert repr(uri) in str(caught.value)


@given(st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str), PORTS)
def test_a_raw_address_comes_back(host: str, port: int) -> None:
    raw = to_sockaddr(host, port)
    back, back_port = from_sockaddr(raw)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    assert socket.inet_pton(family, back) == socket.inet_pton(family, host)
    assert back_port == port
    assert len(raw) == (28 if ":" in host else 16)


def test_the_kernel_writes_the_same_raw_address() -> None:
    # Python's own sockaddr of AF_INET, as seen in the C structure: family, port, address.
    raw = to_sockaddr("1.2.3.4", 0x1234)
    assert raw[2:] == b"\x12\x34\x01\x02\x03\x04" + bytes(8)


def test_a_host_is_resolved_and_an_unknown_one_is_a_clear_error() -> None:
    assert resolve("127.0.0.1", 7400) == (socket.AF_INET, to_sockaddr("127.0.0.1", 7400))
    with pytest.raises(ConfigurationError, match="cannot find the address of host 'no.such.host"):
        resolve("no.such.host.invalid", 7400)
