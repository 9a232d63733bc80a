"""The reads of a fetch, against the rule written down plainly (Partition.readRecords).

``Leader.read`` has a short way for the partition of an idle follower, which a round asks for thousands of times.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.messages import (
    CONSUMER,
    CoreSettings,
    EpochEnd,
    EpochEntry,
    FetchPartition,
    ReadRange,
    TopicRules,
)
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.producer_state import ProducerState

AT = TopicPartition("t", 0)


class Log(NamedTuple):
    """A log's start, high watermark, end, and the starts of its epochs."""

    start: int
    high_watermark: int
    end: int
    epochs: list[EpochEntry]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    start, high_watermark, end = sorted(draw(st.lists(st.integers(0, 12), min_size=3, max_size=3)))
    numbers = sorted(draw(st.sets(st.integers(0, 6), max_size=4)))
    offsets = sorted(draw(st.sets(st.integers(start, end), max_size=len(numbers))))
    return Log(start, high_watermark, end, [EpochEntry(*pair) for pair in zip(numbers, offsets, strict=False)])


def plainly(log: Log, offset: int, epoch: int | None, replica_id: int) -> tuple[ErrorCode, EpochEnd | None, object]:
    """Error, divergence, and the range that may be read: each case of the rule by itself."""
    end_of_epoch = None if epoch is None else _end_of(epoch, log)
    if end_of_epoch == EpochEnd(-1, -1) or offset < log.start or (epoch is None and offset > log.end):
        return ErrorCode.OFFSET_OUT_OF_RANGE, None, None
    if end_of_epoch is not None and epoch is not None and (end_of_epoch.epoch < epoch or end_of_epoch[1] < offset):
        return ErrorCode.NONE, end_of_epoch, None
    bound = log.high_watermark if replica_id == CONSUMER else log.end
    return ErrorCode.NONE, None, ReadRange(offset, bound, 100) if offset < bound else None


def _end_of(epoch: int, log: Log) -> EpochEnd:
    if not log.epochs or epoch > log.epochs[-1].epoch:
        return EpochEnd(-1, -1)
    later = [entry for entry in log.epochs if entry.epoch > epoch]
    at_or_before = [entry.epoch for entry in log.epochs if entry.epoch <= epoch]
    known = at_or_before[-1] if at_or_before else epoch
    return EpochEnd(known, later[0].start_offset if later else log.end)


@given(logs(), st.integers(0, 14), st.none() | st.integers(0, 7), st.sampled_from([CONSUMER, 2]))
def test_a_fetch_reads_what_the_rule_says(log: Log, offset: int, epoch: int | None, replica_id: int):
    loaded = LoadedLog(log.start, log.end, log.high_watermark, log.epochs, ProducerState())
    leader = Leader(Partition(AT, 1, CoreSettings(), TopicRules(), "", loaded))
    result = leader.read(FetchPartition(AT, offset, 100, None, epoch), replica_id)
    assert (result.error, result.diverging, result.read) == plainly(log, offset, epoch, replica_id)
    if result.error is ErrorCode.NONE:
        assert (result.high_watermark, result.log_start_offset) == (log.high_watermark, log.start)
    else:
        assert (result.high_watermark, result.log_end_offset) == (-1, log.end)


def test_a_reader_of_committed_data_that_must_truncate_is_given_no_list_of_aborted_transactions() -> None:
    """An empty list means records without aborted ones; there are no records here (``FetchDataInfo.empty``)."""
    loaded = LoadedLog(0, 9, 9, [EpochEntry(0, 0), EpochEntry(2, 5)], ProducerState())
    leader = Leader(Partition(AT, 1, CoreSettings(), TopicRules(), "", loaded))
    diverging = leader.read(FetchPartition(AT, 7, 100, None, 1), CONSUMER, reads_committed=True)
    assert (diverging.diverging, diverging.aborted_transactions) == (EpochEnd(0, 5), None)
    assert leader.read(FetchPartition(AT, 7, 100, None, 2), CONSUMER, reads_committed=True).aborted_transactions == ()
