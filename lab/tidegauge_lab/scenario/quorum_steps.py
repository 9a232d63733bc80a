"""The steps of scenario files about the quorum of a cluster in KRaft mode."""

from __future__ import annotations

from tidegauge.counted import counted
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_lab.local.roles import Role
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.readers import ANY, NONE
from tidegauge_lab.scenario.step_base import Step, argument
from tidegauge_lab.scenario.wording import brokers, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class AddController(Step):
    """A further voter."""

    verb = "add_controller"
    about = (
        "in KRaft mode: start one more controller, or take one that is an observer, and make it a voter of the quorum "
        "once it has caught up"
    )

    broker: int | Role | None = argument(
        readers.broker_or_role, "the observer that becomes a voter; default: one more controller", default=None
    )

    def sentence(self) -> str:
        """Return the step in words."""
        if self.broker is not None:
            return f"Make {brokers([self.broker])} a voter"
        return "Start one more controller, and make it a voter"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveController(Step):
    """One voter less."""

    verb = "remove_controller"
    main = "broker"
    about = "in KRaft mode: take a controller out of the voters; its process goes on, as an observer"

    broker: int | Role = argument(readers.broker_or_role, "the controller, or its role: controller, follower_of")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Take {brokers([self.broker])} out of the voters"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseDisk(Step):
    """A disk that is replaced by an empty one."""

    verb = "lose_disk"
    main = "brokers"
    about = "in KRaft mode: take all data of these dead controllers away; they start as other replicas, without a vote"

    brokers: tuple[int | Role, ...] = argument(readers.one_or_many(readers.broker_or_role), "their ids, or roles")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Take all data of {brokers(self.brokers)} away"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameVoters(Step):
    """Names by which later steps mean the same controllers, whatever becomes of them."""

    verb = "name_voters"
    main = "names"
    about = (
        "in KRaft mode: give voters names: first the one that leads, then the others, those that run before those "
        "that are down, by their ids; later steps mean them by `{voter: NAME}`"
    )

    names: tuple[str, ...] = argument(readers.one_or_many(readers.text), "a name for each, or for the first ones")

    def sentence(self) -> str:
        """Return the step in words."""
        first, *others = map(repr, self.names)
        return f"Call the controller that leads {first}" + (f", and the others {joined(others)}" if others else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitQuorum(Step):
    """Until a controller leads the quorum."""

    verb = "wait_quorum"
    main = "leader"
    about = (
        "in KRaft mode: wait until this controller, or any, leads the quorum and has committed a record of its epoch"
    )

    leader: int | str | Role = argument(
        readers.quorum_leader, "a controller's id, `{voter: NAME}`, any, or none: until no controller leads"
    )
    changed: bool | None = argument(
        readers.truth, "true: in another epoch than at the last such step; false: still in that one", default=None
    )
    caught_up: int | None = argument(
        readers.positive, "so many voters have all that is committed, as the leader knows", default=None
    )
    epochs_later: int | None = argument(
        readers.positive, "so many epochs at least have begun since the last such step", default=None
    )
    commits: bool = argument(
        readers.truth, "false: the leader has committed no record of its epoch; default true", default=True
    )

    def sentence(self) -> str:
        """Return the step in words."""
        leader = brokers([self.leader]) if isinstance(self.leader, Role) else f"controller {self.leader}"
        who = {ANY: "a controller", NONE: "no controller"}.get(str(self.leader), leader)
        when = {None: "", True: " in another epoch", False: ", still in the same epoch"}[self.changed]
        if self.epochs_later is not None:
            when = f", {counted(self.epochs_later, 'epoch')} later at least"
        whole = "" if self.caught_up is None else f", and {self.caught_up} voters have its log"
        commits = "" if self.commits else ", and has committed nothing in it"
        return f"Wait until {who} leads the quorum{when}{whole}{commits}"


QUORUM_STEPS: tuple[type[Step], ...] = (AddController, RemoveController, LoseDisk, NameVoters, WaitQuorum)
