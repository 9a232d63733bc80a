"""Requests about transactions: list, describe, the producers of a partition, and the end of a hanging transaction.

Rules:
    1. A request is sent to the coordinator of the transactional id; it is retried as those about groups.
    2. Producers are described by a partition's leader, or by the broker that is named.
    3. A hanging transaction, of which its coordinator knows nothing any more, is aborted by a marker straight to the
       leader of the partition, with the producer's epoch and the coordinator epoch that the partition knows, at least
       0. The coordinator is not asked (KIP-664).

    4. Which transactions hang is said by ``hanging_transactions``.

Source: KafkaAdminClient.listTransactions and its siblings, AbortTransactionHandler.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.kraft.features import TRANSACTION_VERSION
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidegauge.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidegauge.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tidegauge.kafka.messages.list_transactions import ListTransactionsRequest
from tidegauge.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.transactions import NO_DURATION_MS, TRANSACTION_TOPIC
from tidegauge_client.admin_groups import GroupAdmin
from tidegauge_client.coordinators import TRANSACTION, Coordinator
from tidegauge_client.kafka_brokers import no_leader
from tidegauge_client.kafka_wire import raise_for
from tidegauge_client.merged_lists import MergedList

_FIRST_WITH_DURATION = 1
_FIRST_WITH_FEATURES = 3


class ListedTransaction(NamedTuple):
    """One transactional id of a list."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator has it.

    Attributes:
        start_time_ms: when its transaction began; -1: there was none.
        partitions: of the transaction; of a decided one, those whose marker is not written yet.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]


class ProducerDescription(NamedTuple):
    """A producer at a partition; ``transaction_start_offset`` is None if no transaction is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


def _listed_transactions(parts: Sequence[tuple[int, Any]]) -> list[ListedTransaction]:
    found = [
        ListedTransaction(one.transactional_id, broker_id, one.producer_id, one.transaction_state)
        for broker_id, part in parts
        for one in part.transaction_states
    ]
    return sorted(found)


class TransactionAdmin(GroupAdmin):
    """Requests about transactions."""

    async def list_transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        *,
        running_longer_than_ms: int | None = None,
        timeout_ms: float | None = None,
        missing_ms: float | None = None,
    ) -> list[ListedTransaction]:
        """Return the transactional ids of all live brokers, in order.

        Args:
            states: only those in one of these states, such as Ongoing; none: all.
            producer_ids: only ids of these producers; none: all.
            running_longer_than_ms: only transactions that began earlier.
            timeout_ms: how long to retry.
            missing_ms: how long to retry if a part is missing (rule 4 of ``admin_groups``); None: until the
                timeout, 0: not at all.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, a broker does not respond: its transactional ids would be missing.
        """
        found = await self._list_transactions(states, producer_ids, running_longer_than_ms, timeout_ms, missing_ms)
        return _listed_transactions(found.whole())

    async def list_transactions_there(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        *,
        running_longer_than_ms: int | None = None,
        timeout_ms: float | None = None,
        missing_ms: float | None = None,
    ) -> tuple[list[ListedTransaction], str]:
        """Return the transactional ids of responding brokers, and the missing parts.

        Args:
            states: only those in one of these states, such as Ongoing; none: all.
            producer_ids: only ids of these producers; none: all.
            running_longer_than_ms: only transactions that began earlier.
            timeout_ms: how long to retry.
            missing_ms: how long to retry if a part is missing (rule 4 of ``admin_groups``); None: until the
                timeout, 0: not at all.
        """
        found = await self._list_transactions(states, producer_ids, running_longer_than_ms, timeout_ms, missing_ms)
        return _listed_transactions(found.parts), found.missing()

    async def _list_transactions(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        running_longer_than_ms: int | None,
        timeout_ms: float | None,
        missing_ms: float | None,
    ) -> MergedList:
        duration_ms = NO_DURATION_MS if running_longer_than_ms is None else running_longer_than_ms
        at_least = 0 if running_longer_than_ms is None else _FIRST_WITH_DURATION
        request = ListTransactionsRequest(list(states), list(producer_ids), duration_ms)
        return await self._ask_list(
            lambda left_ms: self._each_list(
                apis.LIST_TRANSACTIONS, request, ("transactional ids", TRANSACTION_TOPIC), left_ms, at_least=at_least
            ),
            timeout_ms,
            missing_ms,
        )

    async def describe_transaction(
        self, transactional_id: str, *, timeout_ms: float | None = None
    ) -> TransactionDescription:
        """Return a transactional id's state.

        Raises:
            TidegaugeError: TRANSACTIONAL_ID_NOT_FOUND, ...
        """

        async def described(at: Coordinator, left_ms: float) -> TransactionDescription:
            request = DescribeTransactionsRequest([transactional_id])
            response: DescribeTransactionsResponse = await self._cluster.kafka.ask(
                at.address, apis.DESCRIBE_TRANSACTIONS, request, left_ms
            )
            [found] = response.transaction_states
            raise_for(found.error_code)
            return TransactionDescription(
                transactional_id,
                at.broker_id,
                found.transaction_state,
                found.producer_id,
                found.producer_epoch,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms,
                tuple(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions),
            )

        return await self._at_coordinator(TRANSACTION, transactional_id, described, timeout_ms)

    async def transaction_version(self, broker_id: int, *, timeout_ms: float | None = None) -> int | None:
        """Return the cluster's transaction.version by a broker; None in ZooKeeper mode.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, NETWORK_EXCEPTION, ...
        """
        address = self._cluster.kafka.address(await self.metadata([]), broker_id)
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        request = ApiVersionsRequest("tidegauge", "1")
        found: ApiVersionsResponse = await self._cluster.kafka.ask(
            address, apis.API_VERSIONS, request, limit_ms, at_least=_FIRST_WITH_FEATURES
        )
        raise_for(found.error_code)
        if found.finalized_features_epoch < 0:
            return None
        return next((one.max_version_level for one in found.finalized_features if one.name == TRANSACTION_VERSION), 0)

    async def describe_producers(
        self, topic_partition: TopicPartition, *, broker_id: int | None = None, timeout_ms: float | None = None
    ) -> list[ProducerDescription]:
        """Return the producers that a replica of a partition knows, by id.

        Args:
            topic_partition: the partition.
            broker_id: the broker to ask; None: the leader.
            timeout_ms: how long to wait for the response.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER,
                BROKER_NOT_AVAILABLE, ...
        """
        address = await self._replica_address(topic_partition, broker_id)
        topic, index = topic_partition
        request = DescribeProducersRequest([TopicRequest(topic, [index])])
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        response: DescribeProducersResponse = await self._cluster.kafka.ask(
            address, apis.DESCRIBE_PRODUCERS, request, limit_ms
        )
        found = response.topics[0].partitions[0]
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise_for(found.error_code, f"This broker has no replica of {topic_partition}")
        raise_for(found.error_code, found.error_message)
        return [
            ProducerDescription(
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch,
                one.current_txn_start_offset if one.current_txn_start_offset >= 0 else None,
            )
            for one in sorted(found.active_producers, key=lambda one: one.producer_id)
        ]

    async def abort_transaction(
        self, topic_partition: TopicPartition, start_offset: int, *, timeout_ms: float | None = None
    ) -> ProducerDescription:
        """Abort the transaction that begins at an offset of a partition; rule 3. Return the producer that had it.

        Raises:
            TidegaugeError: INVALID_REQUEST, no open transaction begins there; or why the marker was not written.
        """
        producers = await self.describe_producers(topic_partition, timeout_ms=timeout_ms)
        found = next((one for one in producers if one.transaction_start_offset == start_offset), None)
        if found is None:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"No open transaction begins at offset {start_offset} of {topic_partition}; `tidegauge "
                f"describe-producers --topic {topic_partition.topic} --partition {topic_partition.partition}` lists "
                "those that are open",
            )
        await self.write_abort_marker(
            topic_partition,
            found.producer_id,
            found.producer_epoch,
            max(0, found.coordinator_epoch),
            timeout_ms=timeout_ms,
        )
        return found

    async def write_abort_marker(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Let a partition's leader write an ABORT marker of a producer, whether or not a transaction is open.

        Raises:
            TidegaugeError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: the leader knows a higher epoch; ...
        """
        address = await self._replica_address(topic_partition, None)
        topics = [WritableTxnMarkerTopic(topic_partition.topic, [topic_partition.partition])]
        marker = WritableTxnMarker(producer_id, producer_epoch, False, topics, coordinator_epoch)
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        response: WriteTxnMarkersResponse = await self._cluster.kafka.ask(
            address, apis.WRITE_TXN_MARKERS, WriteTxnMarkersRequest([marker]), limit_ms
        )
        raise_for(response.markers[0].topics[0].partitions[0].error_code)

    async def _replica_address(self, at: TopicPartition, broker_id: int | None) -> str:
        """Return a broker's address for Kafka's protocol; None: the leader's."""
        info = await self.metadata([at.topic])
        topic = info.topics[at.topic]
        if topic.error is not ErrorCode.NONE or at.partition not in topic.partitions:
            code = topic.error if topic.error is not ErrorCode.NONE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise TidegaugeError(code, f"There is no partition {at}")
        if broker_id is None:
            broker_id = topic.partitions[at.partition].leader_id
            if broker_id not in info.live:
                raise no_leader(info, at)
        return self._cluster.kafka.address(info, broker_id)
