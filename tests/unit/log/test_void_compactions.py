"""A log that changes while it is compacted: the compaction ends, and nothing else comes of it.

Kafka stops the cleaner before it truncates or deletes a log, moves it to another log directory, or takes `compact` from
its cleanup.policy (LogManager.truncateTo, asyncDelete, abortAndPauseCleaning, updateTopicConfig).
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.log.test_compaction import HOUR_MS, Writer, compact, rows

from tidegauge_broker.log.files import Disk


@pytest.fixture
def writer(bench, keyed_batch):
    bench.settings |= {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0",
        "log.cleaner.delete.retention.ms": str(HOUR_MS),
    }
    made = Writer(bench, keyed_batch)
    for key in (b"a", b"b", b"c"):
        made.put((key, b"1"))
        made.roll()
    made.put((b"z", b"1"))
    return made


def truncate(bench):
    """As after an unclean election."""
    bench.log().truncate_to(1)


def empty(bench):
    """As a follower does whose log ends below the leader's log start offset."""
    bench.log().truncate_fully(9)


def retain_nothing(bench):
    """As after a change of cleanup.policy, with the next look at old segments."""
    log = bench.log()
    log.settings = replace(log.settings, cleanup_policy=("delete",), retention_bytes=0)
    assert bench.manager.housekeeping({bench.name: log.log_end_offset})


def delete(bench):
    bench.manager.delete(bench.name)


@pytest.mark.parametrize("step", [0, 1], ids=["mapping", "writing"])
@pytest.mark.parametrize("change", [truncate, empty, retain_nothing, delete])
def test_files_that_go_while_they_are_compacted_are_no_failure(bench, writer, run_cleaner, change, step):
    """The log directory stays online, and the log, or a new topic's log of its name, is compacted later."""
    settings = bench.log().settings
    before = [lambda: None] * step
    run_cleaner(bench.manager, {bench.name: 4}, *before, lambda: change(bench))
    assert bench.manager.offline_directories == []
    log = bench.log()
    log.settings = settings
    for _ in range(2):
        writer.put((b"a", b"2"))
        writer.roll()
    end = log.log_end_offset
    assert compact(bench) == end
    assert rows(bench.restart(clean=False))[-1] == (end - 1, b"a", b"2")


def test_what_is_appended_behind_a_truncation_does_not_count_as_compacted(bench, writer, run_cleaner):
    """The truncation comes between the last segment that is replaced and the cleaner checkpoint.

    A tombstone in a part that counts as clean goes in its time, and the record that it deletes stays: the key is back.
    """
    run_cleaner(bench.manager, {bench.name: 4}, lambda: None, lambda: None, lambda: truncate(bench))
    writer.put((b"a", None))
    for _ in range(3):
        writer.put((b"x", b"1"))
        writer.roll()
    for _ in range(2):
        compact(bench)
        bench.now_ms += HOUR_MS
        writer.put((b"y", b"1"))
        writer.roll()
    compact(bench)
    assert [row for row in rows(bench.log()) if row[1] == b"a"] == []


def test_the_files_of_a_void_compaction_are_not_those_of_the_next(bench, writer):
    """They are removed a little later, by another thread; the next compaction may have begun by then."""
    manager = bench.manager
    cleaning = manager.compaction.next_to_clean({bench.name: 3})
    (group,) = cleaning.map_keys()
    cleaned = cleaning.write(group)
    bench.log().truncate_to(3)
    assert not cleaning.replace(group, cleaned)
    cleaning = manager.compaction.next_to_clean({bench.name: 3})
    (group,) = cleaning.map_keys()
    cleaned = cleaning.write(group)
    manager.remove_deleted()
    assert cleaning.replace(group, cleaned)
    expected = [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"c", b"1")]
    assert rows(bench.log()) == rows(bench.restart(clean=False)) == expected


def test_a_topic_that_ceases_to_be_compacted_keeps_its_records(bench, writer):
    writer.put((b"z", b"2"))
    writer.roll()
    cleaning = bench.manager.compaction.next_to_clean({bench.name: 5})
    (group,) = cleaning.map_keys()
    cleaned = cleaning.write(group)
    log = bench.log()
    log.settings = replace(log.settings, cleanup_policy=("delete",))
    assert not cleaning.replace(group, cleaned)
    bench.manager.compaction.note_cleaned(cleaning)
    assert len(rows(log)) == 5
    assert log.log_directory.first_dirty_offset(bench.name) is None


def test_a_log_is_not_clean_beyond_its_end(bench, writer):
    """The process is killed in a truncation, before the cleaner checkpoint is lowered."""
    assert compact(bench) == 3
    checkpoint = bench.directory / "cleaner-offset-checkpoint"
    before = checkpoint.read_text()
    truncate(bench)
    bench.stop(clean=False)
    checkpoint.write_text(before)
    bench.log()
    assert checkpoint.read_text() == "0\n1\norders 0 1\n"


def test_a_flush_that_meets_files_between_two_names_is_no_failure(bench, writer, monkeypatch):
    """The new segment's files lose their suffix while a pool thread is about to sync them.

    A compaction flushes its log first, which leaves the other flush nothing to do; here it does not.
    """
    syncing, replaced = threading.Event(), threading.Event()

    class Held(Disk):
        def rename(self, path: Path, to: Path) -> None:
            if to.name.endswith(".deleted") and not syncing.is_set():
                flusher.start()
                assert syncing.wait(10)
            super().rename(path, to)

        def sync(self, path: Path) -> None:
            if threading.current_thread() is flusher:
                syncing.set()
                assert replaced.wait(10)
            super().sync(path)

    bench.stop(clean=False)
    bench.disk = Held()
    log = bench.log()
    monkeypatch.setattr(log, "flush", lambda: None)
    flusher = threading.Thread(target=log.flush_rolled)
    cleaning = bench.manager.compaction.next_to_clean({bench.name: 3})
    (group,) = cleaning.map_keys()
    assert cleaning.replace(group, cleaning.write(group))
    replaced.set()
    flusher.join()
    assert bench.manager.offline_directories == []
    log.flush_rolled()
    assert log.recovery_point == 3
