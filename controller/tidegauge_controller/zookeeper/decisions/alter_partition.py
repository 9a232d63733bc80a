"""AlterPartition: check a leader's proposal of in-sync replicas against the known state, then write it.

ISR and partition epoch change, the leader epoch does not, and no LeaderAndIsr follows; all brokers get UpdateMetadata
for every partition named, the rejected ones included. The checks: ``tidegauge_controller.rules.alter_partition``.
Source: KafkaController.tryProcessAlterPartition.

One difference, in the leader's favour: if the version in ZooKeeper is not the known one, the state is read back. A
write whose response was lost with the connection is found there as done, and the response says so; otherwise the
controller takes over what it read, so that the leader's next proposal is checked against the current state.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tidegauge.cluster_metadata import Leadership
from tidegauge.control import AlterPartitionRequest, AlterPartitionResponse, IsrVerdict
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_controller.rules.alter_partition import check_proposal
from tidegauge_controller.zookeeper.decisions.broker_events import metadata_for
from tidegauge_controller.zookeeper.decisions.context import ControllerContext
from tidegauge_controller.zookeeper.decisions.state_store import read_states, write_states
from tidegauge_controller.zookeeper.decisions.steps import Steps


def names_of(context: ControllerContext, topic_ids: Collection[str]) -> Steps[dict[str, str]]:
    """Return topics' names by their ids, without unknown ones.

    An event, as in Kafka (KafkaController.processAlterPartition): a controller that has just been elected takes up no
    proposal before it has read all topics. A leader that got UNKNOWN_TOPIC_ID would propose no ISR until the controller
    sent it a new role.
    """
    yield from ()
    return {one: context.topic_names[one] for one in topic_ids if one in context.topic_names}


def process_alter_partition(
    context: ControllerContext, request: AlterPartitionRequest
) -> Steps[AlterPartitionResponse]:
    """Return the outcomes of a leader's proposals."""
    context.cause = "AlterPartition"
    broker = context.live.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return AlterPartitionResponse(ErrorCode.STALE_BROKER_EPOCH)
    verdicts: dict[TopicPartition, ErrorCode] = {}
    to_write: dict[TopicPartition, Leadership] = {}
    for proposal in request.partitions:
        error, state = check_proposal(context, request.broker_id, proposal)
        verdicts[proposal.topic_partition] = error
        if state is not None:
            to_write[proposal.topic_partition] = state
    _written, raced, failed = yield from write_states(context, to_write)
    verdicts |= dict.fromkeys(failed, ErrorCode.UNKNOWN_SERVER_ERROR)
    verdicts |= yield from _settle_races(context, {at: to_write[at] for at in raced})
    named = [proposal.topic_partition for proposal in request.partitions]
    yield from metadata_for(context, context.live_or_shutting_down, named)
    return AlterPartitionResponse(ErrorCode.NONE, [_verdict(context, at, error) for at, error in verdicts.items()])


def _settle_races(
    context: ControllerContext, wanted: dict[TopicPartition, Leadership]
) -> Steps[dict[TopicPartition, ErrorCode]]:
    if not wanted:
        return {}
    found, _ = yield from read_states(context, list(wanted))
    verdicts = dict.fromkeys(wanted, ErrorCode.INVALID_UPDATE_VERSION)
    for at, state in found.items():
        if replace(state, partition_epoch=wanted[at].partition_epoch) == wanted[at]:
            verdicts[at] = ErrorCode.NONE
        context.leadership[at] = state
    return verdicts


def _verdict(context: ControllerContext, at: TopicPartition, error: ErrorCode) -> IsrVerdict:
    state = context.leadership.get(at)
    if error is not ErrorCode.NONE or state is None:
        return IsrVerdict(at, error)
    return IsrVerdict(at, error, state.leader, state.leader_epoch, state.isr, state.partition_epoch, state.recovering)
