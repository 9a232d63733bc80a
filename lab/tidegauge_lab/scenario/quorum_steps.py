"""The steps of scenario files about the quorum of a cluster in KRaft mode."""

from __future__ import annotations

from tidegauge.lazy_dataclasses import dataclass
from tidegauge_lab.local.roles import Role
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.step_base import Step, argument
from tidegauge_lab.scenario.wording import brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class AddController(Step):
    """A further voter."""

    verb = "add_controller"
    about = "in KRaft mode: start one more controller, and make it a voter of the quorum once it has caught up"

    def sentence(self) -> str:
        """Return the step in words."""
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


QUORUM_STEPS: tuple[type[Step], ...] = (AddController, RemoveController, LoseDisk)
