"""Each change of a replica's role is one of the table, and each row of it is taken: by a test here, or simulated.

Kafka has no such table: Partition.makeLeader and makeFollower, ReplicaManager.handleLogDirFailure and stopPartitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from lone_broker import ME, OTHER, A, LoneBroker, broker_of, role

from tidegauge.control import ControlHeader, StopReplicaPartition, StopReplicaRequest
from tidegauge.partition_state import NO_LEADER, PartitionState
from tidegauge_broker.replica.hosted import contain
from tidegauge_broker.replica.messages import CoreSettings, TopicRules
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.producer_state import ProducerState
from tidegauge_broker.replica.roles import ALLOWED, TRANSITIONS, Role, check_transition
from tidegauge_proof.simulator.simulation import history_of, replay_schedule

ABSENT = 9
"""A broker that is not alive."""
Change = tuple[Role | None, Role | None]


def hosted(old: Role) -> LoneBroker:
    """Return a broker whose replica has a role, in leader epoch 0."""
    broker = broker_of(A)
    leader = {Role.LEADER: ME, Role.FOLLOWER: OTHER}.get(old, ABSENT)
    role(broker, leader, 0, isr=(leader, ME, OTHER))
    if old is Role.OFFLINE:
        broker.execute(broker.core.log_dir_failed([A]))
    assert role_of(broker) is old
    return broker


def role_of(broker: LoneBroker) -> Role | None:
    partition = broker.core.partition(A)
    return None if partition is None else partition.role


def lead(broker: LoneBroker) -> None:
    role(broker, ME, 1)


def follow(broker: LoneBroker) -> None:
    role(broker, OTHER, 1)


def lose_the_leader(broker: LoneBroker) -> None:
    """Take over metadata of KRaft that name no leader."""
    state = PartitionState(A, "id", 1, NO_LEADER, 1, (), 1, (ME, OTHER))
    _, effects = broker.core.take_over(
        [state], {}, broker.now_ms, cause="Metadata", may_refuse=False, report=lambda *_: None, of_metadata=True
    )
    broker.execute(effects)


def fail(broker: LoneBroker) -> None:
    broker.execute(broker.core.log_dir_failed([A]))


def meet_a_defect(broker: LoneBroker) -> None:
    """Take the first half of what a defect does; the executor does the second when the step is over."""
    partition = broker.core.partition(A)
    assert partition is not None
    contain(partition, AssertionError("I1"), [])


def delete(broker: LoneBroker) -> None:
    request = StopReplicaRequest(ControlHeader(0, 1, 1), [StopReplicaPartition(A, 1, True)])
    broker.execute(broker.control_requests.stop_replica(request)[1])


ACTS: dict[Change, Callable[[LoneBroker], None]] = {
    (Role.NONE, Role.LEADER): lead,
    (Role.NONE, Role.FOLLOWER): follow,
    (Role.LEADER, Role.LEADER): lead,
    (Role.LEADER, Role.FOLLOWER): follow,
    (Role.FOLLOWER, Role.LEADER): lead,
    (Role.FOLLOWER, Role.FOLLOWER): follow,
    (Role.LEADER, Role.NONE): meet_a_defect,
    (Role.FOLLOWER, Role.NONE): lose_the_leader,
    (Role.NONE, Role.OFFLINE): fail,
    (Role.LEADER, Role.OFFLINE): fail,
    (Role.FOLLOWER, Role.OFFLINE): fail,
    (Role.NONE, None): delete,
    (Role.LEADER, None): delete,
    (Role.FOLLOWER, None): delete,
}


@pytest.mark.parametrize("change", ACTS)
def test_a_row_of_the_table_is_taken(change: Change) -> None:
    old, new = change
    assert old is not None
    broker = hosted(old)
    ACTS[change](broker)
    assert role_of(broker) is new


def test_a_leader_loses_its_role_when_metadata_name_none() -> None:
    """ReplicaManager.applyLocalFollowersDelta: no leader, no role; LeaderAndIsr without a leader changes none."""
    broker = hosted(Role.LEADER)
    lose_the_leader(broker)
    assert role_of(broker) is Role.NONE


def test_every_row_of_the_table_is_among_them() -> None:
    """All of them share a replica's first role."""
    assert {*ACTS, (None, Role.NONE)} == ALLOWED
    assert len(ALLOWED) == len(TRANSITIONS)


@pytest.mark.parametrize("act", [lead, follow, fail, delete])
def test_an_offline_replica_stays_offline(act: Callable[[LoneBroker], None]) -> None:
    broker = hosted(Role.OFFLINE)
    act(broker)
    assert role_of(broker) is Role.OFFLINE


@pytest.mark.parametrize("old", [Role.NONE, Role.LEADER, Role.FOLLOWER])
def test_a_state_without_a_live_leader_and_a_stop_change_no_role(old: Role) -> None:
    """Partition.makeFollower is not called then, and stopPartitions without deletion only ends the fetches."""
    broker = hosted(old)
    role(broker, ABSENT, 1, isr=(ABSENT, ME, OTHER))
    assert role_of(broker) is old
    request = StopReplicaRequest(ControlHeader(0, 1, 1), [StopReplicaPartition(A, 1, False)])
    broker.execute(broker.control_requests.stop_replica(request)[1])
    assert role_of(broker) is old


def test_what_is_not_in_the_table_is_refused() -> None:
    for old in (None, *Role):
        for new in (None, *Role):
            if (old, new) in ALLOWED:
                check_transition(old, new)
            else:
                with pytest.raises(AssertionError, match="may not change"):
                    check_transition(old, new)


def test_a_replica_obeys_the_table() -> None:
    partition = Partition(A, ME, CoreSettings(), TopicRules(), "id", LoadedLog(0, 0, 0, [], ProducerState()))
    partition.enter(Role.LEADER)
    partition.enter(Role.OFFLINE)
    with pytest.raises(AssertionError, match="may not change"):
        partition.enter(Role.LEADER)
    assert partition.role is Role.OFFLINE


def changes(events: Iterable[dict[str, object]]) -> set[Change]:
    """Return the role changes in a history; each process begins with NONE."""
    known: dict[tuple[object, object, object], Role] = {}
    found: set[Change] = set()
    for event in events:
        source = event.get("source")
        if event["kind"] == "broker" and event.get("state") == "starting":
            known = {replica: one for replica, one in known.items() if replica[0] != source}
        elif event["kind"] == "role":
            replica = source, event["topic"], event["partition"]
            new = Role(event["role"])
            found.add((known.get(replica, Role.NONE), new))
            known[replica] = new
    return found


def test_simulated_histories_take_no_other() -> None:
    """No history deletes a replica, and a leader rarely becomes a follower within one process."""
    taken: set[Change] = set()
    for seed in (3, 14, 26):
        schedule = history_of(seed, 250, directories=2).schedule
        history = replay_schedule(seed, tuple(schedule), directories=2, tells=True)
        assert history.violation is None
        taken |= changes(history.events)
    assert taken <= ALLOWED
    assert taken >= {
        (Role.NONE, Role.LEADER),
        (Role.NONE, Role.FOLLOWER),
        (Role.LEADER, Role.LEADER),
        (Role.FOLLOWER, Role.LEADER),
        (Role.FOLLOWER, Role.FOLLOWER),
        (Role.LEADER, Role.OFFLINE),
        (Role.FOLLOWER, Role.OFFLINE),
    }
