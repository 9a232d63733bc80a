"""Members of a consumer group (KIP-848): joining, reconciling, leaving, timers, fencing, and the records of each."""

import pytest
from tests.unit.coordinator.consumer_groups.consumer_harness import (
    T4,
    T5,
    WITH_INTERVAL,
    ConsumerHarness,
    heartbeat,
    joining,
    numbers,
    owned,
)

from tidegauge.errors import ErrorCode
from tidegauge.groups import DeleteGroup, ListGroups, OffsetDelete, OffsetFetch, Protocol
from tidegauge.partition import TopicPartition
from tidegauge_broker.coordinator.events import ShutDown

T4_0 = TopicPartition("t4", 0)


@pytest.fixture
def broker() -> ConsumerHarness:
    return ConsumerHarness()


def two_members(broker: ConsumerHarness) -> tuple[int, int]:
    """Members a, which owns 0 and 1, and b, which owns 2 and 3; return their epochs."""
    broker.enter("a", "t4")
    broker.enter("b", "t4")
    assert numbers(broker.beat("a", 2).assignment) == {T4: [0, 1]}
    assert broker.beat("a", 2, owned=owned(T4, 0, 1)).member_epoch == 3
    assert numbers(broker.beat("b", 3).assignment) == {T4: [2, 3]}
    assert broker.state() == "Stable"
    return 3, 3


def test_the_first_member_gets_all_partitions_at_once(broker):
    result = broker.enter("a", "t4", "t5")
    assert result.member_epoch == 2
    assert result.heartbeat_interval_ms == 3_000
    assert numbers(result.assignment) == {T4: [0, 1, 2, 3], T5: [0, 1]}
    assert broker.kinds() == [[5, 3, 7, 6, 8]]


def test_a_partition_is_given_to_another_only_when_its_owner_has_given_it_up(broker):
    broker.enter("a", "t4")
    assert numbers(broker.enter("b", "t4").assignment) == {}
    assert broker.beat("b", 3).assignment is None
    assert numbers(broker.beat("a", 2).assignment) == {T4: [0, 1]}
    assert broker.beat("b", 3).assignment is None
    assert broker.beat("a", 2, owned=owned(T4, 0, 1, 2)).member_epoch == 2
    assert broker.beat("b", 3).assignment is None
    assert broker.beat("a", 2, owned=owned(T4, 0, 1)).member_epoch == 3
    assert numbers(broker.beat("b", 3).assignment) == {T4: [2, 3]}


def test_a_heartbeat_that_changes_nothing_writes_nothing(broker):
    epoch, _ = two_members(broker)
    written = len(broker.log)
    for _ in range(3):
        assert broker.beat("a", epoch, owned=owned(T4, 0, 1)).error is ErrorCode.NONE
    assert len(broker.log) == written


# Writing


def test_a_response_waits_for_the_commit_of_its_records(broker):
    broker.holds = True
    token = broker.send(joining("a", "t4"))
    assert token not in broker.responses
    assert broker.described().error is ErrorCode.GROUP_ID_NOT_FOUND
    broker.release()
    assert broker.response_to(token).member_epoch == 2


def test_requests_of_a_group_wait_in_order_while_a_change_of_it_is_written(broker):
    """One write of a group at a time: the second member is assigned by the state that the first has left."""
    broker.holds = True
    first, second = broker.send(joining("a", "t4")), broker.send(joining("b", "t4"))
    third = broker.send(joining("a", "t4", group="other"))
    assert len(broker.held) == 2
    broker.holds = False
    broker.release()
    broker.release()
    assert [broker.response_to(token).member_epoch for token in (first, second, third)] == [2, 3, 2]
    assert broker.kinds() == [[5, 3, 7, 6, 8], [5, 3, 7, 6, 8], [5, 3, 7, 7, 6, 8]]


@pytest.mark.parametrize(
    ("error", "response"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_change_that_is_not_written_has_not_happened(broker, error, response):
    broker.append_error = error
    assert broker.beat("a", 0, topic_names=("t4",), rebalance_timeout_ms=1, owned=()).error is response
    broker.append_error = ErrorCode.NONE
    assert broker.described().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.beat("a", 2).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.enter("a", "t4").member_epoch == 2


def test_a_change_that_was_not_committed_in_time_counts_and_its_repeat_is_idempotent(broker):
    """Records that are in the log usually commit later: the next load reads them (CoordinatorRuntime)."""
    broker.append_error = ErrorCode.REQUEST_TIMED_OUT
    assert broker.ask(joining("a", "t4")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.append_error = ErrorCode.NONE
    assert len(broker.described().members) == 1
    written = len(broker.log)
    assert broker.enter("a", "t4").member_epoch == 2
    assert broker.kinds(written) == [[3]], "the group's epoch again: with its commit the join is known to be committed"
    broker.beat("a", 2)
    assert len(broker.log) == written + 1


def test_no_response_rests_on_records_that_may_be_lost(broker):
    """CoordinatorRuntime: a response without records waits for those written before; the next leader may lack them."""
    broker.append_error = ErrorCode.REQUEST_TIMED_OUT
    for _ in range(3):
        assert broker.ask(joining("a", "t4")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.append_error = ErrorCode.NONE
    assert numbers(broker.enter("a", "t4").assignment) == {T4: [0, 1, 2, 3]}
    written = len(broker.log)
    broker.beat("a", 2)
    assert len(broker.log) == written, "what is committed is responded to at once"


def test_what_a_load_has_read_beyond_the_high_watermark_is_written_again_before_a_response(broker):
    """A load reads to the log end offset; what the high watermark has not reached may be lost with this leader."""
    two_members(broker)
    successor = broker.successor(loads_committed=False)
    written = len(successor.log)
    successor.holds = True
    token = successor.send(heartbeat("a", 3))
    assert token not in successor.responses
    successor.release()
    assert successor.response_to(token).error is ErrorCode.NONE
    assert successor.kinds(written) == [[3]]


def test_a_member_whose_join_was_not_committed_in_time_has_a_session_all_the_same(broker):
    """GMM schedules the session with the join, not with its commit: a member that never comes back must not stay."""
    broker.enter("a", "t4")
    broker.append_error = ErrorCode.REQUEST_TIMED_OUT
    assert broker.ask(joining("b", "t4")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.append_error = ErrorCode.NONE
    broker.after(6_000)
    broker.beat("a", 2)
    broker.after(6_100)
    assert [one.member_id for one in broker.described().members] == ["a"]


def test_what_waits_when_the_partition_moves_gets_not_coordinator(broker):
    broker.holds = True
    first, second = broker.send(joining("a", "t4")), broker.send(joining("b", "t4"))
    broker.resign(1)
    assert broker.response_to(second).error is ErrorCode.NOT_COORDINATOR
    broker.release()
    assert broker.response_to(first).error is ErrorCode.NOT_COORDINATOR
    assert broker.coordinator.open_requests == 0
    assert broker.beat("a", 2).error is ErrorCode.NOT_COORDINATOR


def test_a_defect_in_a_decision_costs_its_group_alone(broker, monkeypatch):
    broker.has_defects = True
    two_members(broker)
    broker.enter("x", "t5", group="other")
    monkeypatch.setattr(
        "tidegauge_broker.coordinator.consumer_group.serving.beat", lambda *_: (_ for _ in ()).throw(ValueError("x"))
    )
    assert broker.beat("a", 3).error is ErrorCode.UNKNOWN_SERVER_ERROR
    monkeypatch.undo()
    assert broker.beat("a", 3).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.beat("x", 2, "other").error is ErrorCode.NONE
    assert broker.ask(DeleteGroup("g")).error is ErrorCode.NONE
    assert broker.enter("a", "t4").member_epoch == 2
    assert {kind for batch in broker.kinds() for kind in batch} >= {-3, -5, -6, -7, -8}


# Timers


def test_a_member_that_is_not_heard_of_is_removed(broker):
    two_members(broker)
    broker.after(11_000)
    broker.beat("a", 3)
    broker.after(2_000)
    described = broker.described()
    assert [one.member_id for one in described.members] == ["a"]
    assert described.state == "Assigning"
    assert broker.beat("b", 3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert numbers(broker.beat("a", 3).assignment) == {T4: [0, 1, 2, 3]}


def test_a_member_that_does_not_give_partitions_up_in_time_is_removed_though_it_is_heard_of(broker):
    broker.enter("a", "t4")
    broker.enter("b", "t4")
    broker.beat("a", 2)
    for _ in range(7):
        broker.after(1_000)
        assert broker.beat("b", 3).assignment is None
        assert broker.beat("a", 2).error is ErrorCode.NONE
    broker.after(1_000)
    assert broker.beat("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert numbers(broker.beat("b", 3).assignment) == {T4: [0, 1, 2, 3]}


def test_the_rebalance_timeout_ends_with_the_revocation(broker):
    two_members(broker)
    for _ in range(10):
        broker.after(1_000)
        assert broker.beat("a", 3).error is ErrorCode.NONE
        assert broker.beat("b", 3).error is ErrorCode.NONE


def test_a_removal_that_could_not_be_written_is_tried_again(broker):
    broker.enter("a", "t4")
    broker.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    broker.after(13_000)
    assert len(broker.described().members) == 1
    broker.append_error = ErrorCode.NONE
    broker.after(1_000)
    assert broker.state() == "Empty"


def test_a_session_that_expires_while_a_write_is_in_flight_waits_for_it(broker):
    broker.enter("a", "t4")
    broker.after(11_999)
    broker.holds = True
    token = broker.send(heartbeat("a", 2, topic_names=("t5",)))
    broker.after(10)
    broker.holds = False
    broker.release()
    assert broker.response_to(token).error is ErrorCode.NONE
    assert len(broker.described().members) == 1
    broker.after(12_100)
    assert broker.state() == "Empty"


def test_the_target_is_computed_once_within_the_assignment_interval():
    """group.consumer.assignment.interval.ms: a second member waits at the old assignment epoch, Assigning."""
    broker = ConsumerHarness(consumer_times=WITH_INTERVAL)
    broker.enter("a", "t4")
    broker.after(90)
    assert broker.enter("b", "t4").member_epoch == 2
    assert broker.state() == "Assigning"
    assert broker.beat("a", 2).assignment is None
    broker.after(910)
    assert numbers(broker.beat("a", 2).assignment) == {T4: [0, 1]}
    assert broker.state() == "Reconciling"


# Leaving and static members


def test_a_member_that_leaves_frees_its_partitions_at_once(broker):
    two_members(broker)
    assert broker.beat("b", -1).member_epoch == -1
    assert numbers(broker.beat("a", 3).assignment) == {T4: [0, 1, 2, 3]}
    assert broker.beat("a", -1).member_epoch == -1
    assert broker.state() == "Empty"


def test_a_static_member_that_left_for_a_while_is_replaced_without_a_rebalance(broker):
    broker.enter("a", "t4", instance_id="i")
    broker.enter("b", "t4")
    broker.beat("a", 2, instance_id="i")
    broker.beat("a", 2, instance_id="i", owned=owned(T4, 0, 1))
    broker.beat("b", 3)
    assert broker.beat("a", -2, instance_id="i").member_epoch == -2
    assert broker.state() == "Reconciling"
    result = broker.enter("z", "t4", instance_id="i")
    assert (result.member_epoch, numbers(result.assignment)) == (3, {T4: [0, 1]})
    assert broker.described().group_epoch == 3
    assert broker.beat("a", 3, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert broker.beat("a", 3).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_leaves_for_a_while_keeps_its_state(broker):
    """Kafka writes epoch -2 and drops pending revocations, no more (consumerGroupStaticMemberGroupLeave)."""
    broker.enter("b", "t4")
    assert numbers(broker.enter("a", "t4", instance_id="i").assignment) == {}
    before = broker.written()[-1][-1][2].state
    broker.beat("a", -2, instance_id="i")
    after = broker.written()[-1][-1][2]
    assert (after.member_epoch, after.state) == (-2, before)
    assert before != 0


def test_a_static_member_that_does_not_come_back_expires(broker):
    broker.enter("a", "t4", instance_id="i")
    broker.beat("a", -2, instance_id="i")
    broker.after(12_001)
    assert broker.state() == "Empty"
    assert broker.enter("z", "t4", instance_id="i").member_epoch == 4


def test_an_instance_id_that_is_in_use_is_not_released(broker):
    broker.enter("a", "t4", instance_id="i")
    for member in ("a", "z"):
        result = broker.ask(joining(member, "t4", instance_id="i"))
        assert result.error is ErrorCode.UNRELEASED_INSTANCE_ID
        assert "owned by a member" in result.message


# Topics


def test_new_partitions_are_noticed_by_the_next_heartbeat_of_any_member(broker):
    two_members(broker)
    broker.topics(t4=6)
    assert broker.state() == "Stable"
    broker.beat("a", 3)
    assert broker.described().group_epoch == 4
    assert numbers(broker.beat("b", 3).assignment) == {T4: [2, 3, 5]}
    assert broker.described().group_epoch == 4


def test_a_topic_that_was_subscribed_to_before_it_exists_is_noticed(broker):
    assert numbers(broker.enter("a", "later").assignment) == {}
    broker.topics(later=1)
    result = broker.beat("a", 2)
    assert [partitions for _, partitions in result.assignment] == [(0,)]


def test_a_deleted_topic_is_given_up(broker):
    broker.enter("a", "t4", "t5")
    broker.topics(t5=None)
    result = broker.beat("a", 2)
    assert numbers(result.assignment) == {T4: [0, 1, 2, 3]}
    assert broker.beat("a", 2, owned=owned(T4, 0, 1, 2, 3)).member_epoch == 3


def test_changes_of_other_topics_raise_no_epoch(broker):
    broker.enter("a", "t4")
    broker.topics(t5=7, unrelated=1)
    broker.beat("a", 2)
    assert broker.described().group_epoch == 2


# Regular expressions


def test_a_regular_expression_is_resolved_beside_the_heartbeats(broker):
    broker.holds_resolutions = True
    result = broker.enter("a", topic_names=None, topic_regex="t[0-9]")
    assert (result.member_epoch, numbers(result.assignment)) == (1, {})
    assert broker.beat("a", 1).assignment is None
    assert len(broker.resolutions) == 1
    broker.resolve()
    assert numbers(broker.beat("a", 1).assignment) == {T4: [0, 1, 2, 3], T5: [0, 1]}
    assert broker.kinds() == [[5, 8], [16, 3], [7, 6, 8]]


def test_a_new_topic_that_matches_is_found_after_ten_seconds(broker):
    broker.enter("a", topic_names=None, topic_regex="t[0-9]")
    broker.beat("a", 1)
    broker.topics(t6=1)
    broker.after(5_000)
    assert broker.beat("a", 2).assignment is None
    broker.after(5_001)
    broker.beat("a", 2)
    result = broker.beat("a", 2)
    assert len(result.assignment) == 3


def test_an_expression_that_could_not_be_resolved_is_not_tried_at_every_heartbeat(broker):
    broker.holds_resolutions = True
    broker.enter("a", topic_names=None, topic_regex="t[0-9]")
    broker.resolve("it takes too long")
    broker.beat("a", 1)
    assert not broker.resolutions
    assert any("it takes too long" in line.text for line in broker.lines)


def test_a_resolution_that_arrives_when_its_subscriber_has_left_is_dropped(broker):
    broker.holds_resolutions = True
    broker.enter("a", topic_names=None, topic_regex="t[0-9]")
    broker.beat("a", -1)
    written = len(broker.log)
    broker.resolve()
    assert len(broker.log) == written


def test_only_the_first_member_with_an_expression_is_asked_whether_it_is_valid(broker):
    result = broker.ask(joining("a", topic_names=None, topic_regex="t(4"))
    assert result.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert broker.described().error is ErrorCode.GROUP_ID_NOT_FOUND


# Loading


@pytest.mark.parametrize("cut", range(8))
def test_a_failover_at_any_record_batch_of_a_reconciliation_loses_nothing(cut):
    """Every prefix of the log, by batches, gives the state that was committed then."""
    broker = ConsumerHarness()
    steps = [
        joining("a", "t4"),
        joining("b", "t4", instance_id="i"),
        heartbeat("a", 2),
        heartbeat("a", 2, owned=owned(T4, 0, 1)),
        heartbeat("b", 3, instance_id="i"),
        heartbeat("b", 3, instance_id="i", topic_names=("t5",)),
        heartbeat("b", -2, instance_id="i"),
        heartbeat("a", -1),
    ]
    for step in steps[: cut + 1]:
        assert broker.ask(step).error is ErrorCode.NONE
    assert broker.successor().described() == broker.described()


def test_sessions_and_rebalances_start_again_in_full_after_a_load(broker):
    broker.enter("a", "t4")
    broker.enter("b", "t4")
    broker.beat("a", 2)
    broker.after(7_000)
    other = broker.successor()
    other.after(7_999)
    assert other.beat("a", 2).error is ErrorCode.NONE
    assert other.beat("b", 3).error is ErrorCode.NONE
    other.after(1)
    assert other.beat("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    other.after(12_000)
    assert other.state() == "Empty"


def test_topics_are_looked_at_once_after_a_load(broker):
    broker.enter("a", "t4")
    other = broker.successor()
    other.topics(t4=5)
    assert numbers(other.beat("a", 2).assignment) == {T4: [0, 1, 2, 3, 4]}


def test_without_the_extension_records_of_consumer_groups_are_skipped_as_a_broker_of_39_does(broker):
    broker.enter("a", "t4")
    other = broker.successor(serves_consumer_groups=False)
    assert other.beat("a", 2).error is ErrorCode.UNSUPPORTED_VERSION
    assert other.ask(ListGroups()).groups == []
    assert {"3", "5", "6", "7", "8"} <= {word for line in other.lines for word in line.text.split()}


def test_before_a_load_ends_and_after_a_shutdown_no_request_is_served():
    broker = ConsumerHarness(elected=False)
    broker.loads = False
    broker.elect(0)
    assert broker.beat("a", 2).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.beat("", 2).error is ErrorCode.INVALID_REQUEST
    broker.event(ShutDown())
    assert broker.beat("a", 2).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


# Beside offsets and other requests


def test_offsets_of_subscribed_topics_are_kept_and_others_expire_by_their_commit():
    broker = ConsumerHarness(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=1_000)
    broker.enter("a", "t4")
    broker.committed(broker.commit(partition=T4_0, generation=2, member_id="a", knows_member_epochs=True))
    broker.committed(
        broker.commit(partition=TopicPartition("t5", 0), generation=2, member_id="a", knows_member_epochs=True)
    )
    for _ in range(61):
        broker.after(1_000)
        broker.beat("a", 2)
    assert broker.offset(T4_0).offset == 1
    assert broker.offset(TopicPartition("t5", 0)).offset == -1
    broker.beat("a", -1)
    broker.after(1_000)
    assert broker.described().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.kinds()[-1] == [-6, -4, -3]
    assert broker.ask(ListGroups()).groups == []


def test_a_group_with_members_is_not_deleted_and_an_empty_one_is_with_all_its_records(broker):
    broker.enter("a", "t4")
    broker.commit(partition=T4_0, generation=2, member_id="a", knows_member_epochs=True)
    assert broker.ask(DeleteGroup("g")).error is ErrorCode.NON_EMPTY_GROUP
    subscribed = broker.ask(OffsetDelete("g", (T4_0,)))
    assert subscribed.partitions == {T4_0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    broker.beat("a", -1)
    assert broker.ask(DeleteGroup("g")).error is ErrorCode.NONE
    other = broker.successor()
    assert other.ask(ListGroups()).groups == []
    assert other.offset(T4_0).offset == -1


def test_groups_are_listed_with_their_type(broker):
    broker.enter("a", "t4")
    broker.join(group="classic", protocols=(Protocol("range", b""),))
    listed = {(one.group_id, one.group_type, one.state) for one in broker.ask(ListGroups()).groups}
    assert listed == {("g", "consumer", "Stable"), ("classic", "classic", "PreparingRebalance")}
    assert [one.group_id for one in broker.ask(ListGroups(types=("Consumer",))).groups] == ["g"]
    assert [one.group_id for one in broker.ask(ListGroups(states=("stable",))).groups] == ["g"]


def test_an_empty_classic_group_becomes_a_consumer_group_with_its_offsets(broker):
    broker.committed(broker.commit(7, partition=T4_0))
    broker.enter("a", "t4")
    fetched = broker.ask(OffsetFetch("g", (T4_0,), member_id="a", member_epoch=2))
    assert fetched.offsets[T4_0].offset == 7
    assert broker.successor().offset(T4_0).offset == 7
    assert broker.successor().state() == "Stable"


def test_an_empty_consumer_group_becomes_a_classic_one_with_its_offsets(broker):
    broker.enter("a", "t4")
    broker.committed(broker.commit(7, partition=T4_0, generation=2, member_id="a", knows_member_epochs=True))
    broker.beat("a", -1)
    (member,) = broker.stable_group(protocols=(Protocol("range", b""),))
    assert member
    assert broker.described().message == "Group g is not a consumer group."
    assert broker.offset(T4_0).offset == 7
    assert broker.kinds()[-1] == [-6, -4, -3]
    other = broker.successor()
    assert other.group().generation == 1
    assert other.offset(T4_0).offset == 7


def test_a_full_group_refuses_another_member():
    broker = ConsumerHarness(consumer_max_size=1)
    broker.enter("a", "t4")
    assert broker.ask(joining("b", "t4")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert broker.enter("a", "t4").member_epoch == 2


def test_the_assignor_that_most_members_ask_for_is_used(broker):
    broker.enter("a", "t4", "t5", server_assignor="range")
    broker.enter("b", "t4", "t5")
    assert broker.described().assignor == "range"
    assert numbers(broker.beat("a", 2).assignment) == {T4: [0, 1], T5: [0]}
