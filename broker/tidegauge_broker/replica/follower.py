"""A replica as follower: what to fetch next, and what a response changes.

Rules (AbstractFetcherThread, ReplicaFetcherThread.processPartitionData):
    1. It fetches at its own log end offset. The truncation rule decides where its log and the leader's part, and where
       it truncates: today (KIP-320) a fetch carries the epoch of the last record, and the leader reports divergence;
       only a replica without any epoch entry truncates to its high watermark. By KIP-101 and KIP-279 it asks where its
       latest epoch ends before it fetches; before them it truncated to its high watermark.
    2. A response counts only for the request in flight: a late or repeated one changes nothing. A new state of
       the partition forgets the request in flight, so responses never cross epochs.
    3. Records first, then high watermark = min(leader's, own log end), an assignment that may go down, then the
       leader's log start. A diverging response carries neither (KAFKA-14704).
    4. A batch may begin above the own end: compaction leaves gaps. One that begins below it is an error, except in
       an empty log, whose start may lie in the middle of a batch (deleted records).
    5. FENCED_LEADER_EPOCH at the follower's own epoch marks it failed until the partition's next state; other errors
       and corrupt records make it wait replica.fetch.backoff.ms.
    6. A leader that was elected again while its response was on the way may have written batches of its new epoch into
       it. From the first batch above the follower's own epoch on, they are skipped (KAFKA-18723, in 3.9.1): the next
       fetch is fenced, and the partition's next state names the leader to follow.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import HEADER_BYTES, BatchHeader, crc_matches, iterate_headers, read_header
from tidegauge.transaction_marker import read_marker
from tidegauge_broker.replica.effects import AppendAsFollower, Effect
from tidegauge_broker.replica.messages import EpochEnd, EpochEndResult, EpochLookup, FetchedPartition, FetchPartition
from tidegauge_broker.replica.open_transactions import OpenTransactions
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.standing_rounds import StandingRounds

_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up, and it is asked for every partition
LARGEST_SPAN = 0x7FFF_FFFF
"""Offsets that batches of one append may span; a segment holds no more. The next fetch begins with the rest."""
_CAUSE = "FetchResponse"
_EPOCH_CAUSE = "OffsetsForLeaderEpoch"


class Follower:
    """The follower role of one partition, under one leader, from one start to the next.

    Attributes:
        truncating: it must look up where an epoch ends at the leader before it fetches (KIP-101).
        has_fetched: whether it has sent a fetch since the start.
        standing: the rounds of its leader that ask for it without looking at it; None: it is looked at.
        place: its place in the order of the leader's rounds.
        failed: it takes part in no round until it starts again.
        lag: committed records that it lacked after the latest response; None before the first.
    """

    __slots__ = (
        "_own_request",
        "delayed_until_ms",
        "failed",
        "has_fetched",
        "lag",
        "leader",
        "partition",
        "place",
        "standing",
        "truncating",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader = partition.leader
        self.standing: StandingRounds | None = None
        self.place = 0
        self._own_request: int | None = None
        self.delayed_until_ms = 0
        self.failed = False
        self.truncating = False
        self.has_fetched = False
        self.lag: int | None = None

    def begin(self, cause: str, out: list[Effect]) -> None:
        """Start to follow: truncate what the rule truncates without a look-up, and note whether one comes first."""
        partition = self.partition
        rule = partition.truncation_rule
        offset = rule.initial_truncation_offset(partition.epochs, partition.high_watermark)
        if offset is not None:
            partition.truncate_to(offset, cause, out)
        self.truncating = rule.epoch_to_look_up(partition.epochs) is not None

    @property
    def in_flight(self) -> int | None:
        """Return the number of the round whose response it waits for."""
        return self._own_request if self.standing is None else self.standing.in_flight

    @in_flight.setter
    def in_flight(self, request_id: int | None) -> None:
        """Wait for the response to this round, or for none; it is looked at before the next."""
        if self.standing is not None:
            self.standing.look_at(self.partition.topic_partition)
            self.standing = None
        self._own_request = request_id

    def is_ready(self, now_ms: int) -> bool:
        """Whether it may be part of a round now."""
        return self.in_flight is None and not self.failed and self.delayed_until_ms <= now_ms

    def ask(self, request_id: int) -> FetchPartition:
        """Return the next fetch; from now on only its response counts."""
        assert self.in_flight is None, "I7"
        assert not self.truncating
        assert self.partition.follower_role is self
        self.in_flight = request_id
        self.has_fetched = True
        return self._wanted()

    def stand(self, rounds: StandingRounds) -> FetchPartition:
        """Return the next fetch, which these rounds repeat until it changes."""
        assert not self.truncating
        assert self.partition.follower_role is self
        self.standing = rounds
        self.has_fetched = True
        return self._wanted()

    def _wanted(self) -> FetchPartition:
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

    def ask_epoch(self, request_id: int) -> EpochLookup:
        """Return the epoch look-up before the first fetch, for any leading broker.

        It names the current leader epoch if the rule's fetches do; none of Kafka's rules that look up has them do so.
        """
        assert self.in_flight is None, "I7"
        assert self.truncating
        assert self.partition.follower_role is self
        self.in_flight = request_id
        partition = self.partition
        epoch = partition.truncation_rule.epoch_to_look_up(partition.epochs)
        assert epoch is not None
        current_epoch, _ = partition.truncation_rule.fetch_epochs(partition.leader_epoch, partition.epochs)
        return EpochLookup(partition.topic_partition, epoch, current_epoch)

    def epoch_end_received(self, request_id: int, result: EpochEndResult, now_ms: int, out: list[Effect]) -> bool:
        """Apply the response to that look-up: truncate, and look up again if the logs may still differ.

        After an error the look-up is repeated when replica.fetch.backoff.ms has passed.

        Returns:
            Whether it was the response to the request in flight.
        """
        if self.in_flight != request_id:
            return False
        self.in_flight = None
        if result.error is _NONE:
            self.truncating = not self._truncate(result.end, _EPOCH_CAUSE, out)
        else:
            self.delay(now_ms)
        return True

    def delay(self, now_ms: int) -> None:
        """Pause after a failure."""
        assert self.in_flight is None, "a request in flight need not pause"
        self.delayed_until_ms = now_ms + self.partition.settings.replica_fetch_backoff_ms

    def request_lost(self, request_id: int, now_ms: int) -> None:
        """Drop the request in flight, which got no response, and back off."""
        if self.in_flight == request_id:
            self.in_flight = None
            self.delay(now_ms)

    def nothing_new(self, request_id: int) -> None:
        """Take back the request in flight: the response left this partition out, so nothing changed."""
        if self.in_flight == request_id:
            self.in_flight = None

    def fetch_response_received(
        self, request_id: int, fetched: FetchedPartition, now_ms: int, out: list[Effect]
    ) -> bool:
        """Apply the leader's response, or a part of it; returns whether it belongs to the request in flight.

        The request stays in flight while more of its records follow and all before were appended.
        """
        if self.in_flight != request_id:
            return False
        self.in_flight = None
        error = fetched.error
        if error is _NONE:
            if fetched.diverging is not None:
                self._reconcile(fetched, out)
            elif self._take(fetched, now_ms, out) and fetched.has_more:
                self.in_flight = request_id
        elif error is ErrorCode.FENCED_LEADER_EPOCH:
            self.failed = True
            self.partition.say(
                "warning",
                f"Leader {self.leader} is in a newer epoch than {self.partition.leader_epoch}: fetching stops until "
                "the controller sends the new leader and ISR",
                out,
            )
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(fetched, now_ms, out)
        else:
            self.delay(now_ms)
        return True

    def _reconcile(self, fetched: FetchedPartition, out: list[Effect]) -> None:
        """Truncate to where the two logs may still agree; the leader reports it if they differ there too."""
        assert fetched.diverging is not None
        self._truncate(fetched.diverging, _CAUSE, out)

    def _truncate(self, leader_end: EpochEnd, cause: str, out: list[Effect]) -> bool:
        """Truncate by the rule; returns whether no further look-up is needed."""
        partition = self.partition
        offset, settled = partition.truncation_rule.truncation_offset(
            leader_end, partition.epochs, partition.log_end_offset, partition.high_watermark
        )
        assert offset <= partition.log_end_offset, "the common end of both logs"
        partition.truncate_to(offset, cause, out)
        return settled

    def _take(self, fetched: FetchedPartition, now_ms: int, out: list[Effect]) -> bool:
        """Take in records and offsets; return whether all the records were appended."""
        partition = self.partition
        taken_bytes = self._append(fetched.records, now_ms, out) if fetched.records else 0
        if taken_bytes is None:
            return False
        if fetched.high_watermark >= 0:
            self.lag = max(0, fetched.high_watermark - partition.log_end_offset)
            high_watermark = min(fetched.high_watermark, partition.log_end_offset)
            partition.set_high_watermark(max(high_watermark, partition.log_start_offset), _CAUSE, out)
        if fetched.log_start_offset > partition.log_start_offset:
            partition.advance_log_start(fetched.log_start_offset, _CAUSE, out)
        return taken_bytes == len(fetched.records)

    def _append(self, records: bytes, now_ms: int, out: list[Effect]) -> int | None:
        """Append the sound records; return their size in bytes. None: nothing of the response counts."""
        partition = self.partition
        try:
            headers = self._checked(records)
        except TidegaugeError as problem:
            partition.say("error", f"Found invalid records in a fetch from broker {self.leader}: {problem}", out)
            self.delay(now_ms)
            return None
        size_bytes = headers[-1].position + headers[-1].size_bytes if headers else 0
        if size_bytes < len(records):
            if size_bytes + HEADER_BYTES <= len(records) and self._is_of_newer_epoch(records, size_bytes):
                partition.say(
                    "info",
                    f"Skipping the last {len(records) - size_bytes} bytes of a fetch from broker {self.leader}: their "
                    f"leader epoch is above the replica's own, {partition.leader_epoch}",
                    out,
                )
            records = records[:size_bytes]
        if not headers:
            return size_bytes
        is_empty = partition.log_end_offset == partition.log_start_offset
        if headers[0].base_offset < partition.log_end_offset and (
            not is_empty or headers[-1].next_offset < partition.log_end_offset
        ):
            self.failed = True
            partition.say(
                "error",
                f"Offset mismatch: the leader sent records from {headers[0].base_offset}, the log ends at "
                f"{partition.log_end_offset}; this replica is marked failed",
                out,
            )
            return None
        if is_empty and headers[0].base_offset < partition.log_end_offset:
            partition.transactions = OpenTransactions()
        for header in headers:
            partition.note_batch_epoch(header, _CAUSE, out)
        partition.note_transactions(records, headers)
        out.append(AppendAsFollower(partition.topic_partition, records, headers))
        partition.unwritten.extend(headers)
        partition.move_log_end(headers[-1].next_offset, _CAUSE, out)
        return size_bytes

    def _is_of_newer_epoch(self, records: bytes, position: int) -> bool:
        """Whether a batch's leader epoch is above the replica's own."""
        return read_header(records, position).leader_epoch > self.partition.leader_epoch

    def _checked(self, records: bytes) -> list[BatchHeader]:
        """Headers of whole, sound batches with rising offsets and a leader epoch, up to the replica's own (rule 6).

        A last batch that is incomplete is left out: the next fetch begins with it (UnifiedLog.trimInvalidBytes). So is
        what a segment does not hold together with the first batch (LogSegment.ensureOffsetInRange).

        Raises:
            TidegaugeError: CORRUPT_MESSAGE.
        """
        partition = self.partition
        newest = partition.leader_epoch if partition.truncation_rule.skips_newer_epochs else None
        headers: list[BatchHeader] = []
        next_offset = 0
        for header in iterate_headers(records, may_end_within_batch=True):
            if newest is not None and header.leader_epoch > newest:
                break
            if headers and header.last_offset - headers[0].base_offset > LARGEST_SPAN:
                break
            if not crc_matches(records, header):
                raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"wrong CRC at offset {header.base_offset}")
            if header.base_offset < next_offset or header.leader_epoch < 0:
                raise TidegaugeError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"batch at offset {header.base_offset} of epoch {header.leader_epoch} is out of order",
                )
            if header.is_control:
                read_marker(records, header)
            next_offset = header.next_offset
            headers.append(header)
        return headers

    def _out_of_range(self, fetched: FetchedPartition, now_ms: int, out: list[Effect]) -> None:
        """Truncate to a leader's lower log end, if the rule allows it; start again at its higher log start."""
        partition = self.partition
        if 0 <= fetched.log_end_offset < partition.log_end_offset:
            if partition.truncation_rule.truncates_beyond_leader(
                unclean_leader_election=partition.rules.unclean_leader_election
            ):
                partition.truncate_to(fetched.log_end_offset, _CAUSE, out)
                return
            self.failed = True
            partition.say(
                "error",
                f"Log truncation is not allowed (unclean.leader.election.enable=false): leader {self.leader} ends at "
                f"{fetched.log_end_offset}, before this replica's end {partition.log_end_offset}. By the rule "
                f"{partition.truncation_rule.name} Kafka's process exits here; this replica is marked failed",
                out,
            )
        elif fetched.log_start_offset > partition.log_end_offset:
            partition.truncate_fully(fetched.log_start_offset, _CAUSE, out)
        else:
            self.delay(now_ms)
