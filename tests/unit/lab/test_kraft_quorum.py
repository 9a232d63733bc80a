"""The place of a controller in ``tidegauge status``: a voter is an id with a directory (KIP-853)."""

from __future__ import annotations

import pytest

from tidegauge_client.quorum_admin import QuorumReplica, QuorumView
from tidegauge_client.quorum_file import node_name, node_words
from tidegauge_lab.local.topology.kraft_quorum import place_of

LEADER, FOLLOWER, LOST, NEW = (bytes([one] * 16) for one in (1, 2, 3, 4))


def replica(node_id: int, directory_id: bytes, end: int) -> QuorumReplica:
    return QuorumReplica(node_id, directory_id, end, 0, 0)


VOTERS = (replica(3000, LEADER, 40), replica(3001, FOLLOWER, 39), replica(3002, LOST, 20))
VIEW = QuorumView("c", 3000, 7, 39, VOTERS, (replica(3002, NEW, 40), replica(0, FOLLOWER, 38)), {})


@pytest.mark.parametrize(
    ("node_id", "directory_id", "end", "role"),
    [
        (3000, LEADER, 40, "leader"),
        (3001, FOLLOWER, 39, "follower"),
        (3002, LOST, 20, "follower"),
        (3002, NEW, 40, "observer"),
        (3001, None, 39, "follower"),
        (0, FOLLOWER, 38, "observer"),
    ],
)
def test_a_controller_that_lost_its_disk_is_an_observer_and_not_the_voter_that_it_was(
    node_id: int, directory_id: bytes | None, end: int, role: str
) -> None:
    found = place_of(VIEW, node_id, directory_id)
    assert found is not None
    assert (found[0].log_end_offset, found[1]) == (end, role)


def test_a_node_that_does_not_fetch_has_no_place() -> None:
    assert place_of(VIEW, 3001, NEW) is None
    assert place_of(VIEW, 3009, None) is None


def test_static_voters_are_known_by_their_ids() -> None:
    """Under kraft.version 0 the leader knows no directories, and the nodes have some all the same."""
    static = VIEW._replace(voters=(replica(3000, bytes(16), 40),), observers=())
    assert place_of(static, 3000, LEADER) == (static.voters[0], "leader")


def test_a_nodes_name_says_what_it_is() -> None:
    assert (node_name(3000), node_words(3000)) == ("Controller 3000", "controller 3000")
    assert (node_name(2), node_words(2)) == ("Broker 2", "broker 2")
