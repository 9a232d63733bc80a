"""Hosts and ports as text, and hosts as ``InetAddress.getHostAddress`` of a JDK 17 writes them."""

from __future__ import annotations

import pytest

from tidegauge.control import Endpoint
from tidegauge.host_addresses import address_of, dialled_host, host_in, java_host, peer_host
from tidegauge_client.cluster_file import BrokerEntry
from tidegauge_client.metadata import BrokerInfo


@pytest.mark.parametrize(
    ("host", "java"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::", "0:0:0:0:0:0:0:0"),
        ("fe80::1", "fe80:0:0:0:0:0:0:1"),
        ("fe80::1%2", "fe80:0:0:0:0:0:0:1%2"),
        ("2001:db8::A:0:b", "2001:db8:0:0:0:a:0:b"),
        ("0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1.2.3.4", "0:0:0:0:0:0:102:304"),
        ("127.0.0.1", "127.0.0.1"),
        ("*", "*"),
        ("a:b", "a:b"),
    ],
)
def test_a_host_has_javas_form(host: str, java: str) -> None:
    assert java_host(host) == java


def test_the_other_end_of_a_socket_has_javas_form() -> None:
    assert peer_host(("::1", 5000, 0, 0)) == "0:0:0:0:0:0:0:1"
    assert peer_host(("fe80::1", 5000, 0, 2)) == "fe80:0:0:0:0:0:0:1%2"
    assert peer_host(("10.0.0.1", 5000)) == "10.0.0.1"
    assert peer_host("") == peer_host(None) == "?"


@pytest.mark.parametrize(("host", "address"), [("::1", "[::1]:9092"), ("127.0.0.1", "127.0.0.1:9092")])
def test_an_address_that_is_given_on_can_be_dialled(host: str, address: str) -> None:
    """RFC 3986, section 3.2.2: without brackets the port would be a part of an IPv6 host."""
    assert address_of(host, 9092) == address
    assert host_in(address) == host
    assert Endpoint(1, host, 9092).address == address
    assert BrokerInfo(1, host, 9092).address == address
    assert BrokerEntry(1, host, 9092, "d").address == address
    assert BrokerEntry(1, "127.0.0.1", 19092, "d", 9092, kafka_host=host).kafka_address == address


@pytest.mark.parametrize(
    ("bound", "dialled"),
    [("", "here"), ("0.0.0.0", "here"), ("::", "::1"), ("::1", "::1"), ("10.0.0.1", "10.0.0.1")],  # noqa: S104
)
def test_a_server_that_listens_everywhere_is_reached_on_this_machine(bound: str, dialled: str) -> None:
    assert dialled_host(bound, "here") == dialled
