"""The quorum of a cluster that is only looked at, as the page shows it (lab/tidegauge_lab/watch/remote_quorum.py)."""

from __future__ import annotations

from tidegauge_client.quorum_admin import QuorumReplica, QuorumView
from tidegauge_lab.watch.remote_quorum import quorum_facts


def replica(node_id: int, log_end_offset: int) -> QuorumReplica:
    return QuorumReplica(node_id, bytes(16), log_end_offset, -1, -1)


def test_voters_and_observers_that_are_no_brokers_are_shown_as_the_leader_sees_them() -> None:
    """Brokers fetch the metadata log too, so that they are among the observers (DescribeQuorum, KIP-595)."""
    voters = replica(3001, 40), replica(3000, 42)
    observers = replica(0, 41), replica(3002, -1), replica(1, 42)
    endpoints = {3000: ("CONTROLLER://127.0.0.1:9093",), 3001: ("CONTROLLER://[::1]:9094", "OTHER://h:1")}
    facts = quorum_facts(QuorumView("", 3000, 7, 39, voters, observers, endpoints), [0, 1, 2])
    names = ("id", "state", "role", "epoch", "log_end_offset", "high_watermark", "address")
    assert (facts.leader, facts.epoch) == (3000, 7)
    assert [tuple(one[name] for name in names) for one in facts.controllers] == [
        (3000, "up", "leader", 7, 42, 39, "127.0.0.1:9093"),
        (3001, "unknown", "follower", 7, 40, 39, "[::1]:9094"),
        (3002, "unknown", "observer", 7, None, 39, ""),
    ]
