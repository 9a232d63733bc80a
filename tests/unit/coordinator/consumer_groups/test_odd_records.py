"""Records of consumer groups that no coordinator can have written, or that compaction has left over."""

import random

import pytest
from tests.unit.coordinator.consumer_groups.consumer_harness import T4, ConsumerHarness, heartbeat, joining, owned

from tidegauge.errors import ErrorCode
from tidegauge.groups import DeleteGroup, ListGroups
from tidegauge_broker.coordinator.consumer_group.member import ConsumerMember, MemberState
from tidegauge_broker.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    current_record,
    epoch_record,
    group_tombstones,
    member_tombstones,
    regex_tombstone,
    subscription_record,
    target_epoch_record,
    target_record,
    to_bytes,
)
from tidegauge_broker.coordinator.record_codec import Record, batch_of, read_batches


def batch(*records: ConsumerGroupRecord | Record) -> bytes:
    return batch_of([one if isinstance(one, Record) else to_bytes(one) for one in records], 1_000_000)


def loaded(*records: ConsumerGroupRecord | Record) -> ConsumerHarness:
    """Load these records of group g, beside a healthy group's."""
    broker = ConsumerHarness()
    broker.enter("a", "t4", group="healthy")
    return ConsumerHarness(log=[batch(*records), *broker.log])


def member(member_id: str = "a", epoch: int = 2, **fields) -> ConsumerMember:
    return ConsumerMember(member_id, topic_names=("t4",), rebalance_timeout_ms=8_000, epoch=epoch, **fields)


def of_member(one: ConsumerMember) -> list[ConsumerGroupRecord]:
    return [subscription_record("g", one), current_record("g", one)]


ASSIGNED = {"assigned": {T4: {0: 2}}}
ODD = {
    "an epoch below the first": [epoch_record("g", -1, 0)],
    "an assignment beyond the group": [epoch_record("g", 2, 0), target_epoch_record("g", 3, 0)],
    "a negative assignment epoch": [target_epoch_record("g", -7, 0)],
    "a member beyond the group": [epoch_record("g", 2, 0), *of_member(member(epoch=3))],
    "a negative member epoch": of_member(member(epoch=-3)),
    "an empty member id": [epoch_record("g", 2, 0), *of_member(member(""))],
    "a dynamic member that is away": [epoch_record("g", 2, 0), *of_member(member(epoch=-2))],
    "two members with one instance id": [
        epoch_record("g", 2, 0),
        *of_member(member("a", instance_id="i")),
        *of_member(member("b", instance_id="i")),
    ],
    "two owners": [
        epoch_record("g", 2, 0),
        *of_member(member("a", **ASSIGNED)),
        *of_member(member("b", pending_revocation={T4: {0: 2}})),
    ],
    "a value that ends too early": [Record(to_bytes(epoch_record("g", 2, 0)).key, b"\0\0\0")],
    "a value of a later version": [Record(to_bytes(epoch_record("g", 2, 0)).key, b"\0\1\0\0\0\2\0")],
}


@pytest.mark.parametrize("records", ODD.values(), ids=ODD)
def test_records_that_make_no_sense_cost_their_group(records):
    broker = loaded(*records)
    assert broker.beat("a", 2).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.ask(joining("z", "t4")).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.beat("a", 2, "healthy").error is ErrorCode.NONE
    listed = {one.group_id: one.state for one in broker.ask(ListGroups()).groups}
    assert listed == {"g": "Unknown", "healthy": "Stable"}
    assert broker.ask(DeleteGroup("g")).error is ErrorCode.NONE
    other = broker.successor()
    assert [one.group_id for one in other.ask(ListGroups()).groups] == ["healthy"]
    assert other.enter("a", "t4").member_epoch == 2


def test_a_group_of_both_kinds_is_refused():
    broker = ConsumerHarness(group_initial_rebalance_delay_ms=0)
    broker.enter("a", "t4")
    classic = ConsumerHarness(serves_consumer_groups=False, log=broker.log)
    classic.stable_group()
    other = classic.successor(serves_consumer_groups=True)
    assert other.beat("a", 2).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert any("records of a classic group and of a consumer group" in line.text for line in other.lines)


def test_a_key_that_cannot_be_read_belongs_to_no_group():
    broker = loaded(Record(b"\0\5\0", b"\0\0"))
    assert broker.beat("a", 2, "healthy").error is ErrorCode.NONE
    assert any("keys cannot be read" in line.text for line in broker.lines)


def test_tombstones_of_what_is_not_there_are_no_group():
    """KAFKA-19862: compaction may leave tombstones of members and groups behind whose records are removed."""
    tombstones = [*member_tombstones("g", "a"), regex_tombstone("g", "t.*"), *group_tombstones("g")]
    broker = loaded(*tombstones)
    assert [one.group_id for one in broker.ask(ListGroups()).groups] == ["healthy"]
    assert broker.enter("a", "t4").member_epoch == 2


def test_targets_of_members_that_do_not_exist_are_forgotten():
    broker = loaded(
        epoch_record("g", 2, 0), target_epoch_record("g", 2, 0), target_record("g", "missing", ((T4, (0, 1)),))
    )
    assert broker.enter("a", "t4").error is ErrorCode.NONE
    assert broker.state() in {"Stable", "Reconciling"}
    broker.beat("a", 3)
    assert sorted(broker.described().members[0].assignment[0].partitions) == [0, 1, 2, 3]


def test_a_state_of_a_later_release_fences_its_member_until_it_owns_nothing():
    """MemberState.UNKNOWN: the member must drop its partitions (CurrentAssignmentBuilder)."""
    value = to_bytes(current_record("g", member(state=MemberState.UNKNOWN, **ASSIGNED)))
    odd = Record(value.key, value.value.replace(b"\x7f", b"\x63"))
    broker = loaded(
        epoch_record("g", 2, 0),
        subscription_record("g", member()),
        target_epoch_record("g", 2, 0),
        target_record("g", "a", ((T4, (1,)),)),
        odd,
    )
    assert broker.beat("a", 2).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert broker.beat("a", 2, owned=owned(T4, 0)).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert broker.beat("a", 2, owned=()).error is ErrorCode.NONE


def test_compaction_in_any_legal_way_leaves_the_state_that_was_committed():
    """Compaction keeps the last record of each key, and any earlier ones; tombstones may be removed with them."""
    rng = random.Random(848)
    broker = ConsumerHarness()
    for step in (
        joining("a", "t4"),
        joining("b", "t4", "t5", instance_id="i"),
        heartbeat("a", 2),
        heartbeat("a", 2, owned=owned(T4, 0, 1)),
        heartbeat("b", 3, instance_id="i"),
        joining("c", "t4"),
        heartbeat("c", -1),
        heartbeat("a", 3),
        heartbeat("b", -2, instance_id="i"),
    ):
        assert broker.ask(step).error is ErrorCode.NONE
    records = [
        Record(bytes(key), value) for one in broker.log for read in read_batches(one) for key, value in read.records
    ]
    last = {record.key: index for index, record in enumerate(records)}
    for _ in range(200):
        first_kept = {key: rng.randrange(index + 1) for key, index in last.items()}
        kept = [
            record
            for index, record in enumerate(records)
            if index == last[record.key] or (index >= first_kept[record.key] and rng.random() < 0.5)
        ]
        if rng.random() < 0.5:
            removed = {record.key for record in kept if record.value is None and last[record.key] < len(records) - 3}
            kept = [record for record in kept if record.key not in removed]
        assert ConsumerHarness(log=[batch_of([one], 1_000_000) for one in kept]).described() == broker.described()
