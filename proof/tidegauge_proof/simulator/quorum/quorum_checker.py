"""The invariants of a quorum, checked at every effect of every node.

Q1  At most one leader for each epoch, ever, in states and in quorum-state files (election safety).
Q2  A replica gives at most one vote for each epoch, across its restarts.
Q3  A replica's epoch never falls, and after a restart it is not below any epoch that it has named in a response.
Q4  Logs match: two logs that have a batch in common have everything before it in common.
Q5  What one node holds for committed is what every other node holds for committed at the same offsets.
Q6  A leader has every record that was committed before its epoch (leader completeness).
Q7  A node's high watermark never falls while the node runs; a leader commits nothing before a record of its own epoch.
Q8  Nothing committed is truncated.
Q9  A committed record is on the flushed disk of a majority of the voters that were in force.
Q10 Two successive voter sets differ by one voter, and the second is appended only after the first is committed.
Q11 A change of the voter set that was acknowledged is never lost.
Q12 A snapshot holds committed records alone, and the log begins at 0 or at the end of a snapshot that exists.
Q13 Only legal transitions happen (``states.check_transition``), and no step fails.
Q14 When all faults have ended, a leader is elected and commits the proposals, if any voter can still win: a lost
    disk may have taken the majority of a voter set that is in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.states import Leader
from tidegauge_controller.raft.values import Batch, ElectionState, OffsetAndEpoch, ReplicaKey, VoterSet, VotersRecord
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.quorum.quorum_disk import QuorumDisk


@dataclass(slots=True)
class QuorumChecker:
    """The history of a quorum so far, by which later steps are judged.

    Attributes:
        leaders: the leader of each epoch.
        votes: the vote of each replica in each epoch.
        named_epochs: the highest epoch that each replica has named in a response.
        committed: all committed batches from offset 0 on.
        acknowledged: voter sets whose change was acknowledged, by the offset of their record.
    """

    leaders: dict[int, int] = field(default_factory=dict[int, int])
    votes: dict[tuple[ReplicaKey, int], ReplicaKey] = field(default_factory=dict[tuple[ReplicaKey, int], ReplicaKey])
    named_epochs: dict[ReplicaKey, int] = field(default_factory=dict[ReplicaKey, int])
    committed: list[Batch] = field(default_factory=list[Batch])
    acknowledged: dict[int, VoterSet] = field(default_factory=dict[int, VoterSet])

    @property
    def committed_end(self) -> int:
        """The committed end."""
        return self.committed[-1].end_offset if self.committed else 0

    def persisted(self, key: ReplicaKey, election: ElectionState) -> None:
        """Judge a quorum-state file that is on the disk (Q1, Q2)."""
        if election.leader_id is not None:
            known = self.leaders.setdefault(election.epoch, election.leader_id)
            if known != election.leader_id:
                raise Violation("Q1", f"epoch {election.epoch} has the leaders {known} and {election.leader_id}")
        if election.voted is not None:
            vote = self.votes.setdefault((key, election.epoch), election.voted)
            if vote.id != election.voted.id:
                raise Violation(
                    "Q2", f"node {key.id} voted for {vote.id} and {election.voted.id} in epoch {election.epoch}"
                )

    def named(self, key: ReplicaKey, epoch: int) -> None:
        """Note an epoch that a response named."""
        self.named_epochs[key] = max(epoch, self.named_epochs.get(key, 0))

    def started(self, key: ReplicaKey, node: RaftNode) -> None:
        """Judge a node after its first step (Q3)."""
        if node.state.epoch < self.named_epochs.get(key, 0):
            raise Violation("Q3", f"node {key.id} restarts in epoch {node.state.epoch}, after {self.named_epochs[key]}")

    def stepped(self, key: ReplicaKey, before: int, node: RaftNode) -> None:
        """Judge a step (Q3)."""
        if node.state.epoch < before:
            raise Violation("Q3", f"the epoch of node {key.id} falls from {before} to {node.state.epoch}")

    def leads(self, node: RaftNode, disk: QuorumDisk) -> None:
        """Judge a node that has begun to lead (Q6).

        A late vote may make a leader of an epoch that is over: a later epoch, whose record is the last committed one,
        has committed without it.
        """
        if self.committed and self.committed[-1].epoch > node.state.epoch:
            return
        whole = disk.whole()
        if whole[: len(self.committed)] != self.committed:
            raise Violation("Q6", f"the leader of epoch {node.state.epoch} lacks committed records")

    def moved(
        self,
        key: ReplicaKey,
        before: int | None,
        node: RaftNode,
        disk: QuorumDisk,
        disks: Sequence[tuple[ReplicaKey, QuorumDisk]],
    ) -> None:
        """Judge a high watermark that has moved (Q5, Q7, Q9)."""
        now = node.high_watermark
        if now is None or (before is not None and now < before):
            raise Violation("Q7", f"the high watermark of node {key.id} falls from {before} to {now}")
        below = [batch for batch in disk.whole() if batch.end_offset <= now]
        if (below[-1].end_offset if below else 0) != now:
            raise Violation("Q5", f"the high watermark {now} of node {key.id} is on no batch's end")
        shared = min(len(below), len(self.committed))
        if below[:shared] != self.committed[:shared]:
            raise Violation("Q5", f"node {key.id} holds other records for committed below {now} than were committed")
        if len(below) > len(self.committed):
            self._commit(node, below, disks)

    def _commit(self, node: RaftNode, below: list[Batch], disks: Sequence[tuple[ReplicaKey, QuorumDisk]]) -> None:
        leader = node.state
        if not isinstance(leader, Leader):
            raise Violation("Q5", "a node that does not lead holds records for committed that no leader has committed")
        if below[-1].end_offset <= leader.epoch_start_offset:
            raise Violation("Q7", f"epoch {leader.epoch} commits before its own first record")
        voters = node.history.current
        holders = {
            key.id
            for key, disk in disks
            if voters.has(key) and disk.whole_durable()[len(below) - 1 : len(below)] == below[-1:]
        }
        if len(holders) < voters.majority:
            raise Violation(
                "Q9", f"committed below {below[-1].end_offset}: on the disks of {sorted(holders)} of {voters.ids}"
            )
        self.committed = below

    def truncates(self, key: ReplicaKey, node: RaftNode, end_offset: int) -> None:
        """Judge a truncation (Q8)."""
        if node.high_watermark is not None and end_offset < node.high_watermark:
            raise Violation(
                "Q8", f"node {key.id} truncates to {end_offset}, below its high watermark {node.high_watermark}"
            )

    def appends(
        self, key: ReplicaKey, node: RaftNode, batch: Batch, former: VoterSet, former_offset: int | None
    ) -> None:
        """Judge a voter set that a leader appends (Q10)."""
        sets = [record.voter_set for record in batch.control if isinstance(record, VotersRecord)]
        if not sets or not isinstance(node.state, Leader) or batch.epoch != node.state.epoch:
            return
        if not former.differs_by_at_most_one(sets[0]) and any(voter.directory_id is not None for voter in former.keys):
            raise Violation("Q10", f"node {key.id} goes from the voters {former.ids} to {sets[0].ids} at once")
        if former_offset is not None and former_offset >= self.committed_end:
            raise Violation("Q10", f"node {key.id} changes the voters before the set at {former_offset} is committed")

    def acknowledges(self, offset: int, voters: VoterSet) -> None:
        """Note an acknowledged change of the voter set (Q11)."""
        if offset >= self.committed_end:
            raise Violation("Q11", f"the voter set at {offset} is acknowledged and not committed")
        self.acknowledged[offset] = voters

    def snapshot(self, snapshot: OffsetAndEpoch, batches: Sequence[Batch]) -> None:
        """Judge a snapshot that is created or installed (Q12)."""
        if list(batches) != self.committed[: len(batches)]:
            raise Violation("Q12", f"snapshot {tuple(snapshot)} holds records that were not committed")

    def logs_match(self, logs: Sequence[tuple[int, Sequence[Batch]]]) -> None:
        """Judge all logs against one another (Q4)."""
        for place, (one, first) in enumerate(logs):
            for other, second in logs[place + 1 :]:
                common = {batch.end_offset: batch.epoch for batch in first}
                shared = [at for at, batch in enumerate(second) if common.get(batch.end_offset) == batch.epoch]
                if shared and list(first[: shared[-1] + 1]) != list(second[: shared[-1] + 1]):
                    raise Violation("Q4", f"the logs of nodes {one} and {other} differ before a batch that both have")
