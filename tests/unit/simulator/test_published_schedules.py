"""The schedules of the published models of KRaft, played by the real nodes in the simulator's world.

Vanlightly's TLA+ models explore them (raft-tlaplus: pull-raft, raft-and-fsync; kafka-tlaplus: kip_853, kip_996).
Each is named by what happens. Others need one node alone and are in ``tests/unit/raft``: the split vote, figure 8 of
the Raft paper, the leader that is removed, the newly added voter, the lost disk, the pre-vote with a higher epoch, the
leader that is partitioned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft import events
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.messages import AddVoterRequest, RemoveVoterRequest
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.states import Follower, Leader, Resigned
from tidegauge_controller.raft.values import Batch, OffsetAndEpoch, ReplicaKey
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.quorum.quorum_world import (
    Faults,
    QuorumWorld,
    SimNode,
    directory_of,
    endpoint_of,
    quorum_of,
)

TIMERS = QuorumConfig(
    *("", ReplicaKey(0)),
    election_timeout_ms=1000,
    fetch_timeout_ms=2000,
    append_linger_ms=0,
    fetch_snapshot_max_bytes=1,
)
LIMIT_MS = 60_000


class Held(QuorumWorld):
    """A quorum that has started, and in which the disks of some nodes complete no flush."""

    def __init__(self, voters: int = 3, observers: int = 0, version: int = 1) -> None:
        nodes, _ = quorum_of(voters, observers, version, TIMERS)
        super().__init__(Dice(1), nodes, Faults(longest_delay_ms=1, longest_write_ms=0))
        self.held: set[int] = set()
        for one in nodes:
            self.start(one)

    def _disk_works(self, node_id: int, node: SimNode, report: events.Event) -> None:
        if node_id not in self.held or not isinstance(report, events.Flushed):
            super()._disk_works(node_id, node, report)

    def part(self, node_id: int, *others: int) -> None:
        """Part a node from some others."""
        self.faults.partitioned |= {pair for one in others for pair in ((node_id, one), (one, node_id))}

    def until(self, condition: Callable[[], bool], step_ms: int = 10) -> None:
        """Let time pass until a condition holds."""
        end = self.now_ms + LIMIT_MS
        while not condition():
            assert self.now_ms < end, "it never holds"
            self.run(step_ms)

    def leader(self, *but: int) -> int:
        """Let a leader be elected, none of these, that has committed a record of its epoch; return it."""
        self.until(lambda: bool(self._announced(but)))
        return self._announced(but)[-1]

    def _announced(self, but: tuple[int, ...]) -> list[int]:
        leaders = [one for one in self.leaders() if one not in but]
        return [one for one in leaders if isinstance(state := self.raft(one).state, Leader) and state.is_announced]

    def raft(self, node_id: int) -> RaftNode:
        """Return a running node."""
        raft = self.nodes[node_id].raft
        assert raft is not None
        return raft

    def propose(self, leader: int, payload: str) -> None:
        """Give a leader a record."""
        self.give(leader, events.Propose(payload, self.raft(leader).state.epoch, 1, 1, payload))

    def has(self, node_id: int, payload: str, *, durable: bool = False) -> bool:
        """Whether a record is in a node's log, or on its disk."""
        disk = self.nodes[node_id].disk
        batches = disk.whole_durable() if durable else disk.whole()
        return any(payload in one.payload for one in batches if isinstance(one.payload, tuple))

    def are_equal(self) -> bool:
        """Whether all logs hold the same, all of it committed."""
        wholes = [one.disk.whole() for one in self.nodes.values()]
        return all(one == self.checker.committed for one in wholes)

    def change(self, leader: int, request: AddVoterRequest | RemoveVoterRequest) -> ErrorCode | None:
        """Ask a leader for a change of the voters; return its response, None if there is none at once."""
        self.last_voter_response = None
        self.give(leader, events.RequestReceived("tool", request))
        return self.last_voter_response and self.last_voter_response.error  # type: ignore[return-value]

    def voters(self, node_id: int) -> list[int]:
        """Return the voters that a node knows of."""
        return sorted(self.raft(node_id).history.current.ids)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, directory_of(node_id))


def addition(node_id: int) -> AddVoterRequest:
    return AddVoterRequest(None, key(node_id), (endpoint_of(node_id),), 30_000)


# Disks


def test_a_leader_that_loses_power_before_its_own_flush_does_not_lead_on_and_gets_its_record_back() -> None:
    """RaftFsync: its followers have on disk what it lost, so it restarts as Resigned, and follows."""
    world = Held()
    leader = world.leader()
    epoch = world.raft(leader).state.epoch
    world.held.add(leader)
    world.propose(leader, "m")
    followers = [one for one in world.nodes if one != leader]
    world.until(lambda: all(world.has(one, "m", durable=True) for one in followers), 1)
    assert world.has(leader, "m")
    assert not world.has(leader, "m", durable=True)
    world.die(leader, loses_power=True)
    assert not world.has(leader, "m"), "the dice let a part of the page cache reach the disk, of which this is none"
    world.held.clear()
    world.start(leader)
    assert isinstance(world.raft(leader).state, Resigned)
    assert world.raft(leader).state.epoch == epoch
    successor = world.leader(leader)
    world.until(lambda: isinstance(world.raft(leader).state, Follower) and world.are_equal())
    assert world.has(leader, "m")
    assert world.raft(successor).state.epoch > epoch


# Logs


def test_a_parted_leader_truncates_what_it_appended_alone() -> None:
    """pull-raft: its records diverge from the next leader's, and no client was promised any of them."""
    world = Held()
    old = world.leader()
    others = [one for one in world.nodes if one != old]
    world.part(old, *others)
    world.propose(old, "alone")
    assert world.has(old, "alone")
    new = world.leader(old)
    world.propose(new, "committed")
    world.until(lambda: all(world.has(one, "committed") for one in others))
    assert world.has(old, "alone")
    world.faults.partitioned.clear()
    world.until(world.are_equal)
    assert not world.has(old, "alone")
    assert world.has(old, "committed")


def test_a_snapshot_is_fetched_from_the_next_leader_if_the_first_one_dies_meanwhile() -> None:
    """KIP-630: a download belongs to its leader's epoch; the follower begins again, and nothing is torn."""
    world = Held()
    leader = world.leader()
    lagging, other = [one for one in world.nodes if one != leader]
    world.part(lagging, leader, other)
    for payload in "abc":
        world.propose(leader, payload)
        world.until(partial(world.has, other, payload))
    world.until(lambda: world.raft(other).high_watermark == world.raft(leader).log.end_offset)
    for one in (leader, other):
        _write_snapshot(world, one)
    world.faults.partitioned.clear()

    def is_in_the_middle() -> bool:
        state = world.raft(lagging).state
        return isinstance(state, Follower) and state.download is not None and state.download.position > 0

    world.until(is_in_the_middle, 1)
    world.die(leader, loses_power=False)
    assert world.snapshots_installed == 0
    successor = world.leader(leader)
    assert successor == other, "the log of the third one is shorter"
    world.until(lambda: world.raft(lagging).high_watermark == world.raft(other).log.end_offset)
    assert world.snapshots_installed == 1
    world.start(leader)
    world.until(world.are_equal)


def _write_snapshot(world: Held, node_id: int) -> None:
    """Let a node write a snapshot of its log and delete the log below it."""
    disk = world.nodes[node_id].disk
    last: Batch = disk.log[-1]
    snapshot = OffsetAndEpoch(last.end_offset, last.epoch)
    batches = tuple(disk.whole())
    world.checker.snapshot(snapshot, batches)
    disk.snapshots[snapshot] = world.content(batches, disk.static)
    world.give(node_id, events.SnapshotCreated(snapshot))
    disk.move_start(snapshot)
    world.give(node_id, events.LogStartMoved(snapshot.offset))


# Voters


def test_an_addition_that_the_leader_appended_alone_is_gone_with_it() -> None:
    """kip_853: the set counts from its append on, and is truncated with the log."""
    world = Held(observers=1)
    old = world.leader()
    world.until(lambda: world.raft(3).high_watermark == world.raft(old).high_watermark)
    world.run(1000)
    world.part(old, *(one for one in range(3) if one != old))
    assert world.change(old, addition(3)) is None
    world.until(lambda: world.voters(old) == [0, 1, 2, 3], 1)
    world.die(old, loses_power=False)
    new = world.leader(old)
    world.faults.partitioned.clear()
    world.start(old)
    assert world.voters(old) == [0, 1, 2, 3], "it reads the uncommitted record"
    world.until(world.are_equal)
    assert [world.voters(one) for one in world.nodes] == [[0, 1, 2]] * 4
    assert world.last_voter_response is None, "nobody was promised the addition"
    assert world.change(new, addition(3)) in {None, ErrorCode.NONE}
    world.until(lambda: [world.voters(one) for one in world.nodes] == [[0, 1, 2, 3]] * 4)


def test_a_change_of_the_voters_waits_for_a_committed_record_of_the_leaders_own_epoch() -> None:
    """The single-server flaw of Raft (Ongaro, 2015): two changes by two leaders must not have disjoint majorities."""
    world = Held(voters=4, observers=1)
    old = world.leader()
    world.run(1000)
    others = [one for one in range(4) if one != old]
    world.part(old, *others)
    assert world.change(old, addition(4)) is None
    world.until(lambda: world.voters(old) == [0, 1, 2, 3, 4], 1)
    world.until(lambda: any(one != old for one in world.leaders()), 1)
    [new] = [one for one in world.leaders() if one != old]
    state = world.raft(new).state
    assert isinstance(state, Leader)
    assert not state.is_announced
    assert world.change(new, RemoveVoterRequest(None, key(old))) is ErrorCode.REQUEST_TIMED_OUT
    world.leader(old)
    assert world.change(new, RemoveVoterRequest(None, key(old))) in {None, ErrorCode.NONE}
    world.until(lambda: all(world.voters(one) == others for one in others))
    assert world.voters(old) == [0, 1, 2, 3, 4]
    world.faults.partitioned.clear()
    world.until(world.are_equal)
    assert [world.voters(one) for one in world.nodes] == [others] * 5
