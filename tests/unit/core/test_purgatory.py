"""Purgatories, and the outcome of produce and fetch (DelayedProduce, DelayedFetch).

Each wake-up (Partition.tryCompleteDelayedRequests) is tested event by event. So are both errors of
min.insync.replicas, the timeouts, and that each operation responds exactly once. The harness refuses a second response
to any token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from core_harness import AT, FETCH_WAIT_MS, Cluster
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_broker import make_batch

from tidegauge.control import StopReplicaPartition, StopReplicaRequest
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import CONTROL_BIT, LOG_APPEND_TIME_BIT, patch
from tidegauge_broker.replica.effects import Effect, RespondToFetch
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.messages import (
    CONSUMER,
    CoreSettings,
    FetchPartition,
    FetchRequest,
    ProducePartition,
    ProduceRequest,
    TopicRules,
)
from tidegauge_broker.waiting.purgatory import PURGE_INTERVAL, Purgatory

NONE = ErrorCode.NONE
OTHER = TopicPartition(AT.topic, 1)


# The purgatory itself


@dataclass(slots=True)
class Waiter:
    """Completes once ``is_ready``; counts its responses."""

    token: object
    deadline_ms: int
    keys: tuple[TopicPartition, ...]
    is_ready: bool = False
    responses: list[str] = field(default_factory=list)
    tried: int = 0

    def try_complete(self, out: list[Effect]) -> bool:
        self.tried += 1
        if self.is_ready:
            self.responses.append("completed")
        return self.is_ready

    def expire(self, out: list[Effect]) -> None:
        self.responses.append("expired")


def test_what_is_ready_never_waits():
    purgatory: Purgatory[Waiter] = Purgatory()
    waiter = Waiter("a", 10, (AT,), is_ready=True)
    assert purgatory.try_or_watch(waiter, [])
    assert (len(purgatory), purgatory.next_deadline_ms()) == (0, None)
    assert (purgatory.check(AT, []), purgatory.expire(99, [])) == (0, 0)
    assert waiter.responses == ["completed"]


def test_only_those_who_watch_a_key_are_tried_and_the_oldest_first():
    purgatory: Purgatory[Waiter] = Purgatory()
    one, both, other = (Waiter(name, 10, keys) for name, keys in (("1", (AT,)), ("2", (AT, OTHER)), ("3", (OTHER,))))
    for waiter in (one, both, other):
        purgatory.try_or_watch(waiter, [])
    one.is_ready = both.is_ready = other.is_ready = True
    assert purgatory.check(AT, []) == 2
    assert (one.tried, both.tried, other.tried) == (2, 2, 1)
    assert purgatory.check(OTHER, []) == 1
    assert len(purgatory) == 0


def test_deadlines_come_in_order_and_stale_ones_do_not_count():
    purgatory: Purgatory[Waiter] = Purgatory()
    late, early, gone = Waiter("late", 30, (AT,)), Waiter("early", 20, (AT,)), Waiter("gone", 10, (AT,))
    for waiter in (late, early, gone):
        purgatory.try_or_watch(waiter, [])
    assert purgatory.cancel("gone")
    assert not purgatory.cancel("gone")
    assert purgatory.next_deadline_ms() == 20
    assert purgatory.expire(19, []) == 0
    assert purgatory.expire(20, []) == 1
    assert purgatory.expire(99, []) == 1
    assert (late.responses, early.responses, gone.responses) == (["expired"], ["expired"], [])


def test_what_an_expiring_operation_parks_waits_for_the_next_call():
    """Even if it is due at once: else a call would never end."""
    purgatory: Purgatory[Waiter] = Purgatory()

    class Again(Waiter):
        def expire(self, out: list[Effect]) -> None:
            purgatory.watch(Again(f"{self.token}+", 0, (AT,)))

    purgatory.watch(Again("a", 10, (AT,)))
    assert [purgatory.expire(10, []) for _ in range(3)] == [1, 1, 1]
    assert (len(purgatory), purgatory.next_deadline_ms()) == (1, 0)


def test_stale_deadlines_do_not_pile_up():
    """A producer's operations end long before their 30 s, thousands in a second."""
    purgatory: Purgatory[Waiter] = Purgatory()
    stays = Waiter("stays", 10**6, (AT,))
    purgatory.try_or_watch(stays, [])
    for number in range(5 * PURGE_INTERVAL):
        waiter = Waiter(number, 10**6 - number % 3, (AT,))
        purgatory.try_or_watch(waiter, [])
        waiter.is_ready = True
        purgatory.check(AT, [])
    assert len(purgatory.deadlines) <= 2 * PURGE_INTERVAL
    assert len(purgatory) == 1
    assert purgatory.next_deadline_ms() == 10**6
    assert purgatory.expire(10**6, []) == 1
    assert stays.responses == ["expired"]


def test_what_was_tried_for_one_key_of_a_step_is_not_tried_again_for_the_next():
    purgatory: Purgatory[Waiter] = Purgatory()
    both, one = Waiter("both", 10, (AT, OTHER)), Waiter("one", 10, (OTHER,))
    purgatory.watch(both)
    purgatory.watch(one)
    step: set[int] = set()
    assert [purgatory.check(key, [], tried=step) for key in (AT, OTHER, AT)] == [0, 0, 0]
    assert (both.tried, one.tried) == (1, 1)
    both.is_ready = True
    assert purgatory.check(AT, [], tried=set(), only=lambda waiter: waiter is one) == 0
    assert [purgatory.check(OTHER, [], tried=set()), both.tried, one.tried] == [1, 2, 2]


def test_a_fetch_of_many_partitions_is_looked_at_once_in_a_step(monkeypatch: pytest.MonkeyPatch):
    """A follower's fetch that moves every high watermark reads each partition once, and no other follower's again."""
    count = 8
    all_of_them = [TopicPartition(AT.topic, index) for index in range(count)]
    cluster = Cluster(partitions=count)
    cluster.settle()
    cluster.produce(1, "a", partitions=all_of_them)
    cluster.fetch(2)
    cluster.fetch(3)
    consumer = cluster.consume(1, *[0] * count, wait_ms=10_000)
    reads: list[int] = []
    read = Leader.read
    monkeypatch.setattr(
        Leader,
        "read",
        lambda self, wanted, replica_id, **how: (
            reads.append(replica_id),
            read(self, wanted, replica_id, **how),
        )[1],
    )
    cluster.park(2)
    assert not consumer.is_completed
    cluster.park(3)
    assert [result.high_watermark for result in consumer.results] == [1] * count
    assert {replica_id: reads.count(replica_id) for replica_id in set(reads)} == {2: count, 3: count, CONSUMER: count}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 5), st.sampled_from([(AT,), (OTHER,), (AT, OTHER)])),
            st.tuples(st.just("ready"), st.integers(0, 20), st.none()),
            st.tuples(st.just("check"), st.integers(0, 1), st.none()),
            st.tuples(st.just("expire"), st.integers(0, 3), st.none()),
            st.tuples(st.just("cancel"), st.integers(0, 20), st.none()),
        ),
        max_size=40,
    )
)
def test_each_operation_responds_exactly_once_unless_cancelled(steps: list[tuple[str, int, object]]):
    purgatory: Purgatory[Waiter] = Purgatory()
    waiters: list[Waiter] = []
    cancelled: set[object] = set()
    now_ms = 0
    for name, number, keys in steps:
        match name:
            case "add":
                waiters.append(Waiter(len(waiters), now_ms + number, keys))
                purgatory.try_or_watch(waiters[-1], [])
            case "ready" if number < len(waiters):
                waiters[number].is_ready = True
            case "check":
                key = (AT, OTHER)[number]
                purgatory.check(key, [])
                waiting = [w for w in waiters if not w.responses and w.token not in cancelled]
                assert not [w for w in waiting if w.is_ready and key in w.keys]
            case "expire":
                now_ms += number
                purgatory.expire(now_ms, [])
                waiting = [w for w in waiters if not w.responses and w.token not in cancelled]
                assert not [w for w in waiting if w.deadline_ms <= now_ms]
            case "cancel" if purgatory.cancel(number):
                cancelled.add(number)
        waiting = [w for w in waiters if not w.responses and w.token not in cancelled]
        assert len(purgatory) == len(waiting)
        assert purgatory.next_deadline_ms() == min((w.deadline_ms for w in waiting), default=None)
    purgatory.expire(10**6, [])
    assert [len(w.responses) for w in waiters] == [0 if w.token in cancelled else 1 for w in waiters]


# Produce: when it completes


def quiet(**arguments: object) -> Cluster:
    cluster = Cluster(**arguments)
    cluster.settle()
    return cluster


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_0_and_1_complete_with_the_append(acks: int):
    cluster = quiet()
    produce = cluster.produce(1, "a", acks=acks)
    assert (produce.error, produce.result.base_offset, produce.result.log_start_offset) == (NONE, 0, 0)
    assert cluster.ends(1) == [(1, 0)]


def test_acks_all_waits_for_the_high_watermark():
    cluster = quiet()
    produce = cluster.produce(1, "a", "b")
    for follower in (2, 3, 2):
        cluster.fetch(follower)
        assert not produce.is_completed
    cluster.fetch(3)
    assert (produce.error, produce.result.base_offset) == (NONE, 0)


def test_acks_all_with_a_leader_alone_completes_at_once():
    cluster = quiet(brokers=(1,), assignment=(1,))
    assert cluster.produce(1, "a").error is NONE


@pytest.mark.parametrize("acks", [-2, 2, 3])
def test_other_acks_are_refused(acks: int):
    cluster = quiet()
    produce = cluster.produce(1, "a", acks=acks)
    assert (produce.error, produce.result.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert cluster.ends(1) == [(0, 0)]


def test_the_time_is_over_but_the_record_stays_and_commits_later():
    """Case C of 2.2; a retry without idempotence therefore writes twice."""
    cluster = quiet()
    produce = cluster.produce(1, "a", timeout_ms=1000)
    cluster.advance(999)
    assert not produce.is_completed
    assert cluster.brokers[1].core.next_deadline_ms() == cluster.now_ms + 1
    cluster.advance(1)
    assert (produce.error, produce.result.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    cluster.settle()
    assert cluster.ends(1) == [(1, 1)]


def test_too_few_in_sync_replicas_before_the_append_refuse_it():
    """Error 19. Nothing is appended. Acks 0 and 1 do not ask."""
    cluster = quiet(rules=TopicRules(min_insync_replicas=2))
    cluster.impose(1, [1])
    cluster.deliver()
    produce = cluster.produce(1, "a")
    assert (produce.error, produce.result.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert cluster.ends(1) == [(0, 0)]
    assert cluster.produce(1, "a", acks=1).error is NONE


def test_too_few_in_sync_replicas_after_the_append():
    """Error 20: the mark is there, but meanwhile the ISR is too small; the record stays and is committed.

    Since 3.7 no course of events leads there, as the mark is frozen while the ISR is too small; only a setting that
    rises between the mark's move and the look at who waits. So the mark is moved by hand here.
    """
    cluster = quiet()
    produce = cluster.produce(1, "a")
    cluster.impose(1, [1])
    partition = cluster.partition(1)
    partition.set_high_watermark(1, "Test", [])
    cluster.brokers[1].core.configure_topic(AT.topic, TopicRules(min_insync_replicas=2))
    cluster.deliver(1)
    assert (produce.error, produce.result.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)
    assert cluster.ends(1) == [(1, 1)]


def test_a_leader_that_becomes_a_follower_completes_parked_requests():
    cluster = quiet()
    produce = cluster.produce(1, "a")
    consumer = cluster.consume(1, 0, wait_ms=10_000)
    cluster.impose(2, [2, 3, 1])
    cluster.deliver()
    assert produce.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert consumer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert consumer.result.leader_hint == (2, 1)


def test_a_leader_that_stays_leader_in_a_new_epoch_goes_on_waiting():
    """Another epoch with the same leader does not fail the operation."""
    cluster = quiet()
    produce = cluster.produce(1, "a")
    cluster.impose(1, [1, 2])
    cluster.deliver()
    assert not produce.is_completed
    cluster.settle()
    assert (produce.error, produce.result.base_offset) == (NONE, 0)


@pytest.mark.parametrize(("delete", "response"), [(False, None), (True, ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_a_stopped_replica(delete: bool, response: ErrorCode | None):
    """StopReplica makes the purgatories look; a deleted partition is not hosted any more."""
    cluster = quiet()
    produce = cluster.produce(1, "a")
    header = cluster.request_of().header
    cluster.hand_over(1, StopReplicaRequest(header, [StopReplicaPartition(AT, None, delete)]))
    assert produce.error is response


def test_a_failed_directory_completes_parked_requests():
    cluster = quiet()
    produce = cluster.produce(1, "a")
    consumer = cluster.consume(1, 0, wait_ms=10_000)
    follower = cluster.park(2)
    broker = cluster.brokers[1]
    cluster.deliver_response(follower)
    follower = cluster.park(2)
    broker.execute(broker.core.log_dir_failed([AT]))
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    assert [produce.error, consumer.error, follower.response.error] == [storage] * 3
    assert cluster.produce(1, "b").error is storage
    assert broker.core.high_watermarks() == {}


def test_a_request_of_two_partitions_has_one_response():
    """DelayedProduce: it ends when no partition waits; one that failed at once keeps its error and does not count."""
    cluster = quiet(partitions=2)
    both = cluster.produce(1, "a", partitions=(AT, OTHER))
    for follower in (2, 3):
        cluster.fetch(follower)
    cluster.impose(2, [2, 3, 1], at=OTHER)
    cluster.deliver()
    assert not both.is_completed
    cluster.settle()
    assert [(result.error, result.base_offset) for result in both.results] == [
        (NONE, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
    ]
    half = cluster.produce(1, "b", partitions=(OTHER, AT))
    assert not half.is_completed
    cluster.settle()
    assert [result.error for result in half.results] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, NONE]
    none = cluster.produce(1, "b", partitions=(OTHER,))
    assert none.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_take_no_records_from_clients(topic: str):
    """ReplicaManager.appendToLocalLog: INVALID_TOPIC_EXCEPTION, whoever leads it."""
    produce = quiet().produce(1, "a", acks=1, partitions=(TopicPartition(topic, 0), AT))
    assert [result.error for result in produce.results] == [ErrorCode.INVALID_TOPIC_EXCEPTION, NONE]
    assert produce.results[0].message == f"Cannot append to internal topic {topic}"


def test_a_partition_may_stand_once_in_a_request():
    cluster = quiet()
    produce = cluster.produce(1, "a", acks=1, partitions=(AT, AT))
    assert [result.error for result in produce.results] == [NONE, ErrorCode.INVALID_REQUEST]
    assert cluster.ends(1) == [(1, 0)]


# Produce: refusals, and which error comes first (UnifiedLog.append)


def patched(**fields: int) -> bytes:
    data = bytearray(make_batch("a", "b"))
    patch(data, 0, fields.get("base_offset", 0), -1)
    if "crc" in fields:
        data[20] ^= fields["crc"]
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "rules", "error"),
    [
        (b"", {}, ErrorCode.INVALID_RECORD),
        (make_batch("a") * 2, {}, ErrorCode.INVALID_RECORD),
        (make_batch("a")[:-1], {}, ErrorCode.CORRUPT_MESSAGE),
        (patched(crc=1), {}, ErrorCode.CORRUPT_MESSAGE),
        (patched(base_offset=5), {}, ErrorCode.INVALID_RECORD),
        (make_batch("a" * 200), {"max_message_bytes": 200}, ErrorCode.MESSAGE_TOO_LARGE),
        (make_batch("a" * 200), {"segment_bytes": 200}, ErrorCode.RECORD_LIST_TOO_LARGE),
        (patched(crc=1), {"max_message_bytes": 10}, ErrorCode.MESSAGE_TOO_LARGE),
        (make_batch("a", producer_id=1, producer_epoch=0), {}, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_batch_that_breaks_a_rule_is_refused(records: bytes, rules: dict[str, int], error: ErrorCode):
    cluster = quiet(rules=TopicRules(**rules))
    produce = cluster.produce(1, records=records)
    assert (produce.error, produce.result.base_offset) == (error, -1)
    assert produce.result.message
    assert cluster.ends(1) == [(0, 0)]


@pytest.mark.parametrize("limit", ["max_message_bytes", "segment_bytes"])
def test_a_batch_as_large_as_a_limit_is_taken_and_one_byte_more_is_not(limit: str):
    """UnifiedLog.analyzeAndValidateRecords and append: each limit is the largest size that is allowed."""
    records = make_batch("a" * 200)
    assert quiet(rules=TopicRules(**{limit: len(records)})).produce(1, records=records, acks=1).error is NONE
    assert quiet(rules=TopicRules(**{limit: len(records) - 1})).produce(1, records=records, acks=1).error is not NONE


def test_too_few_replicas_come_before_what_is_wrong_with_the_batch():
    cluster = quiet(rules=TopicRules(min_insync_replicas=2, max_message_bytes=100))
    cluster.impose(1, [1])
    cluster.deliver()
    assert cluster.produce(1, "a" * 200).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.produce(1, "a" * 200, acks=1).error is ErrorCode.MESSAGE_TOO_LARGE
    assert cluster.produce(1, records=make_batch("a") * 2).error is ErrorCode.INVALID_RECORD


def test_control_batches_come_from_no_client():
    """UnifiedLog.analyzeAndValidateRecords: clients are not allowed to write control records."""
    data = bytearray(make_batch("a"))
    data[22] |= CONTROL_BIT
    assert quiet().produce(1, records=bytes(data)).error is ErrorCode.CORRUPT_MESSAGE  # the CRC covers the attributes
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    assert quiet().produce(1, records=bytes(data)).error is ErrorCode.INVALID_RECORD


def test_a_compacted_topic_wants_keys():
    """LogValidator.validateKey; an empty key is one."""
    cluster = quiet(rules=TopicRules(compacted=True))
    refused = cluster.produce(1, "a")
    assert (refused.error, refused.result.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert "without key" in refused.result.message
    assert cluster.ends(1) == [(0, 0)]
    for offset, key in enumerate(("k", "")):
        assert cluster.produce(1, "a", acks=1, key=key).result.base_offset == offset


@pytest.mark.parametrize(
    ("times_ms", "log_append_time", "error"),
    [
        ((-100, 0, 20), False, ErrorCode.NONE),  # both bounds are inclusive
        ((0, -101, 0), False, ErrorCode.INVALID_TIMESTAMP),
        ((0, 0, 21), False, ErrorCode.INVALID_TIMESTAMP),
        ((-101, 0, 21), True, ErrorCode.NONE),  # the leader's time counts, not the producer's
    ],
)
def test_a_producers_times_are_held_to_the_topics_limits(
    times_ms: tuple[int, ...], log_append_time: bool, error: ErrorCode
):
    """message.timestamp.before.max.ms and .after.max.ms, for each record (KIP-937)."""
    rules = TopicRules(timestamp_before_max_ms=100, timestamp_after_max_ms=20, log_append_time=log_append_time)
    cluster = quiet(rules=rules)
    produce = cluster.produce(1, *"abc", acks=1, times_ms=[cluster.now_ms + ms for ms in times_ms])
    assert produce.error is error
    assert cluster.ends(1)[0][0] == (3 if error is ErrorCode.NONE else 0)
    named = [one.message for one in produce.result.record_errors]
    assert len(named) == (0 if error is ErrorCode.NONE else 1)
    assert all("is out of range" in message for message in named)


def test_a_producer_may_not_claim_the_leaders_clock():
    """LogValidator.validateTimestamp: it is refused where the leader's clock counts, and ignored elsewhere."""
    data = bytearray(make_batch("a"))
    data[22] |= LOG_APPEND_TIME_BIT
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    refused = quiet(rules=TopicRules(log_append_time=True)).produce(1, records=bytes(data))
    assert refused.error is ErrorCode.INVALID_TIMESTAMP
    cluster = quiet()
    assert cluster.produce(1, records=bytes(data), acks=1).error is ErrorCode.NONE
    [(_, _, stored)] = cluster.content(1)
    assert not stored[22] & LOG_APPEND_TIME_BIT


def test_records_that_cant_be_decoded_are_refused_where_they_are_looked_at():
    """The CRC is right, the record's length is not."""
    data = bytearray(make_batch("a", key="k"))
    data[61] = 0x7F
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    cluster = quiet(rules=TopicRules(compacted=True))
    assert cluster.produce(1, records=bytes(data)).error is ErrorCode.INVALID_RECORD


def test_log_append_time_is_the_leaders_clock():
    cluster = quiet(rules=TopicRules(log_append_time=True))
    assert cluster.produce(1, "a", acks=1).result.log_append_time_ms == cluster.now_ms
    assert quiet().produce(1, "a", acks=1).result.log_append_time_ms == -1


# Fetch: what wakes it


def test_an_append_wakes_followers_a_commit_wakes_consumers():
    cluster = quiet()
    follower, consumer = cluster.park(2), cluster.consume(1, 0, wait_ms=10_000)
    cluster.produce(1, "a", acks=1)
    assert (follower.is_completed, consumer.is_completed) == (True, False)
    cluster.deliver_response(follower)
    cluster.fetch(3)
    cluster.fetch(2)
    assert not consumer.is_completed
    cluster.fetch(3)
    assert consumer.result.records == cluster.content(1)[0][2]


def test_an_append_that_commits_at_once_wakes_consumers():
    """A leader alone in its ISR: the bytes are in the log only after the step, yet the consumer is woken by it."""
    cluster = quiet(brokers=(1,), assignment=(1,))
    consumer = cluster.consume(1, 0, wait_ms=10_000)
    cluster.produce(1, "a", acks=1)
    assert consumer.result.records == cluster.content(1)[0][2]


def test_min_bytes_are_counted_over_appends_and_partitions():
    cluster = quiet(brokers=(1,), assignment=(1,), partitions=2)
    core = cluster.brokers[1].core
    size = len(make_batch("a"))
    wanted = [FetchPartition(at, 0, 1 << 20) for at in (AT, OTHER)]
    token = object()
    effects = core.fetch(FetchRequest(CONSUMER, 10_000, 3 * size, 1 << 20, wanted), token, cluster.now_ms)
    cluster.brokers[1].execute(effects)
    cluster.produce(1, "a", acks=1)
    cluster.produce(1, "a", acks=1, partitions=(OTHER,))
    assert token not in cluster.brokers[1].fetched
    cluster.produce(1, "a", acks=1, partitions=(OTHER,))
    responses = cluster.brokers[1].fetched[token]
    assert [len(response.records) for response in responses] == [size, 2 * size]


def test_what_one_partition_may_give_counts_at_most_its_own_limit():
    """Available bytes of a partition are capped by its max_bytes."""
    cluster = quiet(brokers=(1,), assignment=(1,))
    cluster.produce(1, "a" * 500, acks=1)
    broker, token = cluster.brokers[1], object()
    request = FetchRequest(CONSUMER, 1000, 400, 1 << 20, [FetchPartition(AT, 0, 100)])
    broker.execute(broker.core.fetch(request, token, cluster.now_ms))
    assert token not in broker.fetched
    cluster.advance(1000)
    assert len(broker.fetched[token][0].records) > 500  # one whole batch all the same


def test_a_consumers_response_is_limited_by_the_broker_a_followers_is_not():
    """fetch.max.bytes caps consumers."""
    cluster = quiet(settings=CoreSettings(fetch_max_bytes=1000))
    core = cluster.brokers[1].core
    for replica_id, limit in ((CONSUMER, 1000), (2, 5000)):
        (response,) = [
            effect
            for effect in core.fetch(FetchRequest(replica_id, 0, 1, 5000, [FetchPartition(AT, 0, 10)]), "t", 1)
            if isinstance(effect, RespondToFetch)
        ]
        assert response.max_bytes == limit


def test_an_error_in_one_partition_completes_the_whole_fetch_at_once():
    cluster = quiet(partitions=2)
    cluster.impose(2, [2, 3, 1], at=OTHER)
    cluster.deliver()
    fetch = cluster.consume(1, 0, 0, wait_ms=10_000)
    assert [result.error for result in fetch.results] == [NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_fetch_that_waits_ends_in_time_with_what_there_is():
    cluster = quiet()
    consumer = cluster.consume(1, 0, wait_ms=FETCH_WAIT_MS)
    cluster.advance(FETCH_WAIT_MS - 1)
    assert not consumer.is_completed
    cluster.advance(1)
    assert (consumer.result.error, consumer.result.records, consumer.result.high_watermark) == (NONE, b"", 0)


def test_a_fetch_of_nothing_or_without_patience_does_not_wait():
    cluster = quiet()
    assert cluster.consume(1, wait_ms=1000).results == []
    assert cluster.consume(1, 0, wait_ms=0).result.records == b""


def test_a_parked_fetch_of_an_older_epoch_hears_it_when_it_is_looked_at():
    """DelayedFetch: fenced epochs complete a parked fetch with the error."""
    cluster = quiet()
    follower = cluster.park(2)
    cluster.impose(1, [1, 2, 3])
    cluster.deliver(1)
    cluster.produce(1, "a", acks=1)
    assert follower.response.error is ErrorCode.FENCED_LEADER_EPOCH


# Cancel


def test_a_client_that_disconnected_gets_no_response():
    cluster = quiet()
    produce, consumer = cluster.produce(1, "a"), cluster.consume(1, 0, wait_ms=1000)
    core = cluster.brokers[1].core
    core.cancel(produce)
    core.cancel(consumer)
    core.cancel(object())
    cluster.settle()
    cluster.advance(60_000)
    assert (produce.is_completed, consumer.is_completed) == (False, False)
    assert cluster.ends(1) == [(1, 1)]


def test_the_next_deadline_is_that_of_what_waits_or_of_the_next_look_at_laggards():
    cluster = quiet()
    cluster.advance(0)
    core = cluster.brokers[1].core
    assert core.next_deadline_ms() == cluster.now_ms + 15_000
    cluster.consume(1, 0, wait_ms=400)
    assert core.next_deadline_ms() == cluster.now_ms + 400
    request = ProduceRequest(-1, 300, [ProducePartition(AT, make_batch("a"))])
    cluster.brokers[1].execute(core.produce(request, "p", cluster.now_ms))
    assert core.next_deadline_ms() == cluster.now_ms + 300
