"""Groups and transactions of a scenario on either cluster, looked at over Kafka's protocol alone.

``KafkaConnections`` serves the scenario's own players of groups and transactions; so real clients are
started, killed and stopped by the same code as in ``tidegauge scenario run``. The generation of a group, which no
response of Kafka's protocol has, is read from the newest record of the group in ``__consumer_offsets``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from differential_failures_look import FETCH_VERSION, Eyes
from tests.wire_responses.probe import message
from tests.wire_responses.records import fetch

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge_broker.coordinator.records import GroupKey, read_group, read_key
from tidegauge_client.admin_groups import GroupDescription, MemberDescription, OffsetAndMetadata
from tidegauge_client.admin_transactions import ProducerDescription, TransactionDescription
from tidegauge_client.group.consumer_protocol import decode_assignment
from tidegauge_client.group_tables import offset_rows
from tidegauge_client.hanging_transactions import OpenTransaction, hanging
from tidegauge_client.isolation import Aborted, IsolationLevel, without_aborted
from tidegauge_client.records import decode_batch, decode_batches
from tidegauge_lab.group_conditions import GroupCondition
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.scenario.readers import NO_LEADER
from tidegauge_lab.scenario.senders import Sent
from tidegauge_lab.transaction_conditions import TransactionCondition

FIND_COORDINATOR_VERSION, DESCRIBE_GROUPS_VERSION, OFFSET_FETCH_VERSION = 2, 4, 5
DESCRIBE_TRANSACTIONS_VERSION, DESCRIBE_PRODUCERS_VERSION, LIST_TRANSACTIONS_VERSION = 0, 0, 0
WRITE_TXN_MARKERS_VERSION = 1
GROUP, TRANSACTION = 0, 1
NOT_IN_A_TRANSACTION = -1


class KafkaConnections:
    """A cluster's groups and transactions.

    Args:
        eyes: ask its brokers.
        cluster: its directories.
    """

    def __init__(self, eyes: Eyes, cluster: LocalCluster) -> None:
        self._eyes, self._cluster = eyes, cluster

    def _ask(self, broker_id: int, version: int, request: Any) -> Any:
        """Ask a broker; TidegaugeError if it does not respond."""
        try:
            return self._eyes.ask(broker_id, version, request)
        except OSError as problem:
            raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id}: {problem}") from None

    def _leader(self, at: TopicPartition) -> int:
        leader, _, _ = self._eyes.state(at)
        if leader == NO_LEADER:
            raise TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, f"{at} has no leader")
        return int(leader)

    def _coordinator(self, key: str, kind: int) -> int:
        request = message("FindCoordinator", key=key, key_type=kind)
        found = self._ask(self._eyes.responding[0], FIND_COORDINATOR_VERSION, request)
        _refuse(found.error_code, f"the coordinator of {key}")
        return int(found.node_id)

    # Groups

    def look_at_group(self, group: str, condition: GroupCondition) -> GroupDescription | str:
        """Return the group if the condition holds, else the actual state.

        Raises:
            TidegaugeError: its coordinator does not respond.
        """
        found = self.group(group)
        committed = self.committed(found) if condition.needs_offsets else {}
        ends = {at: self._eyes.offset(self._leader(at), at, replica=-1)[1] for at in _partitions(found, committed)}
        return condition.problem(found, offset_rows(found, committed, ends)) or found

    def group(self, group_id: str) -> GroupDescription:
        """Return a group as its coordinator describes it."""
        coordinator = self._coordinator(group_id, GROUP)
        [found] = self._ask(coordinator, DESCRIBE_GROUPS_VERSION, message("DescribeGroups", groups=[group_id])).groups
        _refuse(found.error_code, f"group {group_id}")
        members = [
            MemberDescription(one.member_id, one.group_instance_id, one.client_id, "", _assigned(one))
            for one in found.members
        ]
        return GroupDescription(
            group_id=group_id,
            state=found.group_state,
            protocol_type=found.protocol_type,
            protocol_name=found.protocol_data,
            members=tuple(sorted(members, key=lambda one: one.client_id)),
            coordinator=coordinator,
            generation=self._generation(group_id, coordinator),
            reason="",
            parked_members=(),
        )

    def _generation(self, group_id: str, coordinator: int) -> int:
        """Return the generation in the newest record of a group; -1 without one."""
        generation = -1
        data = layout.broker_data(self._cluster.directory, coordinator)
        for path in sorted(data.glob(f"{OFFSETS_TOPIC}-*/*.log")):
            for record in decode_batches(path.read_bytes()):
                if record.key is not None and read_key(record.key) == GroupKey(group_id):
                    generation = -1 if record.value is None else read_group(record.value).generation
        return generation

    def committed(self, group: GroupDescription) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed."""
        request = message("OffsetFetch", group_id=group.group_id, topics=None)
        found = self._ask(group.coordinator, OFFSET_FETCH_VERSION, request)
        _refuse(found.error_code, f"the offsets of {group.group_id}")
        return {
            TopicPartition(topic.name, one.partition_index): OffsetAndMetadata(one.committed_offset)
            for topic in found.topics
            for one in topic.partitions
            if one.committed_offset >= 0
        }

    def fields_of_group(self, group_id: str) -> dict[str, str]:
        """Return all that is compared of a group, as text.

        Its generation is compared with the file if that expects one. Elsewhere it counts how often clients were late
        with a heartbeat too, which on a busy machine happens on either side.
        """
        found = self.group(group_id)
        fields = {
            "state": found.state,
            "protocol": f"{found.protocol_type} {found.protocol_name}",
            "coordinator": str(found.coordinator),
            "members": ", ".join(f"{one.client_id} ({one.group_instance_id})" for one in found.members),
            "committed": ", ".join(f"{at}@{one.offset}" for at, one in sorted(self.committed(found).items())),
        }
        for one in found.members:
            fields[f"partitions of {one.client_id}"] = ", ".join(map(str, sorted(one.assignment)))
        return {f"group {group_id}: {name}": value for name, value in fields.items()}

    # Transactions

    def look_at_transaction(
        self, transactional_id: str, condition: TransactionCondition
    ) -> TransactionDescription | str:
        """Return the transactional id if the condition holds, else the actual state.

        Raises:
            TidegaugeError: its coordinator does not respond.
        """
        found = self.transaction(transactional_id)
        return condition.problem(found) or found

    def transaction(self, transactional_id: str) -> TransactionDescription:
        """Return a transactional id as its coordinator describes it."""
        coordinator = self._coordinator(transactional_id, TRANSACTION)
        request = message("DescribeTransactions", transactional_ids=[transactional_id])
        [found] = self._ask(coordinator, DESCRIBE_TRANSACTIONS_VERSION, request).transaction_states
        _refuse(found.error_code, f"transactional id {transactional_id}")
        return TransactionDescription(
            transactional_id=transactional_id,
            coordinator=coordinator,
            state=found.transaction_state,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            timeout_ms=found.transaction_timeout_ms,
            start_time_ms=found.transaction_start_time_ms,
            partitions=tuple(TopicPartition(one.topic, at) for one in found.topics for at in one.partitions),
        )

    def fields_of_transaction(self, transactional_id: str) -> dict[str, str]:
        """Return the compared fields of a transactional id, as text."""
        found = self.transaction(transactional_id)
        fields = {
            "state": found.state,
            "producer epoch": str(found.producer_epoch),
            "timeout": str(found.timeout_ms),
            "coordinator": str(found.coordinator),
            "partitions": ", ".join(map(str, sorted(found.partitions))),
        }
        return {f"transactional id {transactional_id}: {name}": value for name, value in fields.items()}

    def _open(self, at: TopicPartition) -> list[OpenTransaction]:
        request = message("DescribeProducers", topics=[{"name": at.topic, "partition_indexes": [at.partition]}])
        [[found]] = [
            topic.partitions for topic in self._ask(self._leader(at), DESCRIBE_PRODUCERS_VERSION, request).topics
        ]
        _refuse(found.error_code, f"the producers of {at}")
        return [
            OpenTransaction(
                at,
                ProducerDescription(
                    one.producer_id,
                    one.producer_epoch,
                    one.last_sequence,
                    one.last_timestamp,
                    one.coordinator_epoch,
                    one.current_txn_start_offset,
                ),
            )
            for one in found.active_producers
            if one.current_txn_start_offset != NOT_IN_A_TRANSACTION
        ]

    def open_transactions(self, at: TopicPartition) -> list[int]:
        """Return the first offsets of a partition's open transactions, by its leader."""
        return [one.start_offset for one in self._open(at)]

    def hanging_transactions(self, at: TopicPartition) -> list[int]:
        """Return the first offsets of transactions unknown to their coordinators."""
        listed = [
            one.transactional_id
            for broker_id in self._eyes.responding
            for one in self._ask(broker_id, LIST_TRANSACTIONS_VERSION, message("ListTransactions")).transaction_states
        ]
        known = {one.producer_id: one for one in map(self.transaction, listed)}
        return [one.start_offset for one in hanging(self._open(at), known)]

    def abort_hanging(self, at: TopicPartition, start_offset: int) -> None:
        """Write an ABORT marker for the transaction that begins at an offset, as kafka-transactions does.

        Raises:
            TidegaugeError: there is none, or why the marker was not written.
        """
        found = next((one.producer for one in self._open(at) if one.start_offset == start_offset), None)
        if found is None:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"no transaction of {at} begins at {start_offset}")
        marker = {
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": at.topic, "partition_indexes": [at.partition]}],
            "coordinator_epoch": max(found.coordinator_epoch, 0),
        }
        request = message("WriteTxnMarkers", markers=[marker])
        [written] = self._ask(self._leader(at), WRITE_TXN_MARKERS_VERSION, request).markers
        [[outcome]] = [topic.partitions for topic in written.topics]
        _refuse(outcome.error_code, f"the marker in {at}")

    def readable(self, at: TopicPartition, isolation_level: IsolationLevel) -> list[str]:
        """Return the values that a consumer of an isolation level reads from the leader."""
        reads_committed = isolation_level == "read_committed"
        request = fetch([at.partition], topic=at.topic, replica_id=-1, isolation_level=int(reads_committed))
        [[found]] = [topic.partitions for topic in self._ask(self._leader(at), FETCH_VERSION, request).responses]
        _refuse(found.error_code, f"the records of {at}")
        return values_of(found)


def values_of(fetched: Any) -> list[str]:
    """Return the values in what a Fetch says of a partition, without the aborted transactions that it names."""
    data = bytes(fetched.records or b"")
    aborted = [Aborted(one.first_offset, one.producer_id) for one in fetched.aborted_transactions or ()]
    kept = without_aborted(data, iterate_headers(data), aborted)
    return [(one.value or b"").decode() for header in kept for one in decode_batch(data, header)]


def _assigned(member: Any) -> tuple[TopicPartition, ...]:
    return decode_assignment(bytes(member.member_assignment)) if member.member_assignment else ()


def _partitions(group: GroupDescription, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> set[TopicPartition]:
    return {*committed, *(at for member in group.members for at in member.assignment)}


def _refuse(error_code: int, what: str) -> None:
    if error_code:
        raise TidegaugeError(ErrorCode.of(error_code), what)


class Unrecorded:
    """Takes what producers send, and writes no history of it: see ``Senders``."""

    def invoked(self, at: TopicPartition, value: str) -> Sent:
        """Return the record that is sent."""
        return Sent(value, time.time_ns() // 1_000_000, at, 0)

    def acknowledged(self, sent: Sent, offset: int) -> None:
        """Note nothing."""

    def failed(self, sent: Sent, error: str) -> None:
        """Note nothing."""
