"""Admin requests about replicas: reassign, cancel, list. The active controller serves them
(``AdminBase.at_controller``).

Source: KafkaAdminClient.alterPartitionReassignments, listPartitionReassignments (KIP-455).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import reassignments_pb2
from tidegauge_client.admin_base import RESPONSE_MARGIN_MS, AdminBase, outcomes_of, raise_for
from tidegauge_client.channels import call
from tidegauge_client.kafka_controller import KafkaController
from tidegauge_client.ongoing_reassignment import OngoingReassignment


class ReassignmentAdmin(AdminBase):
    """Requests about reassignments."""

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Start to move partitions to these replicas, or (None) cancel a reassignment."""
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        request = reassignments_pb2.AlterPartitionReassignmentsRequest(timeout_ms=int(limit_ms))
        for at, target in targets.items():
            request.partitions.add(topic=at.topic, partition=at.partition, replicas=target or (), cancel=target is None)

        async def attempt(address: str, left_ms: float) -> dict[TopicPartition, TidegaugeError | None]:
            ask = self._cluster.channels.admin(address).AlterPartitionReassignments
            response = await call(ask, request, timeout_ms=left_ms + RESPONSE_MARGIN_MS, address=address)
            raise_for(response.status)
            return outcomes_of(response.partitions)

        async def at_kafka(kafka: KafkaController, left_ms: float) -> dict[TopicPartition, TidegaugeError | None]:
            return await kafka.alter_reassignments(targets, left_ms)

        return await self.at_controller(attempt, limit_ms, at_kafka)

    async def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """Return the reassignments in progress, of these partitions or (None) of all.

        Raises:
            TidegaugeError: there is no controller, or it does not respond.
        """
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        request = reassignments_pb2.ListPartitionReassignmentsRequest(
            timeout_ms=int(limit_ms), all_partitions=partitions is None
        )
        for at in partitions or ():
            request.partitions.add(topic=at.topic, partition=at.partition)

        async def attempt(address: str, left_ms: float) -> dict[TopicPartition, OngoingReassignment]:
            ask = self._cluster.channels.admin(address).ListPartitionReassignments
            response = await call(ask, request, timeout_ms=left_ms + RESPONSE_MARGIN_MS, address=address)
            raise_for(response.status)
            return {
                TopicPartition(one.topic, one.partition): OngoingReassignment(
                    tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
                )
                for one in response.partitions
            }

        async def at_kafka(kafka: KafkaController, left_ms: float) -> dict[TopicPartition, OngoingReassignment]:
            return await kafka.list_reassignments(partitions, left_ms)

        return await self.at_controller(attempt, limit_ms, at_kafka)
