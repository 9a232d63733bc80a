"""The rules of share groups in the group coordinator (KIP-932), one test for each."""

import pytest
from tests.unit.coordinator.share_groups.harness import S1, T2, ShareGroupHarness

from tidegauge.consumer_groups import ConsumerGroupHeartbeat, DescribeConsumerGroup
from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    DeleteGroup,
    DescribeGroup,
    JoinGroup,
    ListedGroup,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    TxnOffsetCommit,
)
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import DescribeShareGroup, ShareGroupHeartbeat, ShareGroupState, SharePartitionKey
from tidegauge_broker.coordinator.events import GroupDefaultsChanged, GroupSettingsChanged
from tidegauge_broker.coordinator.record_codec import Record, batch_of
from tidegauge_broker.coordinator.settings import ConsumerGroupTimes

BOTH = ((T2, (0, 1)),)
T = TopicPartition("t2", 0)


def kinds(broker: ShareGroupHarness, since: int = 0) -> list[list[int]]:
    return [[kind for kind, _, _ in batch] for batch in broker.written()[since:]]


# Joining, and the states of partitions


def test_a_member_gets_partitions_when_the_share_coordinator_has_a_state_of_them():
    broker = ShareGroupHarness()
    first = broker.beat()
    assert (first.error, first.member_epoch, first.assignment) == (ErrorCode.NONE, 2, ())
    second = broker.beat(epoch=2)
    assert (second.member_epoch, second.assignment) == (3, BOTH)
    assert broker.beat(epoch=3).assignment is None
    state = broker.states.coordinator.state_of(SharePartitionKey("g", T2, 1))
    assert (state.state_epoch, state.start_offset) == (2, -1)


def test_the_heartbeat_does_not_wait_for_the_share_coordinator():
    broker = ShareGroupHarness()
    broker.holds_changes = True
    assert broker.beat().error is ErrorCode.NONE
    assert broker.image().known_states.initialized == {}
    assert broker.beat(epoch=2).assignment is None
    broker.change()
    assert broker.beat(epoch=2).assignment == BOTH


def test_partitions_that_are_being_initialized_are_asked_for_again_after_a_while():
    """group.share.initialize.retry.interval.ms."""
    broker = ShareGroupHarness(share_initialize_retry_interval_ms=30_000)
    broker.holds_changes = True
    broker.beat()
    broker.after(29_999)
    broker.beat(epoch=2)
    assert len(broker.changes) == 1
    broker.after(1)
    broker.beat(epoch=2)
    assert len(broker.changes) == 2


def test_an_initialization_that_fails_is_tried_again_by_the_next_heartbeat():
    broker = ShareGroupHarness()
    broker.holds_changes = True
    broker.beat()
    broker.change(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert broker.image().known_states.initializing == {}
    broker.holds_changes = False
    broker.beat(epoch=2)
    assert broker.beat(epoch=2).assignment == BOTH


def test_new_partitions_are_initialized_and_then_assigned():
    broker = ShareGroupHarness()
    broker.topics(t2=1)
    broker.beat()
    assert broker.beat(epoch=2).assignment == ((T2, (0,)),)
    broker.topics(t2=2)
    epoch = broker.beat(epoch=3).member_epoch
    assert broker.beat(epoch=epoch).assignment == BOTH


def test_a_subscribed_topic_that_is_missing_is_taken_up_when_it_is_created():
    broker = ShareGroupHarness()
    broker.topics(t2=None)
    assert broker.beat().assignment == ()
    broker.topics(t2=2)
    epoch = broker.beat(epoch=2).member_epoch
    assert broker.beat(epoch=epoch).assignment == BOTH


def test_the_partitions_of_a_deleted_topic_are_forgotten_by_both_coordinators():
    broker = ShareGroupHarness()
    broker.beat()
    broker.beat(epoch=2)
    broker.topics(t2=None)
    assert broker.image().known_states.initialized == {}
    assert broker.states.coordinator.state_of(SharePartitionKey("g", T2, 0)) is None
    assert broker.beat(epoch=3).assignment == ()


# Assignment


def test_partitions_are_taken_away_without_asking():
    broker = ShareGroupHarness()
    broker.beat("a")
    assert broker.beat("a", 2).assignment == BOTH
    joined = broker.beat("b")
    assert (joined.member_epoch, len(joined.assignment[0][1])) == (4, 1)
    moved = broker.beat("a", 3)
    assert moved.member_epoch == 4
    assert sorted(moved.assignment[0][1] + joined.assignment[0][1]) == [0, 1]


def test_the_target_is_not_computed_again_within_the_assignment_interval():
    """group.share.assignment.interval.ms."""
    broker = ShareGroupHarness(share_times=ConsumerGroupTimes(assignment_interval_ms=1000))
    broker.beat("a")
    joined = broker.beat("b")
    assert joined.member_epoch == 2
    assert broker.image().epoch == 3
    broker.after(1000)
    assert broker.beat("b", 2).member_epoch == 3


def test_a_changed_subscription_changes_the_assignment():
    broker = ShareGroupHarness()
    broker.beat()
    broker.beat(epoch=2)
    epoch = broker.beat(epoch=3, topics=("s1",)).member_epoch
    assert broker.beat(epoch=epoch).assignment == ((S1, (0,)),)


def test_a_heartbeat_that_names_its_topics_gets_its_assignment():
    broker = ShareGroupHarness()
    broker.beat()
    broker.beat(epoch=2)
    assert broker.beat(epoch=3, topics=("t2",)).assignment == BOTH


# Epochs


def test_a_heartbeat_whose_response_was_lost_may_be_repeated_with_the_epoch_before():
    broker = ShareGroupHarness()
    broker.beat()
    broker.beat(epoch=2)
    assert broker.beat(epoch=2).member_epoch == 3
    assert broker.beat(epoch=1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert broker.beat(epoch=4).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_may_join_again_at_any_time():
    broker = ShareGroupHarness()
    broker.beat()
    broker.beat(epoch=2)
    again = broker.beat()
    assert (again.member_epoch, again.assignment) == (3, BOTH)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_id": ""}, "Invalid member id in the request."),
        ({"member_id": "x" * 37}, "Invalid member id in the request."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"topic_names": ()}, "SubscribedTopicNames must be set in first request."),
        ({"topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
        ({"topic_names": ("x" * 40_000,)}, "A text is longer than a record can hold, 32767 bytes."),
    ],
)
def test_a_heartbeat_that_is_wrong_by_itself_is_refused(changes, message):
    fields = {"group_id": "g", "member_id": "a", "member_epoch": 0, "rack_id": None, "topic_names": ("t2",)} | changes
    broker = ShareGroupHarness()
    result = broker.ask(ShareGroupHeartbeat(**fields))
    assert (result.error, result.message) == (ErrorCode.INVALID_REQUEST, message)
    assert broker.log == []


def test_a_broker_that_does_not_serve_share_groups_says_so():
    broker = ShareGroupHarness(serves_share_groups=False)
    assert broker.beat().error is ErrorCode.UNSUPPORTED_VERSION


def test_the_size_of_a_group_is_limited():
    """group.share.max.size."""
    broker = ShareGroupHarness(share_max_size=1)
    broker.beat("a")
    refused = broker.beat("b")
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.message == "The share group has reached its maximum capacity of 1 members."
    assert broker.beat("a").error is ErrorCode.NONE


# The end of members


def test_a_member_that_leaves_bumps_the_epoch_and_others_get_its_partitions():
    broker = ShareGroupHarness()
    broker.beat("a")
    broker.beat("a", 2)
    broker.beat("b")
    broker.beat("a", 3)
    left = broker.beat("b", -1)
    assert (left.error, left.member_epoch, left.assignment) == (ErrorCode.NONE, -1, None)
    assert kinds(broker)[-1] == [14, 13, 10, 11]
    assert broker.beat("a", 4).assignment == BOTH
    assert broker.beat("b", -1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_is_not_heard_of_is_removed():
    """group.share.session.timeout.ms."""
    broker = ShareGroupHarness()
    broker.beat("a")
    broker.after(44_999)
    broker.beat("a", 2)
    broker.after(44_999)
    assert broker.image().members
    broker.after(1)
    assert broker.image().state is ShareGroupState.EMPTY
    assert broker.beat("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_removal_that_could_not_be_written_is_tried_again():
    broker = ShareGroupHarness()
    broker.beat("a")
    broker.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    broker.after(45_000)
    assert broker.image().members
    broker.append_error = ErrorCode.NONE
    broker.after(500)
    assert not broker.image().members


def test_a_member_that_is_heard_of_while_its_removal_waits_stays():
    broker = ShareGroupHarness()
    broker.beat("a")
    broker.holds = True
    token = broker.send(ShareGroupHeartbeat("g", "a", 0, None, ("s1",)))
    broker.after(45_000)
    broker.holds = False
    while broker.held:
        broker.release()
    assert broker.response_to(token).error is ErrorCode.NONE
    assert "a" in broker.image().members


# Writes


def test_a_heartbeat_whose_records_are_not_written_changes_nothing():
    broker = ShareGroupHarness()
    broker.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.beat().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.changes == []
    broker.append_error = ErrorCode.NONE
    assert broker.beat(epoch=2).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.beat().member_epoch == 2


# Configs of groups


def test_a_groups_configs_stand_before_the_brokers_settings():
    """share.session.timeout.ms, share.heartbeat.interval.ms and share.assignment.interval.ms of one group."""
    broker = ShareGroupHarness()
    broker.event(GroupSettingsChanged("g", None, ConsumerGroupTimes(50_000, 7_000, 10_000)))
    assert broker.beat("a").heartbeat_interval_ms == 7_000
    assert broker.beat("a", group="other").heartbeat_interval_ms == 5_000
    assert broker.beat("a", 2).member_epoch == 2
    broker.after(49_999)
    assert broker.image().members
    assert not broker.image("other").members
    broker.after(1)
    assert not broker.image().members
    broker.event(GroupSettingsChanged("g", None))
    assert broker.beat("a").heartbeat_interval_ms == 5_000


def test_the_brokers_changed_settings_count_for_groups_without_their_own():
    """GroupCoordinatorConfig.RECONFIGURABLE_CONFIGS."""
    broker = ShareGroupHarness()
    broker.event(GroupSettingsChanged("own", None, ConsumerGroupTimes(45_000, 7_000, 0)))
    changed = ConsumerGroupTimes(45_000, 6_000, 0)
    broker.event(GroupDefaultsChanged(changed, changed))
    assert broker.beat("a").heartbeat_interval_ms == 6_000
    assert broker.beat("a", group="own").heartbeat_interval_ms == 7_000


# Other types of groups


def test_a_group_is_of_one_type():
    broker = ShareGroupHarness()
    broker.beat(group="share")
    consumer = ConsumerGroupHeartbeat("share", "c", 0, rebalance_timeout_ms=1, topic_names=("t2",), owned=())
    assert broker.ask(consumer).error is ErrorCode.GROUP_ID_NOT_FOUND
    join = JoinGroup("share", "", 10_000, 10_000, "consumer", (Protocol("range", b""),), client_id="c")
    assert broker.ask(join).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    commit = OffsetCommit("share", (OffsetToCommit(T, 1),), -1, "", None)
    assert set(broker.ask(commit).partitions.values()) == {ErrorCode.GROUP_ID_NOT_FOUND}
    transactional = TxnOffsetCommit("tx", "share", 7, 0, (OffsetToCommit(T, 1),))
    assert set(broker.ask(transactional).partitions.values()) == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert broker.ask(OffsetFetch("share", (T,))).offsets[T].offset == -1
    described = broker.ask(DescribeConsumerGroup("share"))
    assert (described.error, described.message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group share is not a consumer group.",
    )


def test_a_share_member_does_not_join_a_group_of_another_type():
    broker = ShareGroupHarness()
    broker.ask(ConsumerGroupHeartbeat("c", "c", 0, rebalance_timeout_ms=1, topic_names=("t2",), owned=()))
    broker.commit(group="classic")
    for group in ("c", "classic"):
        for epoch in (0, -1):
            result = broker.beat(epoch=epoch, group=group)
            expected = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} is not a share group."
            assert (result.error, result.message) == expected
    assert broker.beat(epoch=5, group="none").message == "Share group none not found."
    assert broker.beat(epoch=-1, group="none").message == "Group none not found."


def test_share_groups_are_listed_by_their_type():
    broker = ShareGroupHarness()
    broker.beat()
    broker.commit(group="classic")
    assert broker.ask(ListGroups(types=("Share",))).groups == [ListedGroup("g", "share", "Stable", "share")]
    broker.beat(epoch=-1)
    assert broker.ask(ListGroups(states=("empty",), types=("share",))).groups[0].state == "Empty"


def test_a_description_shows_members_with_their_assignments():
    broker = ShareGroupHarness()
    broker.beat()
    broker.beat(epoch=2)
    described = broker.ask(DescribeShareGroup("g"))
    assert (described.state, described.group_epoch, described.assignment_epoch, described.assignor) == (
        "Stable",
        3,
        3,
        "simple",
    )
    (member,) = described.members
    assert (member.member_epoch, member.topic_names, member.assignment[0].partitions) == (3, ("t2",), (0, 1))
    broker.commit(group="classic")
    assert broker.ask(DescribeShareGroup("classic")).message == "Group classic is not a share group."
    assert broker.ask(DescribeShareGroup("none")).error is ErrorCode.GROUP_ID_NOT_FOUND
    as_classic = broker.ask(DescribeGroup("g"))
    assert (as_classic.state, as_classic.is_of_another_type) == ("Dead", True), "DescribeGroups says so from 6 on"
    assert not broker.ask(DescribeGroup("none")).is_of_another_type


# Deletion


def test_a_group_with_members_is_not_deleted():
    broker = ShareGroupHarness()
    broker.beat()
    assert broker.ask(DeleteGroup("g")).error is ErrorCode.NON_EMPTY_GROUP


def test_the_states_of_a_group_are_deleted_before_the_group():
    broker = ShareGroupHarness()
    broker.beat()
    broker.beat(epoch=-1)
    written = len(broker.written())
    broker.holds_changes = True
    token = broker.send(DeleteGroup("g"))
    assert broker.is_parked(token)
    assert broker.image().known_states.deleting == {T2: "t2"}
    broker.change()
    assert broker.response_to(token).error is ErrorCode.NONE
    assert broker.states.coordinator.state_of(SharePartitionKey("g", T2, 0)) is None
    assert kinds(broker, written) == [[15], [12, 15, 11]]
    assert broker.ask(DescribeShareGroup("g")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.successor().ask(DescribeShareGroup("g")).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deletion_that_fails_at_the_share_coordinator_can_be_repeated():
    broker = ShareGroupHarness()
    broker.beat()
    broker.beat(epoch=-1)
    broker.holds_changes = True
    token = broker.send(DeleteGroup("g"))
    broker.change(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert broker.response_to(token).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.holds_changes = False
    assert broker.ask(DeleteGroup("g")).error is ErrorCode.NONE


def test_a_member_that_joins_while_its_group_is_being_deleted_keeps_it():
    broker = ShareGroupHarness()
    broker.beat()
    broker.beat(epoch=-1)
    broker.holds_changes = True
    token = broker.send(DeleteGroup("g"))
    broker.beat("b")
    broker.change()
    assert broker.response_to(token).error is ErrorCode.NON_EMPTY_GROUP
    assert "b" in broker.image().members


# Loading


def test_a_load_gives_the_group_that_was_in_force_with_its_sessions():
    broker = ShareGroupHarness()
    broker.beat("a")
    broker.beat("b")
    broker.beat("a", 2)
    successor = broker.successor()
    assert successor.image() == broker.image()
    assert successor.beat("a", successor.image().members["a"].epoch).error is ErrorCode.NONE
    successor.after(45_000)
    assert not successor.image().members


def test_a_broker_without_share_groups_skips_their_records():
    broker = ShareGroupHarness()
    broker.beat()
    successor = ShareGroupHarness(log=broker.log, now_ms=broker.now_ms, serves_share_groups=False)
    assert successor.ask(ListGroups()).groups == []
    assert any("Unknown message key with version 11" in line.text for line in successor.lines)


def test_a_record_that_makes_no_sense_costs_its_group_alone():
    broker = ShareGroupHarness()
    broker.beat()
    broker.beat(group="other")
    epoch_key = b"\0\x0b\0\x01g"
    broker.write(batch_of([Record(epoch_key, b"\0\7abc")], broker.now_ms))
    successor = broker.successor()
    assert successor.beat(epoch=2).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert successor.beat(epoch=2, group="other").error is ErrorCode.NONE
    assert successor.ask(DeleteGroup("g")).error is ErrorCode.NONE
    assert successor.beat().error is ErrorCode.NONE


def test_a_group_with_the_records_of_two_types_is_refused():
    broker = ShareGroupHarness()
    broker.beat()
    other = ShareGroupHarness()
    other.ask(ConsumerGroupHeartbeat("g", "c", 0, rebalance_timeout_ms=1, topic_names=("t2",), owned=()))
    mixed = ShareGroupHarness(log=[*broker.log, *other.log], now_ms=broker.now_ms)
    assert mixed.beat(epoch=2).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_requests_that_wait_fail_when_the_leadership_is_lost():
    broker = ShareGroupHarness()
    broker.holds = True
    first = broker.send(ShareGroupHeartbeat("g", "a", 0, None, ("t2",)))
    second = broker.send(ShareGroupHeartbeat("g", "b", 0, None, ("t2",)))
    broker.resign(1)
    assert broker.response_to(second).error is ErrorCode.NOT_COORDINATOR
    broker.release()
    assert broker.response_to(first).error is ErrorCode.NOT_COORDINATOR
