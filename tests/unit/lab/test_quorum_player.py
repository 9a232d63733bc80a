"""The steps of stories about the quorum: names of voters, and waits for leaders, epochs and commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge_client.quorum_admin import QuorumReplica, QuorumView
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.roles import Role, RoleKind
from tidegauge_lab.scenario.loader import parse
from tidegauge_lab.scenario.outcome import StepFailed
from tidegauge_lab.scenario.quorum_player import QuorumPlayer
from tidegauge_lab.scenario.quorum_steps import NameVoters, WaitQuorum

HEAD = "title: t\ncluster: {mode: kraft, brokers: 1}\ntopics: [{name: t, assignment: 0}]\nsteps:\n"


def view(leader_id: int, epoch: int, high_watermark: int = 9, ends: Sequence[int] = (9, 9, 9)) -> QuorumView:
    voters = tuple(QuorumReplica(3000 + place, b"", end, -1, -1) for place, end in enumerate(ends))
    return QuorumView("c", leader_id, epoch, high_watermark, voters, (), {})


class Quorum:
    """A quorum that is described as the test says, and a player that looks once."""

    def __init__(self) -> None:
        self.view: QuorumView | None = None
        self.down: set[int] = set()
        self.details: list[str] = []
        cluster = SimpleNamespace(
            quorum=lambda: self.view,
            state_of=lambda node: ProcessState.DOWN if node in self.down else ProcessState.UP,
        )
        self.player = QuorumPlayer(cluster, self._look, self._ids, self.details.append, lambda: None)  # type: ignore[arg-type]

    @staticmethod
    def _look(problems: Callable[[], Sequence[str]]) -> None:
        found = problems()
        if found:
            raise StepFailed("; ".join(found))

    def _ids(self, named: Sequence[Role], *_: object) -> list[int]:
        return [self.player.voter(one.name) for one in named]

    def wait(self, leader: int | str | Role = "any", **more: object) -> None:
        self.player.do(WaitQuorum(line=1, note="", leader=leader, **more))  # type: ignore[arg-type]


def test_names_go_to_the_leader_and_then_to_the_voters_that_run() -> None:
    quorum = Quorum()
    quorum.view, quorum.down = view(3001, 4), {3000}
    quorum.player.do(NameVoters(line=1, note="", names=("second", "third")))
    assert (quorum.player.voter("second"), quorum.player.voter("third")) == (3001, 3002)
    assert quorum.details == ["'second' is controller 3001, 'third' is controller 3002"]
    quorum.wait(Role(RoleKind.VOTER, name="second"))
    with pytest.raises(StepFailed, match="controller 3001 leads the quorum in epoch 4"):
        quorum.wait(Role(RoleKind.VOTER, name="third"))
    with pytest.raises(StepFailed, match="there are 3 voters for 4 names"):
        quorum.player.do(NameVoters(line=1, note="", names=("a", "b", "c", "d")))


def test_epochs_are_counted_from_the_last_wait_that_came_true() -> None:
    quorum = Quorum()
    quorum.view = view(3000, 4)
    quorum.wait()
    quorum.view = view(3001, 5)
    with pytest.raises(StepFailed, match="controller 3001 leads the quorum in epoch 5; it was 4"):
        quorum.wait(epochs_later=2)
    quorum.view = view(3001, 6)
    quorum.wait(epochs_later=2)
    with pytest.raises(StepFailed):
        quorum.wait(changed=True)
    quorum.wait(changed=False)


def test_a_leader_that_has_committed_nothing_is_waited_for_only_where_that_is_said() -> None:
    quorum = Quorum()
    quorum.view = view(3000, 4, high_watermark=-1)
    quorum.wait(commits=False)
    with pytest.raises(StepFailed, match="no controller leads the quorum"):
        quorum.wait()
    quorum.wait("none")
    quorum.view = view(3000, 4, high_watermark=7)
    with pytest.raises(StepFailed, match="controller 3000 has committed all below offset 7"):
        quorum.wait(commits=False)


def test_voters_that_have_all_that_is_committed_are_counted() -> None:
    quorum = Quorum()
    quorum.view = view(3000, 4, ends=(9, 9, 8))
    quorum.wait(caught_up=2)
    with pytest.raises(StepFailed, match="2 of 3 voters have all that is committed"):
        quorum.wait(caught_up=3)


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ("  - kill: {voter: old}\n", "no step before this one has named a voter 'old'"),
        ("  - wait_quorum: {voter: old}\n  - name_voters: old\n", "no step before this one has named a voter 'old'"),
        ("  - name_voters: [old, old]\n", "each voter needs a name of its own"),
        ("  - wait_quorum: someone\n", "a controller's id, any or none is expected, not 'someone'"),
    ],
)
def test_a_name_that_no_step_has_given_is_refused_with_its_line(steps: str, problem: str) -> None:
    with pytest.raises(TidegaugeError, match=problem):
        parse(HEAD + steps, "a.yaml")
    parse(HEAD + "  - name_voters: old\n  - kill: {voter: old}\n", "a.yaml")
