"""The requests of this broker itself to the active controller (``ports.ControllerRequests``).

Requests of one kind wait for one another, requests of different kinds do not: each kind has its own connection.
Source: ``DefaultAlterPartitionManager``, ``RPCProducerIdManager``, ``DefaultAutoTopicCreationManager``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tidegauge.control import AlterPartitionRequest, IsrProposal, IsrVerdict
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.apis import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION
from tidegauge.kafka.kraft.messages import alter_partition as kafka
from tidegauge.kafka.kraft.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.cluster.kraft.controller_channel import ControllerChannel
from tidegauge_broker.server.cluster.kraft.isr_order import order_of_expansion, order_of_shrinking
from tidegauge_controller.admin import NewTopic, TopicOutcome

LOG = logging.getLogger("tidegauge.controller-client")
_RETRY_SECONDS = 0.05
_VERSION = 3
"""The version of AlterPartition: with the broker epochs of the ISR's members (KIP-903)."""
_RETRIED = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})
_RECOVERING = 1
_TIMEOUT_SECONDS = 2**31 / 1000
"""AlterPartition is never given up (DefaultAlterPartitionManager)."""

CreateTopics = Callable[[Sequence[NewTopic]], Awaitable[list[TopicOutcome]]]
"""Has topics created by the controller."""


class KRaftRequests:
    """The requests of this broker to the active controller.

    Args:
        broker_id: this broker.
        broker_epoch: its registration.
        epoch_of: returns the broker epoch of a broker by the metadata; -1 if it is unknown.
        isr_channel: to the controller, for AlterPartition.
        ids_channel: to the controller, for AllocateProducerIds.
        create_topics: has topics created.
        shut_down: has this broker's leaders moved away.
        timeout_seconds: of a request.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        epoch_of: Callable[[int], int],
        isr_channel: ControllerChannel,
        ids_channel: ControllerChannel,
        create_topics: CreateTopics,
        shut_down: Callable[[], Awaitable[bool]],
        timeout_seconds: float,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._epoch_of = epoch_of
        self._isr_channel = isr_channel
        self._ids_channel = ids_channel
        self._create_topics = create_topics
        self._shut_down = shut_down
        self._timeout_seconds = timeout_seconds

    async def alter_partition(self, proposals: list[IsrProposal]) -> dict[TopicPartition, IsrVerdict]:
        """Return the controller's verdicts; retry until a controller responds."""
        while True:
            request = AlterPartitionRequest(self._broker_id, self._broker_epoch(), proposals)
            response: kafka.AlterPartitionResponse = await self._isr_channel.request(
                ALTER_PARTITION, self._message(request), _TIMEOUT_SECONDS, at_least=_VERSION
            )
            error = ErrorCode.of(response.error_code)
            if error is ErrorCode.NONE:
                return _verdicts(proposals, response)
            if error not in _RETRIED:
                return {one.topic_partition: IsrVerdict(one.topic_partition, error) for one in proposals}
            LOG.info("AlterPartition: the controller refuses it with %s", error.name)
            await asyncio.sleep(_RETRY_SECONDS)

    def _message(self, request: AlterPartitionRequest) -> kafka.AlterPartitionRequest:
        by_topic: dict[str, list[kafka.PartitionData]] = {}
        for proposal in request.partitions:
            by_topic.setdefault(proposal.topic_id, []).append(self._partition(proposal))
        topics = [kafka.TopicData(topic_id_bytes(topic_id), found) for topic_id, found in by_topic.items()]
        return kafka.AlterPartitionRequest(request.broker_id, request.broker_epoch, topics)

    def _partition(self, proposal: IsrProposal) -> kafka.PartitionData:
        """Return a proposal in Kafka's form; a joining member is last."""
        epochs = {member: self._epoch_of(member) for member in proposal.new_isr}
        expands = proposal.joiner_epoch >= 0
        if expands:
            epochs[proposal.new_isr[-1]] = proposal.joiner_epoch
        order = order_of_expansion(epochs) if expands else order_of_shrinking(epochs)
        members = [kafka.BrokerState(member, epochs[member]) for member in order]
        return kafka.PartitionData(
            proposal.topic_partition.partition,
            proposal.leader_epoch,
            new_isr_with_epochs=members,
            leader_recovery_state=_RECOVERING if proposal.recovering else 0,
            partition_epoch=proposal.partition_epoch,
        )

    async def allocate_producer_ids(self) -> tuple[ErrorCode, int, int]:
        """Ask once for a block of producer ids; return error, first id and count."""
        message = AllocateProducerIdsRequest(self._broker_id, self._broker_epoch())
        try:
            response = await self._ids_channel.request(ALLOCATE_PRODUCER_IDS, message, self._timeout_seconds)
        except TidegaugeError as problem:
            LOG.info("AllocateProducerIds: %s", problem.message)
            return problem.code, 0, 0
        return ErrorCode.of(response.error_code), response.producer_id_start, response.producer_id_len

    async def create_topic(self, topic: NewTopic) -> tuple[ErrorCode, str]:
        """Ask once for a topic; return an error with its message."""
        [outcome] = await self._create_topics([topic])
        return outcome.error, outcome.message

    async def controlled_shutdown(self) -> bool:
        """Have this broker's leaders moved away. False when the controller has not let it end in time."""
        return await self._shut_down()

    def close(self) -> None:
        """Close the connections."""
        self._isr_channel.close()
        self._ids_channel.close()


def _verdicts(
    proposals: Sequence[IsrProposal], response: kafka.AlterPartitionResponse
) -> dict[TopicPartition, IsrVerdict]:
    """Return a response's verdicts on the proposals; others are left out."""
    names = {topic_id_bytes(one.topic_id): one.topic_partition.topic for one in proposals}
    found: dict[TopicPartition, IsrVerdict] = {}
    for topic in response.topics:
        for one in topic.partitions if topic.topic_id in names else ():
            at, error = TopicPartition(names[topic.topic_id], one.partition_index), ErrorCode.of(one.error_code)
            found[at] = IsrVerdict(
                at,
                error,
                one.leader_id,
                one.leader_epoch,
                tuple(one.isr),
                one.partition_epoch,
                one.leader_recovery_state == _RECOVERING,
            )
    return found
