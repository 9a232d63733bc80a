"""``max.connections`` on a running broker: clients wait for a slot, and make room for the brokers' own listener."""

from __future__ import annotations

import contextlib
import socket
import struct

import pytest
from tests.integration.conftest import MakeCluster

from tidegauge.kafka.apis import API_VERSIONS

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]
LIMIT_SECONDS = 60.0
MAX_CONNECTIONS = 12


def connected(address: str) -> socket.socket:
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)), LIMIT_SECONDS)


def asked(stack: contextlib.ExitStack, address: str) -> socket.socket:
    """Connect and send an ApiVersions request of version 0."""
    made = stack.enter_context(connected(address))
    made.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 0, 7, -1))
    return made


def is_served(connection: socket.socket) -> bool:
    """Read the response; False where the broker closes the connection."""
    head = connection.recv(8, socket.MSG_WAITALL)
    if not head:
        return False
    size, correlation_id = struct.unpack(">ii", head)
    return bool(connection.recv(size - 4, socket.MSG_WAITALL)) and correlation_id == 7


@pytest.fixture
def addresses(make_cluster: MakeCluster) -> tuple[str, str]:
    """The Kafka and the gRPC listener of a broker with few slots."""
    cluster = make_cluster(brokers=1, settings={"max.connections": str(MAX_CONNECTIONS)})
    return cluster.kafka_bootstrap_servers[0], cluster.bootstrap_servers[0]


def test_kafka_connections_wait_for_a_slot_and_the_brokers_own_take_theirs(addresses: tuple[str, str]) -> None:
    """ConnectionQuotas.waitForConnectionSlot, Processor.closeExcessConnections."""
    kafka, grpc = addresses
    with contextlib.ExitStack() as stack:
        clients = [asked(stack, kafka) for _ in range(2 * MAX_CONNECTIONS)]
        for client in clients:
            assert is_served(client), "closed in place of waiting"
            client.close()  # a slot for the next one
    with contextlib.ExitStack() as stack:
        first = asked(stack, kafka)
        assert is_served(first)
        for _ in range(MAX_CONNECTIONS):
            stack.enter_context(connected(grpc))
        assert first.recv(1) == b"", "the inter-broker listener has taken its slot"
    with contextlib.ExitStack() as stack:
        assert is_served(asked(stack, kafka))
