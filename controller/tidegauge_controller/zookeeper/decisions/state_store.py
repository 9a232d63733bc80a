"""Partition states in ZooKeeper: read them, write them with the expected version, record the outcome.

A write that meets another version has lost a race with a leader's earlier change: the caller reads again and repeats
for that partition. A state written by a newer controller fails the partition; the check of ``/controller_epoch`` ends
this controller at its next write.

Elections and ISRs without a dead broker are decided on the states in memory first (``known_states``): only the active
controller writes states, and the expected version proves each of them at its write. Failed ones are read and decided
again. Kafka reads all of them before each of these decisions, each in a request.
Source: ZkPartitionStateMachine.doElectLeaderForPartitions, ZkReplicaStateMachine.doRemoveReplicasFromIsr,
KafkaZkClient.updateLeaderAndIsr.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegauge.cluster_metadata import Leadership
from tidegauge.partition import TopicPartition
from tidegauge.znodes import MalformedZnode, PartitionStateNode, state_path
from tidegauge_controller.zookeeper.decisions.context import ControllerContext
from tidegauge_controller.zookeeper.decisions.steps import (
    ITEMS_PER_TURN,
    TURN,
    Outcome,
    Read,
    ReadResult,
    SetNode,
    Steps,
    Write,
    WriteResult,
)


def decode_state(at: TopicPartition, result: ReadResult) -> Leadership | None:
    """Return the state in a znode; None if missing or malformed."""
    if result.outcome is not Outcome.OK or result.stat is None:
        return None
    try:
        node = PartitionStateNode.decode(state_path(*at), result.data)
    except MalformedZnode:
        return None
    return node.at_version(result.stat.version)


def read_states(
    context: ControllerContext, partitions: Sequence[TopicPartition]
) -> Steps[tuple[dict[TopicPartition, Leadership], dict[TopicPartition, str]]]:
    """Read states.

    Returns:
        The states read, and the others' problems.
    """
    results: list[ReadResult] = yield Read(tuple([state_path(*at) for at in partitions]))
    found: dict[TopicPartition, Leadership] = {}
    failed: dict[TopicPartition, str] = {}
    for number, (at, result) in enumerate(zip(partitions, results, strict=True), 1):
        if not number % ITEMS_PER_TURN:
            yield TURN
        state = decode_state(at, result)
        if state is None:
            failed[at] = f"{state_path(*at)} is missing or malformed"
        elif state.controller_epoch > context.epoch:
            failed[at] = (
                f"its state was written by controller epoch {state.controller_epoch}, newer than {context.epoch}"
            )
        else:
            found[at] = state
    return found, failed


def known_states(
    context: ControllerContext, partitions: Sequence[TopicPartition]
) -> Steps[tuple[dict[TopicPartition, Leadership], dict[TopicPartition, str]]]:
    """Return the states in memory, without requests, and the others' problems."""
    found: dict[TopicPartition, Leadership] = {}
    failed: dict[TopicPartition, str] = {}
    for number, at in enumerate(partitions, 1):
        if not number % ITEMS_PER_TURN:
            yield TURN
        state = context.leadership.get(at)
        if state is None or state.controller_epoch > context.epoch:
            failed[at] = "its state must be read"
        else:
            found[at] = state
    return found, failed


def write_states(
    context: ControllerContext, states: Mapping[TopicPartition, Leadership]
) -> Steps[tuple[dict[TopicPartition, Leadership], list[TopicPartition], dict[TopicPartition, str]]]:
    """Write states, each expecting the version in ``partition_epoch``; the cache takes the written ones.

    Returns:
        The written states (with their new partition epochs), the partitions with another version, and the others'
        problems.
    """
    if not states:
        return {}, [], {}
    operations: list[SetNode] = []
    for at, state in states.items():
        operations.append(SetNode(state_path(*at), PartitionStateNode.of(state).encode(), state.partition_epoch))
        if not len(operations) % ITEMS_PER_TURN:
            yield TURN
    results: list[WriteResult] = yield Write(tuple(operations))
    written: dict[TopicPartition, Leadership] = {}
    again: list[TopicPartition] = []
    failed: dict[TopicPartition, str] = {}
    for number, ((at, state), result) in enumerate(zip(states.items(), results, strict=True), 1):
        if not number % ITEMS_PER_TURN:
            yield TURN
        if result.outcome is Outcome.OK:
            written[at] = context.leadership[at] = state.at(result.version)
        elif result.outcome is Outcome.BAD_VERSION:
            again.append(at)
        else:
            failed[at] = f"writing its state failed: {result.outcome.value}"
    return written, again, failed
