"""A consumer's requests to a leader, over gRPC; ``kafka_data`` has the same over Kafka's protocol."""

from __future__ import annotations

from typing import Protocol

from tidegauge.v1 import fetch_pb2, offsets_pb2
from tidegauge_client.channels import Channels, call


class Reads(Protocol):
    """Requests to one leader; each raises TidegaugeError if there is no response."""

    async def fetch(self, request: fetch_pb2.FetchRequest, timeout_ms: float) -> fetch_pb2.FetchResponse:
        """Send Fetch."""
        ...

    async def list_offsets(
        self, request: offsets_pb2.ListOffsetsRequest, timeout_ms: float
    ) -> offsets_pb2.ListOffsetsResponse:
        """Send ListOffsets."""
        ...

    async def epoch_ends(
        self, request: offsets_pb2.OffsetsForLeaderEpochRequest, timeout_ms: float
    ) -> offsets_pb2.OffsetsForLeaderEpochResponse:
        """Send OffsetForLeaderEpoch."""
        ...


class GrpcReads:
    """See ``Reads``.

    Args:
        channels: the consumer's.
        address: the leader's.
    """

    def __init__(self, channels: Channels, address: str) -> None:
        self._stub = channels.broker(address)
        self._address = address

    async def fetch(self, request: fetch_pb2.FetchRequest, timeout_ms: float) -> fetch_pb2.FetchResponse:
        """Send Fetch."""
        return await call(self._stub.Fetch, request, timeout_ms=timeout_ms, address=self._address)

    async def list_offsets(
        self, request: offsets_pb2.ListOffsetsRequest, timeout_ms: float
    ) -> offsets_pb2.ListOffsetsResponse:
        """Send ListOffsets."""
        return await call(self._stub.ListOffsets, request, timeout_ms=timeout_ms, address=self._address)

    async def epoch_ends(
        self, request: offsets_pb2.OffsetsForLeaderEpochRequest, timeout_ms: float
    ) -> offsets_pb2.OffsetsForLeaderEpochResponse:
        """Send OffsetsForLeaderEpoch."""
        return await call(self._stub.OffsetsForLeaderEpoch, request, timeout_ms=timeout_ms, address=self._address)
