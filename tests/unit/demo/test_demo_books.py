"""The demo's books must notice every way in which a row can go astray."""

from __future__ import annotations

import pytest

from tidegauge_lab.demo.books import Account, mismatches, table
from tidegauge_lab.demo.flights import find_archive, read_flights


def account(*rows: tuple[str, str]) -> Account:
    made = Account()
    for key, value in rows:
        made.enter(key.encode(), value.encode())
    return made


SOURCE = (("AA", "1"), ("AA", "2"), ("UA", "3"))


def test_equal_books_balance():
    assert mismatches(account(*SOURCE), account(*SOURCE), account(*reversed(SOURCE))) == []


@pytest.mark.parametrize(
    ("committed", "sentence"),
    [
        (SOURCE[:2], "not in Parquet: 1 row of the source"),
        ((*SOURCE, SOURCE[0]), "in Parquet repeated: 1 row; in the source: 0"),
        ((*SOURCE[:2], ("UA", "4")), "in Parquet and not in the source: 1 row"),
        ((*SOURCE[:2], ("AA", "3")), "carrier AA: 2 rows in the source, 3 in Parquet"),
    ],
)
def test_a_lost_a_repeated_a_strange_and_a_misplaced_row_are_each_reported(committed, sentence):
    found = mismatches(account(*SOURCE), account(*SOURCE), account(*committed))
    assert any(sentence in line for line in found), found


def test_a_row_swapped_for_a_repetition_keeps_the_count_and_is_found_all_the_same():
    swapped = account(SOURCE[0], SOURCE[0], SOURCE[2])
    assert swapped.total == 3
    assert any("repeated: 1 row" in line for line in mismatches(account(*SOURCE), account(*SOURCE), swapped))


def test_the_table_sums_up():
    lines = table([("source", account(*SOURCE)), ("in Parquet", account(*SOURCE))])
    assert lines[-1].split() == ["all", "3", "3"]
    assert lines[1].split() == ["AA", "2", "2"]


def test_the_data_set_is_keyed_by_carrier_and_its_rows_are_compact_json():
    first = next(read_flights(find_archive()))
    assert first.key == b"UA"
    assert first.value.startswith(b'{"year":"2013","month":"1","day":"1",')
    assert b" " not in first.value.replace(b"2013-01-01 ", b"")
