"""The whole probe, in its order, and the settings of the brokers that it is played on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.wire_responses import (
    admin,
    admin_edges,
    edges,
    epochs,
    formats,
    framing,
    group_edges,
    groups,
    orders,
    records,
    security,
    settings,
    transactions,
    twice,
)
from tests.wire_responses.probe import Facts, Probe

SETTINGS = {
    "auto.create.topics.enable": "true",
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "zookeeper.session.timeout.ms": "4000",
}
"""Of both sides. Leaders do not move; the records' times are of long ago."""

PARTS: Sequence[Callable[[Probe], None]] = (
    framing.versions,
    framing.frames,
    records.create,
    records.produces,
    records.producers,
    records.fetches,
    records.sessions,
    records.offsets,
    formats.formats,
    admin.metadata,
    admin.topics,
    settings.described,
    settings.bounds,
    settings.alterations,
    admin.elections,
    admin.cluster,
    admin.deleted_records,
    security.refusals,
    security.features,
    security.quotas,
    security.users,
    groups.groups,
    transactions.transactions,
    edges.records,
    admin_edges.admin,
    group_edges.groups,
    epochs.epochs,
    orders.orders,
    twice.named_twice,
)


def responses(addresses: Sequence[tuple[str, int]], say: Callable[[str], None] = lambda _: None) -> Facts:
    """Play the whole probe on a fresh cluster and return its facts."""
    probe = Probe(addresses, say)
    try:
        for part in PARTS:
            part(probe)
    finally:
        probe.close()
    return probe.facts
