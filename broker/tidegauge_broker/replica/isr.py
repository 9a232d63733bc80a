"""The leader's in-sync replicas as a type: committed, or with one change in flight (KIP-497).

The safety argument is here: while a change is pending the leader does not know which of the two sets the controller
will elect from, so the high watermark waits for the larger one, ``maximal_isr`` (what happens else: docs/simulation.md,
M9). The committed ``isr`` decides on acks=all and on min.insync.replicas.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge.control import IsrProposal


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """No change is in flight."""

    isr: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The set that may be in force."""
        return self.isr

    name = "committed"
    proposal: None = None


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """The controller was asked to add a replica."""

    isr: tuple[int, ...]
    new_replica: int
    proposal: IsrProposal

    def __post_init__(self) -> None:
        """Check that one replica joins, which the proposal names."""
        assert self.new_replica not in self.isr, "it joins"
        assert set(self.proposal.new_isr) == {*self.isr, self.new_replica}

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The newcomer already counts: it may be elected from now on."""
        return (*self.isr, self.new_replica)

    name = "pending-expand"


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """The controller was asked to remove replicas."""

    isr: tuple[int, ...]
    proposal: IsrProposal

    def __post_init__(self) -> None:
        """Check that members leave, and none joins."""
        assert set(self.proposal.new_isr) < set(self.isr)

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR with members to be removed, which may still be elected."""
        return self.isr

    name = "pending-shrink"


IsrState = CommittedIsr | PendingExpand | PendingShrink
