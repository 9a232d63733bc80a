"""Row B6, diverged; and reads that change: each conviction with its innocent twin."""

from __future__ import annotations

import pytest
from small_books import found, kept, log, mark, replica, report, values

from tidegauge_lab.accountant.books import Kind, ReadRecord, ReplicaLog
from tidegauge_lab.accountant.replicas import differences


def diverged(*replicas: ReplicaLog, compacted: bool = False) -> int:
    return found(report(None, log(is_compacted=compacted), replicas=replicas)).get(Kind.DIVERGED, 0)


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
    """Row W6."""
    leader = replica(0, mark(0, 2), mark(2, 4))
    assert diverged(leader, replica(1, mark(0, 2), mark(2, 4, crc=5), high_watermark=2)) == 1


def test_a_replica_in_an_older_epoch_has_its_truncation_before_it() -> None:
    leader = replica(0, mark(0, 2), mark(2, 4), leader_epoch=3)
    old = replica(1, mark(0, 2), mark(2, 5, crc=5), leader_epoch=2, high_watermark=2)
    assert diverged(leader, old) == 0
    old.leader_epoch = 3
    assert diverged(leader, old) == 1


def test_a_dead_brokers_disk_is_held_to_its_checkpoint_and_to_what_it_has() -> None:
    """Rule 5: it may be in the ISR still, lack the end, and hold what nobody committed; no more than that."""
    leader = replica(0, mark(0, 2), mark(2, 4), mark(4, 6))
    dead = replica(1, mark(0, 2), mark(2, 4, crc=9), high_watermark=2, is_from_disk=True)
    assert diverged(leader, dead) == 0, "what it had not committed, as far as its disk says"
    dead.high_watermark = 4
    assert diverged(leader, dead) == 1
    cut = replica(1, mark(0, 2), high_watermark=6, is_from_disk=True)
    assert diverged(leader, cut) == 0, "a power cut took the end, which it will fetch"
    assert diverged(leader, replica(1, mark(0, 2))) == 2, "a living member of the ISR must have it"


def test_what_was_read_from_a_disk_is_told() -> None:
    books = {"replicas": [replica(0, mark(0, 1)), replica(1, mark(0, 1), is_from_disk=True)]}
    document = report(None, log(*values("v0")), **books).to_json()
    assert (document["replicas"], document["read_from_disk"]) == (2, [{"broker": 1, "partitions": [0]}])


def test_retention_may_have_gone_further_on_one_of_them() -> None:
    assert diverged(replica(0, mark(2, 4), log_start_offset=2), replica(1, mark(0, 2), mark(2, 4))) == 0


@pytest.mark.parametrize("compacted", [True, False])
def test_compaction_goes_its_own_way_on_each_replica(*, compacted: bool) -> None:
    full = replica(0, mark(0, 1), mark(1, 2), mark(2, 3))
    assert diverged(full, replica(1, mark(0, 1), mark(2, 3)), compacted=compacted) == (0 if compacted else 1)
    assert diverged(full, replica(1, mark(0, 1), mark(2, 3, crc=8)), compacted=compacted) == (1 if compacted else 2)


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
