"""The records that a fetch may read of a replica's log, on leader and follower.

A consumer reads up to the replica's own high watermark: at the leader, and since Fetch version 11 at any replica
(KIP-392). A reader of committed records stops at the replica's last stable offset (KIP-98). A follower's high
watermark is at most the leader's, so a consumer never reads there what could be lost. An offset between the high
watermark and the log end is no error and gives nothing; one beyond the log end is OFFSET_OUT_OF_RANGE, after which a
consumer that reads from a follower asks the leader.
Source: Partition.readRecords, ReplicaManager.readFromLog.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.messages import CONSUMER, EpochEnd, FetchPartition, FetchResult, ReadRange
from tidegauge_broker.replica.partition import Partition


class Reader:
    """Reads of one replica; the leader role builds on it."""

    __slots__ = ("partition",)

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    def read(self, wanted: FetchPartition, replica_id: int, *, reads_committed: bool = False) -> FetchResult:
        """Return a fetch's current result; called again when a parked fetch completes."""
        partition = self.partition
        result = FetchResult(
            partition.topic_partition,
            high_watermark=partition.high_watermark,
            log_start_offset=partition.log_start_offset,
            last_stable_offset=partition.last_stable_offset,
        )
        if reads_committed:
            result.aborted_transactions = ()
        offset = wanted.fetch_offset
        is_within = partition.log_start_offset <= offset <= partition.log_end_offset
        epoch = wanted.last_fetched_epoch
        if is_within and (epoch is None or epoch == partition.epochs.latest_epoch):
            pass  # the latest epoch ends where the log ends: neither out of range nor diverging
        elif (refused := self._refused(wanted, result)) is not None:
            return refused
        upper_bound = partition.high_watermark if replica_id == CONSUMER else partition.log_end_offset
        if reads_committed:
            upper_bound = result.last_stable_offset
        assert upper_bound <= partition.log_end_offset, "I1"
        if offset < upper_bound:
            assert offset >= partition.log_start_offset, "an offset below is out of range"
            result.read = ReadRange(offset, upper_bound, wanted.max_bytes, reads_committed)
        return result

    def _refused(self, wanted: FetchPartition, result: FetchResult) -> FetchResult | None:
        """Return the result if records may not be read, else None.

        The offset is out of range, or the logs differ.
        """
        partition = self.partition
        offset = wanted.fetch_offset
        end: EpochEnd | None = None
        if wanted.last_fetched_epoch is not None:
            end = partition.epochs.end_offset_for(wanted.last_fetched_epoch, partition.log_end_offset)
        if (
            (end is not None and end.is_undefined)
            or offset < partition.log_start_offset
            or (offset > partition.log_end_offset and end is None)
        ):
            return self._out_of_range(result, offset)
        if end is not None and (end.epoch < (wanted.last_fetched_epoch or 0) or end.end_offset < offset):
            result.diverging = end
            result.aborted_transactions = None
            return result
        return None

    def _out_of_range(self, result: FetchResult, offset: int) -> FetchResult:
        partition = self.partition
        result.error = ErrorCode.OFFSET_OUT_OF_RANGE
        result.message = (
            f"Received request for offset {offset} for partition {partition.topic_partition}, but we only have log "
            f"segments in the range {partition.log_start_offset} to {partition.log_end_offset}"
        )
        result.high_watermark = result.last_stable_offset = -1
        result.aborted_transactions = None
        result.log_end_offset = partition.log_end_offset
        return result
