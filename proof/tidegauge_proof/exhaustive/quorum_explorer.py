"""All states of a small quorum, breadth first (``BreadthFirst``), and its steps in words."""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge_controller.raft.messages import VoteRequest
from tidegauge_proof.exhaustive.breadth_first import BreadthFirst, Found
from tidegauge_proof.exhaustive.quorum_small import Action, Call, QuorumState, SmallQuorum
from tidegauge_proof.simulator.checker import Violation

_WORDS = {
    "timeout": "a timer of node {0} runs out",
    "flush": "a flush of node {0} completes",
    "begin": "node {0} makes itself known again",
    "propose": "node {0} is given records",
    "snapshot": "node {0} writes a snapshot of all that it knows to be committed, and deletes it from its log",
    "kill": "the process of node {0} dies and starts again",
    "lose power": "node {0} loses power, keeps {1} of the batches that were not flushed, and starts again",
    "add": "node {0} is asked to add node {1}",
    "remove": "node {0} is asked to remove node {1}",
}
_WORDS_OF_CALLS = {
    "deliver": "{0} of node {1} arrives at node {2}",
    "deliver in vain": "{0} of node {1} arrives at node {2}, and the response is lost",
    "respond": "{0} of node {2} arrives at node {1}",
    "lose": "node {1} gives {0} of or to node {2} up",
    "fail": "node {1} learns that node {2} will not respond",
}


class QuorumExplorer(BreadthFirst[QuorumState]):
    """One exploration.

    Args:
        quorum: the quorum with its bounds.
        max_states: where to stop.
        fail_fast: stop at the first violation.
    """

    def __init__(self, quorum: SmallQuorum, *, max_states: int = 10_000_000, fail_fast: bool = False) -> None:
        super().__init__(max_states=max_states, fail_fast=fail_fast)
        self._quorum = quorum

    def _begin(self) -> QuorumState:
        return self._quorum.begin()

    def _possible(self, state: QuorumState) -> Iterable[Action]:
        return self._quorum.actions(state)

    def _apply(self, state: QuorumState, action: Action) -> QuorumState | None:
        return self._quorum.apply(state, action)

    def _key(self, state: QuorumState) -> bytes:
        return self._quorum.key(state)

    def _executed(self) -> int:
        return self._quorum.machines.executed

    def _finding(self, broken: Violation, schedule: list[Action]) -> Found:
        return Found(broken.invariant, schedule, str(broken), len(schedule))


def words_of(action: Action) -> str:
    """Return a step in words, with the names of the state really reached."""
    kind, first = action[0], action[1]
    if isinstance(first, Call):
        return _WORDS_OF_CALLS[kind].format(_name_of(first.message.value), first.sender, first.to)
    if kind == "deliver late":
        return f"a late {_name_of(action[2].value)} arrives at node {first}"
    return _WORDS[kind].format(*action[1:])


def _name_of(message: object) -> str:
    return "PreVoteRequest" if isinstance(message, VoteRequest) and message.pre_vote else type(message).__name__
