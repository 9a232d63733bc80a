"""A consumer's knowledge of its partitions: positions, leader epochs, and what a broker's response means for them.

Nothing here waits or sends; times are arguments (monotonic ms). A partition is in one of these phases::

    INITIALIZING  the offset that its group has committed is to be fetched
    UNSET         no position and no reset policy: seek first
    RESETTING     its position is to be looked up by the reset policy
    VALIDATING    a new leader epoch was seen: is the log below the position still the same?
    FETCHING      it has a position

Rules (FetchCollector, OffsetsForLeaderEpochUtils, SubscriptionState; KIP-320):
    1. A response counts only if the position is still the one of the request.
    2. Errors of a broker that is not the leader cause a back-off and a metadata refresh. UNKNOWN_LEADER_EPOCH does so,
       too: a topic that was deleted and created again begins at epoch 0, and its id, by which Kafka's consumer notices
       it (Fetch since version 13), is in the metadata alone.
    3. OFFSET_OUT_OF_RANGE resets by the policy, or is raised if there is none.
    4. A position below which the log was truncated (a diverging epoch) continues where the logs diverge, or is raised
       if there is no policy: records that were read may be lost.
    5. CORRUPT_MESSAGE is raised after the records before it were returned.
    6. Problems that are not raised are noted: why a partition can't be read now, and that a position was reset.
    7. A partition with an error to be raised is not fetched before it was; a seek discards it, and all records
       fetched (CompletedFetch).
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from tidegauge.errors import ERROR_TABLE, ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, iterate_headers
from tidegauge.v1 import fetch_pb2, offsets_pb2
from tidegauge_client.isolation import Aborted, without_aborted
from tidegauge_client.records import Headers, decode_batch, decode_rows

_REFRESH_TOO = frozenset({ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_LEADER_EPOCH})


class ConsumerRecord(NamedTuple):
    """A committed record. ``timestamp_type`` is 0 (CreateTime) or 1 (LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


class Reset(Enum):
    """The values of auto.offset.reset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"

    @property
    def timestamp_ms(self) -> int:
        """Return the timestamp that ListOffsets uses for it."""
        return -2 if self is Reset.EARLIEST else -1


class Phase(Enum):
    """The phase of a partition; see the module's docstring."""

    INITIALIZING = "initializing"
    UNSET = "unset"
    RESETTING = "resetting"
    VALIDATING = "validating"
    FETCHING = "fetching"


class Position(NamedTuple):
    """The next offset to be read.

    Attributes:
        offset: that offset.
        last_fetched_epoch: epoch of the record before it; None if it was not read here.
        leader_epoch: the leader's epoch as known; filled in for a request.
    """

    offset: int
    last_fetched_epoch: int | None = None
    leader_epoch: int | None = None


@dataclass(slots=True)
class Fetched:
    """A response's records that were not polled yet, and the position after them.

    Attributes:
        data: the response's batches.
        headers: of the batches that are not decoded yet.
        after: the position after the last of them.
        decoded: records of the batch that was decoded last, from ``given`` on not polled yet.
        given: how many of them were polled.
    """

    data: bytes
    headers: deque[BatchHeader]
    after: Position
    decoded: Sequence[ConsumerRecord] = ()
    given: int = 0

    @property
    def is_over(self) -> bool:
        """Return whether all records were polled."""
        return self.given >= len(self.decoded) and not self.headers

    def take(self, topic_partition: TopicPartition, limit: int, position: Position, *, check_crc: bool) -> _Taken:
        """Return the next records; decode a batch when its first is needed."""
        taken: list[ConsumerRecord] = []
        while len(taken) < limit and not self.is_over:
            if self.given < len(self.decoded):
                upto = self.given + limit - len(taken)
                taken += self.decoded[self.given : upto] if self.given or upto < len(self.decoded) else self.decoded
                self.given = min(upto, len(self.decoded))
                continue
            self.given = 0
            header = self.headers.popleft()
            try:
                self.decoded = decode_rows(
                    ConsumerRecord, topic_partition, self.data, header, position.offset, check_crc=check_crc
                )
            except TidegaugeError as problem:
                self.decoded = ()
                return _Taken([*taken, *self._sound_part(topic_partition, header, position, check_crc)], problem)
        return _Taken(taken, None)

    def _sound_part(
        self, topic_partition: TopicPartition, header: BatchHeader, position: Position, check_crc: bool
    ) -> Iterator[ConsumerRecord]:
        """Yield a batch's records before an unreadable one; none if the CRC mismatches."""
        with contextlib.suppress(TidegaugeError):
            for record in decode_batch(self.data, header, position.offset, check_crc=check_crc):
                yield ConsumerRecord._make((*topic_partition, *record))


class _Taken(NamedTuple):
    """Records, and the error of the one that would follow."""

    records: list[ConsumerRecord]
    problem: TidegaugeError | None


@dataclass(slots=True)
class PartitionState:
    """The state of one partition."""

    phase: Phase
    reset: Reset
    position: Position | None = None
    leader_epoch: int | None = None
    fetched: Fetched | None = None
    high_watermark: int | None = None
    retry_at_ms: float = 0.0
    trouble: TidegaugeError | None = None
    problem: TidegaugeError | None = None
    reset_because: str = ""


class Subscription:
    """All partitions of a consumer.

    Args:
        policy: auto.offset.reset.
        check_crcs: whether each batch's CRC is checked.
        has_group: whether a partition begins at the offset that a group has committed.
    """

    def __init__(self, policy: Reset, *, check_crcs: bool = True, has_group: bool = False) -> None:
        self._policy = policy
        self._check_crcs = check_crcs
        self._has_group = has_group
        self._states: dict[TopicPartition, PartitionState] = {}
        self._notices: deque[str] = deque()

    # The application's side -----------------------------------------------------------------------------------

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions; those that stay keep their state."""
        first = Phase.INITIALIZING if self._has_group else self._without_position
        self._states = {tp: self._states.get(tp) or PartitionState(first, self._policy) for tp in partitions}

    @property
    def _without_position(self) -> Phase:
        return Phase.UNSET if self._policy is Reset.NONE else Phase.RESETTING

    def committed_found(self, topic_partition: TopicPartition, position: Position | None) -> None:
        """Begin at the committed position, or (None) by the policy; a partition with a position keeps it."""
        state = self._states.get(topic_partition)
        if state is None or state.phase is not Phase.INITIALIZING:
            return
        state.trouble = None
        if position is None:
            state.phase = self._without_position
        else:
            self.seek(topic_partition, position)

    def consumed(self) -> dict[TopicPartition, Position]:
        """Return the positions to commit: those behind the records that were taken (SubscriptionState.allConsumed)."""
        return {
            tp: state.position
            for tp, state in self._states.items()
            if state.phase is Phase.FETCHING and state.position is not None
        }

    def assigned(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return list(self._states)

    def _state(self, topic_partition: TopicPartition) -> PartitionState:
        state = self._states.get(topic_partition)
        if state is None:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{topic_partition} is not assigned to this consumer")
        return state

    def seek(self, topic_partition: TopicPartition, position: Position) -> None:
        """Continue at a position.

        Raises:
            TidegaugeError: INVALID_REQUEST, not assigned.
        """
        state = self._state(topic_partition)
        state.position = position
        state.phase = Phase.FETCHING
        self._begin_again(state)

    def reset(self, topic_partition: TopicPartition, where: Reset) -> None:
        """Look the position up again.

        Raises:
            TidegaugeError: INVALID_REQUEST, not assigned.
        """
        state = self._state(topic_partition)
        state.reset = where
        state.phase = Phase.RESETTING
        state.position = None
        self._begin_again(state)

    @staticmethod
    def _begin_again(state: PartitionState) -> None:
        """Discard records fetched at another position, and their errors (rule 7)."""
        state.fetched = None
        state.retry_at_ms = 0.0
        state.problem = None
        state.reset_because = ""

    def position(self, topic_partition: TopicPartition) -> int | None:
        """Return the offset of the next record; None while it is looked up.

        Raises:
            TidegaugeError: INVALID_REQUEST, not assigned.
        """
        position = self._state(topic_partition).position
        return None if position is None else position.offset

    def high_watermark(self, topic_partition: TopicPartition) -> int | None:
        """Return the high watermark as of the last fetch."""
        return self._state(topic_partition).high_watermark

    def has_records(self, topic_partition: TopicPartition) -> bool:
        """Return whether there are records to take."""
        state = self._states.get(topic_partition)
        return state is not None and state.fetched is not None

    def take(self, topic_partition: TopicPartition, limit: int) -> list[ConsumerRecord]:
        """Take records and move the position behind them."""
        state = self._states.get(topic_partition)
        if state is None or state.fetched is None or limit <= 0:
            return []
        fetched = state.fetched
        assert state.position is not None, "what was fetched began at a position"
        taken, problem = fetched.take(topic_partition, limit, state.position, check_crc=self._check_crcs)
        if taken:
            state.position = Position(taken[-1].offset + 1, taken[-1].leader_epoch)
        if problem is not None:
            state.problem = problem
            state.fetched = None
        elif fetched.is_over:
            # Control batches and gaps left by compaction, behind the last record, are skipped.
            state.position = fetched.after
            state.fetched = None
            self._ask_last(topic_partition)
        return taken

    def _ask_last(self, topic_partition: TopicPartition) -> None:
        """Put the partition last in the next fetch: a response that is full before it reaches one starves none."""
        self._states[topic_partition] = self._states.pop(topic_partition)

    def report(self, topic_partition: TopicPartition, problem: TidegaugeError) -> None:
        """Note a partition's problem, to be raised in the next poll."""
        state = self._states.get(topic_partition)
        if state is not None:
            state.problem = problem

    def raise_problem(self) -> None:
        """Raise the first problem of which the application must know; its partition is tried again then (rule 7).

        Raises:
            TidegaugeError: the first problem; OFFSET_OUT_OF_RANGE for a partition without position and policy.
        """
        for state in self._states.values():
            if state.problem is not None:
                problem, state.problem = state.problem, None
                raise problem
        unset = [str(tp) for tp, state in self._states.items() if state.phase is Phase.UNSET]
        if unset:
            raise TidegaugeError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Undefined offset with no reset policy for partitions: {', '.join(sorted(unset))}; seek first",
            )

    def troubles(self) -> dict[TopicPartition, TidegaugeError]:
        """Return the errors of partitions whose last attempt is retried (rule 6)."""
        return {tp: state.trouble for tp, state in self._states.items() if state.trouble is not None}

    def take_notices(self) -> list[str]:
        """Return notices about positions since the last call (rule 6)."""
        taken = list(self._notices)
        self._notices.clear()
        return taken

    # The brokers' side ------------------------------------------------------------------------------------------

    def due(self, *phases: Phase, now_ms: float) -> list[TopicPartition]:
        """Return the partitions due for a request in these phases, oldest first."""
        return [
            tp
            for tp, state in self._states.items()
            if state.phase in phases and state.retry_at_ms <= now_ms and state.fetched is None and state.problem is None
        ]

    def next_due_ms(self, now_ms: float) -> float:
        """Return when the next back-off ends."""
        return min((s.retry_at_ms for s in self._states.values() if s.retry_at_ms > now_ms), default=math.inf)

    def back_off(self, topic_partition: TopicPartition, until_ms: float, why: TidegaugeError) -> None:
        """Send no request for the partition before the given time."""
        state = self._states.get(topic_partition)
        if state is not None:
            state.retry_at_ms = until_ms
            state.trouble = why

    def topic_replaced(self, topic: str) -> None:
        """Forget a deleted topic's leader epochs: one of the same name has been created, which begins with its own.

        The position is kept, and validated against the new topic's log, as in Kafka's consumer.
        """
        for topic_partition, state in self._states.items():
            if topic_partition.topic == topic:
                state.leader_epoch = None

    def leader_epoch_seen(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """Note the leader epoch in the metadata; a higher one means that the position must be validated."""
        state = self._states.get(topic_partition)
        if state is None or (state.leader_epoch is not None and leader_epoch <= state.leader_epoch):
            return
        state.leader_epoch = leader_epoch
        state.retry_at_ms = 0.0
        if state.phase is Phase.FETCHING and state.position and state.position.last_fetched_epoch is not None:
            state.phase = Phase.VALIDATING

    def fetch_position(self, topic_partition: TopicPartition) -> Position:
        """Return the position for a fetch request."""
        state = self._state(topic_partition)
        assert state.position is not None, "only a partition with a position is asked for"
        return state.position._replace(leader_epoch=state.leader_epoch)

    def reset_wanted(self, topic_partition: TopicPartition) -> Reset:
        """Return where a reset goes."""
        return self._state(topic_partition).reset

    def _current(self, topic_partition: TopicPartition, asked: Position, phase: Phase) -> PartitionState | None:
        """Return the state, if it is still the request's (rule 1)."""
        state = self._states.get(topic_partition)
        if state is None or state.phase is not phase or state.position is None or state.fetched is not None:
            return None
        return state if state.position.offset == asked.offset else None

    def fetched(
        self,
        topic_partition: TopicPartition,
        asked: Position,
        result: fetch_pb2.FetchPartitionResult,
        *,
        retry_at_ms: float,
    ) -> bool:
        """Handle a fetch response; return whether metadata should be refreshed."""
        state = self._current(topic_partition, asked, Phase.FETCHING)
        if state is None:
            return False
        code = ErrorCode.of(result.error)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            message = f"The fetch offset {asked.offset} is out of range for partition {topic_partition}"
            self._reset_or_report(topic_partition, message, retry_at_ms)
            return False
        if code is not ErrorCode.NONE:
            self._ask_last(topic_partition)
            return self._retry_or_report(state, TidegaugeError(code, result.error_message), retry_at_ms)
        state.trouble = None
        if result.HasField("diverging_epoch"):
            end = result.diverging_epoch
            self._truncated(topic_partition, end.end_offset if end.HasField("end_offset") else None, retry_at_ms)
            return False
        if result.HasField("high_watermark"):
            state.high_watermark = result.high_watermark
        if result.records:
            self._keep(state, asked, result)
        return False

    def _keep(self, state: PartitionState, asked: Position, result: fetch_pb2.FetchPartitionResult) -> None:
        data = result.records
        headers: deque[BatchHeader] = deque()
        try:
            headers.extend(iterate_headers(data))
        except TidegaugeError as problem:
            if not headers:
                state.problem = problem
                return
        if headers:  # rule 5: what does not begin a batch is fetched again behind the sound ones, and raised then
            after = Position(max(asked.offset, headers[-1].next_offset), headers[-1].leader_epoch)
            if result.aborted_transactions:
                aborted = [Aborted(one.first_offset, one.producer_id) for one in result.aborted_transactions]
                try:
                    headers = without_aborted(data, headers, aborted)
                except TidegaugeError as problem:
                    state.problem = problem
                    return
            state.fetched = Fetched(data, headers, after)

    def _retry_or_report(self, state: PartitionState, problem: TidegaugeError, retry_at_ms: float) -> bool:
        """Retry or report an error (rule 2). UNKNOWN_SERVER_ERROR is retried too, as by Kafka's consumer."""
        state.retry_at_ms = retry_at_ms
        state.trouble = problem
        if problem.code is ErrorCode.CORRUPT_MESSAGE or not (
            problem.retriable or problem.code is ErrorCode.UNKNOWN_SERVER_ERROR
        ):
            state.problem = problem
            return False
        # A leader whose HW lags its epoch may have been replaced already: Kafka refreshes metadata there too.
        return ERROR_TABLE[problem.code].refresh_metadata or problem.code in _REFRESH_TOO

    def _reset_or_report(self, topic_partition: TopicPartition, message: str, retry_at_ms: float) -> None:
        """Reset by the policy, or report to the application (rules 3 and 4)."""
        if self._policy is Reset.NONE:
            state = self._states[topic_partition]
            state.retry_at_ms = retry_at_ms
            state.problem = TidegaugeError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{message}, and there is no reset policy; seek"
            )
        else:
            self.reset(topic_partition, self._policy)
            self._states[topic_partition].reset_because = message

    def _truncated(self, topic_partition: TopicPartition, end_offset: int | None, retry_at_ms: float) -> None:
        """Handle that the log was truncated below the position (rule 4)."""
        if end_offset is None or self._policy is Reset.NONE:
            where = "" if end_offset is None else f" at offset {end_offset}"
            message = f"The log of {topic_partition} was truncated{where}: records that were read may be lost"
            self._reset_or_report(topic_partition, message, retry_at_ms)
        else:
            self._notices.append(
                f"The log of {topic_partition} was truncated at offset {end_offset}: records that were read may be "
                "lost; reading continues there"
            )
            self.seek(topic_partition, Position(end_offset))

    def offset_found(
        self,
        topic_partition: TopicPartition,
        asked: Reset,
        result: offsets_pb2.ListOffsetsResult,
        *,
        retry_at_ms: float,
    ) -> bool:
        """Handle a ListOffsets response; return whether metadata should be refreshed."""
        state = self._states.get(topic_partition)
        if state is None or state.phase is not Phase.RESETTING or state.reset is not asked:
            return False
        code = ErrorCode.of(result.error)
        if code is not ErrorCode.NONE:
            return self._retry_or_report(state, TidegaugeError(code, result.error_message), retry_at_ms)
        because, state.reset_because, state.trouble = state.reset_because, "", None
        if because:
            self._notices.append(f"{because}; reading continues at offset {result.offset}, the {asked.value} one")
        self.seek(topic_partition, Position(result.offset))
        return False

    def epoch_checked(
        self,
        topic_partition: TopicPartition,
        asked: Position,
        result: offsets_pb2.OffsetForLeaderEpochResult,
        *,
        retry_at_ms: float,
    ) -> bool:
        """Handle an OffsetsForLeaderEpoch response; return whether metadata should be refreshed."""
        state = self._current(topic_partition, asked, Phase.VALIDATING)
        if state is None:
            return False
        code = ErrorCode.of(result.error)
        if code is not ErrorCode.NONE:
            return self._retry_or_report(state, TidegaugeError(code, result.error_message), retry_at_ms)
        state.trouble = None
        is_defined = result.end.HasField("end_offset") and result.end.HasField("leader_epoch")
        if not is_defined:
            self._truncated(topic_partition, None, retry_at_ms)
        elif result.end.end_offset < asked.offset:
            self._truncated(topic_partition, result.end.end_offset, retry_at_ms)
        if state.phase is Phase.VALIDATING:
            state.phase = Phase.FETCHING
        return False
