"""The in-sync replicas while a reassignment runs: what acks=all demands, and who counts (KIP-455, Partition)."""

from __future__ import annotations

from core_harness import AT, Cluster

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.messages import TopicRules
from tidegauge_controller.zookeeper.decisions.reassignment import DONE, alter_reassignments

NONE = ErrorCode.NONE


def moving(*assignment: int, target: tuple[int, ...], min_insync_replicas: int) -> Cluster:
    """A partition with one record, whose reassignment has begun: all brokers know of it."""
    cluster = Cluster((1, 2, 3), assignment=assignment, rules=TopicRules(min_insync_replicas=min_insync_replicas))
    cluster.settle()
    cluster.produce(1, "a")
    cluster.settle()
    assert cluster._decide(alter_reassignments(cluster.term.context, {AT: target})) == {AT: DONE}
    cluster.deliver()
    return cluster


def test_an_added_replica_raises_what_acks_all_demands_and_counts_once_it_has_joined():
    """Partition.effectiveMinIsr: min.insync.replicas, at most the assigned replicas, those that are being added too.

    A topic of one replica that demands two takes acks=all, but not while it waits for the one to which it moves.
    """
    cluster = moving(1, target=(2,), min_insync_replicas=2)
    assert cluster.ends(1) == [(1, 1)], "one replica, one demanded"
    assert cluster.produce(1, "b").error is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.produce(1, "c", acks=1)
    cluster.fetch(2)
    cluster.fetch(2)
    assert cluster.ends(1, 2) == [(2, 1), (2, 1)], "the added replica has all, and is not in the ISR yet"
    assert cluster.produce(1, "d").error is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.alter_partition(1)
    assert cluster.isr(1)[0] == (1, 2)
    produced = cluster.produce(1, "e")
    assert produced.error is None
    cluster.fetch(2)
    cluster.fetch(2)
    assert produced.error is NONE


def test_the_size_of_the_isr_counts_whoever_its_members_are():
    """A removed replica counts as long as it is in the ISR: acks=all goes on while the added one is far behind."""
    cluster = moving(1, 2, target=(1, 3), min_insync_replicas=2)
    produced = cluster.produce(1, "b")
    cluster.fetch(2)
    cluster.fetch(2)
    assert produced.error is NONE
    assert cluster.partition(3).log_end_offset == 0
