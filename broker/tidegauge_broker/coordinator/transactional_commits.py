"""TxnOffsetCommit: offsets that belong to a producer's transaction (KIP-98, KIP-447).

Contract: the offsets are appended after the transaction coordinator has confirmed that the group's partition is in the
transaction, and are pending until the transaction's marker is committed in that partition. The producer's epoch is
checked by the log at the append, not here.
Source: GroupCoordinator (handleTxnCommitOffsets, doTxnCommitOffsets), GroupMetadataManager (storeOffsets,
handleTxnCompletion).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tidegauge.errors import ErrorCode
from tidegauge.groups import TransactionCompletedResult, TxnOffsetCommit, TxnOffsetCommitResult
from tidegauge.partition import TopicPartition
from tidegauge_broker.coordinator.committing import accepted, client_error, commit_batch, validation_error
from tidegauge_broker.coordinator.consumer_group.commits import commit_error
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.effects import VerifyTransaction
from tidegauge_broker.coordinator.events import TransactionCompleted, TransactionVerified
from tidegauge_broker.coordinator.led_partitions import LedPartitions
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_broker.coordinator.shard import AnyGroup, Shard


class TransactionalCommits:
    """Handles the transactional offsets of the groups of a coordinator."""

    def __init__(self, runtime: GroupRuntime, led: LedPartitions[Shard], topics: Topics) -> None:
        self._runtime = runtime
        self._topics = topics
        self._led = led

    def commit(self, shard: Shard, request: TxnOffsetCommit, token: object) -> None:
        """Handle a TxnOffsetCommit: have its transaction verified first. The group is created if there is none."""
        group_id = request.group_id or ""
        group = shard.consumer_groups.get(group_id) or shard.group_or_new(group_id)
        verification_id = self._runtime.awaited(partial(self._store, shard, group, request, token))
        self._runtime.effects.append(
            VerifyTransaction(
                verification_id,
                shard.partition,
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.operation,
            )
        )

    def verified(self, event: TransactionVerified) -> None:
        """Continue the request whose transaction was to be verified."""
        self._runtime.arrived(event.verification_id, "TxnOffsetCommit", event.error, event.guard)

    def completed(self, event: TransactionCompleted) -> None:
        """Move or drop the offsets of a producer whose marker is committed, when the loads before are complete."""
        self._led.run_in_turn(partial(self._complete, event))

    def _complete(self, event: TransactionCompleted) -> None:
        self._runtime.cause = "TransactionCompletion"
        for partition, marker_offset in event.marker_offsets.items():
            shard = self._led.shards.get(partition)
            if shard is not None:
                shard.complete_transaction(event.producer_id, event.outcome, marker_offset)
        self._runtime.respond(event.token, TransactionCompletedResult())

    def _store(
        self,
        shard: Shard,
        group: AnyGroup,
        request: TxnOffsetCommit,
        token: object,
        error: ErrorCode,
        guard: object | None,
    ) -> None:
        error = client_error(error)
        if error is ErrorCode.NONE:
            # A group that was unloaded or removed meanwhile is Dead.
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE if group.is_dead else self._refusal(group, request)
        if error is not ErrorCode.NONE:
            self._runtime.respond(token, failed_transactional_commit(request, error))
            return
        results: dict[TopicPartition, ErrorCode] = {}
        commits = accepted(request.offsets, self._runtime, results)
        if not commits:
            self._runtime.respond(token, TxnOffsetCommitResult(results))
            return
        producer_id = request.producer_id
        shard.open_groups.setdefault(producer_id, set()).add(group.group_id)
        pending = group.offsets.prepare_transactional(producer_id, commits)

        def outcome(error: ErrorCode, base_offset: int) -> None:
            if error is ErrorCode.NONE:
                self._runtime.counters.offset_commits += 1
                group.offsets.log_transactional(producer_id, pending, base_offset)
            else:
                group.offsets.fail_transactional(producer_id, pending)
            self._runtime.respond(token, _result(request, results, commits, client_error(error)))

        batch = commit_batch(self._runtime, group, commits, (producer_id, request.producer_epoch))
        self._runtime.append_record(group.partition, batch, outcome, guard)

    def _refusal(self, group: AnyGroup, request: TxnOffsetCommit) -> ErrorCode:
        """Return the error of a commit.

        A producer that names no member is not fenced, and the group's state is not checked.
        """
        if request.generation < 0 and not request.member_id and request.group_instance_id is None:
            return ErrorCode.NONE
        if not isinstance(group, ConsumerGroup):
            return validation_error(group, request)
        partitions = [one.topic_partition for one in request.offsets]
        error = commit_error(
            group.image,
            self._topics,
            request.member_id,
            request.generation,
            partitions,
            knows_epochs=True,
            is_transactional=True,
        )
        return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error


def failed_transactional_commit(request: TxnOffsetCommit, error: ErrorCode) -> TxnOffsetCommitResult:
    """Return the result that gives every partition of a commit the same error."""
    error = _of_version(request, error)
    return TxnOffsetCommitResult({one.topic_partition: error for one in request.offsets})


def _result(
    request: TxnOffsetCommit,
    results: Mapping[TopicPartition, ErrorCode],
    commits: Mapping[TopicPartition, object],
    error: ErrorCode,
) -> TxnOffsetCommitResult:
    error = _of_version(request, error)
    return TxnOffsetCommitResult({**dict.fromkeys(commits, error), **results})


def _of_version(request: TxnOffsetCommit, error: ErrorCode) -> ErrorCode:
    """Return the error as a producer of the request's version knows it."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and request.is_load_unavailable:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
