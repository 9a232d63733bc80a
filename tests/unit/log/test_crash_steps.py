"""A crash before every single change of a file, with and without a loss of power.

A scenario is run once for each change that its files see - an append, a sync, a rename, ... - and the process dies just
before that change; an append may also die half-way. With a power loss, every file then loses its unsynced bytes.
After it, recovery must give a prefix of the written batches: all of them without a power loss, all
flushed ones with one. The producers' sequences fit, and the log can be used.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.record_batch import iterate_headers, read_header
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.log.files import Buffer
from tidegauge_broker.log.synced_disk import SyncedDisk, restore_synced
from tidegauge_broker.replica.messages import EpochEntry

Step = Callable[["Scene"], None]


class Crash(BaseException):
    """The process is dead. No OSError, so that no handler takes it."""


class CrashingDisk(SyncedDisk):
    """Counts the changes; dies before the chosen one, or half-way through it if that is an append."""

    def __init__(self, last: int | None = None, *, torn: bool = False) -> None:
        super().__init__()
        self.changes = 0
        self.appends: list[int] = []
        self.first = 0
        self._last = last
        self._torn = torn

    def _change(self) -> None:
        if self.changes == self._last and not self._torn:
            raise Crash
        self.changes += 1

    def begin_crashing(self) -> None:
        """Begin to crash; changes before this call prepare the scene and are not worth a crash."""
        self.first = self.changes

    def create(self, path: Path) -> int:
        self._change()
        return super().create(path)

    def append(self, descriptor: int, parts: Sequence[Buffer], size_bytes: int, end_position: int) -> None:
        if self.changes == self._last and self._torn:
            os.write(descriptor, b"".join(parts)[: size_bytes // 2])
            raise Crash
        self.appends.append(self.changes)
        self._change()
        super().append(descriptor, parts, size_bytes, end_position)

    def truncate(self, path: Path, size_bytes: int) -> None:
        self._change()
        super().truncate(path, size_bytes)

    def sync(self, path: Path) -> None:
        self._change()
        super().sync(path)

    def sync_directory(self, path: Path) -> None:
        self._change()
        super().sync_directory(path)

    def rename(self, path: Path, to: Path) -> None:
        self._change()
        super().rename(path, to)

    def remove(self, path: Path) -> None:
        self._change()
        super().remove(path)

    def remove_directory(self, path: Path) -> None:
        self._change()
        super().remove_directory(path)


@dataclass
class Scene:
    """A log, and its expected content after a crash.

    Attributes:
        content: the batches of the log, each with the records it holds.
        other: what they would be if the step in progress were done already, or not at all.
        kept: minimum number of them after a kill.
        flushed: minimum number of them after a power loss.
    """

    bench: Any
    batch: Callable[..., bytes]
    content: list[bytes] = field(default_factory=list)
    other: list[bytes] = field(default_factory=list)
    kept: int = 0
    flushed: int = 0
    sequence: int = 0

    def begin(self, after: list[bytes]) -> None:
        common = sum(1 for old, new in zip(self.content, after, strict=False) if old == new)
        self.other = after
        self.kept = common
        self.flushed = min(self.flushed, common)

    def end(self) -> None:
        self.content = self.other
        self.kept = len(self.content)

    def append(self, count: int = 2, *, epoch: int = 0) -> None:
        log = self.bench.log()
        data = self.batch(count, producer_id=5, sequence=self.sequence, value=b"%d" % self.sequence)
        self.sequence += count
        header = read_header(data)._replace(base_offset=log.log_end_offset, leader_epoch=epoch)
        self.begin([*self.content, _stored(data, header.base_offset, epoch)])
        if not log.epochs or log.epochs[-1].epoch < epoch:
            log.write_epochs([*log.epochs, EpochEntry(epoch, header.base_offset)], sync=True)
        log.append_as_leader(data, header)
        self.end()

    def truncate(self, batches: int) -> None:
        after = self.content[: len(self.content) - batches]
        target = sum(read_header(data).record_count for data in after)
        self.begin(after)
        self.bench.log().truncate_to(target)
        self.sequence = target
        self.end()

    def flush(self) -> None:
        self.bench.log().flush()
        self.bench.manager.write_recovery_points()
        self.flushed = len(self.content)


def _stored(data: bytes, base_offset: int, epoch: int) -> bytes:
    return base_offset.to_bytes(8, "big") + data[8:12] + epoch.to_bytes(4, "big") + data[16:]


def found_in(log: Any) -> list[bytes]:
    batches: list[bytes] = []
    offset = log.log_start_offset
    while data := log.read(offset, log.log_end_offset, 1 << 20, at_least_one_batch=True):
        for header in iterate_headers(data):
            batches.append(data[header.position : header.position + header.size_bytes])
            offset = header.next_offset
    return batches


def append_and_roll(scene: Scene) -> None:
    for at in range(5):
        scene.append(epoch=at // 2)
        if at == 2:
            scene.bench.manager.flush_dirty()
    scene.flush()
    scene.append()


def truncate_and_append_others(scene: Scene) -> None:
    for _ in range(5):
        scene.append()
    scene.flush()
    scene.append()
    scene.truncate(3)
    scene.append(epoch=4)
    scene.truncate(1)
    scene.append(3, epoch=5)
    scene.flush()


def write_checkpoints(scene: Scene) -> None:
    manager = scene.bench.manager
    for _ in range(2):
        scene.append()
        manager.flush_dirty()
        manager.write_recovery_points()
        manager.note_high_watermarks({scene.bench.name: scene.bench.log().log_end_offset})
        manager.write_high_watermarks()
        manager.write_log_start_offsets()
        scene.flush()


def close_and_open(scene: Scene) -> None:
    scene.append()
    scene.append()
    scene.bench.manager.close({})
    scene.flushed = len(scene.content)
    scene.bench.open()
    scene.append()


@pytest.fixture(autouse=True)
def no_real_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs are noted all the same; the disk of the machine need not take part in a thousand of them."""
    monkeypatch.setattr("tidegauge_broker.log.files.os.fsync", lambda _descriptor: None)


SCENARIOS = [append_and_roll, truncate_and_append_others, write_checkpoints, close_and_open]


def crashes(
    make_bench: Any, directory: Path, settings: dict[str, str], play: Callable[[Any], None]
) -> Iterator[tuple[Any, str]]:
    """The bench after each crash, its process dead; and what happened to it."""
    counting = CrashingDisk()
    bench = make_bench(directory / "counting", dict(settings), disk=counting)
    play(bench)
    bench.stop(clean=False)
    points = [(at, False) for at in range(counting.first, counting.changes)]
    points += [(at, True) for at in counting.appends if at >= counting.first]
    for at, torn in points:
        for power_cut in (True,) if torn else (False, True):
            bench = make_bench(directory / f"{at}-{torn}-{power_cut}", dict(settings), disk=CrashingDisk(at, torn=torn))
            with pytest.raises(Crash):
                play(bench)
            if bench.manager is not None:
                bench.manager._unlock()
                bench.manager = None
            if power_cut:
                restore_synced(bench.directory)
            bench.disk = SyncedDisk()
            yield bench, f"change {at}{' half-way' if torn else ''}{', power cut' if power_cut else ''}"


def check(bench: Any, scene: Scene, what: str, *, power_cut: bool) -> int:
    """Recover, and compare with what must be there; returns how many batches there are."""
    log = bench.log()
    found = found_in(log)
    assert found in (scene.content[: len(found)], scene.other[: len(found)]), what
    assert len(found) >= (scene.flushed if power_cut else scene.kept), what
    records = sum(read_header(data).record_count for data in found)
    assert log.log_end_offset == records, what
    sequences = [entry.batches[-1].last_sequence for entry in log.producer_state.entries()]
    assert sequences == ([records - 1] if records else []), what
    assert [entry.start_offset for entry in log.epochs] == sorted({e.start_offset for e in log.epochs}), what
    assert all(entry.start_offset <= records for entry in log.epochs), what
    return len(found)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_a_crash_at_any_step_leaves_a_prefix_with_all_that_was_kept(make_bench, tmp_path, batch, scenario):
    scenes: list[Scene] = []

    def play(bench: Any) -> None:
        scenes.append(Scene(bench, batch))
        bench.open()
        bench.log()
        scenario(scenes[-1])

    settings = {"log.segment.bytes": "350", "log.index.interval.bytes": "0"}
    cases = 0
    for bench, what in crashes(make_bench, tmp_path, settings, play):
        count = check(bench, scenes[-1], what, power_cut=what.endswith("power cut"))
        bench.append(batch(1), epoch=9)
        cases += 1
        if cases % 7 == 0:
            assert len(found_in(bench.restart(clean=True))) == count + 1, what
        bench.stop(clean=False)
    assert cases > 50


_lives = st.lists(
    st.tuples(
        st.lists(
            st.one_of(
                st.tuples(st.just("append"), st.integers(1, 3)),
                st.tuples(st.just("append"), st.integers(1, 3)),
                st.tuples(st.just("truncate"), st.integers(1, 4)),
                st.tuples(st.sampled_from(["flush", "flush rolled", "checkpoints", "close"]), st.just(0)),
            ),
            max_size=10,
        ),
        st.integers(0, 120),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)


@given(lives=_lives)
@hypothesis_settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_log_lives_through_one_crash_after_another(make_bench, tmp_path_factory, batch, lives):
    """Any steps, a crash at any change, a power loss or none; the next process continues with the rest."""
    bench = make_bench(
        tmp_path_factory.mktemp("lives") / "data", {"log.segment.bytes": "350", "log.index.interval.bytes": "0"}
    )
    scene = Scene(bench, batch)
    for steps, last, torn, power_cut in lives:
        bench.disk = CrashingDisk(last, torn=torn)
        with contextlib.suppress(Crash):
            bench.open()
            bench.log()
            for step in steps:
                take(scene, step)
        if bench.manager is not None:
            bench.manager._unlock()
            bench.manager = None
        if power_cut:
            restore_synced(bench.directory)
        bench.disk = SyncedDisk()
        count = check(bench, scene, f"{steps} until {last}", power_cut=power_cut)
        scene.content = scene.other = found_in(bench.log())
        scene.kept, scene.flushed = count, min(scene.flushed, count)
        scene.sequence = bench.log().log_end_offset
        bench.stop(clean=False)


def take(scene: Scene, step: tuple[str, int]) -> None:
    """One step of a random history."""
    manager = scene.bench.manager
    match step:
        case ("append", count):
            newest = max((entry.epoch for entry in scene.bench.log().epochs), default=0)
            scene.append(count, epoch=newest + (count == 3))
        case ("truncate", count):
            if scene.content:
                scene.truncate(min(count, len(scene.content)))
        case ("flush", _):
            scene.flush()
        case ("flush rolled", _):
            manager.flush_dirty()
        case ("checkpoints", _):
            manager.write_recovery_points()
            manager.note_high_watermarks({scene.bench.name: scene.bench.log().log_end_offset})
            manager.write_high_watermarks()
        case _:
            manager.close({})
            scene.flushed = len(scene.content)
            scene.bench.open()


def test_a_crash_at_any_step_of_a_compaction_keeps_the_last_record_of_each_key(make_bench, tmp_path, keyed_batch):
    """Also that no record comes back that had been replaced by a tombstone which is removed."""
    written: list[tuple[int, bytes, bytes | None]] = []

    def play(bench: Any) -> None:
        bench.open()
        written.clear()
        for at in range(9):
            pairs = [(b"k%d" % (at % 3), b"%d" % at), (b"x", None if at == 4 else b"%d" % at)]
            if at > 4:
                pairs.pop()
            end = bench.log().log_end_offset
            written.extend((end + index, *pair) for index, pair in enumerate(pairs))
            bench.append(keyed_batch(*pairs))
        bench.log().flush()
        bench.manager.write_recovery_points()
        bench.disk.begin_crashing()
        for _ in range(2):  # the second one drops the tombstone
            cleaning = bench.manager.compaction.next_to_clean({bench.name: bench.log().log_end_offset})
            if cleaning is not None:
                for group in cleaning.map_keys():
                    assert cleaning.replace(group, cleaning.write(group))
                bench.manager.compaction.note_cleaned(cleaning)
            bench.append(keyed_batch((b"y", b"y"), (b"z", b"z")))
            bench.log()._roll(bench.log().log_end_offset)
            bench.log().flush()

    settings = {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0",
        "log.cleaner.delete.retention.ms": "0",
        "log.segment.bytes": "300",
        "log.index.interval.bytes": "0",
    }
    cases = 0
    for bench, what in crashes(make_bench, tmp_path, settings, play):
        log = bench.log()
        rows = [(one.offset, one.key, one.value) for data in found_in(log) for one in decode_records(data)]
        assert [row[0] for row in rows] == sorted({row[0] for row in rows}), what
        assert {row for row in rows if row[1] not in {b"y", b"z"}} <= set(written), what
        last = {key: value for _, key, value in rows}
        assert [last.get(b"k%d" % at) for at in range(3)] == [b"6", b"7", b"8"], what
        assert last.get(b"x") is None, what
        assert log.log_end_offset >= 14, what
        bench.append(keyed_batch((b"k0", b"new")))
        bench.stop(clean=False)
        cases += 1
    assert cases > 60


def test_a_crash_at_any_step_of_a_compaction_leaves_the_aborted_transactions_named(make_bench, tmp_path, keyed_batch):
    """The rest of an aborted transaction is named by .txnindex, and a named one has its marker still.

    Else a reader of committed data gets aborted records, or leaves out what the producer has committed later. The first
    compaction's map is full before the second transaction, which therefore stays, in a segment that is replaced.
    """

    def play(bench: Any) -> None:
        def append(*pairs: tuple[bytes, bytes], **options: Any) -> None:
            bench.append(keyed_batch(*pairs, **options))

        def abort(producer_id: int) -> None:
            append((b"a", b"aborted"), producer_id=producer_id, sequence=0, transactional=True)
            bench.append(make_marker(TransactionMarker(producer_id, 0, Outcome.ABORT, 0), bench.now_ms))

        bench.open()
        abort(7)
        append((b"k", b"1"), (b"l", b"1"))
        append((b"m", b"1"))
        abort(8)
        bench.log()._roll(bench.log().log_end_offset)
        bench.log().flush()
        bench.manager.write_recovery_points()
        bench.disk.begin_crashing()
        for capacity in (2, 9, 9, 9):
            cleaning = bench.manager.compaction.next_to_clean({bench.name: bench.log().log_end_offset})
            assert cleaning is not None
            cleaning._offsets.capacity = capacity
            for group in cleaning.map_keys():
                assert cleaning.replace(group, cleaning.write(group))
            bench.manager.compaction.note_cleaned(cleaning)
            append((b"m", b"2"))
            bench.log()._roll(bench.log().log_end_offset)
            bench.log().flush()
            bench.manager.write_recovery_points()

    settings = {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0",
        "log.cleaner.delete.retention.ms": "0",
    }
    cases = 0
    for bench, what in crashes(make_bench, tmp_path, settings, play):
        log = bench.log()
        headers = [header for segment in log.segments for header in segment.headers()]
        named = {one.producer_id: one for segment in log.segments for one in segment.transaction_index.entries()}
        left = [one for one in headers if one.is_transactional and one.record_count]
        assert {one.producer_id for one in left if not one.is_control} <= named.keys(), what
        markers = {one.last_offset for one in left if one.is_control}
        assert {one.last_offset for one in named.values()} <= markers, what
        bench.stop(clean=False)
        cases += 1
    assert cases > 60


def test_a_crash_at_any_step_of_retention_leaves_whole_segments_up_to_the_end(make_bench, tmp_path, batch):
    def play(bench: Any) -> None:
        bench.open()
        for _ in range(5):
            bench.append(batch(2))
        bench.log().flush()
        bench.disk.begin_crashing()
        bench.manager.housekeeping({bench.name: 10})
        bench.now_ms += 100_000
        bench.manager.remove_deleted()
        bench.manager.write_log_start_offsets()

    settings = {"log.segment.bytes": "150", "log.retention.bytes": "200"}
    for bench, what in crashes(make_bench, tmp_path, settings, play):
        log = bench.log()
        found = [read_header(data).base_offset for data in found_in(log)]
        assert found == list(range(log.log_start_offset, log.log_end_offset, 2)), what
        assert log.log_end_offset in range(0, 11, 2), what
        bench.stop(clean=False)
