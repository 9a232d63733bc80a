"""Replicas that have restarted unseen: no controller saw the end of their previous session. Not Kafka's rule.

Kafka's own elections are in ``tidegauge_controller.rules.election``.
"""

from __future__ import annotations

from tidegauge.cluster_metadata import Leadership
from tidegauge.partition import TopicPartition
from tidegauge_controller.rules.election import next_state
from tidegauge_controller.zookeeper.decisions.context import ControllerContext


def after_restarts(context: ControllerContext, at: TopicPartition, old: Leadership, mzxid: int) -> Leadership | None:
    """Handle ISR members that have registered since the state was written: they are other incarnations.

    A member may have lost what its previous incarnation reported, so it leaves the ISR, as after a bounce that a
    controller sees. If no other member is online, one stays: the leader if it is among them, because no other replica
    has more, else the first assigned. The leader epoch rises in any case: a leader that continues with a shorter log
    must not write in the same epoch again.

    Args:
        context: the controller's state.
        at: the partition.
        old: its state as read.
        mzxid: the transaction that wrote the state; a broker's epoch is the transaction that registered it.

    Returns:
        The state to write; None if no member has restarted.
    """
    online = [replica for replica in context.assignment(at).replicas if context.is_online(replica, at)]
    members = [replica for replica in online if replica in old.isr]
    restarted = [replica for replica in members if context.live[replica].epoch > mzxid]
    if not restarted:
        return None
    if len(restarted) < len(members):
        isr = tuple([member for member in old.isr if member not in restarted])
        leaders = [replica for replica in members if replica in isr]
    else:
        isr = (old.leader,) if old.leader in restarted else (restarted[0],)
        leaders = list(isr)
    leader = old.leader if old.leader in leaders else leaders[0]
    return next_state(old, context.epoch, leader, isr, recovering=old.recovering)
