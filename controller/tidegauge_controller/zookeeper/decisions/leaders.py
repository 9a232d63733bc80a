"""Planned leadership changes: controlled shutdown, preferred leaders, elections on demand.

Source: KafkaController.doControlledShutdown, checkAndTriggerAutoLeaderRebalance, processReplicaLeaderElection.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.control import NO_LEADER
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.znodes import PREFERRED_REPLICA_ELECTION, MalformedZnode, decode_preferred_election
from tidegauge_controller.rules.election import Strategy, can_lead
from tidegauge_controller.zookeeper.decisions.batch import RequestBatch
from tidegauge_controller.zookeeper.decisions.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from tidegauge_controller.zookeeper.decisions.partition_machine import ElectionChoice, change_partitions, trigger_online
from tidegauge_controller.zookeeper.decisions.replica_machine import change_replicas
from tidegauge_controller.zookeeper.decisions.steps import (
    ITEMS_PER_TURN,
    TURN,
    DeleteNode,
    Outcome,
    Read,
    ReadResult,
    Steps,
    Write,
)

PREFERRED_REQUEST = "PreferredReplicaElection"
"""Name of the event of a change of ``/admin/preferred_replica_election``."""


def process_controlled_shutdown(
    context: ControllerContext, broker_id: int, broker_epoch: int
) -> Steps[tuple[ErrorCode, list[TopicPartition]]]:
    """Move leadership away from a broker that shuts down, and remove its followers from the ISRs.

    Partitions with one replica are not touched.

    Returns:
        The partitions with more replicas that it still leads.
    """
    context.cause = "ControlledShutdown"
    broker = context.live.get(broker_id)
    if broker is not None and broker_epoch < broker.epoch:
        return ErrorCode.STALE_BROKER_EPOCH, []
    if broker is None:
        return ErrorCode.BROKER_NOT_AVAILABLE, []
    context.shutting_down.add(broker_id)
    affected = [
        at
        for at in context.partitions_on(broker_id)
        if len(context.assignment(at).replicas) > 1
        and at in context.leadership
        and not context.is_to_be_deleted(at.topic)
    ]
    led = [at for at in affected if context.leadership[at].leader == broker_id]
    followed = [at for at in affected if context.leadership[at].leader != broker_id]
    yield from change_partitions(context, led, PartitionStatus.ONLINE, ElectionChoice(Strategy.CONTROLLED_SHUTDOWN))
    batch = RequestBatch(context)
    for number, at in enumerate(followed, 1):
        if not number % ITEMS_PER_TURN:
            yield TURN
        batch.stop_replica(broker_id, at, delete=False)
    yield batch.send()
    yield from change_replicas(context, [Replica(at, broker_id) for at in followed], ReplicaStatus.OFFLINE)
    remaining = [
        at
        for at, state in sorted(context.leadership.items())
        if state.leader == broker_id and len(context.assignment(at).replicas) > 1
    ]
    return ErrorCode.NONE, remaining


def partitions_to_rebalance(context: ControllerContext) -> list[TopicPartition]:
    """Return partitions to move to their preferred leaders.

    They belong to brokers whose imbalance is too large.

    A broker's ratio counts its preferred partitions that another broker leads among all it is preferred for; only
    strictly more than ``leader.imbalance.per.broker.percentage`` is too large. Only partitions that the preferred
    leader could lead are returned.
    """
    misplaced: dict[int, int] = {}
    able: dict[int, list[TopicPartition]] = {}
    for at, state in context.leadership.items():
        replicas = context.assignment(at).replicas
        if replicas and replicas[0] != state.leader and not context.is_to_be_deleted(at.topic):
            preferred = replicas[0]
            misplaced[preferred] = misplaced.get(preferred, 0) + 1
            if can_lead(context, at, state, preferred):
                able.setdefault(preferred, []).append(at)
    chosen: list[TopicPartition] = []
    for preferred, partitions in sorted(able.items()):
        ratio = context.settings.leader_imbalance_percentage
        if 100 * misplaced[preferred] > ratio * _preferred_count(context, preferred):
            chosen += sorted(partitions)
    return chosen


def _preferred_count(context: ControllerContext, broker_id: int) -> int:
    """Return of how many partitions a broker is the preferred leader."""
    return sum(
        assignment.replicas[:1] == (broker_id,)
        for topic, partitions in context.assignments.items()
        if not context.is_to_be_deleted(topic)
        for assignment in partitions.values()
    )


def rebalance_leaders(context: ControllerContext) -> Steps[None]:
    """Run the automatic preferred election."""
    context.cause = "AutoLeaderRebalance"
    partitions = partitions_to_rebalance(context)
    if partitions:
        yield from change_partitions(context, partitions, PartitionStatus.ONLINE, ElectionChoice(Strategy.PREFERRED))


def process_preferred_election_znode(context: ControllerContext) -> Steps[None]:
    """Elect the partitions in ``/admin/preferred_replica_election``, as tools before 2.4 create it, then delete it.

    No client receives a response: partitions that do not exist, are being deleted or have the preferred leader already
    are left alone, and if the preferred replica can't lead, the leader stays. A malformed znode is deleted.
    Source: KafkaController.processReplicaLeaderElection with ZkTriggered, removePartitionsFromPreferredReplicaElection.
    """
    results: list[ReadResult] = yield Read((PREFERRED_REPLICA_ELECTION,))
    if results[0].outcome is not Outcome.OK:
        return
    context.cause = PREFERRED_REQUEST
    try:
        wanted = decode_preferred_election(results[0].data)
    except MalformedZnode:
        wanted = []
    partitions = [at for at in dict.fromkeys(wanted) if _why_not(context, at, unclean=False) is None]
    yield from change_partitions(context, partitions, PartitionStatus.ONLINE, ElectionChoice(Strategy.PREFERRED))
    yield Write((DeleteNode(PREFERRED_REPLICA_ELECTION),))


def process_unclean_election_enabled(context: ControllerContext, topic: str | None) -> Steps[None]:
    """Retry leaderless partitions after unclean elections were enabled, for a topic or (None) for all.

    Source: KafkaController.processTopicUncleanLeaderElectionEnable.
    """
    context.cause = "UncleanLeaderElectionEnable"
    yield from trigger_online(context, topic)


def elect_leaders(
    context: ControllerContext, partitions: Sequence[TopicPartition] | None, *, unclean: bool
) -> Steps[dict[TopicPartition, tuple[ErrorCode, str]]]:
    """Elect on demand. ``partitions`` None means all; those that need no election are left out of the result then."""
    context.cause = "ElectLeaders"
    responses: dict[TopicPartition, tuple[ErrorCode, str]] = {}
    electable: list[TopicPartition] = []
    for at in list(context.partitions()) if partitions is None else partitions:
        problem = _why_not(context, at, unclean=unclean)
        if problem is None:
            electable.append(at)
        elif partitions is not None or problem[0] is not ErrorCode.ELECTION_NOT_NEEDED:
            responses[at] = problem
    choice = ElectionChoice(Strategy.OFFLINE, unclean=True) if unclean else ElectionChoice(Strategy.PREFERRED)
    failed = yield from change_partitions(context, electable, PartitionStatus.ONLINE, choice)
    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    name = "OfflinePartitionLeaderElection" if unclean else "PreferredReplicaPartitionLeaderElection"
    strategy = f"{name}Strategy{'(true)' * unclean}"
    for at in electable:
        responses[at] = (ErrorCode.NONE, "")
        if at in failed:
            responses[at] = code, f"Failed to elect leader for partition {at} under strategy {strategy}"
    return responses


def _why_not(context: ControllerContext, at: TopicPartition, *, unclean: bool) -> tuple[ErrorCode, str] | None:
    replicas = context.assignment(at).replicas
    if not replicas:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
    if context.is_to_be_deleted(at.topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted"
    state = context.leadership.get(at)
    leader = NO_LEADER if state is None else state.leader
    needed = leader not in context.live_brokers if unclean else leader != replicas[0]
    return None if needed else (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
