"""Records of the internal topics that are well formed, with any content, stop neither their reader nor other groups.

A record that makes no sense costs its group or transactional id; the loaded rest can be used, through requests and
timers, without an exception that the coordinator does not expect. In Kafka a client with the id ``__admin_client`` may
write such records.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.coordinator.harness import T0, T1, Harness, subscription
from tests.unit.coordinator.test_odd_requests import OddGroups, odd_transaction_request
from tests.unit.coordinator.transaction_harness import OFFSETS_0, TransactionHarness

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupState
from tidegauge.kafka.coordinator.group_metadata import GroupMetadataValue, MemberMetadata
from tidegauge.kafka.coordinator.offset_commit import OffsetCommitValue
from tidegauge.kafka.coordinator.transaction_log import PartitionsSchema, TransactionLogValue
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.record_codec import Record, batch_of, encoded
from tidegauge_broker.coordinator.records import group_key, group_value, offset_key
from tidegauge_broker.coordinator.transaction.records import transaction_key

SEEDS = 15
GROUPS = 100
"""Odd groups, or transactional ids, of a seed: 1,500 in all."""
STEPS = 200
TIMES_MS = (0, 1, 1_000, 7_000, 60_000, 10**7)
INT32 = (0, 1, -1, 100, 60_000, 2**31 - 1, -(2**31))
INT64 = (0, -1, 10**6, 2**63 - 1, -(2**63))
SUBSCRIPTIONS = (b"", b"\0", subscription("t"), b"\xff" * 9, b"\0\1\0\0\xff\xff", b"\0\0\xff\xff\xff\xff")


def sleep(broker: Harness | TransactionHarness, delay_ms: int) -> None:
    """Let time pass as for a machine that slept: the timers find themselves late, and have three turns."""
    broker.now_ms += delay_ms
    for _ in range(3):
        broker.carry_out(broker.coordinator.step(broker.now_ms))


def odd_member(rng: random.Random, place: int) -> MemberMetadata:
    one = rng.choice
    return MemberMetadata(
        member_id=one((f"m{place}", f"m{place}", "m0", "")),
        group_instance_id=one((None, None, f"i{place}", "i0", "")),
        client_id="c",
        client_host="h",
        rebalance_timeout=one(INT32),
        session_timeout=one((6_000, 10_000, *INT32)),
        subscription=one(SUBSCRIPTIONS),
        assignment=one((b"", b"\0\0\0")),
    )


def odd_group(rng: random.Random) -> GroupMetadataValue:
    one = rng.choice
    return GroupMetadataValue(
        protocol_type=one(("consumer", "consumer", "consumer", "", "x")),
        generation=one((1, 1, 0, -1, 2**31 - 1, -(2**31))),
        protocol=one(("range", "range", None, "")),
        leader=one((None, "m0", "m0", "zz", "")),
        current_state_timestamp=one(INT64),
        members=[odd_member(rng, place) for place in range(one((0, 1, 2, 3)))],
    )


def odd_offset(rng: random.Random) -> bytes:
    one = rng.choice
    value = OffsetCommitValue(one(INT64), one(INT32), one(("", "x" * 300)), one(INT64), one(INT64))
    return one((encoded(value, one((0, 1, 2, 3))), b"", b"\0", b"\0\x63", encoded(value, 1)[:-3]))


def odd_log(rng: random.Random) -> list[bytes]:
    """Return batches about odd groups, one sound one, and none."""
    one = rng.choice
    records = [Record(one((b"", b"\0", b"\0\1\0\5a", b"\x00\x63x", b"\0\2\0\x09g")), one((None, b"x")))]
    for number in range(GROUPS):
        group, value = f"g{number}", odd_group(rng)
        whole = group_value(value)
        records.append(Record(group_key(group), one((whole, whole, whole, whole, whole[:-1], b"\0\x63", None))))
        partitions = (T0, T1)[: one((0, 0, 1, 2))]
        records += [Record(offset_key(group, at), odd_offset(rng)) for at in partitions]
    rng.shuffle(records)
    return [batch_of([record], 1, transactional_producer=one((None, None, None, (7, 0)))) for record in records]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_odd_records_of_groups_are_loaded_and_lived_with(seed: int) -> None:
    rng = random.Random(seed)
    sound = Harness()
    members = sound.stable_group(2, "sound")
    sound.commit(5, group="sound", member_id=members[0], generation=1)
    broker = Harness(elected=False, log=[*sound.log, *odd_log(rng)], now_ms=sound.now_ms)
    broker.elect(0)
    assert broker.coordinator.shard_states() == {0: ShardState.ACTIVE}
    assert [broker.heartbeat(one, group="sound") for one in members] == [ErrorCode.NONE] * 2
    assert broker.offset(group="sound").offset == 5
    refused = broker.coordinator._shards[0].refused
    assert sum("is out of service: " in line.text for line in broker.lines) == len(refused) > GROUPS // 4
    assert {one.group_id for one in broker.coordinator.group_views()}.isdisjoint(refused)
    served = [one.group_id for one in broker.coordinator.group_views() if one.members and one.group_id != "sound"]
    odd = OddGroups(rng, broker, [*served, *list(refused)[:2]])
    for _ in range(STEPS):
        broker.send(odd.request())
        if rng.random() < 0.3:
            sleep(broker, rng.choice(TIMES_MS))
        if rng.random() < 0.02:
            broker.complete_transaction()
    broker.resign(1)
    assert broker.coordinator.open_requests == 0


def sound_member(**fields: Any) -> MemberMetadata:
    return MemberMetadata(
        **{
            "member_id": "m0",
            "group_instance_id": None,
            "client_id": "c",
            "client_host": "h",
            "rebalance_timeout": 1_000,
            "session_timeout": 6_000,
            "subscription": b"",
            "assignment": b"",
        }
        | fields
    )


def sound_value(**fields: Any) -> GroupMetadataValue:
    return GroupMetadataValue(
        **{
            "protocol_type": "consumer",
            "generation": 1,
            "protocol": "range",
            "leader": "m0",
            "current_state_timestamp": 1,
            "members": [sound_member()],
        }
        | fields
    )


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"leader": "zz"}, "its leader 'zz' is not a member"),
        ({"members": []}, "its leader 'm0' is not a member"),
        ({"generation": -1}, "its generation is negative, -1"),
        ({"members": [sound_member(), sound_member()]}, "two members have the id 'm0'"),
        ({"leader": None, "members": [sound_member(member_id="")]}, "a member has an empty id"),
        (
            {"members": [sound_member(group_instance_id="i"), sound_member(member_id="m1", group_instance_id="i")]},
            "two members have the group instance id 'i'",
        ),
        ({"protocol_type": ""}, "it has members and no protocol type"),
        ({"protocol": None}, "it has members and no protocol"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_record_that_makes_no_sense_costs_its_group(fields: dict[str, Any], cause: str) -> None:
    """GroupMetadata.loadGroup takes it, and a later request meets the contradiction."""
    log = [batch_of([Record(group_key("g"), group_value(sound_value(**fields)))], 1)]
    broker = Harness(log=log)
    (line,) = [line.text for line in broker.lines if "out of service" in line.text]
    assert f"its record makes no sense: {cause}. " in line
    assert broker.heartbeat("m0") is ErrorCode.UNKNOWN_SERVER_ERROR
    broker.log.append(batch_of([Record(group_key("g"), group_value(sound_value()))], 1))
    broker.reload()
    assert broker.heartbeat("m0") is ErrorCode.NONE, "the last record counts"


def test_a_group_whose_record_names_no_leader_is_led_by_its_first_member() -> None:
    """GroupMetadata.add, which loadGroup calls for each member."""
    members = [sound_member(), sound_member(member_id="m1")]
    value = sound_value(leader=None, members=members)
    broker = Harness(log=[batch_of([Record(group_key("g"), group_value(value))], 1)])
    assert (broker.group().state, broker.group().leader) == (GroupState.STABLE, "m0")


def test_an_offset_that_cannot_be_read_costs_its_group_until_it_is_committed_again() -> None:
    """Served without it, a consumer would begin at its reset policy."""
    keys = [offset_key(group, T0) for group in ("g", "h")]
    broker = Harness(log=[batch_of([Record(key, b"\0\x63")], 1) for key in keys])
    assert broker.committed(broker.commit(group="g")) is ErrorCode.UNKNOWN_SERVER_ERROR
    sound = Harness()
    sound.commit(9, group="h")
    broker.log += sound.log
    broker.reload()
    assert broker.offset(group="h").offset == 9
    assert broker.committed(broker.commit(group="g")) is ErrorCode.UNKNOWN_SERVER_ERROR


def odd_transaction(rng: random.Random) -> TransactionLogValue:
    one = rng.choice
    partitions = [
        PartitionsSchema(one(("t", "__consumer_offsets", "")), [one((0, 1, -5))]) for _ in range(one((0, 1, 2)))
    ]
    return TransactionLogValue(
        producer_id=one((0, 7, 7, *INT64)),
        producer_epoch=one((0, 1, -1, 2**15 - 1, 2**15 - 2, -(2**15))),
        transaction_timeout_ms=one((60_000, 60_000, *INT32)),
        transaction_status=one(range(9)),
        transaction_partitions=one((None, partitions, partitions)),
        transaction_last_update_timestamp_ms=one(INT64),
        transaction_start_timestamp_ms=one(INT64),
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_odd_records_of_transactions_are_loaded_and_lived_with(seed: int) -> None:
    rng = random.Random(seed)
    one = rng.choice
    sound = TransactionHarness()
    sound.init(name="sound")
    sound.add(T0, name="sound")
    records = [Record(one((b"", b"\0", b"\0\0\0\5a", b"\0\x63x")), one((None, b"x")))]
    for number in range(GROUPS):
        whole = encoded(odd_transaction(rng), 0)
        value = one((whole, whole, whole, whole, whole[:-1], b"\0\x63", None))
        records.append(Record(transaction_key(f"x{number}"), value))
    log = [*sound.log, *(batch_of([record], 1) for record in records)]
    broker = TransactionHarness(elected=False, log=log, now_ms=sound.now_ms)
    broker.elect(0)
    assert broker.coordinator.shard_states() == {0: ShardState.ACTIVE}
    refused = broker.coordinator._led.shards[0].refused
    assert sum("is out of service: " in line.text for line in broker.lines) == len(refused) > GROUPS // 4
    names = [*(f"x{number}" for number in range(GROUPS)), "sound"]
    for _ in range(STEPS):
        broker.send(odd_transaction_request(rng, broker, one(names)))
        broker.holds_markers = rng.random() < 0.3
        if broker.markers and rng.random() < 0.5:
            one((broker.write_markers, broker.lose_markers))()
        if rng.random() < 0.3:
            sleep(broker, one(TIMES_MS))
    while broker.markers:
        broker.write_markers()
    broker.resign(1)
    assert broker.coordinator.open_requests == 0


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"transaction_status": 6}, "the state Dead is never written"),
        ({"transaction_status": 7}, "the state PrepareEpochFence is never written"),
        ({"producer_id": -1}, "its producer id is negative, -1"),
        ({"producer_epoch": -1}, "its producer epoch is negative, -1"),
        ({"producer_epoch": 2**15 - 1}, "its epoch 32767 belongs to an abort, and the transaction is open"),
        ({"transaction_timeout_ms": 0}, "its timeout is 0 ms"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_record_that_makes_no_sense_costs_its_transactional_id(fields: dict[str, Any], cause: str) -> None:
    """TransactionLog.readTxnRecordValue takes it, and a later request fails with IllegalStateException."""
    value = TransactionLogValue(
        **{
            "producer_id": 7,
            "producer_epoch": 0,
            "transaction_timeout_ms": 60_000,
            "transaction_status": 1,
            "transaction_partitions": [PartitionsSchema("t", [0]), PartitionsSchema(OFFSETS_0.topic, [0])],
            "transaction_last_update_timestamp_ms": 1,
            "transaction_start_timestamp_ms": 1,
        }
        | fields
    )
    broker = TransactionHarness(log=[batch_of([Record(transaction_key("tx"), encoded(value, 0))], 1)])
    (line,) = [line.text for line in broker.lines if "out of service" in line.text]
    assert f"a transaction's value makes no sense: {cause}. " in line
    assert broker.describe().error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.error(broker.send_init()) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.init(name="other").error is ErrorCode.NONE
