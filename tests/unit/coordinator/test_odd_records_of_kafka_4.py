"""Well-formed records of Kafka 4's groups and share states, with any content, stop neither reader nor others.

As ``test_odd_records.py``, for the records of consumer groups (KIP-848), of share groups and of the states of share
partitions (KIP-932), which are made from their schemas. A record that makes no sense costs its group or its share
partition; the loaded rest can be used, through requests and timers, without an unexpected exception.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.odd_requests import OddRequests
from tests.unit.coordinator.consumer_groups.consumer_harness import IDS, ConsumerHarness
from tests.unit.coordinator.share_groups.harness import TOPICS, ShareGroupHarness
from tests.unit.coordinator.share_state.harness import TOPIC, ShareHarness

from tidegauge.consumer_groups import ConsumerGroupHeartbeat, DescribeConsumerGroup
from tidegauge.errors import ErrorCode
from tidegauge.groups import DeleteGroup, ListGroups, OffsetFetch
from tidegauge.kafka.coordinator import share_snapshot, share_update
from tidegauge.share_groups import (
    AlterShareOffsets,
    DeleteShareOffsets,
    DeleteShareState,
    DescribeShareGroup,
    InitializeShareState,
    ListSharePartitions,
    ReadShareState,
    ReadShareSummary,
    ShareGroupHeartbeat,
    SharePartitionKey,
    StateBatch,
    WriteShareState,
)
from tidegauge_broker.coordinator.consumer_group.records import KINDS as CONSUMER_KINDS
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.record_codec import Record, batch_of
from tidegauge_broker.coordinator.share_group.records import KINDS as SHARE_KINDS
from tidegauge_broker.coordinator.share_state.records import KINDS as STATE_KINDS
from tidegauge_broker.coordinator.typed_records import RecordKinds

SEEDS = 15
GROUPS = 100
"""Odd groups, or share partitions, of a seed: 1,500 in all."""
RECORDS = 6
"""The most records of a group."""
STEPS = 200
TIMES_MS = (0, 1, 1_000, 7_000, 60_000, 10**7)
EPOCHS = (0, 0, 0, 1, 2, -1, -2, 2**31 - 1, -(2**31))
MEMBERS = ("a", "b", "a", "")


class OddRecords(OddRequests):
    """Makes records; most numbers are likely ones, so that most groups are odd in one thing."""

    def __init__(self, rng: random.Random, topics: Mapping[str, bytes]) -> None:
        super().__init__(rng, topics)
        self.learned = {"member_id": list(MEMBERS)}
        self._likely = rng.choice((0.5, 0.8, 0.95))

    def _pool(self, api: str, name: str, kind: str) -> Any:
        if kind in {"int8", "int16", "int32", "int64"} and self._rng.random() < self._likely:
            return (0, 1, 2, 3) if kind == "int32" else (0, 1)
        return super()._pool(api, name, kind)


def damaged(rng: random.Random, record: Record) -> Record:
    """Return a record, its tombstone, or one with an unreadable value."""
    value = record.value
    assert value is not None
    return record._replace(value=rng.choice((*[value] * 12, None, value[:-1], b"\0\x63", b"")))


def odd_records(rng: random.Random, kinds: RecordKinds, topics: Mapping[str, bytes]) -> Iterator[Record]:
    """Yield records about many groups, in the order in which they are written."""
    types = list(kinds.kinds.values())
    for number in range(GROUPS):
        odd = OddRecords(rng, topics)
        for _ in range(rng.randint(1, RECORDS)):
            key_class, value_class = rng.choice(types)
            key = odd.value(key_class)
            key.group_id = f"g{number}"
            yield damaged(rng, kinds.to_bytes(key, odd.value(value_class)))


def log_of(rng: random.Random, records: Iterator[Record]) -> list[bytes]:
    keys = (b"", b"\0", b"\0\5", b"\0\x0b\0\0\5a", b"\0\x63x")
    noise = [Record(rng.choice(keys), rng.choice((None, b"x"))) for _ in range(3)]
    return [batch_of([record], 1) for record in (*noise, *records)]


def sleep(broker: Any, delay_ms: int) -> None:
    """Let time pass as for a machine that slept: the timers find themselves late, and have three turns."""
    broker.now_ms += delay_ms
    for _ in range(3):
        broker.carry_out(broker.coordinator.step(broker.now_ms))


def consumer_request(rng: random.Random, group: str) -> Any:
    one = rng.choice
    match one(("beat", "beat", "beat", "describe", "other")):
        case "beat":
            return ConsumerGroupHeartbeat(
                group, one(MEMBERS), one(EPOCHS), one((None, None, "i", "")), one((None, "r")),
                one((-1, 0, 6_000, 2**31 - 1, -(2**31))), one((None, ("t4",), ("t4", "t4", ""), ())),
                one((None, None, "t.*", "", "(")), one((None, "uniform", "range", "x")),
                one((None, (), ((IDS["t4"], (0, 1)),), ((IDS["t4"], (-1, 0, 0, 2**31 - 1)),))),
            )  # fmt: skip
        case "describe":
            return DescribeConsumerGroup(group)
        case _:
            return one((DeleteGroup(group), ListGroups(), OffsetFetch(group, None)))


def share_request(rng: random.Random, group: str) -> Any:
    one = rng.choice
    match one(("beat", "beat", "beat", "describe", "other")):
        case "beat":
            names = one((None, ("t2",), ("t2", "s1", "t2", ""), ()))
            return ShareGroupHeartbeat(group, one(MEMBERS), one(EPOCHS), one((None, "r")), names)
        case "describe":
            return one((DescribeShareGroup(group), ListSharePartitions(group)))
        case _:
            offsets = {"t2": {one((0, 1, 99, -1)): one((0, -1, 2**63 - 1, -(2**63)))}}
            return one(
                (DeleteGroup(group), ListGroups(), AlterShareOffsets(group, offsets), DeleteShareOffsets(group, ["t2"]))
            )


def live_with(rng: random.Random, broker: Any, request: Any, groups: list[str]) -> None:
    for _ in range(STEPS):
        broker.send(request(rng, rng.choice(groups)))
        if rng.random() < 0.3:
            sleep(broker, rng.choice(TIMES_MS))
    broker.resign(1)
    assert broker.coordinator.open_requests == 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_odd_records_of_consumer_groups_are_loaded_and_lived_with(seed: int) -> None:
    rng = random.Random(seed)
    sound = ConsumerHarness()
    sound.enter("a", "t4", group="sound")
    log = [*sound.log, *log_of(rng, odd_records(rng, RecordKinds(CONSUMER_KINDS), IDS))]
    broker = ConsumerHarness(log=log, now_ms=sound.now_ms)
    assert broker.coordinator.shard_states() == {0: ShardState.ACTIVE}
    assert broker.beat("a", 2, "sound").error is ErrorCode.NONE
    live_with(rng, broker, consumer_request, [f"g{number}" for number in range(GROUPS)])


@pytest.mark.parametrize("seed", range(SEEDS))
def test_odd_records_of_share_groups_are_loaded_and_lived_with(seed: int) -> None:
    rng = random.Random(seed)
    sound = ShareGroupHarness()
    joined = sound.beat(group="sound")
    topics = {name: topic_id for name, (topic_id, _) in TOPICS.items()}
    log = [*sound.log, *log_of(rng, odd_records(rng, SHARE_KINDS, topics))]
    broker = ShareGroupHarness(log=log, now_ms=sound.now_ms)
    assert broker.coordinator.shard_states() == {0: ShardState.ACTIVE}
    assert broker.beat(epoch=joined.member_epoch, group="sound").error is ErrorCode.NONE
    live_with(rng, broker, share_request, [f"g{number}" for number in range(GROUPS)])


INT64 = (0, 0, 1, 5, -1, -2, 2**63 - 1, -(2**63))


def odd_batches(rng: random.Random) -> tuple[StateBatch, ...]:
    one = rng.choice
    return tuple(
        StateBatch(one(INT64), one(INT64), one((0, 2, 4, 1, 99, -1)), one((1, 0, -1, 2**15 - 1)))
        for _ in range(one((0, 1, 1, 2, 3)))
    )


def state_request(rng: random.Random, group: str) -> Any:
    one = rng.choice
    key = SharePartitionKey(group, TOPIC, 0)
    match one(("initialize", "read", "write", "write", "delete", "summary")):
        case "initialize":
            return InitializeShareState(key, one(EPOCHS), one(INT64))
        case "read":
            return ReadShareState(key, one(EPOCHS))
        case "write":
            return WriteShareState(key, one(EPOCHS), one(EPOCHS), one(INT64), one((-1, 0, 7)), odd_batches(rng))
        case "delete":
            return DeleteShareState(key)
        case _:
            return ReadShareSummary(key, one(EPOCHS))


def odd_states(rng: random.Random) -> Iterator[Record]:
    """Yield records about the states of many share partitions."""
    for number in range(GROUPS):
        odd = OddRecords(rng, {"t": TOPIC})
        for _ in range(rng.randint(1, RECORDS)):
            key_class, value_class = rng.choice(list(STATE_KINDS.kinds.values()))
            value = odd.value(value_class)
            batch = (
                share_update.StateBatch if value_class is share_update.ShareUpdateValue else share_snapshot.StateBatch
            )
            value.state_batches = [batch(*map(int, one)) for one in odd_batches(rng)]
            yield damaged(rng, STATE_KINDS.to_bytes(key_class(f"g{number}", TOPIC, 0), value))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_odd_records_of_share_states_are_loaded_and_lived_with(seed: int) -> None:
    rng = random.Random(seed)
    sound = ShareHarness()
    key = SharePartitionKey("sound", TOPIC, 0)
    sound.ask(InitializeShareState(key, 1, 5))
    broker = ShareHarness(log=[*sound.log, *log_of(rng, odd_states(rng))], now_ms=sound.now_ms)
    assert broker.coordinator.shard_states() == {0: ShardState.ACTIVE}
    assert broker.ask(ReadShareState(key)).start_offset == 5
    refused = broker.coordinator._led.shards[0].refused
    assert sum("is out of service: " in line.text for line in broker.lines) == len(refused)
    live_with(rng, broker, state_request, [f"g{number}" for number in range(GROUPS)])
