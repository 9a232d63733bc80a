"""Requests of a client over Kafka's protocol: a channel to each broker, and where brokers serve Kafka clients.

Rules:
    1. Metadata names each broker's listener that has the client's security protocol. In a cluster of this machine the
       client connects to that listener's own address, whatever it advertises (``BootstrapServers.kafka_listeners``).
    2. A connection has one request of a client in progress at a broker, as in Kafka. Requests that wait at the broker
       (JoinGroup, SyncGroup) therefore have a channel of their own: ``purpose`` tells channels to one address apart.
    3. If no broker has such a listener, nothing can be asked over Kafka's protocol: ``NoKafkaListener`` says so, and
       is not retried.
    4. A broker whose listener could not be reached once, and never before (a port that only others reach), is sent data
       over gRPC, until that fails, too. A listener that was reached is not given up: its broker has ended, or will
       return.
    5. A caller that gives up a request (a cancelled task) leaves its connection open; the late response is skipped.

Source: ``NetworkClient``, ``KafkaAdminClient``; a coordinator's connection is apart from the one for data, as
``ConsumerCoordinator`` has it (``Integer.MAX_VALUE - node.id``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegauge.channel_options import LAB_AGENT, OF_THE_LAB
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka_channel import Dialer, KafkaChannel
from tidegauge.security import BESIDE_SASL, Security
from tidegauge_client.metadata import BrokerInfo, ClusterInfo

CONNECT_SECONDS = 2.0
"""Limit of one attempt to connect; a paused broker takes connections and does not respond."""
CLIENT_ID = "tidegauge"
"""Name of a client that has none of its own; the lab's own calls have ``LAB_AGENT``, which rules for requests skip."""


class NoKafkaListener(TidegaugeError):
    """LISTENER_NOT_FOUND: no listener for Kafka clients has the client's security protocol (rule 3)."""

    def __init__(self, whose: str, protocol: str) -> None:
        super().__init__(
            ErrorCode.LISTENER_NOT_FOUND,
            f"Consumer groups and transactions are served over Kafka's protocol, and {whose} no listener for Kafka "
            f"clients with security protocol {protocol}, as this client has; name one in `listeners`, or give "
            "the client the security settings of one that there is (--command-config)",
        )

    @property
    def retriable(self) -> bool:
        """Return False: a listener must be added first."""
        return False


def protocol_of(security: Security) -> str:
    """Return the security protocol that a client needs, in Kafka's words."""
    if security.login is None:
        return security.protocol
    return next(name for name, beside in BESIDE_SASL.items() if beside == security.protocol)


class KafkaWire:
    """The connections of a client over Kafka's protocol.

    Args:
        security: of all connections.
        listeners: where brokers listen for Kafka clients, by their gRPC addresses; an absent one: as it advertises.
        client_id: goes with each request; empty: as the context says.
    """

    def __init__(self, security: Security, listeners: Mapping[str, str], client_id: str = "") -> None:
        self._security = security
        self._protocol = protocol_of(security)
        self._listeners = listeners
        self._client_id = client_id
        self._dialer = Dialer(security)
        self._channels: dict[tuple[str, str], KafkaChannel] = {}
        self._reached: set[str] = set()
        self._out_of_reach: set[str] = set()

    def address_of(self, broker: BrokerInfo) -> str | None:
        """Return a broker's address for this client over Kafka's protocol, if any."""
        advertised = broker.kafka_addresses.get(self._protocol)
        return None if advertised is None else self._listeners.get(broker.address, advertised)

    def brokers(self, info: ClusterInfo) -> dict[int, str]:
        """Return the addresses of brokers for this client over Kafka's protocol, by id.

        Apache Kafka brokers that advertise no listener of the same name are reached at their peers' address.
        """
        own = {one.id: address for one in info.brokers.values() if (address := self.address_of(one)) is not None}
        return own | {one.id: self.address_of(one) or one.address for one in info.kafka_brokers.values()}

    def address(self, info: ClusterInfo, broker_id: int) -> str:
        """Return where a live broker serves this client.

        Raises:
            NoKafkaListener: it does not.
            TidegaugeError: BROKER_NOT_AVAILABLE, it is not alive.
        """
        found = self.brokers(info).get(broker_id)
        if found is not None:
            return found
        if broker_id in info.brokers:
            raise NoKafkaListener(f"broker {broker_id} at {info.brokers[broker_id].address} advertises", self._protocol)
        raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not alive")

    def reachable(self, info: ClusterInfo) -> dict[int, str]:
        """Return ``brokers``, at least one.

        Raises:
            NoKafkaListener: there is none.
        """
        found = self.brokers(info)
        if not found:
            raise NoKafkaListener("its brokers advertise", self._protocol)
        return found

    def data_address(self, broker: BrokerInfo) -> str | None:
        """Return a broker's address for data over Kafka's protocol; None: gRPC (rule 4)."""
        address = self.address_of(broker)
        return None if address in self._out_of_reach else address

    def reached(self, address: str) -> None:
        """Note that a broker serves Kafka clients at an address (rule 4)."""
        self._reached.add(address)

    def failed(self, broker: BrokerInfo, address: str) -> None:
        """Note that a broker could not be reached for data at an address of its own (rule 4)."""
        of_kafka = self.address_of(broker)
        if address == of_kafka and address not in self._reached:
            self._out_of_reach.add(address)
        elif address == broker.address and of_kafka is not None:
            self._out_of_reach.discard(of_kafka)

    def channel(self, address: str, purpose: str = "") -> KafkaChannel:
        """Return the channel to ``host:port``; it connects with its first request."""
        channel = self._channels.get((address, purpose))
        if channel is None:
            client_id = self._client_id or (LAB_AGENT if OF_THE_LAB.get() else CLIENT_ID)
            login = self._security.login
            channel = KafkaChannel(address, client_id, self._dialer, login, connect_seconds=CONNECT_SECONDS)
            self._channels[address, purpose] = channel
        return channel

    async def ask(
        self,
        address: str,
        key: int,
        message: Any,
        timeout_ms: float,
        *,
        purpose: str = "",
        at_least: int = 0,
        at_most: int | None = None,
    ) -> Any:
        """Send a request to the broker at an address; return its response's message.

        Args:
            address: ``host:port``.
            key: the API's.
            message: of the API's request class.
            timeout_ms: for everything, a connection that must be made included.
            purpose: rule 2.
            at_least: lowest version that can say what the message says.
            at_most: highest version to use; None: the highest that this side knows.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION (``KafkaChannel``).
        """
        channel = self.channel(address, purpose)
        response = await channel.request(key, message, timeout_ms / 1000, at_least=at_least, at_most=at_most)
        self._reached.add(address)
        return response

    def close(self) -> None:
        """Close all connections; requests in flight fail with NETWORK_EXCEPTION. Later requests connect again."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()


def raise_for(error_code: int, message: str | None = None) -> None:
    """Raise TidegaugeError unless a response's error is NONE."""
    if error_code:
        raise TidegaugeError(ErrorCode.of(error_code), message or "")
