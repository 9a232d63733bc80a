"""The finding ``diverged``, and reads that change: each conviction with its innocent twin."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_books import found, kept, log, mark, replica, report, values
from tests.examples import examples

from tidegauge_lab.accountant.books import Damage, Kind, ReadRecord, RecordMark, ReplicaLog
from tidegauge_lab.accountant.replicas import differences


def diverged(*replicas: ReplicaLog) -> int:
    return found(report(None, log(), replicas=replicas)).get(Kind.DIVERGED, 0)


def test_row_e6_two_members_of_the_isr_with_another_record_at_the_same_offset() -> None:
    one = replica(0, mark(0, 1), mark(1, 2, crc=3))
    assert diverged(one, replica(1, mark(0, 1), mark(1, 2, crc=2))) == 1
    assert diverged(one, replica(1, mark(0, 1), mark(1, 2, crc=3))) == 0


def test_the_same_bytes_under_another_epoch_are_another_record() -> None:
    assert diverged(replica(0, mark(0, 2, epoch=1)), replica(1, mark(0, 2, epoch=0))) == 1


def test_a_follower_outside_the_isr_may_hold_what_it_will_truncate() -> None:
    """Rule 2: above its own high watermark nothing is promised."""
    leader = replica(0, mark(0, 2), mark(2, 4))
    straggler = replica(1, mark(0, 2), mark(2, 3, crc=9), in_isr=False, high_watermark=2)
    assert diverged(leader, straggler) == 0
    straggler.high_watermark = 3
    assert diverged(leader, straggler) == 1


def test_a_member_of_the_isr_must_reach_the_leaders_high_watermark() -> None:
    leader = replica(0, mark(0, 2), mark(2, 4))
    short = replica(1, mark(0, 2))
    assert diverged(leader, short) == 1
    leader.high_watermark = 2
    assert diverged(leader, short) == 0, "what is not committed need not be there"


def test_a_follower_whose_high_watermark_is_a_round_late_is_still_compared() -> None:
    """A follower's high watermark may lag behind its leader's."""
    leader = replica(0, mark(0, 2), mark(2, 4))
    assert diverged(leader, replica(1, mark(0, 2), mark(2, 4, crc=5), high_watermark=2)) == 1


def test_a_replica_in_an_older_epoch_has_its_truncation_before_it() -> None:
    leader = replica(0, mark(0, 2), mark(2, 4), leader_epoch=3)
    old = replica(1, mark(0, 2), mark(2, 5, crc=5), leader_epoch=2, high_watermark=2)
    assert diverged(leader, old) == 0
    old.leader_epoch = 3
    assert diverged(leader, old) == 1


def test_a_dead_brokers_disk_is_held_to_its_checkpoint_and_to_what_it_has() -> None:
    """Rule 5: it may be in the ISR still, lack the end, and hold uncommitted records; no more than that."""
    leader = replica(0, mark(0, 2), mark(2, 4), mark(4, 6))
    dead = replica(1, mark(0, 2), mark(2, 4, crc=9), high_watermark=2, is_from_disk=True)
    assert diverged(leader, dead) == 0, "what it had not committed, as far as its disk says"
    dead.high_watermark = 4
    assert diverged(leader, dead) == 1
    cut = replica(1, mark(0, 2), high_watermark=6, is_from_disk=True)
    assert diverged(leader, cut) == 0, "a power cut took the end, which it will fetch"
    assert diverged(leader, replica(1, mark(0, 2))) == 2, "a living member of the ISR must have it"


def test_what_was_read_from_a_disk_is_reported() -> None:
    books = {"replicas": [replica(0, mark(0, 1)), replica(1, mark(0, 1), is_from_disk=True)]}
    document = report(None, log(*values("v0")), **books).to_json()
    assert (document["replicas"], document["read_from_disk"]) == (2, [{"broker": 1, "partitions": [0]}])


def test_retention_may_have_advanced_further_on_one_of_them() -> None:
    assert diverged(replica(0, mark(2, 4), log_start_offset=2), replica(1, mark(0, 2), mark(2, 4))) == 0


def test_a_gap_that_only_one_has_is_a_difference_where_nothing_is_compacted() -> None:
    full = replica(0, mark(0, 1), mark(1, 2), mark(2, 3))
    assert diverged(full, replica(1, mark(0, 1), mark(2, 3))) == 1
    assert diverged(full, replica(1, mark(0, 1), mark(2, 3, crc=8))) == 2


# Compaction: rule 6


def record(offset: int, key: str | None, value: str | None = "v", epoch: int = 0) -> RecordMark:
    digest = None if key is None else hash(key)
    return RecordMark(offset, epoch, digest, hash((offset, key, value)), value is None)


def compacted(broker: int, end: int, *records: RecordMark, **fields: Any) -> ReplicaLog:
    """A replica up to ``end`` whose batches say nothing: compaction may have rewritten each of them."""
    marks = (mark(0, end, crc=broker),)
    return replica(broker, *marks, **{"records": records, **fields})


def test_replicas_compacted_at_different_times_are_equal_where_both_hold_a_record() -> None:
    """Kafka's Cleaner rewrites batches, so that their CRCs differ; the records in them stay."""
    full = compacted(0, 4, record(0, "a"), record(1, "b"), record(2, "a"), record(3, "b"))
    cleaned = compacted(1, 4, record(2, "a"), record(3, "b"))
    assert diverged(full, cleaned) == diverged(cleaned, full) == 0
    assert diverged(full, compacted(1, 4, record(2, "a"), record(3, "b", "other"))) == 1
    assert diverged(full, compacted(1, 4, record(2, "a"), record(3, "b", epoch=1))) == 1


def test_the_last_record_of_a_key_is_removed_by_no_cleaner() -> None:
    full = compacted(0, 4, record(0, "a"), record(1, "b"), record(2, "a"), record(3, "c"))
    assert diverged(full, compacted(1, 4, record(2, "a"), record(3, "c"))) == 1, "b"
    assert diverged(full, compacted(1, 4, record(0, "a"), record(1, "b"), record(3, "c"))) == 1, "a's last"


def test_a_cleaner_may_remove_tombstones_and_records_without_a_key() -> None:
    full = compacted(0, 4, record(0, "a"), record(1, "a", None), record(2, None), record(3, "b"))
    assert diverged(full, compacted(1, 4, record(3, "b"))) == 0


def test_what_a_replica_never_had_was_not_removed_by_a_cleaner() -> None:
    full = compacted(0, 4, record(0, "a"), record(1, "a"), record(2, "a", None), record(3, "a"))
    assert diverged(full, compacted(1, 2, record(1, "a"))) == 2, "a member of the ISR, whose log ends at 2"


def test_a_tombstone_missing_from_the_leader_excuses_what_a_replica_behind_it_still_holds() -> None:
    leader = compacted(0, 9, record(8, "b"))
    behind = compacted(1, 3, record(1, "a"), in_isr=False, high_watermark=3)
    assert diverged(leader, behind) == 0
    assert diverged(leader, compacted(1, 9, record(1, "a"), record(8, "b"))) == 1, "it has no later one of its key"


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=14),
    st.lists(st.integers(0, 14), min_size=2, max_size=2),
    st.integers(0, 2),
)
def test_whatever_two_cleaners_leave_of_one_log_is_equal(
    written: list[tuple[str, bool]], cleaned_to: list[int], drops_tombstones: int
) -> None:
    """A healthy log, compacted on each replica up to an offset of its own, must be judged healthy."""
    whole = [record(at, key, None if is_tombstone else "v") for at, (key, is_tombstone) in enumerate(written)]

    def cleaned(upto: int, *, drops: bool) -> list[RecordMark]:
        latest = {one.key: one.offset for one in whole if one.offset < upto}
        return [
            one
            for one in whole
            if one.offset >= upto or (latest[one.key] == one.offset and not (drops and one.is_tombstone))
        ]

    end = len(whole)
    one, other = (
        compacted(broker, end, *cleaned(min(upto, end), drops=broker < drops_tombstones))
        for broker, upto in enumerate(cleaned_to)
    )
    assert diverged(one, other) == 0


# Damage: rule 7


def test_damage_is_found_by_broker_and_words_and_the_rest_is_compared() -> None:
    damaged = replica(1, mark(0, 1), mark(1, 2, crc=-1), mark(2, 3, crc=7), damage=[Damage(1, 2, "byte 61 of F")])
    result = report(None, log(), replicas=[replica(0, mark(0, 1), mark(1, 2), mark(2, 3)), damaged])
    assert found(result) == {Kind.DAMAGED: 1, Kind.DIVERGED: 1}
    assert result.tallies[Kind.DAMAGED].examples[0][1:] == (1, "broker 1: byte 61 of F")
    assert result.tallies[Kind.DIVERGED].examples[0].offset == 2
    assert not result.is_balanced


def test_where_the_leaders_log_breaks_off_the_others_are_compared_among_themselves() -> None:
    leader = replica(0, mark(0, 1), high_watermark=3, log_end_offset=3, damage=[Damage(1, -1, "byte 61 of F")])
    one = replica(1, mark(0, 1), mark(1, 2), mark(2, 3))
    assert diverged(leader, one, replica(2, mark(0, 1), mark(1, 2), mark(2, 3))) == 0
    assert diverged(leader, one, replica(2, mark(0, 1), mark(1, 2), mark(2, 3, crc=5))) == 1
    assert diverged(leader, replica(1, mark(0, 1, crc=5), mark(1, 2), mark(2, 3))) == 1, "below it the leader counts"


def test_without_a_leader_the_newest_replica_is_the_measure() -> None:
    one = replica(1, mark(0, 2), leader_epoch=1)
    other = replica(2, mark(0, 2, crc=4), leader_epoch=2)
    assert diverged(one, other) == 1


def test_differences_begin_at_the_first_offset_that_counts() -> None:
    ours, theirs = [mark(0, 10)], [mark(0, 10, crc=2)]
    assert [offset for offset, _, _ in differences(ours, theirs, 4, 8)] == [4]
    assert list(differences(ours, theirs, 10, 20)) == []


# Reads


def reads(*of: tuple[int, str]) -> list[ReadRecord]:
    return [ReadRecord(0, offset, None, value.encode()) for offset, value in of]


@pytest.mark.parametrize(
    ("read", "times"),
    [
        ([(0, "v0"), (1, "v1")], 0),
        ([(0, "v0"), (0, "v0")], 0),
        ([(0, "v0"), (0, "w")], 1),
        ([(1, "w")], 1),
        ([(2, "v2")], 1),
    ],
)
def test_what_was_once_readable_stays_as_it_was(read: list[tuple[int, str]], times: int) -> None:
    result = report(None, log(*values("v0", "v1")), reads=reads(*read))
    assert result.count(Kind.READ_DIFFERENTLY) == times
    assert result.is_balanced is (times == 0)


def test_what_retention_or_compaction_took_was_read_rightly() -> None:
    assert report(None, log(kept(5), start=5), reads=reads((1, "v1"))).is_balanced
    assert report(None, log(kept(5), start=0, is_compacted=True), reads=reads((1, "v1"))).is_balanced
    assert not report(None, log(kept(5), start=0), reads=reads((1, "v1"))).is_balanced
