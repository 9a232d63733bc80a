"""The replica to which a leader sends a consumer, by the consumer's rack (KIP-392).

Rules:
    1. Candidates are the leader, and the followers in the ISR that have the offset that the consumer fetches.
    2. A consumer without a rack, in one without a candidate, or in the leader's rack reads from the leader.
    3. Of the followers in its rack it is sent to the one with the largest log end offset, then to the one that was
       caught up last, then to the one with the largest id.

Source: ReplicaManager.findPreferredReadReplica, RackAwareReplicaSelector, ReplicaView.comparator.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge_broker.replica.leader import Leader

RackOf = Callable[[int], str | None]
"""The rack of a live broker; None: it is not alive, or has none."""


def preferred_replica(leader: Leader, fetch_offset: int, client_rack: str, rack_of: RackOf) -> int | None:
    """Return the follower that a consumer should fetch from, or None.

    None: the leader serves it.

    Args:
        leader: the partition's leader, which serves the fetch.
        fetch_offset: requested by the consumer.
        client_rack: its ``client.rack``; empty if it has none.
        rack_of: the brokers' racks.
    """
    if not client_rack or rack_of(leader.partition.broker_id) == client_rack:
        return None
    in_sync = leader.isr.isr
    for remote in leader.remotes.values():
        remote.settle()
    best = max(
        (
            (remote.log_end_offset, remote.last_caught_up_time_ms, broker_id)
            for broker_id, remote in leader.remotes.items()
            if broker_id in in_sync
            and remote.log_start_offset <= fetch_offset <= remote.log_end_offset
            and rack_of(broker_id) == client_rack
        ),
        default=None,
    )
    return None if best is None else best[2]
