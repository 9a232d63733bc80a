"""Records that this process proposes, and what becomes of them: committed, refused, or lost with the leadership."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge_controller.raft import effects, events

Decided = Callable[[ErrorCode, str], None]
"""Takes NONE if the records are committed, else an error with its sentence."""
_LOST = "This node does not lead the quorum any more; whether the records will be committed is not known."


class _Waiting(NamedTuple):
    """A proposal that has its offsets; ``end_offset`` is what the high watermark must reach."""

    end_offset: int
    decided: Decided


class Proposals:
    """Makes proposals, and observes the node (``driver.Observer``) to learn what becomes of them.

    Args:
        node_id: the node's id.
    """

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._proposed: set[Decided] = set()
        self._waiting: list[_Waiting] = []

    def propose(self, values: Sequence[bytes], epoch: int, decided: Decided) -> events.Propose:
        """Return the event that proposes records.

        Args:
            values: the records' values.
            epoch: the epoch in which this node is believed to lead.
            decided: is called once, when the records are committed, refused or lost.
        """
        self._proposed.add(decided)
        return events.Propose(decided, epoch, len(values), sum(map(len, values)), tuple(values))

    def proposal_decided(self, effect: effects.Proposed | effects.NotProposed) -> None:
        """Wait for the commit of a proposal, or report that it was refused."""
        decided = next((one for one in self._proposed if one is effect.token), None)
        if decided is None:
            return
        self._proposed.discard(decided)
        if isinstance(effect, effects.NotProposed):
            decided(effect.error, effect.message)
        else:
            self._waiting.append(_Waiting(effect.end_offset, decided))

    def high_watermark_moved(self, effect: effects.HighWatermarkMoved) -> None:
        """Report the proposals that are committed."""
        done = [one for one in self._waiting if one.end_offset <= effect.high_watermark]
        self._waiting = [one for one in self._waiting if one.end_offset > effect.high_watermark]
        for one in done:
            one.decided(ErrorCode.NONE, "")

    def leadership_changed(self, effect: effects.LeadershipChanged) -> None:
        """Fail what waits if this node does not lead any more."""
        if effect.leader_id == self._node_id:
            return
        lost, self._waiting = self._waiting, []
        for one in lost:
            one.decided(ErrorCode.NOT_CONTROLLER, _LOST)

    def state_changed(self, effect: effects.StateChanged) -> None:
        """Do nothing: a change of the leadership is reported as such."""
