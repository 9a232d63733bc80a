"""Controller fail-over: read everything, update every broker, bring online what can be.

The order is Kafka's and matters: dead replicas leave the ISRs (step 7) before leaders are elected (step 8), so the
death of a broker that was both controller and leader costs a partition two leader epochs.
Source: KafkaController.onControllerFailover. The watches of step 2 are set by the shell.

Two steps are not Kafka's. The first UpdateMetadata has all partitions, where Kafka's has none: a broker that has just
started knows no topic, and to clients that it serves from this request on a topic that it does not know does not exist.

And a broker that registered after a partition's state was written is not the incarnation that the state refers to.
The previous controller would have handled that as a bounce, had it lived; so does this one. Kafka takes the broker for
former incarnation: it leads on in the same epoch, with a log that may have lost unflushed records, and writes
other records at the same offsets in the same epoch. With ``trusts_restarted_brokers`` it does so here, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.cluster_metadata import Leadership
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    FEATURE,
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    encode_feature,
    state_path,
)
from tidegauge_controller.rules.election import Strategy
from tidegauge_controller.zookeeper.decisions.broker_events import metadata_for, read_brokers
from tidegauge_controller.zookeeper.decisions.context import ControllerContext
from tidegauge_controller.zookeeper.decisions.deletion import read_deletions, resume_deletions
from tidegauge_controller.zookeeper.decisions.leaders import PREFERRED_REQUEST, process_preferred_election_znode
from tidegauge_controller.zookeeper.decisions.partition_machine import (
    election_note,
    initialise_partitions,
    trigger_online,
)
from tidegauge_controller.zookeeper.decisions.reassignment import (
    LEGACY_REQUEST,
    process_legacy_reassignments,
    resume_reassignments,
)
from tidegauge_controller.zookeeper.decisions.replica_machine import start_replicas
from tidegauge_controller.zookeeper.decisions.restarts import after_restarts
from tidegauge_controller.zookeeper.decisions.state_store import decode_state, write_states
from tidegauge_controller.zookeeper.decisions.steps import (
    ITEMS_PER_TURN,
    TURN,
    AddBroker,
    CreateNode,
    DeleteNode,
    Outcome,
    Read,
    ReadChildren,
    ReadResult,
    SetNode,
    Steps,
    WatchData,
    Write,
)
from tidegauge_controller.zookeeper.decisions.topic_events import load_topics, read_topics


def fail_over(context: ControllerContext) -> Steps[None]:
    """Take over the cluster. The context has only the epoch of this election."""
    context.cause = "ControllerFailover"
    yield from _write_feature()
    yield from _delete_children(LOG_DIR_EVENT_NOTIFICATION)
    yield from _delete_children(ISR_CHANGE_NOTIFICATION)
    written_at = yield from _load(context)
    yield from read_deletions(context)
    if not context.settings.trusts_restarted_brokers:
        yield from _handle_restarts(context, written_at)
    yield from metadata_for(context, context.live_or_shutting_down, context.partitions_with_leaders())
    yield from start_replicas(context)
    initialise_partitions(context)
    yield from trigger_online(context)
    yield WatchData(REASSIGN_PARTITIONS, LEGACY_REQUEST, "")
    begun = yield from process_legacy_reassignments(context)
    yield from resume_reassignments(context, begun)
    yield from resume_deletions(context, ())
    yield WatchData(PREFERRED_REPLICA_ELECTION, PREFERRED_REQUEST, "")
    yield from process_preferred_election_znode(context)


def _write_feature() -> Steps[None]:
    """Write in ``/feature`` that this cluster finalises features (step 1)."""
    results: list[ReadResult] = yield Read((FEATURE,))
    if results[0].outcome is Outcome.NO_NODE:
        yield Write((CreateNode(FEATURE, encode_feature()),))
    elif results[0].data != encode_feature():
        yield Write((SetNode(FEATURE, encode_feature()),))


def _delete_children(path: str) -> Steps[None]:
    """Delete notifications from before this term: the reads from now on include them (step 3)."""
    names: list[str] | None = yield ReadChildren(path)
    if names:
        yield Write(tuple(DeleteNode(f"{path}/{name}") for name in names))


def _load(context: ControllerContext) -> Steps[dict[TopicPartition, int]]:
    """Read brokers, topics, ids, assignments and states, and begin a queue for each broker (step 4).

    Returns:
        The transaction that wrote each state.
    """
    context.live = yield from read_brokers(context.settings.control_plane_listener)
    context.topics = yield from read_topics()
    yield from load_topics(context, sorted(context.topics))
    partitions = context.partitions()
    context.reassigning = {at for at in partitions if context.assignment(at).is_reassigning}
    results: list[ReadResult] = yield Read(tuple([state_path(*at) for at in partitions]))
    written_at: dict[TopicPartition, int] = {}
    for number, (at, result) in enumerate(zip(partitions, results, strict=True), 1):
        if not number % ITEMS_PER_TURN:
            yield TURN
        state = decode_state(at, result)
        if state is not None and result.stat is not None:
            context.leadership[at] = state
            written_at[at] = result.stat.mzxid
    for broker_id in sorted(context.live):
        yield AddBroker(context.live[broker_id].endpoint)
    return written_at


def _handle_restarts(context: ControllerContext, written_at: Mapping[TopicPartition, int]) -> Steps[None]:
    """Write a new state where members of an ISR registered after it was written; repeat after a lost race."""
    remaining = dict(written_at)
    while remaining:
        states: dict[TopicPartition, Leadership] = {}
        for number, (at, mzxid) in enumerate(remaining.items(), 1):
            if not number % ITEMS_PER_TURN:
                yield TURN
            if not context.is_to_be_deleted(at.topic):
                state = after_restarts(context, at, context.leadership[at], mzxid)
                if state is not None:
                    states[at] = state
        written, raced, _failed = yield from write_states(context, states)
        for at in written:
            yield election_note(context, at, Strategy.RESTARTED)
        remaining = {}
        results: list[ReadResult] = (yield Read(tuple(state_path(*at) for at in raced))) if raced else []
        for at, result in zip(raced, results, strict=True):
            state = decode_state(at, result)
            if state is not None and result.stat is not None:
                context.leadership[at] = state
                remaining[at] = result.stat.mzxid
