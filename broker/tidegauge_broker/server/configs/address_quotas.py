"""The connections a second that each address may open: ``connection_creation_rate`` of the ip entities (KIP-612).

Source: Kafka's IpConfigHandler, ConnectionQuotas.updateIpConnectionRateQuota.
"""

from __future__ import annotations

import asyncio
import socket

from tidegauge.cluster_metadata.client_quotas import ANY_NAME, IP
from tidegauge.host_addresses import java_host
from tidegauge.settings import INT_MAX
from tidegauge_broker.server.cluster.ports import ClientQuotaStore

RATE = "connection_creation_rate"


class AddressQuotas:
    """The quotas in force at this broker.

    Args:
        quotas: their store.
    """

    def __init__(self, quotas: ClientQuotaStore) -> None:
        self._quotas = quotas
        self._default = INT_MAX
        self._by_address: dict[str, int] = {}

    def rate_of(self, address: str) -> int:
        """Return an address's connections a second; ``INT_MAX``: without a limit."""
        return self._by_address.get(address, self._default)

    async def read(self) -> None:
        """Read all of them again.

        Raises:
            MetadataUnavailable: they could not be read.
        """
        default = INT_MAX
        found: dict[str, int] = {}
        for quota in await self._quotas.describe({IP: ANY_NAME}, strict=False):
            name = quota.entity[IP]
            rate = min(int(quota.values.get(RATE, INT_MAX)), INT_MAX)
            if name is None:
                default = rate
            else:
                found |= dict.fromkeys(await _addresses(name), rate)
        self._default, self._by_address = default, found


async def _addresses(name: str) -> list[str]:
    """Return a host's addresses in the form of connections; none if unknown."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [java_host(str(address[0])) for *_, address in found]
