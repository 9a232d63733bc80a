"""A replica as leader: appends, followers' fetches, the high watermark, the in-sync replicas.

The rules in ``tidegauge.in_sync`` decide who is in sync and the high watermark; this module keeps
the state that they are applied to. The high watermark never falls within a leadership. (The formula printed in many
places, min(current HW, LEOs), could never rise.)

A pending ISR change is rolled back on OPERATION_NOT_ATTEMPTED and INELIGIBLE_REPLICA alone: after any other error the
controller may have taken the change, and only the partition's next state shows which
(Partition.handleAlterPartitionError).
Source: Kafka's Partition.
"""

from __future__ import annotations

from collections.abc import Collection

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import IsrProposal, IsrVerdict
from tidegauge.counted import counted
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.in_sync import effective_min_isr, high_watermark_bound, is_caught_up, may_move
from tidegauge.record_batch import TRANSACTIONAL_BIT, BatchHeader
from tidegauge.transaction_marker import read_marker
from tidegauge_broker.replica.effects import AppendAsLeader, Effect, ProposeIsr
from tidegauge_broker.replica.isr import CommittedIsr, IsrState, PendingExpand, PendingShrink
from tidegauge_broker.replica.messages import (
    ACKS_ALL,
    CONSUMER,
    DeleteRecordsResult,
    FetchPartition,
    FetchRequest,
    FetchResult,
    OffsetResult,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
)
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.preparation import prepare
from tidegauge_broker.replica.producer_state import ProducerCheck
from tidegauge_broker.replica.reading import Reader
from tidegauge_broker.replica.record_errors import RecordsRefused
from tidegauge_broker.replica.remote_replica import UNKNOWN_OFFSET, RemoteReplica
from tidegauge_broker.replica.standing_fetch import StandingFetch
from tidegauge_broker.replica.validation import only_batch
from tidegauge_broker.replica.verification import ProducerBatch

HIGH_WATERMARK = -1
"""DeleteRecords up to the high watermark (DeleteRecordsRequest.HIGH_WATERMARK)."""
_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up, and it is asked for every partition
_REFUSED_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The values of a response without the partition's log start offset (ReplicaManager.appendToLocalLog)."""
_ROLL_BACK = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_WAIT_FOR_NEWS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)


class Leader(Reader):
    """The leader role of one partition, from the state that made it leader to the next one that does not."""

    __slots__ = ("epoch_start_offset", "isr", "remotes")

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)
        self.isr: IsrState = CommittedIsr(())
        self.remotes: dict[int, RemoteReplica] = {}
        self.epoch_start_offset = UNKNOWN_OFFSET

    # Becoming leader

    def begin_epoch(
        self, state: PartitionState, now_ms: int, *, was_leader: bool, cause: str, out: list[Effect]
    ) -> None:
        """Take over a state of a higher epoch; the partition has adopted it."""
        partition = self.partition
        assert partition.broker_id in state.isr, "I4"
        assert partition.leader_epoch == state.leader_epoch, "the partition has adopted the state"
        assert partition.leader_role is self
        self.epoch_start_offset = partition.log_end_offset
        partition.note_election(cause, out)
        keep = was_leader and partition.settings.reelected_leader_keeps_follower_state
        remotes = {}
        for broker_id in state.replicas:
            if broker_id != partition.broker_id:
                remote = remotes[broker_id] = self.remotes.get(broker_id) or RemoteReplica(broker_id)
                remote.reset(
                    now_ms,
                    in_isr=broker_id in state.isr,
                    keep_offset=keep,
                    epoch_start_offset=self.epoch_start_offset,
                )
        self.remotes = remotes
        self._commit_isr(state.isr, cause, out)

    def take_assignment(self, state: PartitionState, now_ms: int, cause: str, out: list[Effect]) -> None:
        """Take over the ISR and the replicas of a state of the same leader epoch; the partition has adopted it.

        The state of replicas that stay is kept; a pending proposal is replaced (Partition.makeLeader,
        updateAssignmentAndIsr). An ISR without this replica is none of a leader's, and changes nothing.
        """
        partition = self.partition
        if partition.broker_id not in state.isr:
            return
        remotes = {}
        for broker_id in state.replicas:
            if broker_id == partition.broker_id:
                continue
            remote = self.remotes.get(broker_id)
            if remote is None:
                remote = RemoteReplica(broker_id)
                remote.reset(
                    now_ms,
                    in_isr=broker_id in state.isr,
                    keep_offset=False,
                    epoch_start_offset=self.epoch_start_offset,
                )
            remotes[broker_id] = remote
        self.remotes = remotes
        self._commit_isr(state.isr, cause, out)

    # Appending

    def append(
        self, item: ProducePartition, request: ProduceRequest, wall_ms: int, out: list[Effect]
    ) -> tuple[ProduceResult, int]:
        """Check a producer's batch, or a coordinator's, and append it. Nothing is appended unless every check holds.

        The order is Kafka's (ReplicaManager.appendRecords) and decides which error is reported: one batch,
        min.insync.replicas, the batch itself, the producer's transaction and sequence.

        Args:
            item: the batch, and what its producer is known to have done.
            request: that it is part of: acks, and whether a coordinator appends.
            wall_ms: the wall-clock time, which LogAppendTime is and records' times are compared with.
            out: the step's effects.

        Returns:
            The result, and the offset that the high watermark must reach for it to be committed.
        """
        partition = self.partition
        result = ProduceResult(partition.topic_partition)
        header = None
        try:
            if not item.is_message_set:
                header = only_batch(item.records)
            if request.acks == ACKS_ALL:
                self._check_min_isr()
            prepared = item.prepared or prepare(
                item, partition.rules, wall_ms, header=header, from_coordinator=request.from_coordinator
            )
            header = prepared.header
            if prepared.refusal is not None:
                raise prepared.refusal
            records, result.converted_count = prepared.records, prepared.converted_count
            if records is None or header is None:  # a message set with nothing in it
                result.log_start_offset = partition.log_start_offset
                return result, UNKNOWN_OFFSET
            check = self._check_producer(item, header, request)
            if check.error is not _NONE:
                raise TidegaugeError(check.error, check.message)
        except TidegaugeError as refusal:
            result.error, result.message = refusal.code, refusal.message
            if isinstance(refusal, RecordsRefused):
                result.record_errors = refusal.record_errors
            if header is not None and refusal.code not in _REFUSED_WITHOUT_LOG_START:
                result.log_start_offset = partition.log_start_offset
            return result, UNKNOWN_OFFSET
        result.log_start_offset = partition.log_start_offset
        if check.duplicate is not None:
            result.base_offset = check.duplicate.base_offset
            result.log_append_time_ms = check.duplicate.timestamp_ms
            return result, check.duplicate.last_offset + 1
        append_time_ms = wall_ms if partition.rules.log_append_time else -1
        header = header.at(partition.log_end_offset, partition.leader_epoch)
        assert header.next_offset > header.base_offset >= partition.high_watermark, "I6"
        partition.note_batch_epoch(header, "Produce", out)
        out.append(AppendAsLeader(partition.topic_partition, records, header, append_time_ms))
        if header.attributes & TRANSACTIONAL_BIT:
            partition.note_transactions(records, (header,))
        partition.unwritten.append(header)
        partition.move_log_end(header.next_offset, "Produce", out)
        result.base_offset = header.base_offset
        result.log_append_time_ms = append_time_ms
        return result, header.next_offset

    def has_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a producer's transaction is open here (UnifiedLog.hasOngoingTransaction)."""
        state = self.partition.producer_state
        if not self.partition.settings.judges_open_epochs:
            return state.transactions.first_offset_of(producer_id) is not None
        return state.has_open(producer_id, producer_epoch)

    def knows_later_epoch(self, batch: ProducerBatch) -> bool:
        """Whether a batch's epoch is stale, which Kafka 4 finds before it asks a coordinator."""
        state = self.partition.producer_state
        return self.partition.settings.judges_open_epochs and state.is_stale(batch.producer_id, batch.producer_epoch)

    def _check_producer(self, item: ProducePartition, header: BatchHeader, request: ProduceRequest) -> ProducerCheck:
        """Check a batch against its producer's state (UnifiedLog.analyzeAndValidateProducerState)."""
        state, verifications = self.partition.producer_state, self.partition.verifications
        producer_id = header.producer_id
        if header.is_control:
            marker = read_marker(item.records, header)
            if marker is None:
                raise TidegaugeError(ErrorCode.INVALID_RECORD, "The control record is no transaction marker")
            return state.check_marker(marker._replace(transaction_version=request.transaction_version))
        if producer_id < 0:
            return state.check(header)
        is_unverified = (
            header.is_transactional
            and self.partition.settings.verifies_transactions
            and not self.has_open(producer_id, header.producer_epoch)
            and not verifications.holds(producer_id, item.guard)
        )
        if is_unverified and self.partition.settings.judges_open_epochs:
            is_unverified = not state.is_stale(producer_id, header.producer_epoch)
        return state.check(
            header,
            is_unverified=is_unverified,
            lowest_sequence=verifications.lowest_sequence(producer_id) if verifications else None,
            has_sequence=not request.from_coordinator,
            begins_at_zero=bool(verifications) and verifications.raises_epoch(producer_id),
        )

    def _check_min_isr(self) -> None:
        needed = self.effective_min_isr
        if len(self.isr.isr) < needed:
            raise TidegaugeError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {_braces(self.isr.isr)} is insufficient to satisfy the min.isr "
                f"requirement of {needed} for partition {self.partition.topic_partition}",
            )

    @property
    def effective_min_isr(self) -> int:
        """Return min.insync.replicas, at most the replication factor (since Kafka 3.7)."""
        return effective_min_isr(self.partition.rules.min_insync_replicas, len(self.remotes) + 1)

    # Reading

    def fetch(
        self,
        wanted: FetchPartition,
        replica_id: int,
        now_ms: int,
        alive: Collection[int],
        out: list[Effect],
        *,
        reads_committed: bool = False,
    ) -> FetchResult:
        """Serve a fetch on arrival. The high watermark in the response is from before the fetch takes effect."""
        partition = self.partition
        if replica_id != CONSUMER and replica_id not in self.remotes:
            error = (
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if wanted.current_leader_epoch is None
                else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
            return FetchResult(
                partition.topic_partition,
                error,
                f"broker {replica_id} is no assigned replica of {partition.topic_partition}",
                leader_hint=partition.leader_hint,
            )
        result = self.read(wanted, replica_id, reads_committed=reads_committed)
        if replica_id != CONSUMER and result.error is _NONE and result.diverging is None:
            self._follower_fetched(wanted, replica_id, now_ms, alive, out)
        return result

    def asked_by(self, request: FetchRequest) -> None:
        """Note the incarnation (broker epoch) of the replica that sent a fetch, before the fetch takes effect."""
        remote = self.remotes.get(request.replica_id)
        if remote is not None:
            if remote.covered_by is not None:
                remote.end_cover(self.partition.topic_partition)
            remote.broker_epoch = request.replica_epoch

    def fetched_ms(self) -> dict[int, int]:
        """Return the maximal ISR's last fetch times in ms; 0: not yet."""
        times: dict[int, int] = {}
        for broker_id in self.isr.maximal_isr:
            remote = self.remotes.get(broker_id)
            if remote is not None:
                remote.settle()
                times[broker_id] = remote.last_fetch_time_ms
        return times

    def covered(self, replica_id: int, session: StandingFetch) -> None:
        """Let each fetch of a session count for a follower that was found at the log end, if it is in the ISR.

        Of one that is not, each fetch may propose that it joins.
        """
        remote = self.remotes.get(replica_id)
        if remote is not None and replica_id in self.isr.isr:
            partition = self.partition
            session.cover(partition.topic_partition, remote, partition.high_watermark, partition.log_start_offset)

    def mark_changed(self) -> None:
        """Have each session that counts for a follower look at this partition again."""
        for remote in self.remotes.values():
            if remote.covered_by is not None:
                remote.covered_by.end_cover(self.partition.topic_partition)

    def _follower_fetched(
        self, wanted: FetchPartition, replica_id: int, now_ms: int, alive: Collection[int], out: list[Effect]
    ) -> None:
        remote = self.remotes[replica_id]
        assert wanted.fetch_offset <= self.partition.log_end_offset, "read at this offset, which was in range"
        old_end, old_start = remote.log_end_offset, remote.log_start_offset
        remote.fetched(wanted.fetch_offset, wanted.log_start_offset, self.partition.log_end_offset, now_ms)
        if remote.log_start_offset != old_start:
            self.partition.moved_low_watermark = True
        self._maybe_expand(remote, alive, out)
        if remote.log_end_offset != old_end:
            self.maybe_advance_high_watermark(now_ms, alive, "Fetch", out)

    # The high watermark

    def maybe_advance_high_watermark(self, now_ms: int, alive: Collection[int], cause: str, out: list[Effect]) -> bool:
        """Raise the high watermark as far as the in-sync rule allows; return whether it moved."""
        partition = self.partition
        if not may_move(len(self.isr.isr), self.effective_min_isr):
            return False
        remotes, end, isr = self.remotes.values(), partition.log_end_offset, self.isr.maximal_isr
        lag_time_max_ms, tried = partition.settings.replica_lag_time_max_ms, partition.settings.tried
        if tried is None or tried.high_watermark_bound is None:
            bound = high_watermark_bound(remotes, end, isr, alive, now_ms, lag_time_max_ms)
        else:
            old = partition.high_watermark
            bound = tried.high_watermark_bound(old, remotes, end, isr, alive, now_ms, lag_time_max_ms)
        return bound > partition.high_watermark and partition.set_high_watermark(bound, cause, out)

    def commit_outcome(self, offset: int) -> tuple[ErrorCode, str] | None:
        """Return the outcome of an acks=all append up to an offset.

        None: it still waits. The offset is exclusive.
        """
        partition = self.partition
        assert offset <= partition.log_end_offset, "of records that this leadership has appended or found"
        if partition.high_watermark < offset:
            return None
        if len(self.isr.maximal_isr) < self.effective_min_isr:
            return (
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"{partition.topic_partition} was appended, but only "
                f"{counted(len(self.isr.maximal_isr), 'replica')} in sync and "
                f"min.insync.replicas is {self.effective_min_isr}",
            )
        return _NONE, ""

    def offset_not_available(self) -> OffsetResult | None:
        """Return why a new leader can't bound consumers' reads yet, or None."""
        partition = self.partition
        if partition.high_watermark >= self.epoch_start_offset:
            return None
        return OffsetResult(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"The high watermark {partition.high_watermark} of {partition.topic_partition} has not reached offset "
            f"{self.epoch_start_offset}, where the new leader's epoch begins",
        )

    # The log start offset

    def delete_records(self, before_offset: int | None, out: list[Effect]) -> tuple[DeleteRecordsResult, int]:
        """Raise the log start offset on a client's word (Partition.deleteRecordsOnLeader).

        Returns:
            The result, and the offset that the low watermark must reach; -1 with an error.
        """
        partition = self.partition
        result = DeleteRecordsResult(partition.topic_partition)
        offset = partition.high_watermark if before_offset in {None, HIGH_WATERMARK} else before_offset
        assert offset is not None
        if not partition.rules.deletes:
            result.error = ErrorCode.POLICY_VIOLATION
            result.message = (
                f"Records of partition {partition.topic_partition} can not be deleted due to the configured policy: "
                "cleanup.policy must contain delete"
            )
        elif offset < 0:
            result.error = ErrorCode.OFFSET_OUT_OF_RANGE
            result.message = f"The offset {offset} for partition {partition.topic_partition} is not valid"
        elif offset > partition.high_watermark:
            result.error = ErrorCode.OFFSET_OUT_OF_RANGE
            result.message = (
                f"Cannot increment the log start offset to {offset} of partition {partition.topic_partition} since it "
                f"is larger than the high watermark {partition.high_watermark}"
            )
        else:
            if partition.advance_log_start(offset, "DeleteRecords", out):
                partition.moved_low_watermark = True
            assert partition.log_start_offset >= offset, "at most the high watermark was asked for"
            return result, offset
        return result, UNKNOWN_OFFSET

    def low_watermark(self, alive: Collection[int]) -> int:
        """Return the smallest log start offset of live replicas; -1: unknown."""
        starts = [remote.log_start_offset for remote in self.remotes.values() if remote.broker_id in alive]
        return min(self.partition.log_start_offset, *starts) if starts else self.partition.log_start_offset

    # The in-sync replicas

    def _maybe_expand(self, remote: RemoteReplica, alive: Collection[int], out: list[Effect]) -> None:
        """Propose a follower for the ISR, if it has what the rule demands: all that is committed, and more."""
        partition = self.partition
        if (
            isinstance(self.isr, CommittedIsr)
            and remote.broker_id not in self.isr.isr
            and remote.broker_id in alive
            and partition.truncation_rule.may_join(
                remote.log_end_offset, partition.high_watermark, self.epoch_start_offset
            )
        ):
            new_isr = (*self.isr.isr, remote.broker_id)
            if partition.emits_diagnostics:
                partition.say("info", f"Expanding ISR from {_list(self.isr.isr)} to {_list(new_isr)}", out)
            proposal = self._proposal(new_isr, remote.broker_epoch)
            self._set_isr(PendingExpand(self.isr.isr, remote.broker_id, proposal), "Fetch", out)
            out.append(ProposeIsr(proposal))

    def maybe_shrink(self, now_ms: int, out: list[Effect]) -> None:
        """Propose to drop every member that is not caught up within the lag time; never the leader itself."""
        partition = self.partition
        if not isinstance(self.isr, CommittedIsr):
            return
        lag_ms = partition.settings.replica_lag_time_max_ms
        stragglers = [
            broker_id
            for broker_id in self.isr.isr
            if broker_id != partition.broker_id
            and not (
                broker_id in self.remotes
                and is_caught_up(self.remotes[broker_id], partition.log_end_offset, now_ms, lag_ms)
            )
        ]
        if not stragglers:
            return
        new_isr = tuple(broker_id for broker_id in self.isr.isr if broker_id not in stragglers)
        behind = " ".join(f"(brokerId: {broker_id}, endOffset: {self._end_of(broker_id)})" for broker_id in stragglers)
        partition.say(
            "info",
            f"Shrinking ISR from {_list(self.isr.isr)} to {_list(new_isr)}. Leader: (highWatermark: "
            f"{partition.high_watermark}, endOffset: {partition.log_end_offset}). Out of sync replicas: {behind}.",
            out,
        )
        proposal = self._proposal(new_isr)
        self._set_isr(PendingShrink(self.isr.isr, proposal), "IsrExpiration", out)
        out.append(ProposeIsr(proposal))

    def _end_of(self, broker_id: int) -> int:
        remote = self.remotes.get(broker_id)
        return UNKNOWN_OFFSET if remote is None else remote.log_end_offset

    def _proposal(self, new_isr: tuple[int, ...], joiner_epoch: int = -1) -> IsrProposal:
        partition = self.partition
        assert partition.broker_id in new_isr, "I4"
        return IsrProposal(
            partition.topic_partition,
            partition.topic_id,
            partition.leader_epoch,
            new_isr,
            partition.partition_epoch,
            joiner_epoch=joiner_epoch,
        )

    def isr_verdict(self, proposal: IsrProposal, verdict: IsrVerdict, out: list[Effect]) -> bool:
        """Apply the controller's verdict on a proposal; returns whether the committed ISR changed."""
        partition = self.partition
        if isinstance(self.isr, CommittedIsr) or self.isr.proposal is not proposal:
            return False  # A new state has replaced the pending proposal: the verdict is stale.
        if verdict.error is _NONE:
            if verdict.leader_epoch != partition.leader_epoch or verdict.partition_epoch < partition.partition_epoch:
                return False
            if partition.broker_id not in verdict.isr:
                return False  # no verdict on a proposal of this leader
            partition.partition_epoch = verdict.partition_epoch
            self._commit_isr(verdict.isr, "AlterPartition", out)
            return True
        if verdict.error in _ROLL_BACK:
            partition.say("info", f"ISR change to {_list(proposal.new_isr)} refused: {verdict.error.name}", out)
            self._commit_isr(self.isr.isr, "AlterPartition", out)
        elif verdict.error in _WAIT_FOR_NEWS:
            partition.say(
                "info",
                f"ISR change to {_list(proposal.new_isr)} failed with {verdict.error.name}; waiting for the next state "
                "of the partition",
                out,
            )
        else:
            out.append(ProposeIsr(proposal))
        return False

    def _commit_isr(self, isr: tuple[int, ...], cause: str, out: list[Effect]) -> None:
        self._set_isr(CommittedIsr(isr), cause, out)

    def _set_isr(self, state: IsrState, cause: str, out: list[Effect]) -> None:
        assert self.partition.broker_id in state.isr, "I4"
        assert set(state.isr) <= set(state.maximal_isr), "I4"
        self.mark_changed()
        old, self.isr = self.isr, state
        if self.partition.emits_diagnostics:
            new = state.isr if state.proposal is None else state.proposal.new_isr
            self.partition.note(
                "isr",
                cause,
                out,
                old=list(old.isr),
                new=list(new),
                state=state.name,
                partition_epoch=self.partition.partition_epoch,
            )


def _list(broker_ids: tuple[int, ...]) -> str:
    return ",".join(map(str, broker_ids))


def _braces(broker_ids: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, broker_ids)) + "}"
