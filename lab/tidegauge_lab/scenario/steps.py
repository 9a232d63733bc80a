"""The vocabulary of scenario files: one class for each step, with its arguments, their readers and their meaning.

Rules:
- A step is a mapping with one verb, and beside it ``note`` if it needs a word. The verb's arguments are a mapping; a
  verb with a ``main`` argument takes that one alone too: ``kill: 1`` is ``kill: {brokers: 1}``.
- ``partition`` may be left out everywhere: it is the first partition of the first topic.
- Names are those of the command line and of Kafka.

``docs/scenarios.md`` has the table of these steps, made by ``tools/generate-faults.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, ClassVar, assert_never

from tidegauge.errors import ErrorCode
from tidegauge.faults import actions
from tidegauge.faults.actions import ActionKind
from tidegauge.faults.model import FaultKind, Parameter, WantedFault
from tidegauge.faults.table import HOLD_REQUESTS, INJECT_DISK, INJECT_ERROR, ISOLATE, SKEW_CLOCK
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge_lab.local.roles import Role
from tidegauge_lab.scenario import group_steps, quorum_steps, readers, share_steps, step_base, transaction_steps
from tidegauge_lab.scenario.readers import LoggedRecord, Reader
from tidegauge_lab.scenario.step_base import Argument, argument

_WHICH = actions.RELEASE_REQUESTS.parameter("which")
_UNTIL = actions.STEP_FETCH.parameter("until")
Step = step_base.Step
PartitionStep = step_base.PartitionStep


def arguments_of(step: type[Step]) -> dict[str, Argument]:
    """Return a step's arguments by the names that stand in the file."""
    found = {one.metadata["name"] or one.name: one for one in fields(step) if "read" in one.metadata}
    own = {
        name: Argument(one.name, one.metadata["read"], one.metadata["about"], one.default, one.default is MISSING)
        for name, one in found.items()
    }
    return {**own, **(_fault_arguments(step.kind) if issubclass(step, FaultStep) else {})}


def _fault_arguments(kind: FaultKind) -> dict[str, Argument]:
    return {
        one.name: Argument(one.name, _fault_reader(one), _about(one), one.default, one.is_required)
        for one in kind.parameters
    }


def _fault_reader(parameter: Parameter) -> Reader[Any]:
    match parameter.kind:
        case "integer":
            if parameter.minimum < 0:
                return readers.signed
            return readers.positive if parameter.minimum else readers.integer
        case "number":
            return readers.probability
        case "flag":
            return readers.truth
        case "choice":
            return readers.choice(*parameter.choices)
        case "error":
            return readers.error_name
        case "peers":
            return readers.plane
        case "partition":
            return readers.partition
        case "partitions":
            return readers.one_or_many(readers.partition)
        case "text" | "time":
            return readers.text
        case _:
            assert_never(parameter.kind)


def in_a_line(meaning: str) -> str:
    """Return a meaning as a part of a line; an acronym keeps its capitals."""
    return meaning[0].lower() + meaning[1:] if meaning[1:2].islower() else meaning


def _about(parameter: Parameter) -> str:
    meaning = in_a_line(parameter.meaning)
    return f"{meaning} (default {parameter.shown_default})" if parameter.shown_default else meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultStep(Step):
    """Puts a declared fault in force at a broker; each fault of the table has a subclass."""

    kind: ClassVar[FaultKind]

    broker: int | Role = argument(readers.broker_or_role, "the broker, or its role")
    fault: WantedFault

    def value_of(self, argument: Argument) -> Any:
        """Return the broker, or the value of one of the fault's parameters."""
        return self.broker if argument.attribute == "broker" else self.fault[argument.attribute]


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
        "another file than history.jsonl in the run's directory for what was sent and returned",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitResponse(Step):
    """The response to an earlier produce."""

    verb = "wait_answer"
    main = "values"
    about = "wait for the responses to earlier produces"

    values: tuple[str, ...] = argument(readers.one_or_many(readers.text), "values that were produced")
    error: ErrorCode = argument(readers.error_name, "the error that is expected", default=ErrorCode.NONE)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(ProcessStep):
    """Controlled shutdown."""

    kind = actions.STOP
    verb = kind.verb
    about = in_a_line(kind.meaning)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(ProcessStep):
    """SIGSTOP."""

    kind = actions.PAUSE
    verb = kind.verb
    about = in_a_line(kind.meaning)

    expire: bool = argument(readers.truth, in_a_line(kind.parameter("expire").meaning), default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(ProcessStep):
    """SIGCONT."""

    kind = actions.RESUME
    verb = kind.verb
    about = in_a_line(kind.meaning)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Heal(Step):
    """The end of network partitions."""

    verb = actions.HEAL.verb
    main = "brokers"
    about = in_a_line(actions.HEAL.meaning)

    brokers: tuple[int | Role, ...] = argument(readers.one_or_many(readers.broker_or_role), "broker ids, or roles")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitHeld(Step):
    """Until requests wait at a broker."""

    verb = "wait_held"
    main = ""
    about = "wait until a broker's hold_requests keep a minimum number of requests or responses"

    broker: int | Role = argument(readers.broker_or_role, "the broker, or its role")
    count: int = argument(readers.positive, "how many", default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequests(Step):
    """The end of holds of requests."""

    verb = actions.RELEASE_REQUESTS.verb
    main = "brokers"
    about = in_a_line(actions.RELEASE_REQUESTS.meaning)

    brokers: tuple[int | Role, ...] = argument(readers.one_or_many(readers.broker_or_role), "broker ids, or roles")
    which: str = argument(readers.choice(*_WHICH.choices), in_a_line(_WHICH.meaning), default=_WHICH.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearFaults(Step):
    """The end of all faults."""

    verb = actions.CLEAR_FAULTS.verb
    main = "brokers"
    about = in_a_line(actions.CLEAR_FAULTS.meaning)

    brokers: tuple[int | Role, ...] = argument(readers.one_or_many(readers.broker_or_role), "broker ids, or roles")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireSession(Step):
    """The end of a ZooKeeper session."""

    verb = actions.EXPIRE_SESSION.verb
    main = "broker"
    about = in_a_line(actions.EXPIRE_SESSION.meaning)

    broker: int | Role = argument(readers.broker_or_role, "the broker, or its role")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elect(PartitionStep):
    """An election on demand."""

    verb = "elect"
    main = "type"
    about = "elect a leader: preferred, or unclean"

    type: str = argument(readers.choice("preferred", "unclean"), "preferred or unclean")
    error: ErrorCode = argument(readers.error_name, "the error that is expected", default=ErrorCode.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(PartitionStep):
    """Flush to disk."""

    verb = actions.SYNC.verb
    main = "brokers"
    about = in_a_line(actions.SYNC.meaning)

    brokers: tuple[int | Role, ...] = argument(readers.one_or_many(readers.broker_or_role), "broker ids, or roles")


@dataclass(frozen=True, slots=True, kw_only=True)
class DropUnsynced(Step):
    """The other half of a power loss."""

    verb = "drop_unsynced"
    main = "brokers"
    about = "take away all that these dead brokers never flushed; with kill before it, a power loss"

    brokers: tuple[int | Role, ...] = argument(readers.one_or_many(readers.broker_or_role), "broker ids, or roles")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLeader(PartitionStep):
    """Until a broker leads."""

    verb = "wait_leader"
    main = "leader"
    about = "wait until this broker leads, by the cluster's view and its own; none: until there is no leader"

    leader: int = argument(readers.leader, "a broker id, or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitIsr(PartitionStep):
    """Until the ISR is so."""

    verb = "wait_isr"
    main = "isr"
    about = "wait until the ISR holds exactly these, in any order"

    isr: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "broker ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitHw(PartitionStep):
    """Until high watermarks are so."""

    verb = "wait_hw"
    main = "hw"
    about = "wait until these replicas have these high watermarks"

    hw: Mapping[int, int] = argument(readers.by_broker(readers.integer), "{broker: high watermark}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLso(PartitionStep):
    """Until last stable offsets are so."""

    verb = "wait_lso"
    main = "lso"
    about = "wait until these replicas have these last stable offsets"

    lso: Mapping[int, int] = argument(readers.by_broker(readers.integer), "{broker: last stable offset}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLeo(PartitionStep):
    """Until log end offsets are so."""

    verb = "wait_leo"
    main = "leo"
    about = "wait until these replicas have these log end offsets"

    leo: Mapping[int, int] = argument(readers.by_broker(readers.integer), "{broker: log end offset}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEpoch(PartitionStep):
    """Until the leader epoch is so."""

    verb = "wait_epoch"
    main = "epoch"
    about = "wait until the partition's leader epoch is this, by the cluster's view and that of the replicas named"

    epoch: int = argument(readers.integer, "leader epoch")
    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "replicas that know it", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCheckpoint(PartitionStep):
    """Until a high watermark is on disk."""

    verb = "wait_checkpoint"
    main = "hw"
    about = "wait until these brokers' replication-offset-checkpoint files hold these high watermarks"

    hw: Mapping[int, int] = argument(readers.by_broker(readers.integer), "{broker: high watermark}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitController(Step):
    """Until a broker is the controller."""

    verb = "wait_controller"
    main = "brokers"
    about = "wait until all brokers that respond name the same controller, one of these"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "who may be it")
    epoch: int | None = argument(readers.positive, "the controller epoch", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEvent(Step):
    """Until a broker has written something into its event log."""

    verb = "wait_event"
    main = ""
    about = "wait until a broker's event log holds an event of this kind with these fields"

    broker: int = argument(readers.integer, "whose event log")
    kind: str = argument(readers.text, "the event's kind, such as truncation")
    fields: Mapping[str, Any] = argument(readers.by_name(readers.scalar), "fields and their values", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(PartitionStep):
    """A state to compare with later."""

    verb = "mark"
    main = "name"
    about = "remember the state under a name, for a table"

    name: str = argument(readers.text, "its name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(PartitionStep):
    """The table of a walk-through."""

    verb = "table"
    main = ""
    about = "print the walk-through's table: attribute, phase, old value, new value, note"

    phase: str = argument(readers.text, "what has happened")
    since: str = argument(readers.text, "the mark with the old values")
    leader: int = argument(readers.integer, "the leader")
    followers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "the followers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect(PartitionStep):
    """What must be so now. Logs, epochs and responses are compared as they are; nothing is waited for."""

    verb = "expect"
    main = ""
    about = "check what is now; the scenario fails with what is true instead"

    leader: int | None = argument(readers.leader, "a broker id, or none", default=None)
    epoch: int | None = argument(readers.integer, "the partition's leader epoch", default=None)
    isr: tuple[int, ...] | None = argument(readers.many(readers.integer), "the ISR, in any order", default=None)
    leo: Mapping[int, int] | None = argument(
        readers.by_broker(readers.integer), "{broker: log end offset}", default=None
    )
    hw: Mapping[int, int] | None = argument(
        readers.by_broker(readers.integer), "{broker: high watermark}", default=None
    )
    lso: Mapping[int, int] | None = argument(
        readers.by_broker(readers.integer),
        "{broker: last stable offset, up to which read_committed reads}",
        default=None,
    )
    remote_leo: Mapping[int, int] | None = argument(
        readers.by_broker(readers.integer), "{follower: its log end offset as the leader knows it}", default=None
    )
    log: Mapping[int, tuple[LoggedRecord, ...]] | None = argument(
        readers.by_broker(readers.many(readers.logged_record)),
        "{broker: the values in its files, as VALUE or VALUE@EPOCH}; dead brokers too",
        default=None,
    )
    epochs: Mapping[int, tuple[tuple[int, int], ...]] | None = argument(
        readers.by_broker(readers.many(readers.pair)),
        "{broker: its epoch cache, [[epoch, start offset]]}",
        default=None,
    )
    answers: Mapping[str, str] | None = argument(
        readers.by_name(readers.text),
        "{value: ack, none, or the name of an error}: the response that its producer got",
        default=None,
    )
    readable: tuple[str, ...] | None = argument(
        readers.many(readers.text), "the values that a consumer can read now", default=None
    )
    diverged: bool | None = argument(
        readers.truth, "true: below the lowest high watermark of the live replicas their logs differ", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify(Step):
    """What the accountant finds."""

    verb = "verify"
    main = "found"
    about = "let the accountant compare all that was produced with the logs; what it finds must be exactly this"

    found: Mapping[str, int] = argument(
        readers.by_name(readers.positive), "{finding: how often}, such as lost or diverged; {} where the books balance"
    )
    topic: str | None = argument(readers.text, "the topic; default: the first", default=None)


def _fault_step(kind: FaultKind) -> type[FaultStep]:
    about = in_a_line(kind.meaning)
    return type(kind.name, (FaultStep,), {"verb": kind.name, "about": about, "kind": kind, "__doc__": kind.meaning})


_OWN_STEPS: tuple[type[Step], ...] = (
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
    _fault_step(ISOLATE),
    Heal,
    _fault_step(INJECT_ERROR),
    _fault_step(HOLD_REQUESTS),
    WaitHeld,
    ReleaseRequests,
    _fault_step(INJECT_DISK),
    _fault_step(SKEW_CLOCK),
    ClearFaults,
    ExpireSession,
    Elect,
    Sync,
    DropUnsynced,
    WaitLeader,
    WaitIsr,
    WaitHw,
    WaitLso,
    WaitLeo,
    WaitEpoch,
    WaitCheckpoint,
    WaitController,
    *quorum_steps.QUORUM_STEPS,
    WaitEvent,
    Mark,
    Table,
    Expect,
    Verify,
)
STEPS: dict[str, type[Step]] = {
    step.verb: step
    for step in (*_OWN_STEPS, *group_steps.GROUP_STEPS, *share_steps.SHARE_STEPS, *transaction_steps.TRANSACTION_STEPS)
}
"""By verb."""
