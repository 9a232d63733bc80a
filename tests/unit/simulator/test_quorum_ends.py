"""Rules of the quorum's world: which nodes a majority would elect, which snapshots are made, what a start syncs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.values import Batch, ReplicaKey, Voter, VoterSet
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.quorum.quorum_actions import Actor, snapshot
from tidegauge_proof.simulator.quorum.quorum_checker import QuorumChecker
from tidegauge_proof.simulator.quorum.quorum_disk import QuorumDisk
from tidegauge_proof.simulator.quorum.quorum_history import _electable, quorum_history_of
from tidegauge_proof.simulator.quorum.quorum_world import directory_of


def key(node_id: int, generation: int = 0) -> ReplicaKey:
    return ReplicaKey(node_id, directory_of(node_id, generation))


def node(me: ReplicaKey, voters: list[ReplicaKey], end_offset: int, last_epoch: int = 3) -> Any:
    current = VoterSet.of(Voter(one, ()) for one in voters)
    log = SimpleNamespace(last_epoch=last_epoch, end_offset=end_offset)
    raft = SimpleNamespace(history=SimpleNamespace(current=current), log=log)
    return SimpleNamespace(config=QuorumConfig("", me), raft=raft)


def electable(*nodes: Any) -> list[int]:
    return _electable(SimpleNamespace(nodes={one.config.me.id: one for one in nodes}))  # type: ignore[arg-type]


def test_the_longest_log_wins_with_a_majority_of_its_own_voters() -> None:
    voters = [key(0), key(1), key(2)]
    nodes = [node(key(0), voters, 9), node(key(1), voters, 7), node(key(2), voters, 7, last_epoch=2)]
    assert electable(*nodes) == [0, 1], "the third one's last epoch is older than that of both others"


def test_a_voter_set_that_needs_a_lost_disk_elects_no_leader() -> None:
    """A removal that was not committed left the voters 1 and 2, and 1 came back with an empty disk."""
    left = [key(1), key(2)]
    nodes = [node(key(0), left, 5), node(key(1, 1), [], 0, last_epoch=0), node(key(2), left, 5)]
    assert electable(*nodes) == []


def test_a_leader_of_an_epoch_that_is_over_need_not_have_later_commits() -> None:
    """Its vote came late: the other two had elected a leader of the next epoch meanwhile, which committed."""
    checker, empty = QuorumChecker(committed=[Batch(0, 1, 2)]), QuorumDisk(VoterSet())
    checker.leads(SimpleNamespace(state=SimpleNamespace(epoch=1)), empty)  # type: ignore[arg-type]
    with pytest.raises(Violation, match="Q6"):
        checker.leads(SimpleNamespace(state=SimpleNamespace(epoch=3)), empty)  # type: ignore[arg-type]


def test_a_snapshot_is_newer_than_the_one_before() -> None:
    """As in KafkaRaftClient.createSnapshot: an older one would not be valid by the log's epochs."""
    raft = SimpleNamespace(
        is_blocked=False, high_watermark=9, log=SimpleNamespace(newest_snapshot=SimpleNamespace(offset=7))
    )
    batches = [SimpleNamespace(end_offset=end, epoch=1) for end in (3, 7)]
    given: list[Any] = []
    disk = SimpleNamespace(log=batches, whole=lambda: batches, snapshots={}, static=None, move_start=lambda _: None)
    one = SimpleNamespace(raft=raft, is_paused=False, backlog=(), disk=disk)
    world = SimpleNamespace(
        nodes={0: one},
        checker=SimpleNamespace(snapshot=lambda *_: None),
        content=lambda *_: None,
        give=lambda _, event: given.append(event),
    )
    assert snapshot(Actor(world, False), Dice(1)) == ""  # type: ignore[arg-type]
    batches.append(SimpleNamespace(end_offset=9, epoch=1))
    assert "snapshots (9, 1)" in snapshot(Actor(world, False), Dice(1))  # type: ignore[arg-type]


def test_what_a_dead_process_left_in_the_page_cache_is_synced_before_its_successor_counts_it() -> None:
    """Else a leader may commit what the next power loss takes from a majority (seed 43000503 had one, by this)."""
    disk = QuorumDisk(VoterSet(), log=[Batch(0, 1, 1), Batch(1, 2, 1)])
    disk.die(Dice(1), loses_power=False)
    log, _ = disk.opened()
    assert log.is_flushed
    disk.die(Dice(1), loses_power=True)
    assert [batch.end_offset for batch in disk.log] == [1, 2]


def test_histories_with_lost_disks_and_changes_of_voters_break_nothing() -> None:
    assert [quorum_history_of(seed, 80).violation for seed in (41000053, 41000087)] == [None, None]


def test_a_process_that_was_asked_to_shut_down_ends_though_no_other_voter_can_win() -> None:
    """A resigned leader with the longest log waits for a successor; the real process ends after its limit."""
    assert quorum_history_of(40000007, 300).violation is None
