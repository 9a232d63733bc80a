"""A power loss after a compaction: the records that the compaction depended on are on the disk.

Kafka 3.9 compacts by its knowledge at the moment (Cleaner.cleanSegments: the log's lastRecordsOfActiveProducers),
of which a power loss can take the part in the active segment.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.log.crash_disk import JournalDisk
from tests.unit.log.test_compaction import Writer, compact, rows

from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker


class Least(Random):
    """The first choice of a power loss for each file: the synced bytes, and each change of a name."""

    def choice(self, seq):
        return seq[0]


@pytest.fixture
def writer(bench, keyed_batch, tmp_path):
    bench.settings |= {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0",
        "log.segment.bytes": "200",
    }
    bench.disk = JournalDisk(bench.directory, tmp_path / "attic")
    return Writer(bench, keyed_batch)


def lose_power(bench):
    bench.stop(clean=False)
    bench.disk.lose_power(Least())
    return bench.log()


def test_a_producer_whose_last_batch_is_in_the_active_segment_stays_known(bench, writer):
    writer.put((b"a", b"1"), producer_id=7, sequence=0)
    writer.put((b"a", b"2"))
    writer.roll()
    bench.log().flush_rolled()
    writer.put((b"b", b"1"), producer_id=7, sequence=1)
    assert compact(bench) == 2
    (entry,) = lose_power(bench).producer_state.entries()
    assert (entry.producer_id, entry.last_sequence) == (7, 1)
    assert rows(bench.log()) == [(1, b"a", b"2"), (2, b"b", b"1")]


def test_the_marker_of_what_was_removed_as_aborted_stays(bench, writer):
    writer.put((b"a", b"1"), producer_id=8, sequence=0, transactional=True)
    writer.put((b"b", b"1"))
    writer.roll()
    bench.log().flush_rolled()
    bench.append(make_marker(TransactionMarker(8, 0, Outcome.ABORT, 0), bench.now_ms))
    assert compact(bench) == 2
    log = lose_power(bench)
    (entry,) = log.producer_state.entries()
    assert (entry.transaction_start, log.log_end_offset) == (None, 3)
    assert rows(log)[0] == (1, b"b", b"1"), "only the marker follows"


def test_the_newest_record_of_a_key_stays_though_its_segment_was_not_compacted_yet(bench, writer):
    """The broker loses power between two of the segments that take others' places."""
    for value in (b"1", b"2"):
        writer.put((b"a", value), (b"b" + value, bytes(100)))
        writer.roll()
    cleaning = bench.manager.compaction.next_to_clean({bench.name: 4})
    first, _ = cleaning.map_keys()
    assert cleaning.replace(first, cleaning.write(first))
    assert [row for row in rows(lose_power(bench)) if row[1] == b"a"] == [(2, b"a", b"2")]
