"""Changes of partitions: elections, eligible leader replicas, epochs, AlterPartition, reassignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.metadata.cluster_world import SESSION_MS, World, directory

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_controller.metadata.decisions import brokers, partitions
from tidegauge_controller.metadata.decisions.features import FeatureUpdate, UpgradeType, update_features
from tidegauge_controller.metadata.decisions.reassignment import Reassignment, alter_reassignments, reassignments
from tidegauge_controller.metadata.decisions.view import Decision
from tidegauge_controller.metadata.image import BROKER, TOPIC, PartitionRegistration

UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"


def changed(records: Sequence[MetadataRecord]) -> list[dict[str, Any]]:
    """Return the fields that each change of a partition sets."""
    found = []
    for record in records:
        if record.type.label == "PARTITION_CHANGE_RECORD":
            message = record.message
            values = {name: getattr(message, name) for name in message.__slots__}
            found.append(
                {
                    name: list(value) if isinstance(value, tuple | list) else value
                    for name, value in values.items()
                    if value is not None
                    and name not in {"partition_id", "topic_id"}
                    and (name, value) not in [("leader", -2), ("leader_recovery_state", -1)]
                }
            )
    return found


def restart(world: World, broker_id: int, *, is_clean: bool = False) -> list[dict[str, Any]]:
    """Restart a fenced broker; return what its return changes."""
    world.now_ms += SESSION_MS
    epoch = world.epoch(broker_id)
    records = world.register(broker_id, previous_broker_epoch=epoch if is_clean else -1)
    begin = brokers.unfence(world.view, world.view.image.brokers[broker_id])
    world.heartbeat(broker_id)
    return changed(records) + changed(begin)


def alter(world: World, isr: Sequence[int], name: str = "t", **fields: Any) -> Decision[list[partitions.IsrResult]]:
    """Propose an ISR as the leader does."""
    state = world.state(name)
    values: dict[str, Any] = {
        "topic_id": world.topic_id(name),
        "partition": 0,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "new_isr": tuple((member, -1) for member in isr),
    }
    sender = fields.pop("sender", state.leader)
    change = partitions.IsrChange(**(values | fields))
    return partitions.alter_partition(world.view, sender, world.epoch(sender), [change])


def test_the_story_of_eligible_leader_replicas() -> None:
    """KIP-966, part 1: three brokers die, all restart uncleanly; the last known leader leads again."""
    world = World()
    world.create("t", [0, 1, 2], configs={MIN_ISR: "2"})
    assert changed(world.fence(0)) == [{"isr": [1, 2], "leader": 1}]
    assert changed(world.fence(2)) == [{"isr": [1], "eligible_leader_replicas": [2]}]
    assert changed(world.fence(1)) == [
        {"isr": [], "leader": -1, "eligible_leader_replicas": [1, 2], "last_known_elr": [1]}
    ]
    assert restart(world, 2) == [{"eligible_leader_replicas": [1]}]
    assert restart(world, 1) == [
        {"eligible_leader_replicas": []},
        {"isr": [1], "leader": 1, "leader_recovery_state": 1, "last_known_elr": []},
    ]
    recovered = alter(world, [1, 2])
    assert changed(recovered.records) == [{"isr": [1, 2], "leader_recovery_state": 0}]


def test_a_member_of_the_elr_is_elected_cleanly_after_a_clean_restart() -> None:
    world = World()
    world.create("t", [0, 1], configs={MIN_ISR: "2"})
    world.fence(1)
    world.fence(0)
    assert restart(world, 1, is_clean=True) == [
        {"isr": [1], "leader": 1, "eligible_leader_replicas": [0], "last_known_elr": []}
    ]


def test_without_elr_the_last_member_stays_in_the_isr() -> None:
    world = World(elr=False)
    world.create("t", [0, 1], configs={MIN_ISR: "2"})
    assert changed(world.fence(1)) == [{"isr": [0]}]
    assert changed(world.fence(0)) == [{"leader": -1}]
    assert world.state() == PartitionRegistration((0, 1), (directory(0), directory(1)), (0,), -1, 1, 2)
    assert restart(world, 1) == []
    assert restart(world, 0) == [{"leader": 0}]


def test_elrs_vanish_when_the_feature_is_off() -> None:
    world = World()
    world.create("t", [0, 1], configs={MIN_ISR: "2"})
    world.fence(1)
    off = FeatureUpdate("eligible.leader.replicas.version", 0, UpgradeType.SAFE_DOWNGRADE)
    world.take(update_features(world.view, [off], []))
    assert changed(world.fence(0)) == [{"leader": -1, "eligible_leader_replicas": []}]


def test_an_unclean_election_is_made_in_the_fencing_itself() -> None:
    world = World()
    world.create("t", [0, 1], configs={UNCLEAN: "true"})
    world.take(alter(world, [0]))
    assert changed(world.fence(0)) == [{"isr": [1], "leader": 1, "leader_recovery_state": 1}]


def test_the_last_known_leader_comes_before_an_unclean_election_in_order() -> None:
    world = World()
    world.create("t", [0, 1, 2], configs={MIN_ISR: "2"})
    for broker_id in (0, 2, 1):
        world.fence(broker_id)
    world.now_ms += SESSION_MS
    for broker_id in (0, 1, 2):
        world.register(broker_id)
    assert (world.state().elr, world.state().last_known_elr) == ((), (1,))
    world.heartbeat(0)
    assert world.state().leader == -1
    world.set(TOPIC, "t", UNCLEAN, "true")
    world.heartbeat(1)
    assert (world.state().leader, world.state().recovering) == (1, True)


def test_the_last_known_leader_waits_while_the_elr_has_a_member() -> None:
    """It may have lost records that the other one has."""
    world = World()
    world.create("t", [0, 1], configs={MIN_ISR: "2"})
    world.fence(1)
    world.fence(0)
    restart(world, 0)
    state = world.state()
    assert (state.leader, state.elr, state.last_known_elr) == (-1, (1,), (0,))


def test_a_replica_that_leaves_the_assignment_leaves_the_elr() -> None:
    world = World()
    world.create("t", [0, 1], configs={MIN_ISR: "2"})
    reassign(world, (2,))
    world.take(alter(world, [0, 2]))
    state = world.state()
    assert (state.replicas, state.isr, state.elr, state.leader) == ((2,), (2,), (), 2)


def test_a_replica_in_a_failed_directory_is_not_elected_even_uncleanly() -> None:
    world = World(directories=2)
    world.create("t", [0, 1], configs={UNCLEAN: "true"})
    wanted = {directory(1, 5): [(world.topic_id(), 0)]}
    world.take(partitions.assign_replicas_to_directories(world.view, 1, world.epoch(1), wanted))
    assert world.state().isr == (0,)
    world.fence(0)
    assert world.state().leader == -1


def test_min_isr_is_that_of_the_topic_else_the_controllers_else_the_clusters_else_static() -> None:
    world = World(min_insync_replicas=2)
    world.create("t", [0, 1, 2])
    topic = world.view.topic_of("t")
    assert topic is not None
    found = []
    for kind, name, value in ((BROKER, "", "3"), (BROKER, "3000", "1"), (TOPIC, "t", "2"), (TOPIC, "t", "9")):
        world.set(kind, name, MIN_ISR, value)
        found.append(world.view.min_isr(topic))
    assert found == [3, 1, 2, 3]
    world.set(TOPIC, "t", MIN_ISR, "many")
    assert world.view.min_isr(topic) == 1


def test_a_setting_of_min_isr_that_is_no_number_is_passed_over() -> None:
    world = World([0], elr=False, min_insync_replicas=1)
    world.create("t", [0])
    world.set(TOPIC, "t", MIN_ISR, "x")
    topic = world.view.topic_of("t")
    assert topic is not None
    assert world.view.min_isr(topic) == 1


def test_the_leader_epoch_rises_with_the_leader_and_not_with_the_isr() -> None:
    world = World()
    world.create("t", [0, 1, 2])
    world.fence(2)
    assert (world.state().leader_epoch, world.state().partition_epoch) == (0, 1)
    world.fence(0)
    assert (world.state().leader_epoch, world.state().partition_epoch) == (1, 2)


REFUSED_PROPOSALS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "an unknown topic": ({"topic_id": "AAAAAAAAAAAAAAAAAAAAAA"}, ErrorCode.UNKNOWN_TOPIC_ID),
    "an unknown partition": ({"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a later leader epoch": ({"leader_epoch": 9, "partition_epoch": 0}, ErrorCode.NOT_CONTROLLER),
    "a later partition epoch": ({"partition_epoch": 99, "leader_epoch": 0}, ErrorCode.NOT_CONTROLLER),
    "an earlier leader epoch": ({"leader_epoch": 0, "partition_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
    "another sender": ({"sender": 2, "partition_epoch": 0}, ErrorCode.INVALID_REQUEST),
    "an earlier partition epoch": ({"partition_epoch": 0, "new_isr": ((9, -1),)}, ErrorCode.INVALID_UPDATE_VERSION),
    "a member twice": ({"new_isr": ((1, -1), (1, -1))}, ErrorCode.INVALID_REQUEST),
    "a stranger": ({"new_isr": ((1, -1), (9, -1))}, ErrorCode.INVALID_REQUEST),
    "no leader": ({"new_isr": ((2, -1),)}, ErrorCode.INVALID_REQUEST),
    "recovering with two": ({"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
    "recovering from nothing": ({"leader_recovery_state": 1, "new_isr": ((1, -1),)}, ErrorCode.INVALID_REQUEST),
    "an unknown recovery state": ({"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
    "a fenced member": ({"new_isr": ((1, -1), (0, -1))}, ErrorCode.INELIGIBLE_REPLICA),
    "a former incarnation": ({"new_isr": ((1, -1), (2, 3))}, ErrorCode.INELIGIBLE_REPLICA),
}


@pytest.mark.parametrize("name", REFUSED_PROPOSALS)
def test_a_proposal_is_refused(name: str) -> None:
    """ReplicationControlManager.validateAlterPartitionData, in its order."""
    fields, error = REFUSED_PROPOSALS[name]
    world = World()
    world.create("t", [0, 1, 2])
    world.fence(0)
    decision = alter(world, [1, 2], **fields)
    assert ([one.error for one in decision.response], decision.records) == ([error], [])


def test_a_proposal_of_a_stale_broker_epoch_is_refused_as_a_whole() -> None:
    world = World()
    with pytest.raises(TidegaugeError) as refusal:
        partitions.alter_partition(world.view, 0, 1, [])
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_member_that_shuts_down_is_not_eligible() -> None:
    world = World()
    world.create("t", [0, 1, 2])
    world.create("u", [2])
    world.heartbeat(2, want_shut_down=True)
    assert [one.error for one in alter(world, [0, 1, 2]).response] == [ErrorCode.INELIGIBLE_REPLICA]


def test_a_proposal_of_what_is_already_so_is_acknowledged_without_a_record() -> None:
    world = World()
    world.create("t", [0, 1, 2])
    decision = alter(world, [0, 1, 2])
    assert (decision.records, [one.state for one in decision.response]) == ([], [world.state()])


def test_a_second_proposal_for_a_partition_in_one_request_is_stale() -> None:
    world = World()
    world.create("t", [0, 1, 2])
    state = world.state()
    change = partitions.IsrChange(world.topic_id(), 0, state.leader_epoch, state.partition_epoch, ((0, -1),))
    decision = partitions.alter_partition(world.view, 0, world.epoch(0), [change, change])
    assert [one.error for one in decision.response] == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert len(decision.records) == 1


def test_a_shrink_below_min_isr_by_the_leader_fills_the_elr() -> None:
    world = World()
    world.create("t", [1, 2], configs={MIN_ISR: "2"})
    world.take(alter(world, [1]))
    assert (world.state().isr, world.state().elr) == ((1,), (2,))
    world.take(alter(world, [1, 2]))
    assert (world.state().isr, world.state().elr, world.state().leader_epoch) == ((1, 2), (), 0)


ELECTIONS = [
    (("x", 0), False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as x"),
    (("t", 7), False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-7"),
    (("t", 0), False, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
    (("t", 0), True, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
    (("u", 0), False, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    (("v", 0), True, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."),
]


@pytest.mark.parametrize(("at", "unclean", "error", "sentence"), ELECTIONS)
def test_an_election_on_demand_is_refused(at: tuple[str, int], unclean: bool, error: ErrorCode, sentence: str) -> None:
    """ReplicationControlManager.electLeader."""
    world = World()
    world.create("t", [1, 2])
    world.create("u", [0, 1])
    world.create("v", [0])
    world.fence(0)
    decision = partitions.elect_leaders(world.view, [at], unclean=unclean)
    assert [(one.error, one.message) for one in decision.response] == [(error, sentence)]
    assert decision.records == []


def test_all_preferred_leaders_are_elected_and_the_rest_is_not_reported() -> None:
    world = World()
    world.create("t", [0, 1])
    world.create("u", [1, 2])
    world.fence(0)
    restart(world, 0)
    world.take(alter(world, [0, 1]))
    decision = partitions.elect_leaders(world.view, None, unclean=False)
    assert [(one.topic, one.error) for one in decision.response] == [("t", ErrorCode.NONE)]
    assert changed(decision.records) == [{"leader": 0}]
    assert changed(partitions.balance_leaders(world.view).records) == [{"leader": 0}]


def test_periodic_elections_are_limited_and_ask_for_another_run() -> None:
    world = World(max_elections=2)
    for name in ("a", "b", "c"):
        world.create(name, [0, 1], configs={UNCLEAN: "true"})
    for name in ("a", "b", "c"):
        world.take(alter(world, [0], name))
        world.set(TOPIC, name, UNCLEAN, "false")
    world.fence(1)
    world.fence(0)
    restart(world, 1)
    for name in ("a", "b", "c"):
        world.set(TOPIC, name, UNCLEAN, "true")
    first = partitions.elect_unclean_leaders(world.view)
    assert (len(first.records), first.response) == (2, True)
    world.take(first)
    second = partitions.elect_unclean_leaders(world.view)
    assert (len(second.records), second.response) == (1, False)


def test_an_unclean_election_needs_the_topics_permission() -> None:
    world = World()
    world.create("t", [0, 1])
    world.take(alter(world, [0]))
    world.fence(0)
    assert partitions.elect_unclean_leaders(world.view).records == []
    elected = partitions.elect_leaders(world.view, [("t", 0)], unclean=True)
    assert changed(elected.records) == [
        {
            "isr": [1],
            "leader": 1,
            "leader_recovery_state": 1,
            "eligible_leader_replicas": [],
            "last_known_elr": [],
        }
    ]


def reassign(world: World, replicas: tuple[int, ...] | None, **options: Any) -> list[dict[str, Any]]:
    decision = alter_reassignments(world.view, [Reassignment("t", 0, replicas)], **options)
    assert [one.message for one in decision.response] == [""]
    return changed(world.take(decision))


def test_a_reassignment_takes_two_records() -> None:
    world = World([0, 1, 2, 3])
    world.create("t", [0, 1, 2])
    assert reassign(world, (3, 1, 2)) == [
        {
            "replicas": [3, 1, 2, 0],
            "removing_replicas": [0],
            "adding_replicas": [3],
            "directories": world_directories(3, 1, 2, 0),
        }
    ]
    assert world.state().leader_epoch == 0
    assert [(name, at) for name, at, _ in reassignments(world.view.image, None)] == [("t", 0)]
    assert reassignments(world.view.image, [("t", 1), ("x", 0)]) == []
    completed = alter(world, [0, 1, 2, 3])
    assert [one.error for one in completed.response] == [ErrorCode.NEW_LEADER_ELECTED]
    world.take(completed)
    state = world.state()
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((3, 1, 2), (1, 2, 3), 3, 1)
    assert (state.removing, state.adding, state.is_reassigning) == ((), (), False)


def world_directories(*broker_ids: int) -> list[bytes]:
    return [topic_id_bytes(directory(broker_id)) for broker_id in broker_ids]


def test_a_reassignment_waits_for_all_that_it_adds() -> None:
    world = World([0, 1, 2, 3])
    world.create("t", [0, 1])
    reassign(world, (2, 3))
    world.take(alter(world, [0, 1, 2]))
    assert world.state().is_reassigning
    world.take(alter(world, [0, 1, 2, 3]))
    assert (world.state().replicas, world.state().leader) == ((2, 3), 2)


def test_a_reassignment_to_fewer_replicas_waits_for_all_that_stay() -> None:
    world = World([0, 1, 2])
    world.create("t", [0, 1, 2])
    world.take(alter(world, [0, 1]))
    reassign(world, (1, 2))
    assert world.state().removing == (0,)
    world.take(alter(world, [0, 1, 2]))
    assert (world.state().replicas, world.state().leader, world.state().isr) == ((1, 2), 1, (1, 2))


def test_a_leader_that_stays_gets_a_new_epoch_when_replicas_leave() -> None:
    world = World([0, 1, 2])
    world.create("t", [0, 1, 2])
    reassign(world, (0, 1))
    state = world.state()
    assert (state.replicas, state.leader, state.leader_epoch) == ((0, 1), 0, 1)


def test_a_change_of_the_order_alone_is_made_at_once_and_without_a_new_epoch() -> None:
    world = World()
    world.create("t", [0, 1, 2])
    assert reassign(world, (2, 1, 0)) == [{"replicas": [2, 1, 0], "directories": world_directories(2, 1, 0)}]
    assert (world.state().leader, world.state().leader_epoch) == (0, 0)


def test_a_reassignment_that_is_replaced_by_the_former_replicas_ends() -> None:
    world = World([0, 1, 2, 3])
    world.create("t", [0, 1, 2])
    reassign(world, (3, 1, 2))
    reassign(world, (0, 1, 2))
    assert (world.state().replicas, world.state().is_reassigning) == ((0, 1, 2), False)


def test_a_cancelled_reassignment_returns_to_the_former_replicas() -> None:
    world = World([0, 1, 2, 3])
    world.create("t", [0, 1, 2])
    reassign(world, (3, 1, 2))
    reassign(world, None)
    state = world.state()
    assert (sorted(state.replicas), state.isr, state.is_reassigning) == ([0, 1, 2], (0, 1, 2), False)
    assert state.leader_epoch == 1


def test_a_cancellation_that_would_be_unclean_needs_the_topics_permission() -> None:
    world = World()
    world.create("t", [0])
    reassign(world, (1, 2))
    world.take(alter(world, [0, 1]))
    world.fence(0)
    assert world.state().isr == (1,)
    refused = alter_reassignments(world.view, [Reassignment("t", 0, None)])
    assert [(one.error, one.message) for one in refused.response] == [
        (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unable to revert partition assignment for t:0 because it would require an unclean leader election.",
        )
    ]
    world.set(TOPIC, "t", UNCLEAN, "true")
    reassign(world, None)
    assert (world.state().replicas, world.state().isr, world.state().leader) == ((0,), (0,), -1)


def test_an_unclean_cancellation_leaves_one_replica_in_the_isr() -> None:
    """PartitionReassignmentRevert: the first one; here it is fenced, so that the next one is elected uncleanly."""
    world = World([0, 1, 2, 3])
    world.create("t", [0, 1])
    reassign(world, (2, 3))
    world.take(alter(world, [0, 2]))
    world.fence(0)
    world.set(TOPIC, "t", UNCLEAN, "true")
    reassign(world, None)
    assert (world.state().isr, world.state().leader, world.state().recovering) == ((1,), 1, True)


def test_a_cancellation_needs_a_reassignment() -> None:
    world = World()
    world.create("t", [0])
    decision = alter_reassignments(world.view, [Reassignment("t", 0, None), Reassignment("x", 0, (1,))])
    assert [(one.error, one.message) for one in decision.response] == [
        (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment of the partition is in progress."),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named x."),
    ]


REFUSED_REASSIGNMENTS = [
    ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."),
    (
        (9,),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    ),
    (
        (1, 1),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes the broker 1 more than once.",
    ),
    ((1,), ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 2 to 1"),
]


@pytest.mark.parametrize(("replicas", "error", "sentence"), REFUSED_REASSIGNMENTS)
def test_a_reassignment_is_refused(replicas: tuple[int, ...], error: ErrorCode, sentence: str) -> None:
    world = World()
    world.create("t", [0, 1])
    decision = alter_reassignments(world.view, [Reassignment("t", 0, replicas)], may_change_replication_factor=False)
    assert [(one.error, one.message) for one in decision.response] == [(error, sentence)]
    missing = alter_reassignments(world.view, [Reassignment("t", 5, (0,))])
    assert [one.message for one in missing.response] == ["Unable to find partition t:5."]


def test_the_replication_factor_is_that_of_the_reassignment_in_progress() -> None:
    """ReplicationControlManager.validatePartitionReplicationFactorUnchanged."""
    world = World([0, 1, 2, 3])
    world.create("t", [0, 1])
    reassign(world, (1, 2, 3))
    reassign(world, (2, 3, 0), may_change_replication_factor=False)
    refused = alter_reassignments(world.view, [Reassignment("t", 0, (0, 1))], may_change_replication_factor=False)
    assert [one.message for one in refused.response] == ["The replication factor is changed from 3 to 2"]


def test_replicas_are_assigned_to_directories_and_strangers_are_refused() -> None:
    world = World(directories=2)
    world.create("t", [0, 1])
    wanted = {
        directory(0, 1): [(world.topic_id(), 0), (world.topic_id(), 3), ("AAAAAAAAAAAAAAAAAAAAAA", 0)],
    }
    decision = partitions.assign_replicas_to_directories(world.view, 0, world.epoch(0), wanted)
    assert [one.error for one in decision.response] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    world.take(decision)
    assert world.state().directory(0) == directory(0, 1)
    assert (world.state().partition_epoch, world.state().leader_epoch) == (1, 0)
    stranger = partitions.assign_replicas_to_directories(
        world.view, 2, world.epoch(2), {directory(2): [(world.topic_id(), 0)]}
    )
    assert [one.error for one in stranger.response] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_replica_in_a_directory_that_is_not_online_leaves_the_isr() -> None:
    world = World(directories=2)
    world.create("t", [0, 1])
    wanted = {directory(0, 5): [(world.topic_id(), 0)]}
    world.take(partitions.assign_replicas_to_directories(world.view, 0, world.epoch(0), wanted))
    assert (world.state().leader, world.state().isr) == (1, (1,))
