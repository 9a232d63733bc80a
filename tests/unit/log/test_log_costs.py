"""A regression guard: the cost of the log's hot path beside plain system calls on the same bytes.

The bounds are about twice the values measured when they were written (the figure is beside each), so they trip
over per-record work or a copy more, not over noise. Rule: the hot path touches bytes, not records.
"""

from __future__ import annotations

import os

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from tests.costs import cost_ratio

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge_broker.replica.messages import TopicRules
from tidegauge_broker.replica.validation import check_batch

pytestmark = pytest.mark.long

BATCHES = 200
RECORDS = 60
VALUE = b"x" * 1_000
START_MS = 1_700_000_000_000


def test_an_append_costs_little_more_than_the_write(bench, batch, tmp_path):
    records = batch(RECORDS, value=VALUE)
    header = read_header(records)
    log = bench.log()

    def ours() -> None:
        for _ in range(BATCHES):
            log.append_as_leader(records, header._replace(base_offset=log.log_end_offset, leader_epoch=0))

    with (tmp_path / "plain").open("wb", buffering=0) as file:

        def plain() -> None:
            for _ in range(BATCHES):
                os.write(file.fileno(), records)

        assert cost_ratio(ours, plain) < 5


def test_the_cost_of_an_append_does_not_grow_with_the_records_in_a_batch(bench, batch):
    few, many = batch(1, value=b"x" * 60_000), batch(600, value=b"x" * 80)
    log = bench.log()

    def append(records: bytes) -> None:
        header = read_header(records)
        for _ in range(BATCHES):
            log.append_as_leader(records, header._replace(base_offset=log.log_end_offset, leader_epoch=0))

    assert cost_ratio(lambda: append(many), lambda: append(few)) < 2


def test_a_read_costs_little_more_than_the_read_of_the_same_bytes(bench, batch):
    records = batch(RECORDS, value=VALUE)
    for _ in range(BATCHES):
        bench.append(records)
    log = bench.log()
    path = bench.partition_directory / bench.files(".log")[0]

    def ours() -> None:
        for number in range(BATCHES):
            assert log.read(number * RECORDS, log.log_end_offset, len(records), at_least_one_batch=True)

    with path.open("rb", buffering=0) as file:

        def plain() -> None:
            for number in range(BATCHES):
                assert os.pread(file.fileno(), len(records), number * len(records))

        assert cost_ratio(ours, plain) < 12


def test_validation_costs_little_more_than_one_walk_over_the_records(batch):
    """``LogValidator`` looks at each record, once: ADR 0004."""
    records = batch(RECORDS, value=VALUE)
    header = read_header(records)

    def ours() -> None:
        for _ in range(BATCHES):
            check_batch(records, header, TopicPartition("orders", 0), TopicRules(), START_MS)

    def plain() -> None:
        for _ in range(BATCHES):
            for _record in DefaultRecordBatch(memoryview(records)):
                pass

    assert cost_ratio(ours, plain) < 3
