"""A producer's reactions to responses and disconnections (Sender, TransactionManager; KIP-98, KIP-360)."""

from __future__ import annotations

import pytest
from fakes_client import TP, FakeConnection, World
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import MAX_SEQUENCE, read_header
from tidegauge_client.metadata import Leader
from tidegauge_client.partition_queue import Identity, OutcomeUnknown
from tidegauge_client.sender import RESPONSES_REMEMBERED

RESPONSE_TIME_MS = 10
PATIENCE_MS = 2 * RESPONSE_TIME_MS
"""Rule 6, on a connection whose one response took that long."""


def names(count: int) -> list[bytes]:
    return [b"%03d" % number for number in range(count)]


def sequences(world: World, address: str = "b0") -> list[int]:
    return [read_header(p.records).base_sequence for r in world.connections[address].requests for p in r.partitions]


def exchange(world: World, response_time_ms: float, count: int) -> None:
    """Send so many requests, one after the other, each with its response after so long."""
    for _ in range(count):
        world.send(b"a")
        world.step()
        world.connections["b0"].take()
        world.now_ms += response_time_ms
        world.connections["b0"].deliver()


def test_a_record_is_acknowledged_with_its_own_offset() -> None:
    world = World(batch_size_bytes=1_000)
    promises = [world.send(value) for value in (b"a", b"b", b"c")]
    world.step()
    world.connections["b0"].take()
    world.connections["b0"].deliver()

    assert [p.result.offset for p in promises if p.result] == [0, 1, 2]
    assert world.sender.counters.acked == 3


def test_at_most_five_batches_of_a_partition_are_in_flight() -> None:
    world = World()
    world.introduce()
    world.send_batches(8)
    world.step()

    assert sequences(world) == [1, 2, 3, 4, 5]
    world.connections["b0"].take()
    world.connections["b0"].deliver()
    world.step()
    assert sequences(world) == [2, 3, 4, 5, 6]


def test_the_first_batch_travels_alone() -> None:
    """Rule 8: a leader without state takes any first sequence; were 0 rejected and 1 accepted, 0 would be lost."""
    world = World()
    world.send_batches(2)
    world.step()
    connection = world.connections["b0"]
    assert sequences(world) == [0]
    connection.take(refuse=ErrorCode.NOT_ENOUGH_REPLICAS)
    connection.deliver()
    world.settle()

    assert world.log == names(2)


def test_linger_holds_a_batch_back_until_it_is_full_or_the_time_is_over() -> None:
    world = World(linger_ms=50, batch_size_bytes=200)
    world.introduce()
    world.send(b"a")
    assert world.step() == 50
    assert not world.connections["b0"].requests
    world.send_batches(2)
    world.step()
    assert len(world.connections["b0"].requests) == 1, "the full one goes, the open one lingers"
    world.connections["b0"].take()
    world.connections["b0"].deliver()
    world.step(50)
    assert len(world.connections["b0"].requests) == 1


def test_what_can_grow_waits_for_the_response_before_it() -> None:
    """Rule 6: not a line of small requests at a busy broker, but one, and then one of all that came since."""
    world = World(batch_size_bytes=1_000)
    world.introduce()
    world.send(b"a")
    world.step()
    world.send(b"b")
    assert world.step(1) == PATIENCE_MS
    world.send(b"c")
    world.step(1)
    connection = world.connections["b0"]
    assert len(connection.requests) == 1
    connection.take()
    connection.deliver()
    world.step(1)
    assert [read_header(p.records).record_count for r in connection.requests for p in r.partitions] == [2]


def test_without_a_response_yet_there_is_no_time_to_wait_for() -> None:
    """Rule 6: it sends at once, as KafkaProducer does."""
    world = World(batch_size_bytes=1_000, idempotence=False)
    world.send(b"a")
    world.step()
    world.send(b"b")
    world.step(1)
    assert len(world.connections["b0"].requests) == 2


def test_responses_that_stood_still_do_not_make_it_patient() -> None:
    """Rule 6 goes by the median: after a follower stood still for 10 s, other partitions do not wait for 20 s."""
    world = World(batch_size_bytes=1_000)
    world.introduce(RESPONSE_TIME_MS)
    slow = RESPONSES_REMEMBERED // 2
    exchange(world, RESPONSE_TIME_MS, RESPONSES_REMEMBERED)
    exchange(world, 10_000, slow)
    world.send(b"a")
    world.step()
    world.send(b"b")
    assert world.step() == world.now_ms + PATIENCE_MS


def test_its_patience_follows_the_responses() -> None:
    """Rule 6: where responses take longer, waiting for them costs no more than before, and wins as much."""
    world = World(batch_size_bytes=1_000)
    world.introduce(RESPONSE_TIME_MS)
    exchange(world, RESPONSE_TIME_MS, RESPONSES_REMEMBERED + RESPONSES_REMEMBERED // 2)
    exchange(world, 7, RESPONSES_REMEMBERED // 2 + 1)
    world.send(b"a")
    world.step()
    world.send(b"b")
    assert world.step() == world.now_ms + 14


@pytest.mark.parametrize("linger_ms", [0, 50])
def test_its_patience_is_short(linger_ms: int) -> None:
    """A follower that is paused keeps acks=all waiting; what comes later must reach the leader's log all the same."""
    world = World(batch_size_bytes=1_000, linger_ms=linger_ms)
    world.introduce()
    world.send(b"a")
    world.step(linger_ms)
    world.send(b"b")
    world.step(linger_ms)
    world.step(PATIENCE_MS - 1)
    assert len(world.connections["b0"].requests) == 1
    world.step(1)
    assert len(world.connections["b0"].requests) == 2


def test_a_full_batch_waits_too_where_the_next_request_can_take_it() -> None:
    """Rule 6: records without a key fill one partition after the other, and each would be a request of its own."""
    world = World(batch_size_bytes=100)
    others = [TopicPartition("t", number) for number in (1, 2)]
    for other in others:
        world.leaders[other] = Leader(0, "b0", 0)
    world.introduce()
    world.send_batches(1)
    world.step()
    for other in others:
        world.send(b"x" * 100, other)
    assert world.step(1) == PATIENCE_MS
    connection = world.connections["b0"]
    connection.take()
    connection.deliver()
    world.step(1)
    (request,) = connection.requests
    assert sorted(p.partition for p in request.partitions) == [1, 2]


def test_a_full_batch_behind_one_of_its_partition_does_not_wait_and_takes_the_others_along() -> None:
    """Rule 6: a request takes one batch of a partition, so waiting wins nothing."""
    world = World(batch_size_bytes=100)
    other = TopicPartition("t", 1)
    world.leaders[other] = Leader(0, "b0", 0)
    world.introduce()
    world.send(b"a")
    world.step()
    world.send(b"b", other)
    world.send_batches(1)
    world.step(1)
    first, second = world.connections["b0"].requests
    assert [p.partition for p in first.partitions] == [0]
    assert sorted(p.partition for p in second.partitions) == [0, 1]


def test_brokers_do_not_wait_for_each_other() -> None:
    world = World(batch_size_bytes=1_000)
    other = TopicPartition("t", 1)
    world.leaders[other] = Leader(1, "b1", 0)
    world.introduce()
    world.send(b"a")
    world.step()
    world.send(b"b", other)
    world.step(1)
    assert len(world.connections["b1"].requests) == 1


def test_a_hurried_producer_waits_for_no_response() -> None:
    world = World(batch_size_bytes=1_000)
    world.introduce()
    world.send(b"a")
    world.step()
    world.send(b"b")
    world.sender.is_hurried = True
    world.step(1)
    assert len(world.connections["b0"].requests) == 2


def test_a_hurried_producer_does_not_linger() -> None:
    world = World(linger_ms=50)
    world.send(b"a")
    world.sender.is_hurried = True
    world.step()
    assert len(world.connections["b0"].requests) == 1


def test_nothing_is_sent_before_there_is_a_producer_id() -> None:
    world = World()
    world.accumulator.producer = None
    world.send(b"a")
    world.step()
    assert not world.connections
    world.accumulator.producer = Identity(7, 0)
    world.step()
    assert len(world.connections["b0"].requests) == 1


def test_a_retry_has_the_same_bytes_and_is_recognised_as_duplicate() -> None:
    """KIP-98: the broker took it, the response was lost, the retry succeeds with the first offset."""
    world = World()
    (promise,) = world.send_batches(1)
    world.step()
    connection = world.connections["b0"]
    first = connection.requests[0].partitions[0].records
    connection.take()
    connection.break_()
    world.step(100)
    again = world.connections["b0"].requests[0].partitions[0].records

    assert again == first
    world.settle()
    assert world.log == names(1)
    assert promise.result is not None
    assert promise.result.offset == 0
    assert world.sender.counters.retries == 1


def test_out_of_order_after_an_earlier_failure_is_retried_in_order() -> None:
    """Batch 0 is rejected, so 1 and 2 are out of order: all three are sent again, one at a time."""
    world = World()
    world.introduce()
    world.send_batches(3)
    world.step()
    connection = world.connections["b0"]
    connection.take(refuse=ErrorCode.NOT_ENOUGH_REPLICAS)
    connection.take()
    connection.take()
    for _ in range(3):
        connection.deliver()
    world.step(100)

    assert sequences(world) == [1], "one in flight until the gap is closed"
    world.settle()
    assert world.log == names(3)
    assert world.accumulator.producer == Identity(7, 0), "no new epoch was needed"


def test_responses_may_overtake_each_other() -> None:
    world = World()
    world.introduce()
    promises = world.send_batches(3)
    world.step()
    connection = world.connections["b0"]
    for _ in range(3):
        connection.take()
    for _ in range(3):
        connection.deliver(len(connection.responses) - 1)

    assert [p.result.offset for p in promises if p.result] == [1, 2, 3]
    assert world.accumulator.queue(TP).last_acked_sequence == 3


def test_a_refusal_for_good_closes_the_gap_by_a_new_epoch() -> None:
    """Batch 1 is rejected for good; 2 goes on under epoch 1 from sequence 0 (requestEpochBumpForPartition)."""
    world = World()
    world.introduce()
    promises = world.send_batches(3)
    world.step()
    connection = world.connections["b0"]
    connection.take()
    connection.take(refuse=ErrorCode.INVALID_RECORD)
    connection.take()
    for _ in range(3):
        connection.deliver()
    world.settle()

    assert world.log == [b"000", b"002"]
    assert isinstance(promises[1].exception, TidegaugeError)
    assert promises[1].exception.code is ErrorCode.INVALID_RECORD
    assert world.accumulator.producer == Identity(7, 1)


def test_out_of_order_at_the_next_expected_sequence_begins_a_new_epoch() -> None:
    """The broker lost what it had acknowledged: the producer goes on from sequence 0 of the next epoch."""
    world = World()
    world.send_batches(2)
    world.settle()
    world.logs[TP].seen[7] = (0, [(0, 0, 0)])
    del world.logs[TP].values[1:]
    world.send_batches(1, first=2)
    world.settle()

    assert world.log == [b"000", b"002"]
    assert world.accumulator.producer == Identity(7, 1)


def test_no_new_epoch_begins_while_a_response_is_in_flight() -> None:
    """Rule 6: the response for batch 1 is still to come; only then is it known that it may be renumbered."""
    world = World()
    world.introduce()
    world.send_batches(2)
    world.step()
    connection = world.connections["b0"]
    connection.take(refuse=ErrorCode.INVALID_RECORD)
    connection.take()
    connection.deliver()
    world.step(1_000)
    assert world.accumulator.producer == Identity(7, 0)
    connection.deliver()
    world.step(1_000)

    assert world.accumulator.producer == Identity(7, 1)
    assert sequences(world) == [0]
    world.settle()
    assert world.log == [b"001"]


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    world = World()
    world.accumulator.producer = Identity(7, 32767)
    world.introduce()
    world.send_batches(2)
    world.step()
    connection = world.connections["b0"]
    connection.take()
    connection.take(refuse=ErrorCode.INVALID_RECORD)
    connection.deliver()
    connection.deliver()
    world.step()

    assert world.accumulator.producer is None
    world.accumulator.producer = Identity(8, 0)
    world.send_batches(1, first=2)
    world.settle()
    assert world.log == [b"000", b"002"]


def test_sequences_wrap_after_the_largest() -> None:
    """2147483647 is followed by 0 (DefaultRecordBatch.incrementSequence)."""
    world = World()
    world.send_batches(1)
    world.settle()
    queue = world.accumulator.queue(TP)
    queue.next_sequence = MAX_SEQUENCE
    queue.last_acked_sequence = MAX_SEQUENCE - 1
    world.logs[TP].seen[7] = (0, [(MAX_SEQUENCE - 1, MAX_SEQUENCE - 1, 0)])
    world.send_batches(3, first=1)
    world.step()

    assert sequences(world) == [MAX_SEQUENCE, 0, 1]
    world.settle()
    assert world.log == names(4)
    assert world.accumulator.producer == Identity(7, 0)


def test_a_frozen_broker_breaks_its_connection_after_the_request_timeout() -> None:
    world = World(request_timeout_ms=5_000)
    world.send_batches(1)
    assert world.step() == 5_000
    frozen = world.connections["b0"]
    world.leaders[TP] = Leader(1, "b1", 1)
    world.step(5_000)

    assert not frozen.is_open
    assert sequences(world, "b1") == [0], "a newer leader ends the back-off at once"
    assert world.refreshes >= 1


def test_a_hint_on_the_leader_is_taken_without_waiting() -> None:
    """KIP-951."""
    world = World()
    world.send_batches(1)
    world.step()
    connection = world.connections["b0"]
    world.leaders[TP] = Leader(1, "b1", 1)
    connection.take()
    world.leaders[TP] = Leader(0, "b0", 0)
    response = connection.responses[0]
    response.partitions[0].current_leader.leader_id = 1
    response.partitions[0].current_leader.leader_epoch = 1
    connection.deliver()
    world.step()

    assert sequences(world, "b1") == [0]


def test_backoff_doubles_up_to_a_second() -> None:
    world = World()
    world.send_batches(1)
    waits = []
    for _ in range(6):
        begun_ms = world.now_ms
        while not world.connections.get("b0") or not world.connections["b0"].requests:
            world.step(10)
        waits.append(world.now_ms - begun_ms)
        world.connections["b0"].break_()

    assert waits == [10, 100, 200, 400, 800, 1_000]


def test_the_delivery_timeout_reports_what_never_left() -> None:
    world = World(delivery_timeout_ms=1_000)
    world.leaders.clear()
    (promise,) = world.send_batches(1)
    world.step(999)
    assert not promise.done()
    world.step(1)

    assert isinstance(promise.exception, TidegaugeError)
    assert promise.exception.code is ErrorCode.REQUEST_TIMED_OUT
    assert "Expiring 1 record(s) for t-0: 1000 ms has passed since batch creation" in promise.exception.message
    assert world.sender.counters.failed == 1
    assert not world.accumulator.incomplete


def test_after_giving_up_an_unknown_batch_nothing_new_goes_out_until_its_response() -> None:
    """Rule 5 (markSequenceUnresolved): the batch given up was in the log; the next one goes on behind it."""
    world = World(delivery_timeout_ms=1_000)
    world.introduce()
    (first,) = world.send_batches(1)
    world.step()
    connection = world.connections["b0"]
    connection.take()
    world.step(1_000)
    assert first.exception is not None
    (second,) = world.send_batches(1, first=1)
    world.step()
    assert sequences(world) == []
    connection.deliver()
    world.step()
    assert sequences(world) == [2]
    world.settle()

    assert second.result is not None
    assert world.log == names(2)
    assert world.accumulator.producer == Identity(7, 0)


def test_a_given_up_batch_that_is_not_in_the_log_costs_an_epoch() -> None:
    world = World(delivery_timeout_ms=1_000)
    world.send_batches(1)
    world.step()
    world.step(1_000)
    world.connections["b0"].requests.clear()
    world.connections["b0"].break_()
    (second,) = world.send_batches(1, first=1)
    world.settle()

    assert second.result is not None
    assert world.log == [b"001"]
    assert world.accumulator.producer == Identity(7, 1)


def test_a_retriable_failure_after_the_delivery_timeout_leaves_later_batches_their_sequences() -> None:
    """Both are in the log, and no response came: a new epoch for the second would write it twice.

    The delivery timeout is a multiple of the request timeout, so that the last request fails in the millisecond in
    which its batch expires, before that is looked for. KafkaProducer begins a new epoch there (Sender.canRetry,
    Sender.failBatch).
    """
    world = World(delivery_timeout_ms=12_000, request_timeout_ms=6_000)
    world.introduce()
    (first,) = world.send_batches(1)
    world.step()
    world.step(1_000)
    (second,) = world.send_batches(1, first=1)
    world.step()
    connection = world.connections["b0"]
    connection.take()
    connection.take()
    world.leaders[TP] = Leader(1, "b1", 1)
    world.step(5_000)
    assert sequences(world, "b1") == [1], "a newer leader ends the back-off: sent again at 6000 ms"
    world.step(6_000)
    assert isinstance(first.exception, OutcomeUnknown)
    world.settle()

    assert world.log == names(2)
    assert second.result is not None
    assert second.result.offset == 2
    assert world.accumulator.producer == Identity(7, 0)


def test_a_batch_that_may_be_in_the_log_gets_no_other_sequence() -> None:
    """Rule 6: the requests with both arrive when the producer has long given up their connection."""
    world = World(delivery_timeout_ms=2_000, request_timeout_ms=1_000)
    world.introduce()
    (first,) = world.send_batches(1)
    world.step()
    world.step(500)
    (second,) = world.send_batches(1, first=1)
    world.step()
    late = world.connections["b0"]
    world.step(500)
    assert not late.is_open
    world.step(100)
    world.connections["b0"].requests.clear()
    world.step(1_000)
    assert first.exception is not None
    (third,) = world.send_batches(1, first=2)
    world.step()
    assert sequences(world) == [2], "the second one is sent again, under its own sequence"
    world.connections["b0"].take()
    world.connections["b0"].deliver()
    world.step()
    assert isinstance(second.exception, OutcomeUnknown)
    assert second.exception.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    while late.requests:
        late.take()
    world.settle()

    assert world.log == names(3)
    assert third.result is not None
    assert world.accumulator.producer == Identity(7, 1)


def test_a_batch_too_large_for_the_broker_is_split_until_it_fits() -> None:
    """KIP-126."""
    world = World(batch_size_bytes=10_000)
    promises = [world.send(value) for value in names(3)]
    world.step()
    connection = world.connections["b0"]
    connection.take(refuse=ErrorCode.MESSAGE_TOO_LARGE)
    connection.deliver()
    world.settle()

    assert world.log == names(3)
    assert [p.result.offset for p in promises if p.result] == [0, 1, 2]
    assert sum(batch.reserved_bytes for batch in world.done) == 9


def test_a_single_record_too_large_is_reported() -> None:
    world = World()
    (promise,) = world.send_batches(1)
    world.step()
    connection = world.connections["b0"]
    connection.take(refuse=ErrorCode.MESSAGE_TOO_LARGE)
    connection.deliver()

    assert isinstance(promise.exception, TidegaugeError)
    assert promise.exception.code is ErrorCode.MESSAGE_TOO_LARGE


def test_acks_0_is_done_when_it_was_written() -> None:
    world = World(acks=0, idempotence=False)
    (promise,) = world.send_batches(1)
    world.step()
    world.sender.written("b0", world.connections["b0"].requests[0].correlation_id)

    assert promise.result is not None
    assert promise.result.offset == -1


def test_without_idempotence_one_in_flight_keeps_the_order() -> None:
    world = World(idempotence=False, acks=1, max_in_flight=1)
    world.send_batches(3)
    world.step()
    connection = world.connections["b0"]
    assert len(connection.requests) == 1
    connection.take(refuse=ErrorCode.NOT_ENOUGH_REPLICAS)
    connection.deliver()
    world.settle()

    assert world.log == names(3)


def test_a_late_response_of_an_unknown_request_changes_nothing() -> None:
    world = World(request_timeout_ms=10)
    world.send_batches(1)
    world.step()
    connection = world.connections["b0"]
    connection.take()
    world.step(10)
    connection.deliver()

    assert world.sender.counters.acked == 0
    world.settle()
    assert world.log == names(1)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "deliver", "deliver", "refuse", "break", "move", "send", "wait", "lose"]),
        st.integers(0, 9),
    ),
    max_size=120,
)
REFUSALS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS]


def test_no_batch_runs_five_ahead_of_one_without_a_response() -> None:
    """A repetition must be one of the batches that a leader remembers (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""
    world = World(request_timeout_ms=2_000)
    world.introduce()
    world.send_batches(7)
    world.step()
    connection = world.connections["b0"]
    connection.take()
    connection.responses.pop()
    while connection.requests:
        connection.take()
        connection.deliver()
    world.step(1)

    assert not connection.requests, "the sixth waits for the first"
    world.settle()
    assert world.log == names(7)


@settings(max_examples=examples(150), deadline=None)
@given(EVENTS)
def test_whatever_breaks_every_record_is_written_once_and_in_order(events: list[tuple[str, int]]) -> None:
    """The producer's promise (KIP-98) over any schedule of errors, disconnections, lost responses, leader changes."""
    world = World(request_timeout_ms=2_000)
    sent = 3
    world.send_batches(sent)
    for what, number in events:
        world.step(1)
        open_connections = [c for _, c in sorted(world.connections.items()) if c.is_open]
        connection = open_connections[number % len(open_connections)] if open_connections else None
        if what == "send":
            world.send_batches(number, first=sent)
            sent += number
        elif what == "move":
            epoch = world.leaders[TP].leader_epoch + 1
            world.leaders[TP] = Leader(number % 3, f"b{number % 3}", epoch)
        elif what == "wait":
            world.step(number * 400)
        elif connection is not None:
            act(what, number, connection)
    world.settle()

    assert world.log == names(sent)
    assert world.sender.counters.acked == sent
    assert all(p.result is not None and world.log[p.result.offset] == v[:3] for v, p in world.promises)
    assert world.accumulator.producer == Identity(7, 0)


def act(what: str, number: int, connection: FakeConnection) -> None:
    if what == "take" and connection.requests:
        connection.take()
    elif what == "refuse" and connection.requests:
        connection.take(refuse=REFUSALS[number % 3])
    elif what == "deliver" and connection.responses:
        connection.deliver(number % len(connection.responses))
    elif what == "lose" and connection.responses:
        connection.responses.pop(number % len(connection.responses))
    elif what == "break":
        connection.break_()


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_what_is_not_retriable_is_reported_as_it_is(code: ErrorCode) -> None:
    world = World()
    (promise,) = world.send_batches(1)
    world.step()
    world.connections["b0"].take(refuse=code)
    world.connections["b0"].deliver()

    assert isinstance(promise.exception, TidegaugeError)
    assert promise.exception.code is code


@pytest.mark.parametrize("is_lost_first", [True, False])
def test_a_refusal_after_an_attempt_of_unknown_outcome_is_not_definite(*, is_lost_first: bool) -> None:
    """History, rule 3: a definite error says nothing of an earlier attempt whose response was lost."""
    world = World(idempotence=False)
    promise = world.send(b"a")
    world.step()
    if is_lost_first:
        world.connections["b0"].take()
        world.connections["b0"].break_()
        world.step(1_000)
    world.connections["b0"].take(refuse=ErrorCode.INVALID_RECORD)
    world.connections["b0"].deliver()

    assert isinstance(promise.exception, TidegaugeError)
    assert promise.exception.code is ErrorCode.INVALID_RECORD
    assert promise.exception.definite is not is_lost_first
