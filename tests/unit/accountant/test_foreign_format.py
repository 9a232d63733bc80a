"""A history in Elle's format: what becomes of transactions, of records outside of them, and of readers."""

from __future__ import annotations

import json

from tests.foreign_checker import as_lists
from tests.unit.accountant.transaction_histories import Writer

from tidegauge_lab.accountant.reading.client_history import read_client_histories


def test_a_transaction_appends_and_reads_and_has_its_fate(tmp_path):
    """A committed one is ok, an aborted one fail, one whose commit got no response info; the log is read once more."""
    history = Writer()
    history.send("p", None, "plain", 0)
    history.poll("c", (0, "plain"), transaction="x")
    history.send("c", "x", "copy", 0, partition=1)
    history.commit("c", "x")
    history.send("c", "y", "never", 2, partition=1)
    history.abort("c", "y")
    history.send("c", "z", "perhaps", 4, partition=1)
    history.commit("c", "z", kind="info")
    history.poll("r", (0, "copy"), partition=1)
    path = tmp_path / "h.jsonl"
    path.write_text(history.text())
    lines = [json.loads(line) for line in as_lists(read_client_histories([path])).splitlines()]
    assert [line["index"] for line in lines] == list(range(len(lines)))
    asked, outcomes = lines[::2], lines[1::2]
    assert [line["type"] for line in asked] == ["invoke"] * len(outcomes)
    found = sorted((line["type"], line["value"]) for line in outcomes)
    assert found == sorted(
        [
            ("ok", [["append", "t-0", "plain"]]),
            ("ok", [["append", "t-1", "copy"], ["r", "t-0", ["plain"]]]),
            ("fail", [["append", "t-1", "never"]]),
            ("info", [["append", "t-1", "perhaps"]]),
            ("ok", [["r", "t-1", ["copy"]]]),
            ("ok", [["r", "t-0", ["plain"]]]),
            ("ok", [["r", "t-1", ["copy"]]]),
        ]
    )


def test_a_reader_that_stands_amid_a_partition_has_what_is_below(tmp_path):
    """A read is the list's beginning, so what lies below a consumer's first record belongs to it."""
    history = Writer()
    for number, value in enumerate("abc"):
        history.send("p", None, value, number)
    history.poll("r", (1, "b"))
    history.poll("r", (2, "c"))
    path = tmp_path / "h.jsonl"
    path.write_text(history.text())
    outcomes = [json.loads(line) for line in as_lists(read_client_histories([path])).splitlines()][1::2]
    reads = [line["value"] for line in outcomes if line["value"][0][0] == "r"]
    assert reads == [[["r", "t-0", list("ab")]], [["r", "t-0", list("abc")]], [["r", "t-0", list("abc")]]]
