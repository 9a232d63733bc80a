"""Requests of Kafka's protocol that this broker sends to others: partitioned, delayed or lost as the lab's faults say.

Contract: as ``channels``, for ``KafkaChannel``. A request across a partition raises NETWORK_EXCEPTION at once; those in
flight when the partition begins lose their connection. The other end knows the caller by its client id.
"""

from __future__ import annotations

from typing import Any

import grpc.aio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import BROKER_PROTOCOL, Protocol
from tidegauge.kafka_channel import Dialer, KafkaChannel
from tidegauge.logical_clock import LogicalClock
from tidegauge.sasl_client import Login
from tidegauge_broker.server.lab.channels import REFUSED, Calls


class LabKafkaChannel(KafkaChannel):
    """A channel to which the faults apply.

    Args:
        calls: all calls of this broker.
        address: the peer's.
        client_id: goes with each request.
        dialer: opens connections.
        login: the credentials of SASL.
        logical_clock: goes along with requests.
        protocol: the APIs and versions of the other end.
    """

    def __init__(
        self,
        calls: Calls,
        address: str,
        client_id: str,
        dialer: Dialer,
        login: Login | None,
        logical_clock: LogicalClock | None,
        protocol: Protocol = BROKER_PROTOCOL,
    ) -> None:
        super().__init__(address, client_id, dialer, login, logical_clock, protocol=protocol)
        self._calls = calls
        calls.remember(address)

    async def request(
        self,
        key: int,
        message: Any,
        timeout_seconds: float,
        *,
        at_most: int | None = None,
        at_least: int = 0,
        truncation_rule: str = "",
    ) -> Any:
        """Send a request if the faults let it pass; return its response."""
        try:
            await self._calls.meet(self.address)
        except grpc.aio.AioRpcError:
            self.disconnect(REFUSED)  # a stream of bytes that loses some cannot go on
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, REFUSED) from None
        in_flight = self._calls.begin(self.address, lambda: self.disconnect(REFUSED))
        try:
            return await super().request(
                key, message, timeout_seconds, at_most=at_most, at_least=at_least, truncation_rule=truncation_rule
            )
        finally:
            self._calls.end(in_flight)
