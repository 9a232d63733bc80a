"""When a consumer commits by itself, and what the response to a commit means for it. Pure.

Rules (ConsumerCoordinator.sendOffsetCommitRequest, OffsetCommitResponseHandler, maybeAutoCommitOffsetsAsync):
    1. Auto commit commits the positions: the offset after the last record that a poll has returned. It does so in a
       poll, when auto.commit.interval.ms has passed, before the member gives its partitions up, and when it is closed.
       Records of a poll count as processed in the next one: a consumer that dies in between reads them again, and
       one that has handed records on and committed, before they are processed, loses them.
    2. A member commits in its generation. While it rebalances it gets REBALANCE_IN_PROGRESS, without one
       ``CommitFailedError``, and no request is sent.
    3. A coordinator that moved, loads or does not respond is retried; so is a partition that the broker does not know.
    4. UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION are ``CommitFailedError``: others may have the partitions already.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge_client.group.effects import Generation
from tidegauge_client.group.membership import COORDINATOR_GONE, UNREACHABLE, Membership

Errors = Mapping[TopicPartition, tuple[ErrorCode, str]]
_RETRIED = (
    COORDINATOR_GONE
    | UNREACHABLE
    | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNSTABLE_OFFSET_COMMIT}
)
_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class CommitFailedError(TidegaugeError):
    """A commit that cannot succeed: the member is not in the group any more (Kafka's CommitFailedException)."""


class RetriableCommitFailedError(TidegaugeError):
    """An asynchronous commit that failed: a later one may succeed (Kafka's RetriableCommitFailedException)."""


NOT_A_MEMBER = (
    "The offsets cannot be committed: the consumer is not part of an active group, probably because the coordinator "
    "has removed it. The next poll joins again."
)
REBALANCED = (
    "The offsets cannot be committed: the group has rebalanced and given the partitions to another member. The time "
    "between two calls of poll was longer than max.poll.interval.ms, or the member was removed for another reason, "
    "such as missing heartbeats. Raise max.poll.interval.ms, or return fewer records from a poll with "
    "max.poll.records; the records since the last commit are read again."
)
REBALANCING = (
    "The offsets cannot be committed while the group rebalances: complete the rebalance with poll, then commit again "
    "what still belongs to this member."
)


def is_retried(problem: TidegaugeError) -> bool:
    """Return whether a commit or fetch of offsets with this error is retried (rule 3)."""
    return problem.code in _RETRIED


def commit_generation(membership: Membership, *, is_subscribed: bool) -> Generation:
    """Return the generation in which to commit (rule 2), if subscribed.

    Raises:
        TidegaugeError: REBALANCE_IN_PROGRESS.
        CommitFailedError: the consumer has no generation.
    """
    if not is_subscribed:
        return Generation()
    generation = membership.stable_generation
    if generation is not None:
        return generation
    if membership.is_rebalancing:
        raise TidegaugeError(ErrorCode.REBALANCE_IN_PROGRESS, REBALANCING)
    raise CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID, NOT_A_MEMBER)


def commit_problem(membership: Membership, sent: Generation, errors: Errors) -> TidegaugeError | None:
    """Take the response to an OffsetCommit; return its first error, None if all offsets are committed."""
    for at, (error, message) in errors.items():
        if error is not ErrorCode.NONE:
            return _problem(membership, sent, at, TidegaugeError(error, message))
    return None


def _problem(membership: Membership, sent: Generation, at: TopicPartition, problem: TidegaugeError) -> TidegaugeError:
    error = problem.code
    if error in COORDINATOR_GONE | UNREACHABLE:
        membership.coordinator_lost()
    elif error in _FENCED:
        # A member that has begun to join again meanwhile needs no reset (KAFKA-8104).
        is_late = membership.generation != sent and membership.is_rebalancing
        membership.commit_refused(sent, error)
        if is_late:
            return TidegaugeError(ErrorCode.REBALANCE_IN_PROGRESS, REBALANCING)
        return CommitFailedError(error, REBALANCED)
    elif error is ErrorCode.REBALANCE_IN_PROGRESS:
        membership.commit_refused(sent, error)
        return TidegaugeError(error, REBALANCING)
    elif error is ErrorCode.FENCED_INSTANCE_ID:
        membership.commit_refused(sent, error)
    return TidegaugeError(error, f"The offset of {at} is not committed: {problem.message}")


@dataclass(slots=True)
class AutoCommit:
    """The timer of rule 1; times in ms.

    Attributes:
        interval_ms: auto.commit.interval.ms; None: auto commit is off.
        retry_backoff_ms: pause after a commit that failed and is worth a retry.
    """

    interval_ms: float | None
    retry_backoff_ms: float
    next_ms: float = float("inf")

    @property
    def is_on(self) -> bool:
        """Return whether the consumer commits by itself."""
        return self.interval_ms is not None

    def restart(self, now_ms: float) -> None:
        """Begin an interval: partitions were assigned, or a commit is sent."""
        if self.interval_ms is not None:
            self.next_ms = now_ms + self.interval_ms

    def is_due(self, now_ms: float) -> bool:
        """Return whether a poll commits now."""
        return now_ms >= self.next_ms

    def failed(self, problem: TidegaugeError, now_ms: float) -> None:
        """Try again soon, if the error is worth it; else in the next interval."""
        if is_retried(problem):
            self.next_ms = min(self.next_ms, now_ms + self.retry_backoff_ms)
