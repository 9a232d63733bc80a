"""The comparison of transactions with Apache Kafka: ids and times are made equal, and nothing else."""

from __future__ import annotations

import importlib
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.wire_responses.batches import TIME_MS, TRANSACTIONAL, batch

BENCH = Path(__file__).parents[3] / "bench"
NOW_MS = 1_900_000_000_000


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that reads files."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("transaction_files")


@pytest.fixture
def differential(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The runner's module."""
    monkeypatch.syspath_prepend(str(BENCH))
    pytest.importorskip("aiokafka")
    return importlib.import_module("differential_transactions")


def written(producer_id: int, epoch: int = 0, timestamp_ms: int = TIME_MS, value: bytes = b"v") -> bytes:
    return batch(
        [value],
        producer_id=producer_id,
        epoch=epoch,
        sequence=0,
        attributes=TRANSACTIONAL,
        timestamp_ms=timestamp_ms,
    )


def test_logs_are_equal_but_for_producer_ids_and_times_of_brokers(files: Any) -> None:
    def lines(data: bytes) -> list[str]:
        found: list[str] = files.log_lines(data, "orders", files.ProducerIds())
        return found

    assert lines(written(7) + written(8)) == lines(written(1_007) + written(2_000))
    assert lines(written(7) + written(8)) != lines(written(7) + written(7))
    assert lines(written(7, timestamp_ms=NOW_MS)) == lines(written(7, timestamp_ms=NOW_MS + 5))
    assert lines(written(7, timestamp_ms=NOW_MS)) != lines(written(7))
    assert lines(written(7)) != lines(written(7, epoch=1))
    assert lines(written(7)) != lines(written(7, value=b"w"))


def test_indexes_and_snapshots_are_equal_but_for_producer_ids_and_times(files: Any) -> None:
    entry = struct.Struct(">hqqqq")

    def index(producer_id: int, last: int = 4) -> list[str]:
        found: list[str] = files.index_lines(entry.pack(0, producer_id, 3, last, 5), files.ProducerIds())
        return found

    assert index(3) == index(4_000)
    assert index(3) != index(3, last=6)

    def snapshot(*producers: tuple[int, int, int]) -> list[str]:
        ids = files.ProducerIds()
        for producer_id, _, _ in producers:
            ids.number(producer_id)
        body = b"".join(
            struct.pack(">qhiqiqiq", producer_id, 0, sequence, 5, 0, time_ms, -1, -1)
            for producer_id, sequence, time_ms in producers
        )
        found: list[str] = files.snapshot_lines(struct.pack(">hIi", 1, 0, len(producers)) + body, ids)
        return found

    assert snapshot((3, 0, NOW_MS), (4, 9, TIME_MS)) == snapshot((50, 0, NOW_MS + 9), (60, 9, TIME_MS))
    assert snapshot((3, 0, NOW_MS)) != snapshot((3, 1, NOW_MS))
    assert snapshot((3, 0, NOW_MS)) != snapshot((3, 0, TIME_MS))


def test_a_table_keeps_what_is_the_same_in_each_run(differential: Any) -> None:
    text = "TransactionalId\tCoordinator\tProducerId\tTransactionState\t\nb\t1\t4000\tOngoing\na\t0\t-1\tEmpty\n"
    assert differential.table(text) == [
        "TransactionalId Coordinator ProducerId TransactionState",
        "a BROKER -1 Empty",
        "b BROKER ID Ongoing",
    ]


def test_a_line_of_the_dump_keeps_what_is_the_same_in_each_run(differential: Any) -> None:
    one = f"producerId: 12 baseSequence: 0 CreateTime: {TIME_MS} crc: 5"
    assert differential._equal(one) == f"producerId: ID baseSequence: 0 CreateTime: {TIME_MS} crc: N"
    assert differential._equal("producerId:3,producerEpoch:0,txnLastUpdateTimestamp=1795405315945") == (
        "producerId:ID,producerEpoch:0,txnLastUpdateTimestamp=TIME"
    )


def test_what_differs_is_shown_with_both_sides(differential: Any) -> None:
    verdict = differential.compare({"a": "1", "b": "2"}, {"a": "1", "c": "3"})
    assert verdict.differences == [
        "b\n    Kafka:     2\n    Tidegauge: not there",
        "c\n    Kafka:     not there\n    Tidegauge: 3",
    ]
