"""AlterPartition: whether a leader's proposal of in-sync replicas is valid.

The checks have Kafka's order, which decides which error a leader sees.
Source: KafkaController.tryProcessAlterPartition, ReplicationControlManager.validateAlterPartitionData.
"""

from __future__ import annotations

from tidegauge.cluster_metadata import Leadership
from tidegauge.control import IsrProposal
from tidegauge.errors import ErrorCode
from tidegauge_controller.rules.cluster_state import LedCluster


def check_proposal(context: LedCluster, broker_id: int, proposal: IsrProposal) -> tuple[ErrorCode, Leadership | None]:
    """Judge a proposal by the controller's memory.

    A proposal without a topic id names its topic (AlterPartition before version 2).

    Returns:
        An error. Or NONE and the state to write, or NONE and None if the state is as proposed already.
    """
    at = proposal.topic_partition
    if proposal.topic_id and context.topic_ids.get(at.topic) != proposal.topic_id:
        return ErrorCode.UNKNOWN_TOPIC_ID, None
    current = context.leadership.get(at)
    if current is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if proposal.leader_epoch > current.leader_epoch or proposal.partition_epoch > current.partition_epoch:
        return ErrorCode.NOT_CONTROLLER, None
    if proposal.leader_epoch < current.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, None
    same = (broker_id, proposal.new_isr, proposal.recovering) == (current.leader, current.isr, current.recovering)
    if same:
        return ErrorCode.NONE, None
    if proposal.partition_epoch < current.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION, None
    grows_while_recovering = proposal.recovering and len(proposal.new_isr) > 1
    if grows_while_recovering or (proposal.recovering and not current.recovering):
        return ErrorCode.INVALID_REQUEST, None
    if not context.live_brokers.issuperset(proposal.new_isr) or _joiner_is_another(context, current, proposal):
        return ErrorCode.INELIGIBLE_REPLICA, None
    assert (proposal.leader_epoch, proposal.partition_epoch) == (current.leader_epoch, current.partition_epoch)
    return ErrorCode.NONE, Leadership(
        broker_id,
        proposal.leader_epoch,
        proposal.new_isr,
        proposal.recovering,
        proposal.partition_epoch,
        context.epoch,
    )


def _joiner_is_another(context: LedCluster, current: Leadership, proposal: IsrProposal) -> bool:
    """Whether a joining replica has restarted since the fetch that qualified it, and may have lost records.

    The rule is KIP-903's, which KRaft's controller has; Kafka's controller in ZooKeeper mode accepts the proposal.
    """
    if proposal.joiner_epoch < 0 or context.trusts_restarted_brokers:
        return False
    joiners = (broker_id for broker_id in proposal.new_isr if broker_id not in current.isr)
    return any(context.broker_epoch(broker_id) != proposal.joiner_epoch for broker_id in joiners)
