"""Requests about transactions: list, describe, the producers of a partition, and the end of a hanging transaction.

Rules:
    1. Any broker forwards a request to the coordinator of the transactional id; it is retried as those about groups.
    2. Producers are described by a partition's leader, or by the broker that is named.
    3. A hanging transaction, of which its coordinator knows nothing any more, is aborted by a marker straight to the
       leader of the partition, with the producer's epoch and the coordinator epoch that the partition knows, at least
       0. The coordinator is not asked (KIP-664).

    4. Which transactions hang is said by ``hanging_transactions``.

Source: KafkaAdminClient.listTransactions and its siblings, AbortTransactionHandler.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import transactions_pb2
from tidegauge_client.admin_base import raise_for
from tidegauge_client.admin_groups import GroupAdmin, Response, missing_parts
from tidegauge_client.channels import call
from tidegauge_client.kafka_brokers import no_leader, own_words


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
    """A producer at a partition; ``transaction_start_offset`` is None where no transaction is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


def _listed_transactions(response: transactions_pb2.ListTransactionsResponse) -> list[ListedTransaction]:
    return [
        ListedTransaction(one.transactional_id, one.coordinator, one.producer_id, one.state)
        for one in response.transactions
    ]


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
            producer_ids: only those of these producers; none: all.
            running_longer_than_ms: only transactions that began earlier.
            timeout_ms: how long to retry.
            missing_ms: how long to retry where a part is missing (rule 4 of ``admin_groups``); None: until the
                timeout; 0: not at all.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, a broker does not respond: its transactional ids would be missing.
        """
        response = await self._list_transactions(states, producer_ids, running_longer_than_ms, timeout_ms, missing_ms)
        raise_for(response.status)
        return _listed_transactions(response)

    async def list_transactions_there(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        *,
        running_longer_than_ms: int | None = None,
        timeout_ms: float | None = None,
        missing_ms: float | None = None,
    ) -> tuple[list[ListedTransaction], str]:
        """Return the transactional ids of the brokers that respond, in order, and what is missing; empty: nothing.

        Args:
            states: only those in one of these states, such as Ongoing; none: all.
            producer_ids: only those of these producers; none: all.
            running_longer_than_ms: only transactions that began earlier.
            timeout_ms: how long to retry.
            missing_ms: how long to retry where a part is missing (rule 4 of ``admin_groups``); None: until the
                timeout; 0: not at all.
        """
        response = await self._list_transactions(states, producer_ids, running_longer_than_ms, timeout_ms, missing_ms)
        return _listed_transactions(response), missing_parts(response.status)

    async def _list_transactions(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        running_longer_than_ms: int | None,
        timeout_ms: float | None,
        missing_ms: float | None,
    ) -> transactions_pb2.ListTransactionsResponse:
        request = transactions_pb2.ListTransactionsRequest(
            states=states, producer_ids=producer_ids, running_longer_than_ms=running_longer_than_ms
        )
        made = transactions_pb2.ListTransactionsResponse
        return await self._ask_list(
            lambda left_ms: self._ask_transactions("ListTransactions", request, made, left_ms), timeout_ms, missing_ms
        )

    async def describe_transaction(
        self, transactional_id: str, *, timeout_ms: float | None = None
    ) -> TransactionDescription:
        """Return a transactional id's state.

        Raises:
            TidegaugeError: TRANSACTIONAL_ID_NOT_FOUND, ...
        """
        request = transactions_pb2.DescribeTransactionRequest(transactional_id=transactional_id)
        made = transactions_pb2.DescribeTransactionResponse
        found = await self._ask_transactions("DescribeTransaction", request, made, timeout_ms)
        raise_for(found.status)
        return TransactionDescription(
            transactional_id,
            found.coordinator,
            found.state,
            found.producer_id,
            found.producer_epoch,
            found.timeout_ms,
            found.start_time_ms,
            tuple(TopicPartition(one.topic, one.partition) for one in found.partitions),
        )

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
        request = transactions_pb2.DescribeProducersRequest(
            topic=topic_partition.topic, partition=topic_partition.partition
        )
        stub = self._cluster.channels.transactions(address)
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        found = await call(stub.DescribeProducers, request, timeout_ms=limit_ms, address=address)
        raise_for(found.status)
        return [
            ProducerDescription(
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                one.last_timestamp_ms,
                one.coordinator_epoch,
                one.transaction_start_offset if one.HasField("transaction_start_offset") else None,
            )
            for one in found.producers
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
        marker = transactions_pb2.Marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=False,
            coordinator_epoch=coordinator_epoch,
            partitions=[
                transactions_pb2.TransactionPartition(topic=topic_partition.topic, partition=topic_partition.partition)
            ],
        )
        stub = self._cluster.channels.transactions(address)
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        request = transactions_pb2.WriteMarkersRequest(markers=[marker])
        response = await call(stub.WriteMarkers, request, timeout_ms=limit_ms, address=address)
        raise_for(response.markers[0].partitions[0].status)

    async def _ask_transactions(
        self, method: str, request: Any, response: type[Response], timeout_ms: float | None
    ) -> Response:
        return await self._ask_coordinator(self._cluster.channels.transactions, method, request, response, timeout_ms)

    async def _replica_address(self, at: TopicPartition, broker_id: int | None) -> str:
        """Return the address of a broker; None: of the partition's leader."""
        info = await self.metadata([at.topic])
        topic = info.topics[at.topic]
        if topic.error is not ErrorCode.NONE or at.partition not in topic.partitions:
            code = topic.error if topic.error is not ErrorCode.NONE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise TidegaugeError(code, f"There is no partition {at}")
        if broker_id is not None:
            if broker_id in info.kafka_brokers:
                raise own_words(info.kafka_brokers[broker_id], "kafka-transactions.sh")
            if broker_id not in info.brokers:
                raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not alive")
            return info.brokers[broker_id].address
        leader = topic.partitions[at.partition].leader_id
        if leader is None or leader not in info.brokers:
            raise no_leader(info, at)
        return info.brokers[leader].address
