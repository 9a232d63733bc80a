"""A replica as follower: what to fetch next, and what a response changes.

Rules (AbstractFetcherThread, ReplicaFetcherThread.processPartitionData):
    1. It fetches at its own log end offset. How it finds out where its log and the leader's part, and where it
       cuts, is the truncation rule's: today (KIP-320) a fetch carries the epoch of the last record, and the leader
       reports divergence; only a replica without any epoch entry cuts to its high watermark. By KIP-101 and KIP-279
       it asks where its latest epoch ends before it fetches; before them it cut to its high watermark at once.
    2. An answer is taken only by the request that waits for it: a late or repeated one changes nothing. A new
       LeaderAndIsr forgets the outstanding request, so answers never cross epochs.
    3. Records first, then high watermark = min(leader's, own log end), an assignment that may go down, then the
       leader's log start. A diverging answer carries neither (KAFKA-14704).
    4. A batch may begin above the own end: compaction leaves gaps. One that begins below it is an error, except in
       an empty log, whose start may lie in the middle of a batch (deleted records).
    5. FENCED_LEADER_EPOCH at the follower's own epoch marks it failed until the next LeaderAndIsr; other errors
       and corrupt records make it wait replica.fetch.backoff.ms.
    6. A leader that was elected again while its response was on the way may have written batches of its new epoch into
       it. From the first batch above the follower's own epoch on, they are skipped (KAFKA-18723, in 3.9.1): the next
       fetch is fenced, and the next LeaderAndIsr says whom to follow.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import BatchHeader, crc_matches, iterate_headers
from tidegauge_broker.replica.effects import AppendAsFollower, Effect
from tidegauge_broker.replica.messages import EpochAnswer, EpochEnd, EpochQuestion, FetchedPartition, FetchPartition
from tidegauge_broker.replica.partition import Partition

_CAUSE = "FetchResponse"
_EPOCH_CAUSE = "OffsetsForLeaderEpoch"


class Follower:
    """The follower role of one partition, under one leader, from one start to the next.

    Attributes:
        truncating: the leader must tell where an epoch ends before anything is fetched.
        has_fetched: whether it was fetched since the start.
        failed: it is not asked for any more, until it starts anew.
        lag: committed records that it lacked after the latest answer; None before the first.
    """

    __slots__ = (
        "delayed_until_ms",
        "failed",
        "has_fetched",
        "lag",
        "leader",
        "outstanding",
        "partition",
        "truncating",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader = partition.leader
        self.outstanding: int | None = None
        self.delayed_until_ms = 0
        self.failed = False
        self.truncating = False
        self.has_fetched = False
        self.lag: int | None = None

    def begin(self, cause: str, out: list[Effect]) -> None:
        """Start to follow: cut what the rule cuts without asking, and see whether it asks before it fetches."""
        partition = self.partition
        rule = partition.truncation_rule
        offset = rule.first_cut(partition.epochs, partition.high_watermark)
        if offset is not None:
            partition.truncate_to(offset, cause, out)
        self.truncating = rule.question(partition.epochs) is not None

    def is_ready(self, now_ms: int) -> bool:
        """Whether it may be asked for now."""
        return self.outstanding is None and not self.failed and self.delayed_until_ms <= now_ms

    def ask(self, request_id: int) -> FetchPartition:
        """The next fetch; from now on only the answer to this one counts."""
        assert self.outstanding is None
        assert not self.truncating
        self.outstanding = request_id
        self.has_fetched = True
        partition = self.partition
        leader_epoch, last_fetched_epoch = partition.truncation_rule.fetch_epochs(
            partition.leader_epoch, partition.epochs
        )
        return FetchPartition(
            partition.topic_partition,
            partition.log_end_offset,
            partition.settings.replica_fetch_max_bytes,
            leader_epoch,
            last_fetched_epoch,
            partition.log_start_offset,
        )

    def ask_epoch(self, request_id: int) -> EpochQuestion:
        """The question before the first fetch; any broker that leads may answer it."""
        assert self.outstanding is None
        assert self.truncating
        self.outstanding = request_id
        epoch = self.partition.truncation_rule.question(self.partition.epochs)
        assert epoch is not None
        return EpochQuestion(self.partition.topic_partition, epoch)

    def epoch_told(self, request_id: int, answer: EpochAnswer, now_ms: int, out: list[Effect]) -> bool:
        """The answer to that question: cut, and ask again if that did not settle it. An error: ask again later.

        Says whether it was the answer waited for.
        """
        if self.outstanding != request_id:
            return False
        self.outstanding = None
        if answer.error is ErrorCode.NONE:
            self.truncating = not self._cut(answer.end, _EPOCH_CAUSE, out)
        else:
            self.delay(now_ms)
        return True

    def delay(self, now_ms: int) -> None:
        """Pause after a failure."""
        self.delayed_until_ms = now_ms + self.partition.settings.replica_fetch_backoff_ms

    def unanswered(self, request_id: int, now_ms: int) -> None:
        """The request was lost."""
        if self.outstanding == request_id:
            self.outstanding = None
            self.delay(now_ms)

    def nothing_new(self, request_id: int) -> None:
        """The answer left this partition out: it had nothing to say."""
        if self.outstanding == request_id:
            self.outstanding = None

    def answered(self, request_id: int, answer: FetchedPartition, now_ms: int, out: list[Effect]) -> bool:
        """The leader's answer; says whether it was the one waited for."""
        if self.outstanding != request_id:
            return False
        self.outstanding = None
        error = answer.error
        if error is ErrorCode.NONE:
            if answer.diverging is not None:
                self._reconcile(answer, out)
            else:
                self._take(answer, now_ms, out)
        elif error is ErrorCode.FENCED_LEADER_EPOCH:
            self.failed = True
            self.partition.say(
                "warning",
                f"Leader {self.leader} is in a newer epoch than {self.partition.leader_epoch}: fetching stops until "
                "the controller tells",
                out,
            )
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(answer, now_ms, out)
        else:
            self.delay(now_ms)
        return True

    def _reconcile(self, answer: FetchedPartition, out: list[Effect]) -> None:
        """The logs differ: cut to where they may still agree, and fetch again from there; the leader says if not."""
        assert answer.diverging is not None
        self._cut(answer.diverging, _CAUSE, out)

    def _cut(self, leader_end: EpochEnd, cause: str, out: list[Effect]) -> bool:
        """Cut by the rule; says whether that settles it."""
        partition = self.partition
        offset, settled = partition.truncation_rule.cut(
            leader_end, partition.epochs, partition.log_end_offset, partition.high_watermark
        )
        partition.truncate_to(offset, cause, out)
        return settled

    def _take(self, answer: FetchedPartition, now_ms: int, out: list[Effect]) -> None:
        partition = self.partition
        if answer.records and not self._append(answer.records, now_ms, out):
            return
        if answer.high_watermark >= 0:
            self.lag = max(0, answer.high_watermark - partition.log_end_offset)
            high_watermark = min(answer.high_watermark, partition.log_end_offset)
            partition.set_high_watermark(max(high_watermark, partition.log_start_offset), _CAUSE, out)
        if answer.log_start_offset > partition.log_start_offset:
            partition.advance_log_start(answer.log_start_offset, _CAUSE, out)

    def _append(self, records: bytes, now_ms: int, out: list[Effect]) -> bool:
        partition = self.partition
        try:
            headers = self._checked(records)
        except TidegaugeError as problem:
            partition.say("error", f"Found invalid records in a fetch from broker {self.leader}: {problem}", out)
            self.delay(now_ms)
            return False
        size_bytes = headers[-1].position + headers[-1].size_bytes if headers else 0
        if size_bytes < len(records):
            partition.say(
                "info",
                f"Skipping the last {len(records) - size_bytes} bytes of a fetch from broker {self.leader}: their "
                f"leader epoch is above the replica's own, {partition.leader_epoch}",
                out,
            )
            records = records[:size_bytes]
        if not headers:
            return True
        is_empty = partition.log_end_offset == partition.log_start_offset
        if headers[0].base_offset < partition.log_end_offset and not is_empty:
            self.failed = True
            partition.say(
                "error",
                f"Offset mismatch: the leader sent records from {headers[0].base_offset}, the log ends at "
                f"{partition.log_end_offset}; this replica is marked failed",
                out,
            )
            return False
        for header in headers:
            partition.note_batch_epoch(header, _CAUSE, out)
        out.append(AppendAsFollower(partition.topic_partition, records, headers))
        partition.move_log_end(headers[-1].next_offset, _CAUSE, out)
        return True

    def _checked(self, records: bytes) -> list[BatchHeader]:
        """Headers of whole, sound batches with rising offsets and a leader epoch, up to the replica's own (rule 6).

        Raises:
            TidegaugeError: CORRUPT_MESSAGE.
        """
        partition = self.partition
        newest = partition.leader_epoch if partition.truncation_rule.skips_newer_epochs else None
        headers: list[BatchHeader] = []
        next_offset = -1
        for header in iterate_headers(records):
            if newest is not None and header.leader_epoch > newest:
                break
            if not crc_matches(records, header):
                raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"wrong CRC at offset {header.base_offset}")
            if header.base_offset < next_offset or header.leader_epoch < 0:
                raise TidegaugeError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"batch at offset {header.base_offset} of epoch {header.leader_epoch} is out of order",
                )
            next_offset = header.next_offset
            headers.append(header)
        return headers

    def _out_of_range(self, answer: FetchedPartition, now_ms: int, out: list[Effect]) -> None:
        """The leader ends before us: cut to its end, if the rule does. It begins after our end: start anew there."""
        partition = self.partition
        if 0 <= answer.log_end_offset < partition.log_end_offset:
            if partition.truncation_rule.cuts_beyond_leader(
                unclean_leader_election=partition.rules.unclean_leader_election
            ):
                partition.truncate_to(answer.log_end_offset, _CAUSE, out)
                return
            self.failed = True
            partition.say(
                "error",
                f"Log truncation is not allowed (unclean.leader.election.enable=false): leader {self.leader} ends at "
                f"{answer.log_end_offset}, before this replica's end {partition.log_end_offset}. By the rule "
                f"{partition.truncation_rule.name} Kafka's process exits here; this replica is marked failed",
                out,
            )
        elif answer.log_start_offset > partition.log_end_offset:
            partition.truncate_fully(answer.log_start_offset, _CAUSE, out)
        else:
            self.delay(now_ms)
