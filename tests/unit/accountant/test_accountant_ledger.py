"""Each class of finding has a small history that it must convict, and an innocent twin beside it."""

from __future__ import annotations

import pytest
from small_books import found, kept, log, report, sent, values

from tidegauge_lab.accountant.books import MAX_EXAMPLES, CommittedLog, Kind


def test_books_that_balance() -> None:
    result = report([sent(0), sent(1), sent(2)], log(*values("v0", "v1", "v2")))
    assert found(result) == {}
    assert result.is_balanced
    assert (result.accounts["all"].acknowledged, result.accounts["all"].kept) == (3, 3)


# Acknowledged and lost


def test_an_acknowledged_record_that_another_replaced_is_lost() -> None:
    result = report([sent(0), sent(1), sent(2)], log(*values("v0", "v9", "v2")))
    assert found(result) == {Kind.LOST: 1, Kind.PHANTOM: 1}
    (example,) = result.tallies[Kind.LOST].examples
    assert example.offset == 1
    assert "'v1'" in example.message
    assert "'v9'" in example.message
    assert not result.is_balanced


@pytest.mark.parametrize("outcome", ["info", "fail"])
def test_what_was_not_acknowledged_is_not_lost(outcome: str) -> None:
    result = report([sent(0), sent(1, outcome=outcome), sent(2)], log(kept(0), kept(1, "v9", 9), kept(2)))
    assert Kind.LOST not in found(result)
    assert result.is_balanced


def test_retention_is_no_loss_but_a_hole_above_it_is() -> None:
    history = [sent(0), sent(1), sent(2), sent(3)]
    assert report(history, log(kept(2), kept(3), start=2)).is_balanced
    assert report(history, log(kept(2), kept(3), start=2)).accounts["all"].deleted == 2
    assert found(report(history, log(kept(0), kept(1), kept(3)))) == {Kind.LOST: 1}


@pytest.mark.parametrize(
    ("acknowledged_at", "standing"),
    [
        (0, log(kept(3, "v", 7), start=2)),
        (1, log(kept(3, "v", 7, key=b"a"), is_compacted=True)),
        (5, log(kept(3, "v", 7), log_end_offset=6)),
    ],
    ids=["retention", "compaction", "not committed yet"],
)
def test_a_record_that_may_be_gone_is_not_found_in_another_of_equal_content(
    acknowledged_at: int, standing: CommittedLog
) -> None:
    """Two records of one key, value and timestamp: the kept one is of unknown outcome, nothing is wrong."""
    key = standing.records[0].key
    gone = sent(0, "v", key=key, timestamp_ms=7, offset=acknowledged_at)
    unknown = sent(1, "v", "info", key=key, timestamp_ms=7)
    result = report([gone, unknown], standing)
    assert found(result) == {}
    assert result.accounts["all"].kept_unknown == 1
    assert result.accounts["all"].deleted + result.accounts["all"].uncommitted == 1
    assert found(report([gone], standing)) == {Kind.MISPLACED: 1}, "there is no other record that it could be"
    lost = sent(0, "v", key=key, timestamp_ms=7, offset=2)
    in_log = log(*standing.records, log_end_offset=standing.log_end_offset)
    assert found(report([lost, unknown], in_log)) == {Kind.MISPLACED: 1}, "it must be in the log"


def test_a_compacted_log_may_drop_what_has_a_later_value_of_its_key() -> None:
    history = [sent(0, key=b"a"), sent(1, key=b"a"), sent(2, key=b"b")]
    later = log(kept(1, key=b"a"), kept(2, key=b"b"), is_compacted=True)
    assert report(history, later).is_balanced
    assert found(report(history, log(kept(0, key=b"a"), kept(2, key=b"b"), is_compacted=True))) == {Kind.LOST: 1}


def test_a_compacted_log_may_drop_tombstones_and_what_they_removed() -> None:
    """Kafka's Cleaner removes a tombstone after delete.retention.ms; then nothing of its key is left."""
    rest = log(kept(3, key=b"b"), start=0, is_compacted=True)
    removed = [sent(0, key=b"a"), sent(1, key=b"a")._replace(value=None), sent(3, key=b"b")]
    result = report(removed, rest)
    assert found(result) == {}
    assert result.accounts["all"].deleted == 2
    unknown = sent(1, outcome="info", key=b"a")._replace(value=None)
    assert found(report([removed[0], unknown, removed[2]], rest)) == {}, "it may have been written, and removed"
    refused = sent(1, outcome="fail", key=b"a")._replace(value=None)
    assert found(report([removed[0], refused, removed[2]], rest)) == {Kind.LOST: 1}


def test_a_compacted_log_drops_what_has_no_key() -> None:
    assert found(report([sent(0)], log(kept(1, key=b"b"), start=0, is_compacted=True))) == {Kind.PHANTOM: 1}
    assert found(report([sent(0)], log(kept(1, key=b"b"), start=0))) == {Kind.LOST: 1, Kind.PHANTOM: 1}


def test_compaction_excuses_no_lost_tail() -> None:
    tail = [sent(0, key=b"a"), sent(1, key=b"a"), sent(2, key=b"a")._replace(value=None)]
    assert found(report(tail, log(kept(0, key=b"a"), end=1, is_compacted=True))) == {Kind.LOST_TAIL: 2}


def test_an_unreadable_partition_convicts_no_replica() -> None:
    result = report([sent(0, partition=3)], log())
    assert result.is_balanced
    assert result.accounts["all"].unreadable == 1


def test_levels_of_acks_have_accounts_of_their_own() -> None:
    """Records that only the leader acknowledged (acks=1) may be lost, and are reported as another class."""
    history = [sent(0), sent(1, acks="1"), sent(2, acks="0", offset=-1), sent(3)]
    result = report(history, log(kept(0), kept(1, "v3", 3), kept(2, "x", 9)))
    assert result.accounts["1"].lost == 1
    assert result.accounts["0"].lost == 0, "with acks=0 nothing was acknowledged"
    assert result.tallies[Kind.LOST].by_acks == {"1": 1}
    assert result.accounts["all"].kept == 2


# Lost tail


def test_an_acknowledged_record_behind_the_end_is_a_lost_tail() -> None:
    """Jepsen's Kafka checker can't distinguish this from lag."""
    result = report([sent(0), sent(1), sent(2)], log(*values("v0")))
    assert found(result) == {Kind.LOST_TAIL: 2}
    assert report([sent(0), sent(1), sent(2, outcome="info")], log(*values("v0", "v1"))).is_balanced


def test_what_the_leader_holds_above_its_high_watermark_may_still_be_committed() -> None:
    """With acks=1 the response comes before the commit."""
    history = [sent(0, acks="1"), sent(1, acks="1"), sent(2, acks="1")]
    result = report(history, log(kept(0), end=1, log_end_offset=2))
    assert found(result) == {Kind.LOST_TAIL: 1}
    assert result.accounts["1"].uncommitted == 1


# Kept though failed


def test_a_definite_failure_must_not_be_in_the_log() -> None:
    history = [sent(0), sent(1, outcome="fail")]
    assert found(report(history, log(*values("v0", "v1")))) == {Kind.KEPT_THOUGH_FAILED: 1}
    unknown = report([sent(0), sent(1, outcome="info")], log(*values("v0", "v1")))
    assert unknown.is_balanced
    assert (unknown.accounts["all"].unknown, unknown.accounts["all"].kept_unknown) == (1, 1)


def test_the_same_value_sent_again_after_a_definite_failure_is_innocent() -> None:
    history = [sent(0, "x", "fail"), sent(1, "x", offset=0)]
    assert report(history, log(kept(0, "x", 1))).is_balanced


# Phantom


def test_a_phantom_is_reported_and_convicts_only_complete_histories() -> None:
    books = log(*values("v0", "nobody's"))
    assert found(report([sent(0)], books)) == {Kind.PHANTOM: 1}
    assert report([sent(0)], books).is_balanced, "somebody whose history is not here may have written it"
    assert not report([sent(0)], books, is_complete=True).is_balanced
    at_another_time = sent(1, "nobody's", "info", timestamp_ms=9)
    assert found(report([sent(0), at_another_time], books)) == {Kind.PHANTOM: 1}
    assert report([sent(0), sent(1, "nobody's", "info")], books, is_complete=True).is_balanced


def test_without_a_history_no_record_is_a_phantom() -> None:
    result = report(None, log(*values("v0")))
    assert found(result) == {}
    assert any("history" in line for line in result.not_checked)


# Misplaced


def test_a_record_elsewhere_than_acknowledged_is_misplaced() -> None:
    history = [sent(0), sent(1, offset=7)]
    assert found(report(history, log(*values("v0", "v1")))) == {Kind.MISPLACED: 1}
    assert report([sent(0), sent(1)], log(*values("v0", "v1"))).is_balanced


def test_an_equal_value_of_another_producer_does_not_hide_a_loss() -> None:
    result = report([sent(0), sent(1)], log(kept(0), kept(1, "w"), kept(2, "v1", 77)))
    assert found(result)[Kind.LOST] == 1


# Duplicated


@pytest.mark.parametrize("first", ["lost", "kept"])
def test_of_equal_values_acknowledged_at_one_offset_the_one_whose_timestamp_is_there_was_kept(first: str) -> None:
    """A leader acknowledged it with acks=1 and died; the next one gave the offset again, to another's equal value."""
    lost = sent(1, "v", acks="1", timestamp_ms=100)
    taken = sent(2, "v", producer="q", partition=0, offset=1, timestamp_ms=200)
    history = [lost, taken] if first == "lost" else [taken, lost]
    result = report([sent(0), *history, sent(3)], log(kept(0), kept(1, "v", 200), kept(3)))
    assert found(result) == {Kind.LOST: 1}
    assert (result.accounts["all"].lost, result.accounts["1"].lost) == (0, 1)


def test_a_record_kept_twice_is_duplicated() -> None:
    result = report([sent(0), sent(1)], log(kept(0), kept(1), kept(2, "v0", 0)))
    assert found(result) == {Kind.DUPLICATED: 1}
    assert "offset 0 and again at partition 0 offset 2" in result.tallies[Kind.DUPLICATED].examples[0].message
    assert not result.is_balanced


def test_the_acknowledged_place_is_the_original_wherever_the_copy_stands() -> None:
    result = report([sent(0, offset=1)], log(kept(0, "v0"), kept(1, "v0", 0)))
    assert found(result) == {Kind.DUPLICATED: 1}
    assert result.tallies[Kind.DUPLICATED].examples[0].offset == 0


def test_a_value_sent_twice_and_kept_twice_is_innocent() -> None:
    assert report([sent(0, "x"), sent(1, "x")], log(kept(0, "x", 0), kept(1, "x", 1))).is_balanced
    assert report([sent(0, "x"), sent(1, "x", "info")], log(kept(0, "x", 0), kept(1, "x", 1))).is_balanced


def test_a_copy_in_another_partition_is_a_copy() -> None:
    result = report([sent(0)], log(kept(0)), log(kept(0), partition=1))
    assert found(result) == {Kind.DUPLICATED: 1}


def test_the_same_value_by_a_stranger_is_duplicated_until_the_strangers_history_is_given() -> None:
    books = log(kept(0, "x", 0), kept(1, "x", 50))
    assert found(report([sent(0, "x")], books)) == {Kind.DUPLICATED: 1}
    stranger = sent(0, "x", producer="q", timestamp_ms=50, offset=1, invoked_us=90, completed_us=95)
    assert report([sent(0, "x"), stranger], books).is_balanced


def test_a_log_with_timestamps_of_its_own_is_matched_without_them() -> None:
    """LogAppendTime overwrites the producer's timestamp."""
    books = log(kept(0, "v0", 500), kept(1, "v1", 501), has_own_timestamps=False)
    result = report([sent(0), sent(1, outcome="info")], books, is_complete=True)
    assert result.is_balanced
    assert result.accounts["all"].kept_unknown == 1


# The report


def test_a_thousand_losses_are_counted_and_ten_are_shown() -> None:
    result = report([sent(number) for number in range(1000)], CommittedLog(0, 0, 1000, ()))
    assert result.count(Kind.LOST) == 1000
    assert len(result.tallies[Kind.LOST].examples) == MAX_EXAMPLES
    document = result.to_json()
    assert document["counts"]["lost"] == 1000
    assert document["counts"]["duplicated"] == 0
    assert not document["balanced"]
