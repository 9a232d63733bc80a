"""The next step of a future replica (ReplicaAlterLogDirsThread, Partition.maybeReplaceCurrentWithFutureReplica)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.future_replica import (
    REPLACE,
    WAIT,
    CopyFrom,
    LogSpan,
    RaiseStart,
    StartAt,
    TruncateTo,
    agreed_end,
    next_step,
)
from tidegauge_broker.replica.messages import EpochEntry

ONE_EPOCH = [EpochEntry(0, 0)]


def span(start: int, end: int, *epochs: tuple[int, int]) -> LogSpan:
    return LogSpan(start, end, [EpochEntry(*one) for one in epochs or ONE_EPOCH])


@pytest.mark.parametrize(
    ("current", "future", "truncated_to", "step"),
    [
        (span(0, 10), span(0, 0), None, CopyFrom(0)),
        (span(0, 10), span(0, 7), None, CopyFrom(7)),
        (span(0, 10), span(0, 10), None, REPLACE),
        (span(0, 0), span(0, 0), None, REPLACE),
        # The log start offset follows; a future log below it begins again there.
        (span(3, 10), span(0, 7), None, RaiseStart(3)),
        (span(3, 10), span(0, 10), None, RaiseStart(3)),
        (span(8, 10), span(0, 7), None, StartAt(8)),
        (span(5, 5), span(0, 0), None, StartAt(5)),
        # Truncation of the current log, whether or not it has grown again.
        (span(0, 5), span(0, 7), None, TruncateTo(5)),
        (span(0, 10), span(0, 7), 4, TruncateTo(4)),
        (span(0, 10), span(0, 7), 7, CopyFrom(7)),
        (span(6, 10), span(0, 7), 4, StartAt(6)),
        # The leader epochs part: the end of the future log's epoch in the current one (KIP-101).
        (span(0, 10, (0, 0), (2, 5)), span(0, 7), None, TruncateTo(5)),
        (span(0, 10, (0, 0), (1, 5)), span(0, 8, (0, 0), (2, 4)), None, TruncateTo(4)),
        (span(0, 10, (0, 0), (2, 5)), span(0, 8, (0, 0), (1, 6)), None, TruncateTo(5)),
        # An epoch that begins at the end of the current log has no record yet.
        (span(0, 10, (0, 0), (3, 10)), span(0, 10), None, REPLACE),
    ],
)
def test_the_next_step(current: LogSpan, future: LogSpan, truncated_to: int | None, step: object) -> None:
    assert next_step(current, future, truncated_to, is_throttled=False) == step


def test_the_quota_holds_up_copying_and_nothing_else() -> None:
    """LocalLeaderEndPoint.buildFetch leaves a throttled partition out; truncation and replacement go on."""
    assert next_step(span(0, 10), span(0, 7), None, is_throttled=True) is WAIT
    assert next_step(span(0, 10), span(0, 10), None, is_throttled=True) is REPLACE
    assert next_step(span(0, 5), span(0, 7), None, is_throttled=True) == TruncateTo(5)


def test_logs_without_a_common_epoch_agree_on_nothing() -> None:
    assert agreed_end(LogSpan(0, 10, [EpochEntry(5, 0)]), span(0, 7, (6, 0))) == 0


@dataclass
class Log:
    """Records by offset, each its epoch and a value that no other has."""

    start: int = 0
    records: list[tuple[int, int]] = field(default_factory=list)
    base: int = 0
    epochs: EpochCache = field(default_factory=EpochCache)

    @property
    def end(self) -> int:
        return self.base + len(self.records)

    @property
    def span(self) -> LogSpan:
        return LogSpan(self.start, self.end, self.epochs.entries)

    def readable(self) -> dict[int, tuple[int, int]]:
        return {offset: self.records[offset - self.base] for offset in range(self.start, self.end)}

    def truncate(self, offset: int) -> None:
        if offset < self.base:
            self.restart(offset)
            return
        del self.records[offset - self.base :]
        self.start = min(self.start, offset)
        self.epochs.truncate_from_end(offset)

    def restart(self, offset: int) -> None:
        self.records, self.base, self.start = [], offset, offset
        self.epochs.clear()


EVENTS = st.lists(
    st.tuples(st.sampled_from(["append", "truncate", "start", "restart", "step", "crash"]), st.integers(0, 7)),
    max_size=60,
)


@given(EVENTS)
def test_whatever_happens_to_the_current_log_its_replacement_holds_the_same(events: list[tuple[str, int]]) -> None:
    """Appends, elections with truncation, deleted records and restarts between any two steps of a move."""
    current, future = Log(), Log()
    owed: int | None = None
    epoch = value = 0

    def step() -> bool:
        nonlocal owed
        found = next_step(current.span, future.span, owed, is_throttled=False)
        if found is REPLACE:
            assert future.readable() == current.readable()
            return True
        if isinstance(found, TruncateTo):
            future.truncate(found.offset)
            owed = None
        elif isinstance(found, StartAt):
            future.restart(found.offset)
            owed = None
        elif isinstance(found, RaiseStart):
            future.start = found.offset
        else:
            assert isinstance(found, CopyFrom)
            future.records += current.records[found.offset - current.base :][:2]
            copied = EpochCache(current.epochs.entries)
            copied.truncate_from_end(future.end)
            future.epochs = copied
        return False

    for what, number in events:
        if what == "append":
            for _ in range(number):
                value += 1
                current.epochs.assign(epoch, current.end)
                current.records.append((epoch, value))
        elif what == "truncate":
            offset = max(current.start, current.end - number)
            current.truncate(offset)
            owed = min(offset, owed if owed is not None else offset) if offset < future.end else owed
            epoch += 1  # an election is what makes a replica truncate
        elif what == "start":
            current.start = min(current.end, current.start + number)
            current.epochs.truncate_from_start(current.start)
        elif what == "restart":
            current.restart(current.end + number - 3 if current.end > 3 else number)
            owed = 0 if future.end else owed
            epoch += 1
        elif what == "crash":
            owed = None  # it is not on the disk: the epochs have to tell
        else:
            step()
    for _ in range(200):
        if step():
            return
    raise AssertionError(f"it never ends: {current} {future} {owed}")
