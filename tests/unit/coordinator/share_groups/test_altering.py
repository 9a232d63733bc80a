"""An administrator alters and deletes the offsets of share groups (KIP-932), one test for each rule."""

import pytest
from tests.unit.coordinator.share_groups.harness import T2, ShareGroupHarness

from tidegauge.errors import ErrorCode
from tidegauge.groups import ListGroups
from tidegauge.share_groups import AlteredOffset, AlterShareOffsets, DeleteShareOffsets, SharePartitionKey

UNKNOWN = AlteredOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
FINE = AlteredOffset()


def state(broker, partition=0):
    return broker.states.coordinator.state_of(SharePartitionKey("g", T2, partition))


def empty_group():
    broker = ShareGroupHarness()
    broker.beat()
    broker.beat(epoch=-1)
    return broker


def test_a_group_begins_at_the_offset_of_the_request():
    broker = empty_group()
    result = broker.ask(AlterShareOffsets("g", {"t2": {0: 7}}))
    assert (result.error, result.partitions) == (ErrorCode.NONE, {"t2": {0: FINE}})
    assert (state(broker).start_offset, state(broker).state_epoch, state(broker).complete_count) == (7, 3, 0)
    assert state(broker, 1).start_offset == -1


def test_a_group_that_does_not_exist_is_made():
    broker = ShareGroupHarness()
    broker.ask(AlterShareOffsets("g", {"t2": {0: 7, 1: -5}}))
    assert [(one.group_id, one.state, one.group_type) for one in broker.ask(ListGroups()).groups] == [
        ("g", "Empty", "share")
    ]
    assert (state(broker).state_epoch, state(broker, 1).start_offset) == (1, -5)
    assert broker.successor().image() == broker.image()
    assert broker.beat().assignment == ((T2, (0, 1)),)


def test_a_group_with_members_is_left_alone():
    broker = ShareGroupHarness()
    broker.beat()
    for request in (AlterShareOffsets("g", {"t2": {0: 7}}), DeleteShareOffsets("g", ["t2"])):
        result = broker.ask(request)
        assert (result.error, result.message) == (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def test_partitions_that_do_not_exist_are_named():
    broker = ShareGroupHarness()
    result = broker.ask(AlterShareOffsets("g", {"none": {0: 1}, "t2": {2: 1}}))
    assert result.partitions == {"none": {0: UNKNOWN}, "t2": {2: UNKNOWN}}
    assert [(one.group_id, one.state) for one in broker.ask(ListGroups()).groups] == [("g", "Empty")]
    assert broker.successor().image() == broker.image()
    assert broker.beat().error is ErrorCode.NONE


def test_a_group_is_not_made_for_topics_that_do_not_exist():
    broker = ShareGroupHarness()
    assert broker.ask(AlterShareOffsets("g", {"none": {0: 1}})).partitions == {"none": {0: UNKNOWN}}
    assert broker.log == []


def test_a_negative_partition_of_a_topic_fails_the_request():
    """DefaultStatePersister.validate; the state of the other partition is not asked for either.

    The group is there all the same: its record was written before.
    """
    for partitions in ({0: 7, -1: 1}, {-1: 1}):
        broker = ShareGroupHarness()
        result = broker.ask(AlterShareOffsets("g", {"t2": partitions}))
        assert (result.error, result.partitions) == (ErrorCode.UNKNOWN_SERVER_ERROR, {})
        assert "negative" in result.message
        assert state(broker) is None
        assert [(one.group_id, one.state) for one in broker.ask(ListGroups()).groups] == [("g", "Empty")]
        assert [one.group_id for one in broker.successor().ask(ListGroups()).groups] == ["g"]


def test_a_group_of_another_type_is_none():
    broker = ShareGroupHarness()
    broker.commit(group="g")
    altered = broker.ask(AlterShareOffsets("g", {"t2": {0: 7}}))
    assert (altered.error, altered.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a share group.")
    for group in ("g", "none"):
        deleted = broker.ask(DeleteShareOffsets(group, ["t2"]))
        assert (deleted.error, deleted.message) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.")


@pytest.mark.parametrize("request_", [AlterShareOffsets("", {}), DeleteShareOffsets("", [])])
def test_a_group_has_a_name(request_):
    assert ShareGroupHarness().ask(request_).error is ErrorCode.INVALID_GROUP_ID


def test_an_offset_that_the_share_coordinator_does_not_take_keeps_its_error():
    broker = empty_group()
    broker.holds_changes = True
    token = broker.send(AlterShareOffsets("g", {"t2": {0: 7}}))
    broker.change(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert broker.response_to(token).partitions["t2"][0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.image().known_states.initializing[T2].partitions == {0}


def test_a_group_that_an_alteration_has_made_stays_when_the_share_coordinator_refuses():
    """The record of initializing partitions is not taken back; a heartbeat begins them after the retry interval."""
    broker = ShareGroupHarness()
    broker.holds_changes = True
    broker.send(AlterShareOffsets("g", {"t2": {0: 7, 1: 7}}))
    written = len(broker.log)
    broker.change(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert len(broker.log) == written, "a failed alteration writes nothing more"
    assert [(one.group_id, one.state) for one in broker.ask(ListGroups()).groups] == [("g", "Empty")]
    broker.holds_changes = False
    broker.beat()
    assert broker.image().known_states.initialized == {}
    broker.after(30_000)
    broker.beat(epoch=0)
    assert broker.image().known_states.initialized[T2].partitions == {0, 1}


def test_the_states_of_whole_topics_are_forgotten():
    broker = empty_group()
    result = broker.ask(DeleteShareOffsets("g", ["t2", "s1", "none"]))
    assert result.topics == {
        "t2": FINE,
        "s1": AlteredOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."),
        "none": UNKNOWN,
    }
    assert state(broker) is None
    assert broker.image().known_states == ({}, {}, {})


def test_a_deletion_that_fails_is_repeated():
    broker = empty_group()
    broker.holds_changes = True
    token = broker.send(DeleteShareOffsets("g", ["t2"]))
    broker.change(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert broker.response_to(token).topics["t2"].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.image().known_states.deleting == {T2: "t2"}
    broker.holds_changes = False
    assert broker.ask(DeleteShareOffsets("g", ["t2"])).topics == {"t2": FINE}
    assert broker.image().known_states.deleting == {}


def test_records_that_are_not_written_change_nothing():
    broker = empty_group()
    broker.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.ask(AlterShareOffsets("g", {"t2": {0: 7}})).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.ask(DeleteShareOffsets("g", ["t2"])).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state(broker).start_offset == -1


@pytest.mark.parametrize("is_initialized_first", [True, False])
def test_a_partition_that_is_being_initialized_outlives_the_deletion_as_in_kafka(is_initialized_first):
    """GroupMetadataManager.sharePartitionsEligibleForOffsetDeletion takes initialized partitions alone."""
    broker = empty_group()
    broker.topics(t2=3)
    broker.holds_changes = True
    broker.beat()
    broker.beat(epoch=-1)
    token = broker.send(DeleteShareOffsets("g", ["t2"]))
    initialization, deletion = broker.changes
    assert [one.key.partition for one in initialization.requests] == [2]
    assert [one.key.partition for one in deletion.requests] == [0, 1]
    assert broker.image().known_states == ({T2: ("t2", {2})}, {}, {T2: "t2"})
    if not is_initialized_first:
        broker.changes.reverse()
    broker.change()
    broker.change()
    assert broker.response_to(token).topics == {"t2": FINE}
    assert broker.image().known_states == ({}, {T2: ("t2", {2})}, {})
    assert [state(broker, partition) is None for partition in range(3)] == [True, True, False]
