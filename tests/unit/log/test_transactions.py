"""Transactions in a log: markers, open transactions, .txnindex, snapshots, truncation, recovery, compaction (KIP-98).

Logs that a broker of Apache Kafka 3.9.1 wrote, with their .txnindex and last snapshot (``tests/kafka_log_dir``), hold
committed, aborted and fenced transactions of several producers.
"""

from __future__ import annotations

import pytest
from tests.kafka_log_dir import last_snapshot_of, log_of

from tidegauge.record_batch import iterate_headers, patch, read_header
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker, read_marker
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.log.transaction_index import TransactionIndex
from tidegauge_broker.replica.open_transactions import AbortedTransaction

HOUR_MS = 3_600_000


class Writer:
    """Transactional producers of one log, which write as a leader appends."""

    def __init__(self, bench, batch) -> None:
        self.bench = bench
        self._batch = batch
        self._sequences: dict[tuple[int, int], int] = {}

    def data(self, producer_id, *, epoch=0, count=1, transactional=True):
        """Append records of a producer; return the first one's offset."""
        sequence = self._sequences.get((producer_id, epoch), 0)
        self._sequences[producer_id, epoch] = sequence + count
        made = self._batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=transactional)
        return self.bench.append(made).base_offset

    def end(self, producer_id, outcome=Outcome.COMMIT, *, epoch=0, coordinator_epoch=0):
        """Append a marker; return its offset."""
        marker = TransactionMarker(producer_id, epoch, outcome, coordinator_epoch)
        return self.bench.append(make_marker(marker, self.bench.now_ms)).base_offset

    def roll(self):
        log = self.bench.log()
        log._roll(log.log_end_offset)


@pytest.fixture
def writer(bench, batch) -> Writer:
    return Writer(bench, batch)


def indexed(bench):
    """All entries of all .txnindex files of the log, by segment."""
    return {one.base_offset: list(one.transaction_index.entries()) for one in bench.log().segments}


def on_disk(bench):
    """The same, read from the files."""
    return {
        int(path.stem): list(TransactionIndex(path).entries()) for path in bench.partition_directory.glob("*.txnindex")
    }


def open_since(bench):
    """First offsets of the open transactions, by producer id."""
    entries = bench.log().producer_state.entries()
    return {one.producer_id: one.transaction_start for one in entries if one.transaction_start is not None}


# Markers


def test_a_marker_has_the_bytes_of_kafkas():
    """EndTransactionMarker and MemoryRecords.withEndTransactionMarker: 78 bytes, attributes 0x30, no sequence."""
    kafkas = log_of("t-0").read_bytes()
    found = 0
    for header in iterate_headers(kafkas):
        if header.is_control:
            marker = read_marker(kafkas, header)
            assert marker is not None
            made = make_marker(marker, header.max_timestamp_ms)
            theirs = kafkas[header.position : header.position + header.size_bytes]
            assert made[12:16] == b"\xff\xff\xff\xff"  # no leader epoch yet
            assert made[16:] == theirs[16:]
            assert len(made) == 78
            found += 1
    assert found == 5


@pytest.mark.parametrize(("kind", "read"), [(0, Outcome.ABORT), (1, Outcome.COMMIT), (3, None)])
def test_control_records_of_other_types_are_skipped(kind, read):
    """ControlRecordType: LEADER_CHANGE and the like end no transaction."""
    made = bytearray(make_marker(TransactionMarker(7, 1, Outcome.COMMIT, 4), 5))
    made[61 + 5 + 3] = kind  # the key's second field
    found = read_marker(made, read_header(made))
    assert (None if found is None else found.outcome) == read


# Kafka's own logs


@pytest.mark.parametrize("name", ["t-0", "o-0"])
@pytest.mark.parametrize("arrival", ["one append", "batch by batch", "recovered"])
def test_a_log_of_kafka_gives_kafkas_txnindex_and_snapshot(bench, name, arrival):
    """Byte for byte, whether a follower appends it or recovery scans it (TransactionIndex, ProducerStateManager)."""
    kafkas = log_of(name).read_bytes()
    headers = list(iterate_headers(kafkas))
    log = bench.log()
    if arrival == "one append":
        log.append_as_follower(kafkas, headers)
    else:
        for header in headers:
            part = kafkas[header.position : header.position + header.size_bytes]
            log.append_as_follower(part, [header.alone()])
    index = bench.partition_directory / "00000000000000000000.txnindex"
    if arrival == "recovered":
        bench.stop(clean=False)
        index.unlink()
        bench.log()
    bench.stop()
    assert (bench.partition_directory / "00000000000000000000.log").read_bytes() == kafkas
    assert index.read_bytes() == log_of(name).with_suffix(".txnindex").read_bytes()
    end = headers[-1].next_offset
    snapshot = bench.partition_directory / f"{end:020d}.snapshot"
    assert snapshot.read_bytes() == last_snapshot_of(name).read_bytes()


# Open transactions


def test_a_transactional_batch_opens_a_transaction_and_a_marker_ends_it(bench, writer):
    first = writer.data(1)
    writer.data(1)
    second = writer.data(2)
    assert open_since(bench) == {1: first, 2: second}
    writer.end(1)
    assert open_since(bench) == {2: second}


def test_records_outside_of_a_transaction_open_none(bench, writer):
    writer.data(1, transactional=False)
    assert open_since(bench) == {}


@pytest.mark.parametrize("clean", [True, False])
def test_open_transactions_survive_a_restart(bench, writer, clean):
    """ProducerStateManager.loadFromSnapshot opens them again at currentTxnFirstOffset."""
    writer.data(1)
    writer.end(1)
    start = writer.data(2)
    writer.roll()
    writer.data(1)
    writer.end(1, Outcome.ABORT)
    bench.restart(clean=clean)
    assert open_since(bench) == {2: start}


def test_a_producer_with_an_open_transaction_does_not_expire(bench, writer):
    """ProducerStateManager.isProducerExpired: only one without an open transaction."""
    start = writer.data(1)
    writer.data(2)
    writer.end(2)
    bench.log().producer_state.expire(bench.now_ms + 90 * HOUR_MS, HOUR_MS)
    assert [one.producer_id for one in bench.log().producer_state.entries()] == [1]
    assert open_since(bench) == {1: start}


def test_a_marker_of_a_higher_epoch_forgets_the_batches_and_keeps_the_epoch(bench, writer):
    """ProducerAppendInfo.appendEndTxnMarker: after a fencing abort the producer begins at sequence 0."""
    writer.data(1)
    writer.end(1, Outcome.ABORT, epoch=1, coordinator_epoch=3)
    [entry] = bench.log().producer_state.entries()
    assert (entry.producer_epoch, entry.coordinator_epoch, list(entry.batches)) == (1, 3, [])


# .txnindex


def test_only_aborted_transactions_with_data_are_indexed_in_the_segment_of_the_marker(bench, writer):
    """LogSegment.updateTxnIndex: firstOffset of the data, lastOffset of the marker."""
    writer.data(1)
    writer.end(1, Outcome.COMMIT)
    writer.end(2, Outcome.ABORT)  # no data
    first = writer.data(3)
    writer.roll()
    marker = writer.end(3, Outcome.ABORT)
    base = bench.log().segments[-1].base_offset
    assert indexed(bench) == {0: [], base: [AbortedTransaction(3, first, marker, marker + 1)]}


def test_the_index_keeps_the_last_stable_offset_beside_another_open_transaction(bench, writer):
    """ProducerStateManager.lastStableOffset: the first offset of the next transaction that is open."""
    writer.data(1)
    second = writer.data(2)
    marker = writer.end(1, Outcome.ABORT)
    assert indexed(bench) == {0: [AbortedTransaction(1, 0, marker, second)]}


def test_a_truncation_removes_the_entries_of_removed_markers_and_opens_the_transaction_again(bench, writer):
    """TransactionIndex.truncateTo and ProducerStateManager.truncateAndReload."""
    first = writer.data(1)
    kept = writer.end(1, Outcome.ABORT)
    second = writer.data(1)
    marker = writer.end(1, Outcome.ABORT)
    bench.log().truncate_to(marker)
    assert open_since(bench) == {1: second}
    assert indexed(bench) == {0: [AbortedTransaction(1, first, kept, kept + 1)]}
    assert on_disk(bench) == indexed(bench)


def test_a_log_that_is_emptied_has_no_open_transactions(bench, writer):
    writer.data(1)
    bench.log().truncate_fully(9)
    assert open_since(bench) == {}
    assert on_disk(bench) == {}


@pytest.mark.parametrize("damage", ["missing", "half an entry", "falling offsets"])
def test_a_damaged_index_is_written_again(bench, writer, damage):
    """LogSegment.sanityCheck and recover; a missing file is noticed only where the log is recovered, as in Kafka."""
    writer.data(1)
    writer.end(1, Outcome.ABORT)
    open_before = writer.data(2)
    writer.roll()
    writer.data(3)
    writer.end(3, Outcome.ABORT)
    writer.end(2, Outcome.ABORT)
    writer.roll()
    writer.data(4)
    before = on_disk(bench)
    assert [len(entries) for _, entries in sorted(before.items())] == [1, 2]
    assert before[3][1].first_offset == open_before
    bench.stop(clean=damage != "missing")
    for path in bench.partition_directory.glob("*.txnindex"):
        data = path.read_bytes()
        if damage == "missing":
            path.unlink()
        elif damage == "half an entry":
            path.write_bytes(data[:-5])
        else:
            path.write_bytes(data + data[:34])
    bench.log()
    assert on_disk(bench) == before


def test_the_index_goes_with_its_segment(bench, writer):
    writer.data(1)
    writer.end(1, Outcome.ABORT)
    writer.roll()
    writer.data(2)
    log = bench.log()
    log._remove_oldest(1)
    assert on_disk(bench) == {}
    assert bench.files(".txnindex.deleted") == ["00000000000000000000.txnindex.deleted"]


# Records that a reader of committed data must leave out


def test_a_read_lists_the_aborted_transactions_that_it_overlaps(bench, writer):
    """LocalLog.addAbortedTransactions: by marker, from any segment behind; none for a read that gave nothing."""
    for producer_id in (1, 2):
        writer.data(producer_id)
    early = writer.end(1, Outcome.ABORT)
    writer.roll()
    writer.data(3)
    late = writer.end(2, Outcome.ABORT)
    log = bench.log()
    data = log.read(0, log.log_end_offset, 1 << 20, at_least_one_batch=True)
    found = log.aborted_transactions(0, len(data))
    assert found == [AbortedTransaction(1, 0, early, 1), AbortedTransaction(2, 1, late, 3)]
    assert log.aborted_transactions(0, 0) == []
    after = log.read(late + 1, log.log_end_offset, 1 << 20, at_least_one_batch=True)
    assert log.aborted_transactions(late + 1, len(after)) == []


def test_a_read_from_a_gap_lists_the_aborted_transactions_of_the_segment_that_it_goes_on_to(bench, batch):
    """Kafka's follower of a compacted log begins a segment behind a gap (LocalLog.read names what it has read).

    Each consumer that reads on behind the batch before the gap asks for the gap's first offset.
    """
    bench.settings["log.segment.bytes"] = "100"
    bench.append(batch(3))
    log = bench.log()
    log._roll(8)
    aborted = batch(1, producer_id=1, sequence=0, transactional=True)
    marker = make_marker(TransactionMarker(1, 0, Outcome.ABORT, 0), bench.now_ms)
    for offset, made in ((8, aborted), (9, marker)):
        copied = bytearray(made)
        patch(copied, 0, offset, 0)
        log.append_as_follower(bytes(copied), (read_header(copied),))
    assert [one.base_offset for one in log.segments] == [0, 8, 9]
    data = log.read(3, log.log_end_offset, 1 << 20, at_least_one_batch=True)
    assert read_header(data).base_offset == 8
    assert log.aborted_transactions(3, len(data)) == [AbortedTransaction(1, 8, 9, 10)]


# Compaction


@pytest.fixture
def keyed(bench, keyed_batch):
    bench.settings = {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0",
        "log.cleaner.delete.retention.ms": str(HOUR_MS),
    }
    sequences: dict[int, int] = {}

    def put(producer_id, *pairs):
        sequence = sequences.get(producer_id, 0)
        sequences[producer_id] = sequence + len(pairs)
        return bench.append(
            keyed_batch(*pairs, time_ms=bench.now_ms, producer_id=producer_id, sequence=sequence, transactional=True)
        ).base_offset

    return put


def compact(bench, last_stable_offset=None):
    """One round of the cleaner up to an offset, by default all but the active segment."""
    end = bench.log().log_end_offset if last_stable_offset is None else last_stable_offset
    cleaning = bench.manager.compaction.next_to_clean({bench.name: end})
    if cleaning is None:
        return
    for group in cleaning.map_keys():
        assert cleaning.replace(group, cleaning.write(group))
    bench.manager.compaction.note_cleaned(cleaning)


def kept(bench):
    """A read of everything: (offset, key, value) of records, (offset, outcome) of markers, (offset,) of headers."""
    log, found, offset = bench.log(), [], 0
    while data := log.read(offset, log.log_end_offset, 1 << 20, at_least_one_batch=True):
        for header in iterate_headers(data):
            offset = header.next_offset
            if not header.record_count:
                found.append((header.last_offset,))
            elif header.is_control:
                found.append((header.base_offset, read_marker(data, header).outcome.name))
            else:
                batch = data[header.position : header.position + header.size_bytes]
                found += [(one.offset, one.key, one.value) for one in decode_records(batch)]
    return found


def test_aborted_data_go_at_once_and_hide_no_committed_value(bench, writer, keyed):
    """LogCleaner: an aborted batch enters no key map; its marker stays while the pass has met its data."""
    keyed(1, (b"a", b"old"))
    writer.end(1)
    keyed(2, (b"a", b"aborted"))
    writer.end(2, Outcome.ABORT)
    keyed(2, (b"b", b"1"))
    writer.end(2)
    writer.roll()
    keyed(3, (b"z", b"1"))
    compact(bench)
    assert kept(bench) == [
        (0, b"a", b"old"),
        (1, "COMMIT"),
        (3, "ABORT"),
        (4, b"b", b"1"),
        (5, "COMMIT"),
        (6, b"z", b"1"),
    ]
    assert on_disk(bench) == {0: [AbortedTransaction(2, 2, 3, 4)]}


def test_a_marker_without_data_goes_when_its_delete_horizon_has_passed(bench, writer, keyed):
    """The pass that first finds it so stamps the horizon; delete.retention.ms later it goes (KIP-534)."""
    keyed(1, (b"a", b"1"))
    writer.end(1)
    keyed(1, (b"a", b"2"))
    writer.end(1)
    writer.roll()
    keyed(1, (b"z", b"1"))

    def round_of_the_cleaner():
        writer.roll()
        keyed(1, (b"y", b"1"))
        compact(bench)
        return [row for row in kept(bench) if row[0] < 4]

    compact(bench)
    first = [row for row in kept(bench) if row[0] < 4]
    assert first == [(1, "COMMIT"), (2, b"a", b"2"), (3, "COMMIT")]
    assert round_of_the_cleaner() == first  # the horizon is set since then
    bench.now_ms += HOUR_MS - 1
    assert round_of_the_cleaner() == first
    bench.now_ms += 1
    assert round_of_the_cleaner() == first[1:]


def test_nothing_is_compacted_beyond_the_last_stable_offset(bench, writer, keyed):
    """LogCleanerManager.cleanableOffsets: an open transaction keeps the cleaner behind it."""
    keyed(1, (b"a", b"1"))
    writer.end(1)
    writer.roll()
    start = keyed(2, (b"a", b"2"))
    writer.roll()
    keyed(3, (b"z", b"1"))
    before = kept(bench)
    compact(bench, last_stable_offset=start)
    assert kept(bench) == before


def test_a_marker_that_is_all_that_is_known_of_a_producer_keeps_its_epoch(bench, writer, keyed):
    """LogCleaner.isBatchLastRecordOfProducer, its third case: the marker has the last producer epoch."""
    keyed(1, (b"a", b"1"))
    writer.end(1, Outcome.ABORT, epoch=1)
    keyed(2, (b"b", b"1"))
    writer.end(2)
    writer.roll()
    keyed(3, (b"z", b"1"))
    for _ in range(3):
        compact(bench)
        bench.now_ms += 2 * HOUR_MS
        writer.roll()
        keyed(3, (b"z", b"1"))
    assert (1,) in kept(bench)
