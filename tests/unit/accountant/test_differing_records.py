"""The first record that differs between two batches, in words that differ for both sides."""

from __future__ import annotations

from typing import Any

import pytest
from small_books import log, mark, replica, report

from tidegauge_client.records import Record
from tidegauge_lab.accountant.books import FirstDifference, Kind
from tidegauge_lab.accountant.reading.differing_records import first_difference


def record(offset: int, value: bytes | None = b"v", **fields: Any) -> Record:
    defaults: dict[str, Any] = {"timestamp_ms": 5, "timestamp_type": 0, "key": None, "headers": (), "leader_epoch": 1}
    return Record(offset=offset, value=value, **{**defaults, **fields})


def test_the_first_record_that_differs_is_named_not_the_batchs_first() -> None:
    ours = [record(0, b"same"), record(1, b"same"), record(2, b"mine"), record(3, b"mine")]
    theirs = [record(0, b"same"), record(1, b"same"), record(2, b"theirs"), record(3, b"theirs")]
    assert first_difference(ours, theirs) == FirstDifference(2, "'mine' of epoch 1", "'theirs' of epoch 1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (record(0, b"x" * 100 + b"a"), record(0, b"x" * 100 + b"b")),
        (record(0, b"x" * 100), record(0, b"x" * 101)),
        (record(0, None), record(0, b"")),
        (record(0, key=b"k"), record(0)),
        (record(0, timestamp_ms=6), record(0)),
        (record(0, headers=(("h", b"1"),)), record(0)),
        (record(0, leader_epoch=2), record(0)),
    ],
)
def test_both_sides_are_worded_differently_whatever_differs(one: Record, other: Record) -> None:
    found = first_difference([one], [other])
    assert found is not None
    assert found.offset == 0
    assert found.ours != found.theirs


def test_a_record_that_only_one_of_them_has_differs() -> None:
    found = first_difference([record(0), record(1, b"more")], [record(0)])
    assert found == FirstDifference(1, "'more' of epoch 1", "nothing that begins there")


def test_the_same_records_in_different_batches_have_no_first_difference() -> None:
    assert first_difference([record(0), record(1)], [record(0), record(1)]) is None


def test_the_finding_stands_at_the_record_that_differs() -> None:
    pair = [replica(0, mark(0, 10)), replica(1, mark(0, 10, crc=2))]
    known = {(0, 0, 1, 0): FirstDifference(7, "'a' of epoch 0", "'b' of epoch 0")}
    (example,) = report(None, log(), replicas=pair, first_differences=known).tallies[Kind.DIVERGED].examples
    assert example[1:] == (7, "at offset 7 broker 0 holds 'a' of epoch 0, broker 1 'b' of epoch 0")
    (example,) = report(None, log(), replicas=pair).tallies[Kind.DIVERGED].examples
    assert example[1:] == (
        0,
        "at offset 0 broker 0 holds offsets 0 to 9 of epoch 0 (CRC 00000001), broker 1 offsets 0 to 9 of epoch 0 "
        "(CRC 00000002)",
    )
