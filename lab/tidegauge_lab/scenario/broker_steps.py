"""The steps of scenario files on brokers, topics and records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tidegauge.errors import ErrorCode
from tidegauge.faults import actions
from tidegauge.faults.actions import ActionKind
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge_lab.local.roles import Role
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.step_base import PartitionStep, Step, argument, in_a_line
from tidegauge_lab.scenario.wording import and_expire, brokers, joined, refused

_WHICH = actions.RELEASE_REQUESTS.parameter("which")
_UNTIL = actions.STEP_FETCH.parameter("until")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic(Step):
    """A topic in the midst of a story."""

    verb = "create_topic"
    about = "create a topic; those under topics exist when the first step runs"

    name: str = argument(readers.text, "its name")
    assignment: tuple[tuple[int, ...], ...] = argument(
        readers.assignment, "replicas of its one partition, or a list of such lists"
    )
    config: Mapping[str, str] = argument(readers.by_name(readers.setting), "its settings", default=None)
    error: ErrorCode = argument(
        readers.error_name,
        "the error that is expected instead, within a second; the active controller itself is asked, in KRaft mode",
        default=ErrorCode.NONE,
    )

    def sentence(self) -> str:
        """Return the step in words."""
        replicas = "; ".join(", ".join(map(str, one)) for one in self.assignment)
        error = "" if self.error is ErrorCode.NONE else f": {self.error.name}"
        return f"Create the topic {self.name} with replicas on brokers {replicas}{error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce(PartitionStep):
    """Records, each in a batch of its own."""

    verb = "produce"
    main = "values"
    about = "write each value as a batch of its own, to the leader or through a given broker"

    values: tuple[str, ...] = argument(readers.one_or_many(readers.text), "one value or several")
    acks: int = argument(readers.acks, "all (default), 1 or 0", default=-1)
    via: int | None = argument(readers.integer, "the broker to write through, whoever leads", default=None)
    answer: str = argument(
        readers.choice("now", "later"), "later: go on without the response; wait_answer or expect looks", default="now"
    )
    error: ErrorCode = argument(readers.error_name, "the error that is expected instead", default=ErrorCode.NONE)
    history: str | None = argument(
        readers.text,
        "another file than history.jsonl in the run's directory for requests and responses",
        default=None,
    )

    def sentence(self) -> str:
        """Return the step in words."""
        acks = "all" if self.acks == -1 else self.acks
        via = "" if self.via is None else f" through broker {self.via}, whoever leads"
        later = ", without waiting for the response" if self.answer == "later" else ""
        return f"Produce {joined(self.values)} with acks={acks}{via}{later}{refused(self.error)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitResponse(Step):
    """The response to an earlier produce."""

    verb = "wait_answer"
    main = "values"
    about = "wait for the responses to earlier produces"

    values: tuple[str, ...] = argument(readers.one_or_many(readers.text), "values that were produced")
    error: ErrorCode = argument(readers.error_name, "the error that is expected", default=ErrorCode.NONE)

    def sentence(self) -> str:
        """Return the step in words."""
        how = "is acknowledged" if self.error is ErrorCode.NONE else f"is rejected with {self.error.name}"
        return f"Wait until {joined(self.values)} {how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldFetch(PartitionStep):
    """Followers that fetch only when stepped."""

    verb = actions.HOLD_FETCH.verb
    main = "brokers"
    about = in_a_line(actions.HOLD_FETCH.meaning)

    brokers: tuple[int | Role, ...] = argument(
        readers.one_or_many(readers.broker_or_role), "the followers, by id or role"
    )
    release: bool = argument(readers.truth, f"true: {in_a_line(actions.RELEASE_FETCH.meaning)}", default=False)

    def sentence(self) -> str:
        """Return the step in words."""
        if self.release:
            return f"Release {brokers(self.brokers)}: fetches go on by themselves"
        return f"Hold the fetches of {brokers(self.brokers)}: from here on one round at a time"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFetch(PartitionStep):
    """One round of a held follower."""

    verb = actions.STEP_FETCH.verb
    main = "broker"
    about = in_a_line(actions.STEP_FETCH.meaning)

    broker: int | Role = argument(readers.broker_or_role, "the follower, or its role")
    rounds: int = argument(readers.positive, "how many rounds", default=1)
    until: str = argument(readers.choice(*_UNTIL.choices), in_a_line(_UNTIL.meaning), default=_UNTIL.default)
    error: ErrorCode = argument(readers.error_name, "the error with which the leader refuses", default=ErrorCode.NONE)

    def sentence(self) -> str:
        """Return the step in words."""
        rounds = "one fetch round" if self.rounds == 1 else f"{self.rounds} fetch rounds"
        only = " up to the leader's receipt; the response is withheld" if self.until == "request" else ""
        return f"Let {brokers([self.broker])} do {rounds}{only}{refused(self.error)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStep(Step):
    """A declared action on the processes of brokers."""

    kind: ClassVar[ActionKind]
    main = "brokers"

    brokers: tuple[int | Role, ...] = argument(
        readers.one_or_many(readers.broker_or_role), "broker ids; or roles: leader-of:T-P, coordinator-of:group:G"
    )

    @property
    def values(self) -> dict[str, Any]:
        """The values of the action's parameters, by name."""
        return {one.name: getattr(self, one.name) for one in self.kind.parameters}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(ProcessStep):
    """SIGKILL."""

    kind = actions.KILL
    verb = kind.verb
    about = in_a_line(kind.meaning)

    expire: bool = argument(readers.truth, in_a_line(kind.parameter("expire").meaning), default=False)

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Kill {brokers(self.brokers)} (SIGKILL){and_expire(self.brokers, expire=self.expire)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(ProcessStep):
    """Controlled shutdown."""

    kind = actions.STOP
    verb = kind.verb
    about = in_a_line(kind.meaning)

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Stop {brokers(self.brokers)} by a controlled shutdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(ProcessStep):
    """SIGSTOP."""

    kind = actions.PAUSE
    verb = kind.verb
    about = in_a_line(kind.meaning)

    expire: bool = argument(readers.truth, in_a_line(kind.parameter("expire").meaning), default=False)

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Pause {brokers(self.brokers)} (SIGSTOP){and_expire(self.brokers, expire=self.expire)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(ProcessStep):
    """SIGCONT."""

    kind = actions.RESUME
    verb = kind.verb
    about = in_a_line(kind.meaning)

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Resume {brokers(self.brokers)} (SIGCONT)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(ProcessStep):
    """A start on the old data."""

    kind = actions.START
    verb = kind.verb
    about = in_a_line(kind.meaning)

    held: tuple[TopicPartition, ...] = argument(
        readers.one_or_many(readers.partition), in_a_line(kind.parameter("held").meaning), default=()
    )
    after_power_cut: bool = argument(readers.truth, in_a_line(kind.parameter("after_power_cut").meaning), default=False)

    def sentence(self) -> str:
        """Return the step in words."""
        lost = " after a power loss: without unflushed data" if self.after_power_cut else ""
        held = f", with the fetches of {joined(self.held)} held" if self.held else ""
        return f"Start {brokers(self.brokers)}{lost}{held}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heal(Step):
    """The end of network partitions."""

    verb = actions.HEAL.verb
    main = "brokers"
    about = in_a_line(actions.HEAL.meaning)

    brokers: tuple[int | Role, ...] = argument(readers.one_or_many(readers.broker_or_role), "broker ids, or roles")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Heal the connections of {brokers(self.brokers)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequests(Step):
    """The end of holds of requests."""

    verb = actions.RELEASE_REQUESTS.verb
    main = "brokers"
    about = in_a_line(actions.RELEASE_REQUESTS.meaning)

    brokers: tuple[int | Role, ...] = argument(readers.one_or_many(readers.broker_or_role), "broker ids, or roles")
    which: str = argument(readers.choice(*_WHICH.choices), in_a_line(_WHICH.meaning), default=_WHICH.default)

    def sentence(self) -> str:
        """Return the step in words."""
        what = "requests" if self.which == "all" else self.which
        return f"Release the {what} that {brokers(self.brokers)} hold{'s' if len(self.brokers) == 1 else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearFaults(Step):
    """The end of all faults."""

    verb = actions.CLEAR_FAULTS.verb
    main = "brokers"
    about = in_a_line(actions.CLEAR_FAULTS.meaning)

    brokers: tuple[int | Role, ...] = argument(readers.one_or_many(readers.broker_or_role), "broker ids, or roles")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"End all faults inside {brokers(self.brokers)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireSession(Step):
    """The end of a ZooKeeper session."""

    verb = actions.EXPIRE_SESSION.verb
    main = "broker"
    about = in_a_line(actions.EXPIRE_SESSION.meaning)

    broker: int | Role = argument(readers.broker_or_role, "the broker, or its role")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Expire the ZooKeeper session of {brokers([self.broker])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elect(PartitionStep):
    """An election on demand."""

    verb = "elect"
    main = "type"
    about = "elect a leader: preferred, or unclean"

    type: str = argument(readers.choice("preferred", "unclean"), "preferred or unclean")
    error: ErrorCode = argument(readers.error_name, "the error that is expected", default=ErrorCode.NONE)

    def sentence(self) -> str:
        """Return the step in words."""
        whom = "the preferred leader" if self.type == "preferred" else "a leader, uncleanly if need be"
        return f"Elect {whom}{refused(self.error)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(PartitionStep):
    """Flush to disk."""

    verb = actions.SYNC.verb
    main = "brokers"
    about = in_a_line(actions.SYNC.meaning)

    brokers: tuple[int | Role, ...] = argument(readers.one_or_many(readers.broker_or_role), "broker ids, or roles")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Flush the log of {brokers(self.brokers)} to disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropUnsynced(Step):
    """The other half of a power loss."""

    verb = "drop_unsynced"
    main = "brokers"
    about = "take away all that these dead brokers never flushed; with kill before it, a power loss"

    brokers: tuple[int | Role, ...] = argument(readers.one_or_many(readers.broker_or_role), "broker ids, or roles")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Power loss at {brokers(self.brokers)}: unflushed data are lost"


BROKER_STEPS: tuple[type[Step], ...] = (
    CreateTopic,
    Produce,
    WaitResponse,
    HoldFetch,
    StepFetch,
    Kill,
    Stop,
    Pause,
    Resume,
    Start,
    Heal,
    ReleaseRequests,
    ClearFaults,
    ExpireSession,
    Elect,
    Sync,
    DropUnsynced,
)
