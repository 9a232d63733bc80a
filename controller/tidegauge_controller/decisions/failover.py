"""A broker has become the controller: read everything, tell everyone, bring online what can be.

The order is Kafka's and matters: dead replicas leave the ISRs (step 7) before leaders are elected (step 8), so the
death of a broker that was both controller and leader costs a partition two leader epochs.
Source: KafkaController.onControllerFailover (kafka-behaviour 8.2). The watches of step 2 are the shell's.
"""

from __future__ import annotations

from tidegauge.znodes import (
    FEATURE,
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    encode_feature,
    state_path,
)
from tidegauge_controller.decisions.broker_events import read_brokers, update_metadata
from tidegauge_controller.decisions.context import ControllerContext
from tidegauge_controller.decisions.deletion import read_deletions, resume_deletions
from tidegauge_controller.decisions.partition_machine import initialise_partitions, trigger_online
from tidegauge_controller.decisions.reassignment import process_legacy_reassignments, resume_reassignments
from tidegauge_controller.decisions.replica_machine import start_replicas
from tidegauge_controller.decisions.state_store import decode_state
from tidegauge_controller.decisions.steps import (
    AddBroker,
    CreateNode,
    DeleteNode,
    Outcome,
    Read,
    ReadChildren,
    ReadResult,
    SetNode,
    Steps,
    Write,
)
from tidegauge_controller.decisions.topic_events import load_topics, read_topics


def fail_over(context: ControllerContext) -> Steps[None]:
    """Take over the cluster. The context is fresh but for the epoch of this election."""
    context.cause = "ControllerFailover"
    yield from _write_feature()
    yield from _delete_children(LOG_DIR_EVENT_NOTIFICATION)
    yield from _delete_children(ISR_CHANGE_NOTIFICATION)
    yield from _load(context)
    yield from read_deletions(context)
    yield from update_metadata(context, context.live_or_shutting_down)
    yield from start_replicas(context)
    initialise_partitions(context)
    yield from trigger_online(context)
    begun = yield from process_legacy_reassignments(context)
    yield from resume_reassignments(context, begun)
    yield from resume_deletions(context, ())


def _write_feature() -> Steps[None]:
    """Step 1: ``/feature`` says that this cluster finalises features."""
    results: list[ReadResult] = yield Read((FEATURE,))
    if results[0].outcome is Outcome.NO_NODE:
        yield Write((CreateNode(FEATURE, encode_feature()),))
    elif results[0].data != encode_feature():
        yield Write((SetNode(FEATURE, encode_feature()),))


def _delete_children(path: str) -> Steps[None]:
    """Step 3: notifications from before this term are told by what is read now."""
    names: list[str] | None = yield ReadChildren(path)
    if names:
        yield Write(tuple(DeleteNode(f"{path}/{name}") for name in names))


def _load(context: ControllerContext) -> Steps[None]:
    """Step 4: brokers, topics, ids, assignments, states; a queue for each broker."""
    context.live = yield from read_brokers()
    context.topics = yield from read_topics()
    yield from load_topics(context, sorted(context.topics))
    partitions = list(context.partitions())
    context.reassigning = {at for at in partitions if context.assignment(at).is_reassigning}
    results: list[ReadResult] = yield Read(tuple(state_path(*at) for at in partitions))
    for at, result in zip(partitions, results, strict=True):
        state = decode_state(at, result)
        if state is not None:
            context.leadership[at] = state
    for broker_id in sorted(context.live):
        yield AddBroker(context.live[broker_id].endpoint)
