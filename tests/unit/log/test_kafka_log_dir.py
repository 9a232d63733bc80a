"""A log directory that Apache Kafka 3.9.1 left is opened, recovered, read and closed byte for byte.

Sources: LogLoader.load, UnifiedLog.rebuildProducerState, ProducerStateManager.writeSnapshot, TransactionIndex.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.kafka_log_dir import DIRECTORY, PARTITIONS, last_snapshot_of, log_of
from tests.unit.log.conftest import Bench

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge_broker.log.manager import LogManager

TIME_ENTRY_BYTES = 12
CLUSTER_ID = "MXttQGcAT2udQ7fOrwfYyA"
ALL = {TopicPartition(partition[:-2], int(partition[-1])): partition for partition in PARTITIONS}


@pytest.fixture
def copied(tmp_path: Path) -> Bench:
    """A copy of it; Kafka marks a clean stop with a file that it takes away at its start."""
    shutil.copytree(DIRECTORY, tmp_path / "data")
    (tmp_path / "data" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":25}')
    return Bench(tmp_path / "data")


def opened(bench: Bench) -> LogManager:
    return bench.open(broker_id=0, cluster_id=CLUSTER_ID)


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        f"{partition}/{path.name}": path.read_bytes()
        for partition in PARTITIONS
        for path in (directory / partition).iterdir()
    }


def after_a_start() -> dict[str, bytes]:
    """Return the files after Kafka's start: of the stray snapshots the last (removeStraySnapshots)."""
    last = {f"{partition}/{last_snapshot_of(partition).name}" for partition in PARTITIONS}
    return {name: data for name, data in files_of(DIRECTORY).items() if not name.endswith(".snapshot") or name in last}


def test_a_clean_start_and_stop_change_no_byte(copied: Bench) -> None:
    manager = opened(copied)
    assert {at: log.log_end_offset for at, log in manager.logs.items()} == {
        at: int(last_snapshot_of(partition).stem) for at, partition in ALL.items()
    }
    copied.stop()
    assert files_of(copied.directory) == after_a_start()


def test_all_is_read_as_kafka_wrote_it(copied: Bench) -> None:
    manager = opened(copied)
    for at, partition in ALL.items():
        log = manager.logs[at]
        kafkas = log_of(partition).read_bytes()
        assert log.read(0, log.log_end_offset, 1 << 20, at_least_one_batch=True) == kafkas
        for header in iterate_headers(kafkas):
            rest = log.read(header.base_offset, log.log_end_offset, 1, at_least_one_batch=True)
            assert rest == kafkas[header.position : header.position + header.size_bytes]
    copied.stop()


SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.mark.parametrize("lost", [(), *((suffix,) for suffix in SUFFIXES), SUFFIXES], ids=" ".join)
def test_recovery_writes_the_files_that_kafka_wrote(copied: Bench, lost: tuple[str, ...]) -> None:
    """After kill -9, whichever of the files beside the segments is lost.

    A stop adds the largest timestamp to the time index (LogSegment.onBecomeInactive), and this broker was stopped
    twice; recovery makes an index from the log alone (LogSegment.recover), so it has the last stop's entry only.
    """
    (copied.directory / ".kafka_cleanshutdown").unlink()
    for partition in PARTITIONS:
        for path in (copied.directory / partition).iterdir():
            if path.suffix in lost:
                path.unlink()
    opened(copied)
    copied.stop()
    expected = {
        name: data[-TIME_ENTRY_BYTES:] if name.endswith(".timeindex") else data
        for name, data in after_a_start().items()
    }
    assert files_of(copied.directory) == expected
