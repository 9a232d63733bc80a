"""The steps of scenario files that wait until replicas, brokers and controllers are in a state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegauge.counted import counted
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_lab.local.roles import Role
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.readers import NO_LEADER
from tidegauge_lab.scenario.step_base import PartitionStep, Step, argument
from tidegauge_lab.scenario.wording import brokers, joined, offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitHeld(Step):
    """Until requests wait at a broker."""

    verb = "wait_held"
    main = ""
    about = "wait until a broker's hold_requests keep a minimum number of requests or responses"

    broker: int | Role = argument(readers.broker_or_role, "the broker, or its role")
    count: int = argument(readers.positive, "how many", default=1)

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Wait until {brokers([self.broker])} holds {counted(self.count, 'request')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLeader(PartitionStep):
    """Until a broker leads."""

    verb = "wait_leader"
    main = "leader"
    about = "wait until this broker leads, by the cluster's view and its own; none: until there is no leader"

    leader: int = argument(readers.leader, "a broker id, or none")

    def sentence(self) -> str:
        """Return the step in words."""
        return "Wait until there is no leader" if self.leader == NO_LEADER else f"Wait until broker {self.leader} leads"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitIsr(PartitionStep):
    """Until the ISR is so."""

    verb = "wait_isr"
    main = "isr"
    about = "wait until the ISR holds exactly these, in any order"

    isr: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "broker ids")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Wait until the ISR is {joined(self.isr)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitHw(PartitionStep):
    """Until high watermarks are so."""

    verb = "wait_hw"
    main = "hw"
    about = "wait until these replicas have these high watermarks"

    hw: Mapping[int, int] = argument(readers.by_broker(readers.integer), "{broker: high watermark}")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Wait until the high watermark is {offsets(self.hw)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLso(PartitionStep):
    """Until last stable offsets are so."""

    verb = "wait_lso"
    main = "lso"
    about = "wait until these replicas have these last stable offsets"

    lso: Mapping[int, int] = argument(readers.by_broker(readers.integer), "{broker: last stable offset}")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Wait until the last stable offset is {offsets(self.lso)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLeo(PartitionStep):
    """Until log end offsets are so."""

    verb = "wait_leo"
    main = "leo"
    about = "wait until these replicas have these log end offsets"

    leo: Mapping[int, int] = argument(readers.by_broker(readers.integer), "{broker: log end offset}")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Wait until the log end offset is {offsets(self.leo)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEpoch(PartitionStep):
    """Until the leader epoch is so."""

    verb = "wait_epoch"
    main = "epoch"
    about = "wait until the partition's leader epoch is this, by the cluster's view and the named replicas'"

    epoch: int = argument(readers.integer, "leader epoch")
    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "replicas that know it", default=())

    def sentence(self) -> str:
        """Return the step in words."""
        if not self.brokers:
            return f"Wait until the leader epoch is {self.epoch}"
        know = "knows" if len(self.brokers) == 1 else "know"
        return f"Wait until the leader epoch is {self.epoch}, and {brokers(self.brokers)} {know} it"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCheckpoint(PartitionStep):
    """Until a high watermark is on disk."""

    verb = "wait_checkpoint"
    main = "hw"
    about = "wait until these brokers' replication-offset-checkpoint files hold these high watermarks"

    hw: Mapping[int, int] = argument(readers.by_broker(readers.integer), "{broker: high watermark}")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Wait until the high watermark in the checkpoint file is {offsets(self.hw)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitController(Step):
    """Until a broker is the controller."""

    verb = "wait_controller"
    main = "brokers"
    about = "wait until all brokers that respond name the same controller, one of these"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "who may be it")
    epoch: int | None = argument(readers.positive, "the controller epoch", default=None)

    def sentence(self) -> str:
        """Return the step in words."""
        who = f"broker {' or '.join(map(str, self.brokers))}"
        epoch = "" if self.epoch is None else f", with controller epoch {self.epoch}"
        return f"Wait until {who} is the controller{epoch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEvent(Step):
    """Until a broker has written something into its event log."""

    verb = "wait_event"
    main = ""
    about = "wait until a broker's event log holds an event of this kind with these fields"

    broker: int = argument(readers.integer, "whose event log")
    kind: str = argument(readers.text, "the event's kind, such as truncation")
    fields: Mapping[str, Any] = argument(readers.by_name(readers.scalar), "fields and their values", default=None)

    def sentence(self) -> str:
        """Return the step in words."""
        fields = ", ".join(f"{name} {value}" for name, value in (self.fields or {}).items())
        return f"Wait for the event {self.kind} of broker {self.broker}{f' ({fields})' if fields else ''}"


WAIT_STEPS: tuple[type[Step], ...] = (
    WaitHeld,
    WaitLeader,
    WaitIsr,
    WaitHw,
    WaitLso,
    WaitLeo,
    WaitEpoch,
    WaitCheckpoint,
    WaitController,
    WaitEvent,
)
