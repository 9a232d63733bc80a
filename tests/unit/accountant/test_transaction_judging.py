"""Findings of the accountant in histories of transactions: each kind convicted by a small one, beside an innocent one.

The kinds come from Jepsen's checker for Kafka (jepsen.tests.kafka); see docs/histories.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from transaction_histories import Writer

from tidegauge_lab.accountant.transactions.circles import circles
from tidegauge_lab.accountant.transactions.findings import MEANINGS, Anomaly
from tidegauge_lab.accountant.transactions.model import Fate


@pytest.fixture
def history() -> Writer:
    return Writer()


def test_a_committed_transaction_that_is_read_whole_is_innocent(history, tmp_path):
    history.send("p", "x", "a", 0)
    history.send("p", "x", "b", 0, partition=1)
    history.commit("p", "x")
    history.send("p", "y", "c", 2)
    history.abort("p", "y")
    history.final((0, "a"), end=4)
    history.final((0, "b"), end=2, partition=1)
    judged = history.judged(tmp_path)
    assert judged.is_clean
    assert judged.found.counts == {}
    assert judged.fates == {Fate.COMMITTED: 1, Fate.ABORTED: 1}


@pytest.mark.parametrize("end", ["none", "abort", "refused"])
def test_an_aborted_read(end, history, tmp_path):
    """A record of a transaction that was aborted, that no client committed, or whose commit was refused (G1a)."""
    history.send("p", "x", "a", 0)
    if end == "abort":
        history.abort("p", "x")
    elif end == "refused":
        history.commit("p", "x", "fail")
    history.poll("r", (0, "a"))
    assert history.kinds(tmp_path) == {"aborted-read": 1}


def test_an_aborted_record_may_be_read_uncommitted(history, tmp_path):
    history.send("p", "x", "a", 0)
    history.abort("p", "x")
    history.poll("r", (0, "a"), isolation="read_uncommitted")
    assert history.kinds(tmp_path) == {}


def test_a_write_that_was_refused_must_not_be_read(history, tmp_path):
    history.send("p", None, "a", 0, "fail")
    history.poll("r", (0, "a"))
    assert history.kinds(tmp_path) == {"aborted-read": 1}


def test_an_intermediate_read(history, tmp_path):
    """Read before the commit was asked for, by whomever: the producer's own process too (G1b)."""
    history.send("p", "x", "a", 0)
    history.poll("p", (0, "a"), transaction="x")
    history.commit("p", "x")
    assert history.kinds(tmp_path) == {"intermediate-read": 1}


def test_a_read_while_the_commit_is_in_flight_is_innocent(history, tmp_path):
    history.send("p", "x", "a", 0)
    commit = history.invoke("p", "commit", transaction="x")
    history.poll("r", (0, "a"))
    history.end(commit)
    assert history.kinds(tmp_path) == {}


@pytest.mark.parametrize("kind", ["info", "none"])
def test_a_commit_without_a_response_is_neither_lost_nor_kept(kind, history, tmp_path):
    history.send("p", "x", "a", 0)
    history.commit("p", "x", kind)
    history.final(end=3)
    judged = history.judged(tmp_path)
    assert judged.found.counts == {}
    assert judged.fates == {Fate.UNKNOWN: 1}


def test_an_unknown_transaction_that_was_seen_must_be_there_whole(history, tmp_path):
    history.send("p", "x", "a", 0)
    history.send("p", "x", "b", 1)
    history.commit("p", "x", "info")
    history.final((0, "a"), end=3)
    assert history.kinds(tmp_path) == {"lost-write": 1, "torn-transaction": 1}


def test_a_write_without_a_response_may_be_missing(history, tmp_path):
    history.send("p", "x", "a", 0)
    history.send("p", "x", "b", 1, "info")
    history.commit("p", "x")
    history.final((0, "a"), end=3)
    assert history.kinds(tmp_path) == {}


def test_a_lost_write_and_one_that_readers_do_not_reach(history, tmp_path):
    """Below what the final polls have read it is lost; beyond, readers may stand still before it."""
    history.send("p", "x", "a", 0)
    history.commit("p", "x")
    history.send("p", "y", "b", 2)
    history.commit("p", "y")
    history.final(end=2)
    assert history.kinds(tmp_path) == {"lost-write": 1, "unseen": 1}


def test_what_retention_has_deleted_is_not_lost(history, tmp_path):
    history.send("p", "x", "a", 0)
    history.commit("p", "x")
    history.final(end=2, begin=1)
    assert history.kinds(tmp_path) == {}


def test_nothing_is_lost_in_partitions_that_no_final_poll_names(history, tmp_path):
    history.send("p", "x", "a", 0, partition=1)
    history.commit("p", "x")
    history.final(end=2)
    assert history.kinds(tmp_path) == {}


def test_one_offset_with_two_values_and_one_value_at_two_offsets(history, tmp_path):
    history.send("p", None, "a", 0)
    history.poll("r", (0, "a"))
    history.poll("s", (0, "b"), (1, "a"))
    assert history.kinds(tmp_path) == {"inconsistent-offsets": 1, "duplicated": 1, "unknown-value": 1}


def test_a_value_of_no_history_is_a_note(history, tmp_path):
    history.poll("r", (0, "stranger"))
    judged = history.judged(tmp_path)
    assert list(judged.found.counts) == [Anomaly.UNKNOWN_VALUE]
    assert judged.is_clean


def test_a_value_of_no_history_may_be_there_twice(history, tmp_path):
    """Another client may send a value twice: unique values are promised by histories alone."""
    history.poll("r", (0, "x"), (1, "x"))
    assert history.kinds(tmp_path) == {"unknown-value": 1}


def test_a_record_whose_client_chose_the_partition_has_that_of_its_acknowledgement(history, tmp_path):
    """The partition is null until then; a record without a response is there or not, wherever."""
    for value, offset in (("a", 0), ("b", 1)):
        key = history.invoke("p", "send", transaction="x", topic="t", partition=None, value=value)
        history.end(key, partition=3, offset=offset)
    history.send("p", "x", "c", 2, "none", partition=None)
    history.commit("p", "x")
    history.final((0, "a"), end=3, partition=3)
    assert history.kinds(tmp_path) == {"lost-write": 1, "torn-transaction": 1}


def test_a_transaction_with_two_outcomes(history, tmp_path):
    history.send("p", "x", "a", 0)
    history.commit("p", "x")
    history.abort("p", "x")
    assert history.kinds(tmp_path) == {"two-outcomes": 1}


def test_a_consumer_that_skips_and_one_that_goes_back(history, tmp_path):
    for offset, value in enumerate("abc"):
        history.send("p", None, value, offset)
    history.poll("all", (0, "a"), (1, "b"), (2, "c"))
    history.poll("r", (0, "a"), (2, "c"))
    history.poll("s", (1, "b"))
    history.poll("s", (0, "a"))
    assert history.kinds(tmp_path) == {"poll-skip": 1, "nonmonotonic-poll": 1}


def test_a_new_assignment_may_be_read_from_anywhere(history, tmp_path):
    for offset, value in enumerate("abc"):
        history.send("p", None, value, offset)
    history.poll("all", (0, "a"), (1, "b"), (2, "c"))
    history.poll("r", (1, "b"))
    history.end(history.invoke("r", "assign"))
    history.poll("r", (0, "a"))
    history.end(history.invoke("r", "assign"))
    history.poll("r", (2, "c"))
    assert history.kinds(tmp_path) == {}


def test_aborted_records_may_be_passed(history, tmp_path):
    history.send("p", "x", "a", 0)
    history.commit("p", "x")
    history.send("p", "y", "b", 2)
    history.abort("p", "y")
    history.send("p", "z", "c", 4)
    history.commit("p", "z")
    history.poll("u", (0, "a"), (2, "b"), (4, "c"), isolation="read_uncommitted")
    history.poll("r", (0, "a"), (4, "c"))
    assert history.kinds(tmp_path) == {}


def test_a_later_record_before_an_earlier_one(history, tmp_path):
    history.send("p", "x", "a", 5)
    history.send("p", "x", "b", 3)
    history.commit("p", "x")
    assert history.kinds(tmp_path) == {"nonmonotonic-send": 1}


def test_transactions_that_interleave_are_innocent(history, tmp_path):
    """Write isolation is not promised (G0)."""
    history.send("p", "x", "a", 0)
    history.send("q", "y", "b", 1)
    history.send("p", "x", "c", 2)
    history.commit("q", "y")
    history.commit("p", "x")
    history.final((0, "a"), (1, "b"), (2, "c"), end=5)
    assert history.kinds(tmp_path) == {}


def test_transactions_that_read_each_other(history, tmp_path):
    """G1c: without a circle, reading another's record within a transaction is what a copier does."""
    history.send("p", "x", "a", 0)
    history.send("q", "y", "b", 1)
    first = history.invoke("p", "commit", transaction="x")
    second = history.invoke("q", "commit", transaction="y")
    history.poll("q", (0, "a"), transaction="y")
    assert history.kinds(tmp_path) == {}
    history.poll("p", (1, "b"), transaction="x")
    history.end(first)
    history.end(second)
    assert history.kinds(tmp_path) == {"circular-information-flow": 1}


def test_a_position_that_only_an_aborted_transaction_committed(history, tmp_path):
    history.positions("p", "x", 7)
    history.abort("p", "x")
    history.found_positions("r", 7)
    assert history.kinds(tmp_path) == {"aborted-offsets": 1}


def test_a_position_that_went_back(history, tmp_path):
    history.positions("p", "x", 3)
    history.commit("p", "x")
    history.positions("p", "y", 6)
    history.commit("p", "y")
    history.found_positions("r", 6)
    assert history.kinds(tmp_path) == {}
    history.found_positions("r", 3)
    assert history.kinds(tmp_path) == {"lost-offsets": 1}


def test_a_position_of_an_unknown_commit_may_come_late(history, tmp_path):
    history.positions("p", "x", 3)
    history.commit("p", "x", "info")
    history.positions("q", "y", 6)
    history.commit("q", "y")
    history.found_positions("r", 3)
    assert history.kinds(tmp_path) == {}


def test_what_could_not_be_checked_is_said(history, tmp_path):
    history.send("p", "x", "a", 0)
    history.commit("p", "x")
    said = "\n".join(history.judged(tmp_path).not_checked)
    for name in ("lost-write", "aborted-read", "circular-information-flow", "aborted-offsets"):
        assert name in said


def test_every_kind_has_a_meaning_which_the_page_has_too():
    page = (Path(__file__).parents[3] / "docs" / "histories.md").read_text(encoding="utf-8")
    assert set(MEANINGS) == set(Anomaly)
    for kind, meaning in MEANINGS.items():
        guarantee = meaning.guarantee or "a note, which breaks nothing"
        assert f"| `{kind.value}` | {guarantee} | {meaning.words} |\n" in page


def test_circles_are_the_groups_that_reach_each_other():
    edges = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["d"], "f": ["a", "f"]}
    assert set(circles(edges)) == {frozenset("abc"), frozenset("de")}
