"""Truncation behind the reader, found by leader epochs (KIP-320), and a high watermark that only lags."""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.partition import TopicPartition
from tidegauge_spark.epochs import EpochEnd, EpochTracker

ZERO = TopicPartition("t", 0)


class Log:
    """A leader's epoch cache: start offsets by epoch, and the log end offset (LeaderEpochFileCache.endOffsetFor)."""

    def __init__(self, starts: Mapping[int, int], log_end_offset: int, current: int | None = None) -> None:
        self.starts = dict(starts)
        self.log_end_offset = log_end_offset
        self.current = max(starts, default=-1) if current is None else current
        self.questions = 0

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        return self.current

    def epoch_ends(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd | None]:
        self.questions += 1
        return {one: self._end(epoch) for one, epoch in asked.items()}

    def _end(self, epoch: int) -> EpochEnd | None:
        if not self.starts or epoch > max(self.starts):
            return None
        if epoch == max(self.starts):
            return EpochEnd(epoch, self.log_end_offset)
        higher = min(one for one in self.starts if one > epoch)
        floor = max((one for one in self.starts if one <= epoch), default=epoch)
        return EpochEnd(floor, self.starts[higher])


def truncations(log: Log, offset: int, epoch: int) -> dict[TopicPartition, int]:
    return EpochTracker().truncations(log, {ZERO: offset}, {ZERO: epoch})


def test_a_clean_change_of_leader_truncates_nothing() -> None:
    assert truncations(Log({0: 0, 1: 10}, 10), 10, 0) == {}
    assert truncations(Log({0: 0, 1: 10}, 30), 7, 0) == {}
    assert truncations(Log({0: 0, 1: 10}, 30), 25, 1) == {}


def test_a_shorter_log_is_a_truncation_also_once_it_has_grown_past_the_reader() -> None:
    """Unclean election: the new leader had 6 of 10 records, then wrote 20; by offsets alone nothing is to be seen."""
    assert truncations(Log({0: 0, 1: 6}, 6), 10, 0) == {ZERO: 6}
    assert truncations(Log({0: 0, 1: 6}, 26), 10, 0) == {ZERO: 6}


def test_records_of_a_missing_epoch_are_a_truncation() -> None:
    """The log has 10 records, but those that were read at 5..9 were written under epoch 2."""
    assert truncations(Log({1: 0, 3: 10}, 12), 10, 2) == {ZERO: 10}


def test_a_leader_that_knows_nothing_leaves_it_to_the_offsets() -> None:
    assert truncations(Log({}, 5, current=3), 10, 2) == {}
    assert truncations(Log({0: 0}, 5, current=0), 3, 2) == {}, "an epoch above all: undefined"


def test_retention_is_no_truncation() -> None:
    """All that was read is deleted: the oldest epoch left is above ours and begins behind it."""
    assert truncations(Log({4: 100}, 120), 50, 2) == {}


def test_one_question_per_leader_epoch() -> None:
    tracker, log = EpochTracker(), Log({0: 0, 1: 6}, 26)
    assert tracker.truncations(log, {ZERO: 10}, {ZERO: 0}) == {ZERO: 6}
    assert tracker.truncations(log, {ZERO: 10}, {ZERO: 0}) == {}, "said once"
    assert log.questions == 1
    log.current = 2
    log.starts[2] = 26
    assert tracker.truncations(log, {ZERO: 10}, {ZERO: 0}) == {ZERO: 6}


def test_a_lagging_high_watermark_is_distinguished_from_lost_records() -> None:
    """The new leader holds 10 records and does not know yet that they are committed."""
    assert EpochTracker().lagging(Log({0: 0, 1: 10}, 10), {ZERO: 10}) == {ZERO}
    assert EpochTracker().lagging(Log({0: 0, 1: 6}, 6), {ZERO: 10}) == set()
    assert EpochTracker().lagging(Log({}, 6, current=1), {ZERO: 10}) == set()


def test_epoch_of_the_record_before_an_offset() -> None:
    """Epochs 1 and 3 wrote nothing; each offset's record was written under the epoch whose range holds it."""
    log = Log({0: 0, 1: 5, 2: 5, 3: 9, 4: 9}, 14)
    for offset, epoch in {1: 0, 5: 0, 6: 2, 9: 2, 10: 4, 14: 4}.items():
        assert EpochTracker().epochs_before(log, {ZERO: offset}) == {ZERO: epoch}, offset
    assert EpochTracker().epochs_before(log, {ZERO: 0}) == {}
    assert EpochTracker().epochs_before(Log({}, 14, current=4), {ZERO: 9}) == {}


def test_the_epoch_of_new_records_costs_one_question_per_leader() -> None:
    tracker, log = EpochTracker(), Log({0: 0, 4: 9}, 14)
    assert tracker.epochs_before(log, {ZERO: 12}) == {ZERO: 4}
    log.log_end_offset = 20
    assert tracker.epochs_before(log, {ZERO: 20}) == {ZERO: 4}
    assert tracker.truncations(log, {ZERO: 20}, {ZERO: 4}) == {}
    assert log.questions == 1
