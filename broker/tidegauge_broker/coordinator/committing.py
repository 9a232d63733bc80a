"""OffsetCommit and OffsetFetch.

Source: GroupCoordinator (doCommitOffsets), GroupMetadataManager (storeOffsets, getOffsets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    FetchedOffset,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchResult,
    OffsetToCommit,
    TxnOffsetCommit,
)
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.partition import TopicPartition
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.group.checks import member_error
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.phases import Phases
from tidegauge_broker.coordinator.group.states import COMPLETING, EMPTY
from tidegauge_broker.coordinator.group.storing import MOVED_ERRORS, TOO_LARGE_ERRORS, UNAVAILABLE_ERRORS
from tidegauge_broker.coordinator.offsets import CommittedOffset
from tidegauge_broker.coordinator.record_codec import Record, batch_of
from tidegauge_broker.coordinator.records import (
    OFFSETS_BASE_SEQUENCE,
    VALUE_VERSION,
    WITH_TOPIC_ID,
    offset_key,
    offset_value,
)
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_broker.coordinator.text_limits import is_too_long

_LARGEST_TIME_MS = 2**63 - 1
_DEFAULT = -1
_NOTHING = FetchedOffset()
_UNSTABLE = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)


class Committing:
    """Handles the offsets of the groups of a coordinator."""

    def __init__(self, runtime: GroupRuntime, phases: Phases) -> None:
        self._runtime = runtime
        self._phases = phases

    def commit(self, group: Group, request: OffsetCommit, token: object) -> None:
        """Handle an OffsetCommit: the response comes when its batch is committed."""
        error = _commit_error(group, request)
        if error is not ErrorCode.NONE:
            self._runtime.respond(token, failed_commit(request, error))
            return
        if group.state is not EMPTY:
            self._phases.restart_session(group, group.members[request.member_id])
        self.store(group, request, token)

    def store(self, group: Group | ConsumerGroup, request: OffsetCommit, token: object) -> None:
        """Store the offsets of a commit that is accepted."""
        results: dict[TopicPartition, ErrorCode] = {}
        commits = accepted(request.offsets, self._runtime, results, request.retention_time_ms)
        if not commits:
            self._runtime.respond(token, OffsetCommitResult(results))
            return
        group.offsets.prepare(commits)

        def outcome(error: ErrorCode, base_offset: int) -> None:
            if error is ErrorCode.NONE:
                self._runtime.counters.offset_commits += 1
                group.offsets.complete(commits, base_offset)
            else:
                group.offsets.fail(commits)
            response = client_error(error)
            self._runtime.respond(
                token,
                OffsetCommitResult({partition: results.get(partition, response) for partition in results | commits}),
            )

        self._runtime.append_record(group.partition, commit_batch(self._runtime, group, commits), outcome)


def commit_batch(
    runtime: GroupRuntime,
    group: Group | ConsumerGroup,
    commits: Mapping[TopicPartition, CommittedOffset],
    transactional_producer: tuple[int, int] | None = None,
) -> bytes:
    """Return the batch with these commits, under a transaction's producer if given."""
    version = WITH_TOPIC_ID if runtime.settings.is_kafka_4 else VALUE_VERSION
    records = [
        Record(offset_key(group.group_id, topic_partition), offset_value(committed, version))
        for topic_partition, committed in commits.items()
    ]
    compression = runtime.settings.offsets_topic_compression_codec
    return batch_of(records, runtime.wall_ms, OFFSETS_BASE_SEQUENCE, compression, transactional_producer)


def accepted(
    offsets: Sequence[OffsetToCommit],
    runtime: GroupRuntime,
    results: dict[TopicPartition, ErrorCode],
    retention_time_ms: int = _DEFAULT,
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets to store; put other partitions' errors into ``results``.

    Args:
        offsets: of the request.
        runtime: for the time and the limit of the metadata.
        results: taken over: partitions whose metadata is too large.
        retention_time_ms: of an OffsetCommit v2 to v4; -1: none of its own. One that ends beyond the largest time ends
            there. (In Kafka the sum overflows, and the offset expires at once.)
    """
    now_ms = runtime.wall_ms
    expires_ms = None if retention_time_ms == _DEFAULT else min(now_ms + retention_time_ms, _LARGEST_TIME_MS)
    limit = runtime.settings.offset_metadata_max_bytes
    commits: dict[TopicPartition, CommittedOffset] = {}
    for one in offsets:
        metadata = one.metadata or ""
        if not _fits(metadata, limit) or is_too_long(metadata):
            results[one.topic_partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        committed_ms = now_ms if one.commit_timestamp_ms == _DEFAULT else one.commit_timestamp_ms
        topic_id = one.topic_id if runtime.settings.is_kafka_4 else NIL_UUID
        commits[one.topic_partition] = CommittedOffset(
            one.offset, one.leader_epoch, metadata, committed_ms, expires_ms, topic_id
        )
    return commits


def fetch_offsets(group: Group | ConsumerGroup | None, request: OffsetFetch) -> OffsetFetchResult:
    """Return a group's committed offsets; an unknown group has none.

    No member and no generation is checked. With ``require_stable`` a partition with a commit in flight gives
    UNSTABLE_OFFSET_COMMIT, except that a request for all partitions knows only those with a materialised offset. An
    offset that was committed for another topic of the name is none (OffsetMetadataManager.isOffsetInvalid).
    """
    partitions = request.partitions
    if group is None:
        return OffsetFetchResult(offsets=dict.fromkeys(partitions or (), _NOTHING))
    offsets = group.offsets
    found: dict[TopicPartition, FetchedOffset] = {}
    for topic_partition in offsets.materialised if partitions is None else partitions:
        if request.require_stable and offsets.is_unstable(topic_partition):
            found[topic_partition] = _UNSTABLE
            continue
        committed = offsets.get(topic_partition)
        found[topic_partition] = (
            _NOTHING
            if committed is None or not committed.may_be_of(request.topic_ids.get(topic_partition.topic, NIL_UUID))
            else FetchedOffset(committed.offset, committed.leader_epoch, committed.metadata)
        )
    return OffsetFetchResult(offsets=found)


def failed_commit(request: OffsetCommit, error: ErrorCode) -> OffsetCommitResult:
    """Return the result that gives every partition of a commit the same error."""
    return OffsetCommitResult({one.topic_partition: error for one in request.offsets})


def _commit_error(group: Group, request: OffsetCommit) -> ErrorCode:
    """Return why a commit is refused (GroupCoordinator.validateOffsetCommit); NONE if it may be stored.

    A group without members takes commits from anyone who names no generation: administrators and consumers that assign
    their partitions themselves (KAFKA-14201). During the join phase members of the generation before still commit: that
    is how consumers commit when partitions are revoked.
    """
    names_member = request.generation >= 0 or request.member_id or request.group_instance_id is not None
    if request.generation < 0 and group.state is EMPTY:
        return ErrorCode.NONE
    if not names_member:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = validation_error(group, request)
    if error is not ErrorCode.NONE:
        return error
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is COMPLETING else ErrorCode.NONE


def validation_error(group: Group, request: OffsetCommit | TxnOffsetCommit) -> ErrorCode:
    """Return why a commit with a member is refused.

    A group without members accepts commits without a generation.
    """
    if request.generation < 0 and group.state is EMPTY:
        return ErrorCode.NONE
    error = member_error(group, request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _fits(metadata: str, limit: int) -> bool:
    """Whether a commit's metadata is within the limit, counted in UTF-16 units as Java's ``length`` does."""
    return len(metadata) * 2 <= limit or len(metadata.encode("utf-16-be", "surrogatepass")) // 2 <= limit


def client_error(error: ErrorCode) -> ErrorCode:
    """Return the error that a client gets for a failed append (GroupMetadataManager.maybeConvertOffsetCommitError).

    NETWORK_EXCEPTION is of a transaction's verification: older clients do not know that it may be repeated.
    """
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error in UNAVAILABLE_ERRORS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in MOVED_ERRORS:
        return ErrorCode.NOT_COORDINATOR
    if error in TOO_LARGE_ERRORS:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error
