"""Plays the steps of a scenario that are about the quorum of controllers of a cluster in KRaft mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatchmethod
from typing import TypeAlias

from tidegauge.counted import counted
from tidegauge_client.quorum_admin import QuorumView
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.quorum_growth import lose_data, make_voter, remove_voter
from tidegauge_lab.local.roles import Role
from tidegauge_lab.scenario.group_player import Waits
from tidegauge_lab.scenario.outcome import StepFailed
from tidegauge_lab.scenario.quorum_steps import AddController, LoseDisk, NameVoters, RemoveController, WaitQuorum
from tidegauge_lab.scenario.readers import ANY, NONE

QuorumStep: TypeAlias = AddController | RemoveController | LoseDisk | NameVoters | WaitQuorum
Ids = Callable[..., list[int]]
"""Returns the nodes of ids and roles now; a follower in the given state."""


class QuorumPlayer:
    """The quorum of one run.

    Args:
        cluster: its processes.
        wait: the run's waits.
        ids: returns the nodes that ids and roles name now.
        detail: takes a line about what a step has done.
        has_grown: is called when the cluster has another node.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        wait: Waits,
        ids: Ids,
        detail: Callable[[str], None],
        has_grown: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._wait = wait
        self._ids = ids
        self._detail = detail
        self._has_grown = has_grown
        self._epoch = -1
        self._voters: dict[str, int] = {}

    def voter(self, name: str) -> int:
        """Return the controller of a name; the loader has checked that a step gives it."""
        return self._voters[name]

    @singledispatchmethod
    def do(self, step: QuorumStep) -> None:
        """Do one step.

        Raises:
            StepFailed: what it waits for has not come true in time.
        """
        raise AssertionError(f"{step.verb} is in the vocabulary, so it can be done")

    @do.register
    def _add_controller(self, step: AddController) -> None:
        if step.broker is not None:
            [observer] = self._ids([step.broker])
            quorum = self._cluster.file.quorum
            assert quorum is not None
            make_voter(self._cluster.directory, quorum.controller(observer))
            return
        controller_id, _ = self._cluster.add_controller()
        self._has_grown()
        self._detail(f"it is controller {controller_id} (line {step.line})")

    @do.register
    def _remove_controller(self, step: RemoveController) -> None:
        [controller_id] = self._ids([step.broker])
        remove_voter(self._cluster.file.controllers(), controller_id)

    @do.register
    def _lose_disk(self, step: LoseDisk) -> None:
        for controller_id in self._ids(step.brokers, ProcessState.DOWN):
            lose_data(self._cluster.directory, self._cluster.process_of(controller_id))

    @do.register
    def _name_voters(self, step: NameVoters) -> None:
        view = self._cluster.quorum()
        if view is None:
            raise StepFailed("no controller leads the quorum")
        others = [one.id for one in view.voters if one.id != view.leader_id]
        others.sort(key=lambda one: (self._cluster.state_of(one) is not ProcessState.UP, one))
        voters = [view.leader_id, *others]
        if len(voters) < len(step.names):
            raise StepFailed(f"there are {counted(len(voters), 'voter')} for {counted(len(step.names), 'name')}")
        named = dict(zip(step.names, voters, strict=False))
        self._voters |= named
        self._detail(", ".join(f"{name!r} is controller {voter}" for name, voter in named.items()))

    @do.register
    def _wait_quorum(self, step: WaitQuorum) -> None:
        leader = self._ids([step.leader])[0] if isinstance(step.leader, Role) else step.leader

        def differing() -> list[str]:
            view = self._cluster.quorum()
            if view is None or (step.commits and view.high_watermark < 0):
                return [] if leader == NONE else ["no controller leads the quorum"]
            problem = self._problem(step, leader, view)
            if not problem:
                self._epoch = view.epoch
            return [problem] if problem else []

        self._wait(differing)

    def _problem(self, step: WaitQuorum, leader: int | str, view: QuorumView) -> str:
        """Return the violated part of a step's condition; empty if it holds."""
        if not step.commits and view.high_watermark >= 0:
            return f"controller {view.leader_id} has committed all below offset {view.high_watermark}"
        whole = sum(one.log_end_offset >= view.high_watermark for one in view.voters)
        if step.caught_up not in {None, whole}:
            return f"{whole} of {counted(len(view.voters), 'voter')} have all that is committed"
        later = view.epoch - self._epoch
        is_in_time = step.changed in {None, later != 0} and later >= (step.epochs_later or 0)
        if leader in {ANY, view.leader_id} and is_in_time:
            return ""
        is_compared = step.changed is not None or step.epochs_later is not None
        before = f"; it was {self._epoch}" if is_compared else ""
        return f"controller {view.leader_id} leads the quorum in epoch {view.epoch}{before}"
