"""Asks brokers for their metadata, replicas and switches, all at once, each with its own channel and deadline.

A broker with a Lab service is asked through it, so that cuts do not hide its replicas; another by DescribeReplicas. A
broker that does not answer costs the deadline, not more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc
import grpc.aio

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.security import PLAIN, Security
from tidegauge.v1 import metadata_pb2
from tidegauge_client.channels import Channels
from tidegauge_lab.switches import BrokerSwitches, Switches

_DEADLINE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What one broker said; None where it did not."""

    metadata: metadata_pb2.MetadataResponse | None
    replicas: Sequence[metadata_pb2.ReplicaDescription] | None
    switches: BrokerSwitches | None


class Asking:
    """Channels to some brokers.

    Args:
        addresses: ``host:port`` by broker id.
        has_switches: whether they have a Lab service.
        security: how they are spoken with.
    """

    def __init__(self, addresses: Mapping[int, str], *, has_switches: bool, security: Security = PLAIN) -> None:
        self.addresses = dict(addresses)
        self._channels = Channels(security)
        self._switches = Switches(addresses, security) if has_switches else None

    async def close(self) -> None:
        """Close them."""
        await self._channels.close()
        if self._switches is not None:
            await self._switches.close()

    async def ask(self, broker_ids: Sequence[int]) -> dict[int, Answer]:
        """Ask these brokers."""
        answers = await asyncio.gather(*(self._one(broker_id) for broker_id in broker_ids))
        return dict(zip(broker_ids, answers, strict=True))

    async def _one(self, broker_id: int) -> Answer:
        metadata, replicas, switches = await asyncio.gather(
            self._metadata(broker_id), self._replicas(broker_id), self._in_force(broker_id)
        )
        return Answer(metadata, replicas, switches)

    async def _metadata(self, broker_id: int) -> metadata_pb2.MetadataResponse | None:
        stub = self._channels.broker(self.addresses[broker_id])
        try:
            return await stub.Metadata(metadata_pb2.MetadataRequest(all_topics=True), timeout=_DEADLINE_SECONDS)
        except grpc.aio.AioRpcError:
            return None

    async def _replicas(self, broker_id: int) -> Sequence[metadata_pb2.ReplicaDescription] | None:
        if self._switches is not None:
            try:
                async with asyncio.timeout(_DEADLINE_SECONDS):
                    return list((await self._switches.observe(broker_id)).values())
            except (TidegaugeError, TimeoutError):
                pass  # without lab.enable=true there is still the other way
        stub = self._channels.broker(self.addresses[broker_id])
        try:
            answer = await stub.DescribeReplicas(metadata_pb2.DescribeReplicasRequest(), timeout=_DEADLINE_SECONDS)
        except grpc.aio.AioRpcError:
            return None
        return list(answer.replicas)

    async def _in_force(self, broker_id: int) -> BrokerSwitches | None:
        if self._switches is None:
            return None
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                return await self._switches.list_faults(broker_id)
        except (TidegaugeError, TimeoutError):
            return None


def held_of(answer: Answer) -> dict[TopicPartition, int | None]:
    """The followers that are held there."""
    return {} if answer.switches is None else answer.switches.held
