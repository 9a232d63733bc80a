"""Requests that append in one turn wake the fetches that wait for them once (ReplicaManager.tryCompleteActions).

``wake_fetches`` completes the fetches that ``wake_later`` leaves parked, after any changes of the partitions.
"""

from __future__ import annotations

import random

import pytest
from lone_broker import ME, OTHER, A, B, C, LoneBroker, broker_of, fetch, role
from memory_broker import START_MS, make_batch

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.delayed_fetch import DelayedFetch
from tidegauge_broker.replica.messages import CONSUMER, ProducePartition, ProduceRequest

WAIT_MS = 500
STEPS = 120
BATCH_BYTES = len(make_batch("x"))


def append(broker: LoneBroker, *partitions: TopicPartition) -> None:
    """One batch for each, of which waiting fetches do not hear yet."""
    parts = [ProducePartition(at, make_batch("x")) for at in partitions]
    request = ProduceRequest(1, 1000, parts)
    broker.execute(broker.core.produce(request, object(), broker.now_ms, wake_later=True))


def wake(broker: LoneBroker) -> None:
    broker.execute(broker.core.wake_fetches(broker.now_ms))


def leading(*partitions: TopicPartition) -> LoneBroker:
    broker = broker_of(*partitions)
    role(broker, ME, 0)
    return broker


def sizes(broker: LoneBroker, token: object) -> dict[TopicPartition, int]:
    """How many batches of each partition a fetch was given."""
    return {one.topic_partition: len(one.records) // BATCH_BYTES for one in broker.fetched[token]}


def test_one_response_has_what_several_requests_have_appended() -> None:
    broker = leading(A, B)
    token = fetch(broker, {A: 0, B: 0}, wait_ms=WAIT_MS)
    append(broker, A)
    append(broker, B)
    append(broker, A)
    assert token not in broker.fetched
    assert broker.core.has_fetches_to_wake
    wake(broker)
    assert sizes(broker, token) == {A: 2, B: 1}
    assert not broker.core.has_fetches_to_wake


def test_nothing_is_to_be_woken_where_no_fetch_waits() -> None:
    """A turn of the event loop is not spent for it."""
    broker = leading(A, B)
    fetch(broker, {B: 0}, wait_ms=WAIT_MS)
    append(broker, A)
    assert not broker.core.has_fetches_to_wake
    assert list(broker.core.wake_fetches(broker.now_ms)) == []


def test_a_fetch_that_comes_before_the_others_are_woken_has_the_records_at_once() -> None:
    broker = leading(A)
    early = fetch(broker, {A: 0}, wait_ms=WAIT_MS)
    append(broker, A)
    assert sizes(broker, fetch(broker, {A: 0}, wait_ms=WAIT_MS)) == {A: 1}
    wake(broker)
    assert sizes(broker, early) == {A: 1}


def test_a_fetch_whose_leader_has_resigned_in_between_has_its_error_once() -> None:
    """The change of role completes it (Partition.makeFollower); nothing is left to wake."""
    broker = leading(A)
    token = fetch(broker, {A: 0}, wait_ms=WAIT_MS)
    append(broker, A)
    role(broker, OTHER, 1)
    [result] = broker.fetched[token]
    assert result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    wake(broker)  # the broker in memory refuses a second response


def test_a_fetch_whose_caller_is_gone_is_not_woken() -> None:
    broker = leading(A)
    token = fetch(broker, {A: 0}, wait_ms=WAIT_MS)
    append(broker, A)
    broker.core.cancel(token)
    wake(broker)
    assert token not in broker.fetched


@pytest.mark.parametrize("seed", range(40))
def test_after_the_waking_nothing_that_could_be_completed_still_waits(seed: int) -> None:
    """Against the dumb rule: each parked fetch is tried again, whichever partition it waits for."""
    chance = random.Random(seed)
    broker = leading(A, B, C)
    epoch = 0
    ends = dict.fromkeys((A, B, C), 0)
    for step in range(STEPS):
        broker.now_ms = START_MS + step
        some = chance.sample((A, B, C), chance.randint(1, 3))
        led = {at for at in ends if broker.core.partition(at).leader_role is not None}
        match chance.choice(["append", "append", "fetch", "consume", "role", "wake", "tick"]):
            case "append" if led:
                append(broker, *(found := [at for at in some if at in led]))
                ends |= {at: ends[at] + 1 for at in found}
            case "fetch":
                fetch(broker, {at: ends[at] for at in some}, wait_ms=chance.randint(1, WAIT_MS))
            case "consume":
                fetch(broker, {at: broker.core.high_watermarks()[at] for at in some}, CONSUMER, wait_ms=WAIT_MS)
            case "role":
                epoch += 1
                role(broker, chance.choice([ME, ME, OTHER]), epoch, of=some)
            case "tick":
                broker.execute(broker.core.tick(broker.now_ms))
            case _:
                wake(broker)
                waiting = list(broker.core.parked.fetches._waiting.values())
                assert not [one for one in waiting if _is_due(one)], step


def _is_due(operation: DelayedFetch) -> bool:
    return operation.try_complete([])
