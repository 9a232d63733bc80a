"""The partition state machine: which transitions are legal, and what each does in ZooKeeper and on the brokers.

``TRANSITIONS`` is the one table of legal transitions; an illegal one is skipped and logged. A transition to Online
creates the state znode of a new partition or elects a leader for another; all other transitions are in memory only.
Source: kafka.controller.PartitionStateMachine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidegauge.cluster_metadata import Leadership
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    MalformedZnode,
    PartitionStateNode,
    decode_config,
    partition_path,
    partitions_path,
    state_path,
    topic_config_path,
)
from tidegauge_controller.rules.election import (
    Election,
    Strategy,
    elect_for_controlled_shutdown,
    elect_initial,
    elect_offline,
    elect_preferred,
    elect_reassigned,
    elect_tried,
    needs_unclean,
)
from tidegauge_controller.zookeeper.decisions.batch import RequestBatch
from tidegauge_controller.zookeeper.decisions.context import INITIAL_PARTITION_EPOCH, ControllerContext, PartitionStatus
from tidegauge_controller.zookeeper.decisions.state_store import known_states, read_states, write_states
from tidegauge_controller.zookeeper.decisions.steps import (
    ITEMS_PER_TURN,
    NOTHING_TO_SEND,
    TURN,
    CreateNode,
    Note,
    Outcome,
    Read,
    ReadResult,
    Steps,
    Write,
    WriteResult,
)

_S = PartitionStatus

TRANSITIONS: dict[PartitionStatus, frozenset[PartitionStatus]] = {
    _S.NEW: frozenset({_S.NON_EXISTENT}),
    _S.ONLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE}),
    _S.OFFLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE}),
    _S.NON_EXISTENT: frozenset({_S.OFFLINE}),
}
"""Target state -> states from which it may be reached."""
# A member of an enumeration takes long to look up, and these are asked for with every partition.
_NEW = _S.NEW
_ONLINE = _S.ONLINE
_OFFLINE = _S.OFFLINE
_NON_EXISTENT = _S.NON_EXISTENT


@dataclass(frozen=True, slots=True)
class ElectionChoice:
    """The strategy that elects; ``unclean`` is the admin's permission, beside the topic's setting."""

    strategy: Strategy
    unclean: bool = False


OFFLINE_CHOICE = ElectionChoice(Strategy.OFFLINE)


def initialise_partitions(context: ControllerContext) -> None:
    """Set the states at fail-over: with a live leader Online, with a dead one Offline, without a state znode New."""
    for at in context.partitions():
        leadership = context.leadership.get(at)
        if leadership is None:
            context.partition_status[at] = _NEW
        elif context.is_online(leadership.leader, at):
            context.partition_status[at] = _ONLINE
        else:
            context.partition_status[at] = _OFFLINE


def trigger_online(context: ControllerContext, topic: str | None = None) -> Steps[bool]:
    """Try to bring new and offline partitions (of one topic, or all) online, without those to be deleted.

    Returns:
        Whether any came online.
    """
    partitions = [
        at
        for at in context.partitions_in(_OFFLINE, _NEW)
        if (topic is None or topic == at.topic) and not context.is_to_be_deleted(at.topic)
    ]
    failed = yield from change_partitions(context, partitions, _ONLINE, OFFLINE_CHOICE)
    return len(failed) < len(partitions)


def change_partitions(
    context: ControllerContext,
    partitions: Sequence[TopicPartition],
    target: PartitionStatus,
    choice: ElectionChoice = OFFLINE_CHOICE,
) -> Steps[dict[TopicPartition, str]]:
    """Bring partitions into a state and send it to the brokers.

    Returns:
        For each partition that did not reach it, why.
    """
    legal: list[TopicPartition] = []
    failed: dict[TopicPartition, str] = {}
    for number, at in enumerate(partitions, 1):
        current = context.partition_status.setdefault(at, _NON_EXISTENT)
        if current in TRANSITIONS[target]:
            legal.append(at)
        else:
            failed[at] = f"its state {current.value} does not lead to {target.value}"
        if not number % ITEMS_PER_TURN:
            yield TURN
    if target is not _ONLINE:
        for at in legal:
            context.partition_status[at] = target
        return failed
    if not legal:
        yield NOTHING_TO_SEND
        return failed
    batch = RequestBatch(context)
    new = [at for at in legal if context.partition_status[at] is _NEW]
    old = [at for at in legal if context.partition_status[at] is not _NEW]
    if new:
        failed |= yield from _initialise(context, new, batch)
    if old:
        failed |= yield from _elect(context, old, choice, batch)
    for at in legal:
        if at not in failed:
            context.partition_status[at] = _ONLINE
    yield batch.send()
    return failed


def _initialise(
    context: ControllerContext, partitions: Sequence[TopicPartition], batch: RequestBatch
) -> Steps[dict[TopicPartition, str]]:
    """Create the znodes of new partitions with their first leader and ISR."""
    failed: dict[TopicPartition, str] = {}
    elections: dict[TopicPartition, Election] = {}
    for number, at in enumerate(partitions, 1):
        if not number % ITEMS_PER_TURN:
            yield TURN
        election = elect_initial(context, at)
        if election.leadership is None:
            failed[at] = f"none of its replicas {list(context.assignment(at).replicas)} is alive"
        else:
            elections[at] = election
    if not elections:
        return failed
    topics = dict.fromkeys(at.topic for at in elections)
    yield Write(tuple(CreateNode(partitions_path(topic), None) for topic in topics))
    yield Write(tuple(CreateNode(partition_path(*at), None) for at in elections))
    states = {at: election.leadership for at, election in elections.items() if election.leadership is not None}
    creations: list[CreateNode] = []
    for at, state in states.items():
        creations.append(CreateNode(state_path(*at), PartitionStateNode.of(state).encode()))
        if not len(creations) % ITEMS_PER_TURN:
            yield TURN
    results: list[WriteResult] = yield Write(tuple(creations))
    existing = [at for at, result in zip(states, results, strict=True) if result.outcome is Outcome.NODE_EXISTS]
    own = yield from _own_creations(context, existing, states)
    for (at, state), result in zip(states.items(), results, strict=True):
        if result.outcome is not Outcome.OK and at not in own:
            failed[at] = f"its state could not be created: {result.outcome.value}"
            continue
        context.leadership[at] = replace(state, partition_epoch=INITIAL_PARTITION_EPOCH)
        batch.leader_and_isr(elections[at].recipients, at, is_new=True)
        yield election_note(context, at, Strategy.INITIAL)
    return failed


def _own_creations(
    context: ControllerContext, existing: Sequence[TopicPartition], wanted: Mapping[TopicPartition, Leadership]
) -> Steps[frozenset[TopicPartition]]:
    """Return the states that an own creation made, its response lost."""
    if not existing:
        return frozenset()
    found, _ = yield from read_states(context, existing)
    return frozenset(at for at, state in found.items() if state == wanted[at])


def _elect(
    context: ControllerContext, partitions: Sequence[TopicPartition], choice: ElectionChoice, batch: RequestBatch
) -> Steps[dict[TopicPartition, str]]:
    """Elect until each partition has a new state or failed; if states in memory fail, decide again on states read."""
    failed: dict[TopicPartition, str] = {}
    remaining = list(partitions)
    from_memory = True
    while remaining:
        found, failed_now = yield from (
            known_states(context, remaining) if from_memory else read_states(context, remaining)
        )
        permitted = yield from _unclean_permission(context, found, choice)
        elections: dict[TopicPartition, Election] = {}
        states: dict[TopicPartition, Leadership] = {}
        for at, state in found.items():
            if elections and not len(elections) % ITEMS_PER_TURN:
                yield TURN
            election = elections[at] = _hold(context, at, state, choice.strategy, at in permitted)
            if election.leadership is None:
                failed_now[at] = f"no eligible leader under the {choice.strategy.value} strategy"
            else:
                states[at] = election.leadership
        written, raced, unwritten = yield from write_states(context, states)
        failed_now |= unwritten
        remaining = [*raced, *failed_now] if from_memory else raced
        if not from_memory:
            failed |= failed_now
        from_memory = False
        for at in written:
            batch.leader_and_isr(elections[at].recipients, at, is_new=False)
            clean = written[at].leader in found[at].isr
            yield election_note(context, at, choice.strategy if clean else Strategy.UNCLEAN)
    return failed


def _hold(
    context: ControllerContext, at: TopicPartition, state: Leadership, strategy: Strategy, unclean: bool
) -> Election:
    match strategy:
        case Strategy.PREFERRED:
            return elect_preferred(context, at, state)
        case Strategy.CONTROLLED_SHUTDOWN:
            return elect_for_controlled_shutdown(context, at, state)
        case Strategy.REASSIGN:
            return elect_reassigned(context, at, state)
        case _ if context.settings.tried_election is not None:
            return elect_tried(context, at, state, context.settings.tried_election)
        case _:
            return elect_offline(context, at, state, unclean=unclean)


def _unclean_permission(
    context: ControllerContext, states: dict[TopicPartition, Leadership], choice: ElectionChoice
) -> Steps[frozenset[TopicPartition]]:
    """Return the partitions that may get a leader outside the ISR.

    Settings are read only for these partitions.
    """
    if choice.strategy is not Strategy.OFFLINE:
        return frozenset()
    without_isr = [at for at, state in states.items() if needs_unclean(context, at, state)]
    if choice.unclean:
        return frozenset(without_isr)
    topics = list(dict.fromkeys(at.topic for at in without_isr))
    if not topics:
        return frozenset()
    results: list[ReadResult] = yield Read(tuple(topic_config_path(topic) for topic in topics))
    permitted = {topic for topic, result in zip(topics, results, strict=True) if unclean_allowed(context, result.data)}
    return frozenset(at for at in without_isr if at.topic in permitted)


def unclean_allowed(context: ControllerContext, config: bytes | None) -> bool:
    """Return ``unclean.leader.election.enable`` of a topic, else of the cluster; unreadable settings permit nothing."""
    try:
        text = decode_config(config).get("unclean.leader.election.enable")
    except MalformedZnode:
        return False
    return context.settings.unclean_leader_election if text is None else text.strip().lower() == "true"


def election_note(context: ControllerContext, at: TopicPartition, strategy: Strategy) -> Note:
    """Return the event log's line for a state just decided."""
    state = context.leadership[at]
    return Note(
        "election",
        context.cause,
        {
            "topic": at.topic,
            "partition": at.partition,
            "strategy": strategy.value,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        },
    )
