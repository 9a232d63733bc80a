"""Requests of a broker to the active controller, one attempt at a time: the wires of ``ControllerClient``.

Contract: a method returns the controller's response, or raises ``NoResponse``: the request may or may not have arrived.
Retries are the caller's.
"""

from __future__ import annotations

from typing import Protocol

from tidegauge.control import AlterPartitionRequest, AlterPartitionResponse, Endpoint
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_controller.admin import NewTopic


class NoResponse(Exception):
    """There was no controller, or it did not respond; the text says which."""


class ToController(Protocol):
    """The wire to the active controller. ``to`` is the controller, with its address for brokers."""

    async def alter_partition(self, to: Endpoint, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Propose in-sync replicas."""
        ...

    async def controlled_shutdown(
        self, to: Endpoint, broker_id: int, broker_epoch: int
    ) -> tuple[ErrorCode, list[TopicPartition]]:
        """Have a broker's leaders moved away; return the partitions that it still leads."""
        ...

    async def allocate_producer_ids(
        self, to: Endpoint, broker_id: int, broker_epoch: int
    ) -> tuple[ErrorCode, int, int]:
        """Ask for a block of producer ids; return its first id and their number."""
        ...

    async def create_topic(self, to: Endpoint, topic: NewTopic) -> tuple[ErrorCode, str]:
        """Have a topic created; return an error with its message."""
        ...
