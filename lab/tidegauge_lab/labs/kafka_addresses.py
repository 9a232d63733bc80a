"""Where Kafka clients are sent: the addresses in a broker's metadata, and whether the cluster can be reached there.

A client connects to a bootstrap server once, and then to the addresses that the response names. Here, too, both are
tried over Kafka's protocol, one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from tidegauge.errors import TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge.kafka.apis import METADATA
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tidegauge.kafka_channel import KafkaChannel
from tidegauge_client.cluster_file import ClusterFile

DEADLINE_SECONDS = 2.0
_CLIENT_ID = "tidegauge-lab"


class Advertised(NamedTuple):
    """The addresses that Kafka clients get.

    Attributes:
        addresses: ``host:port`` by broker id, as the metadata names them.
        reachable: brokers at whose address this cluster responds.
    """

    addresses: dict[int, str]
    reachable: frozenset[int]


async def advertised(file: ClusterFile, up: Iterable[int]) -> Advertised:
    """Ask brokers that are up, each at its own listener, until one responds; then try the addresses that it names."""
    for broker in up:
        entry = file.broker(broker)
        found = await _metadata(entry.kafka_listener) if entry.kafka_port else None
        if found is None:
            continue
        addresses = {one.node_id: address_of(one.host, one.port) for one in found.brokers}
        responses = await asyncio.gather(*(_metadata(address) for address in addresses.values()))
        reached = (
            broker_id
            for broker_id, response in zip(addresses, responses, strict=True)
            if response is not None and response.cluster_id == found.cluster_id
        )
        return Advertised(addresses, frozenset(reached))
    return Advertised({}, frozenset())


async def _metadata(address: str) -> MetadataResponse | None:
    """Return the Metadata response of an address; None if no broker responds."""
    channel = KafkaChannel(address, _CLIENT_ID)
    try:
        response: MetadataResponse = await channel.request(METADATA, MetadataRequest([], False), DEADLINE_SECONDS)
    except (TidegaugeError, OSError):
        return None
    finally:
        channel.close()
    return response
