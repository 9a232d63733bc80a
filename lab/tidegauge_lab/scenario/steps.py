"""The vocabulary of scenario files: one class for each step, with its arguments, their readers and their meaning.

Rules:
- A step is a mapping with one verb, and beside it ``note`` if it needs a word. The verb's arguments are a mapping; a
  verb with a ``main`` argument takes that one alone too: ``kill: 1`` is ``kill: {brokers: 1}``.
- ``partition`` may be left out everywhere: it is the first partition of the first topic.
- Names are those of the command line and of Kafka.

``docs/scenarios.md`` has the table of these steps, made by ``tools/generate-faults.py``.
"""

# ruff: noqa: RUF009 - argument() is dataclasses.field() with a shorter call
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.faults.model import FaultKind, Parameter, WantedFault
from tidegauge.faults.table import INJECT_DISK, INJECT_ERROR, ISOLATE
from tidegauge.partition import TopicPartition
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.readers import LoggedRecord, Reader


def argument(read: Reader[Any], about: str, *, name: str = "", default: Any = MISSING) -> Any:
    """Declare a field that is read from the file; ``name`` where the file's word is no Python name.

    Gives Any, as ``dataclasses.field`` does, so that it fits the annotation beside it.
    """
    return field(default=default, metadata={"read": read, "about": about, "name": name})


class Argument(NamedTuple):
    """One argument of a step.

    Attributes:
        attribute: the name in Python, which differs where the file's word is no Python name.
        read: its reader.
        about: one line for people.
        default: its value where the file leaves it out; of no use where it is required.
        is_required: whether it must be given.
    """

    attribute: str
    read: Reader[Any]
    about: str
    default: Any
    is_required: bool


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
        one.name: Argument(one.name, _fault_reader(one), _in_a_line(one), one.default, one.is_required)
        for one in kind.parameters
    }


def _fault_reader(parameter: Parameter) -> Reader[Any]:
    match parameter.kind:
        case "integer":
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
    return readers.text


def _in_a_line(parameter: Parameter) -> str:
    """Return a parameter's meaning as a part of a line; an acronym or a choice's own word keeps its form."""
    meaning = parameter.meaning
    if meaning[1:2].islower():
        meaning = meaning[0].lower() + meaning[1:]
    return f"{meaning} (default {parameter.shown_default})" if parameter.shown_default else meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What all steps have: where they stand, and a word about them."""

    verb: ClassVar[str]
    main: ClassVar[str] = ""
    about: ClassVar[str]

    line: int
    note: str = ""

    def value_of(self, argument: Argument) -> Any:
        """Return the value of one of its arguments."""
        return getattr(self, argument.attribute)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultStep(Step):
    """Puts a declared fault in force at a broker; each fault of the table has a subclass."""

    kind: ClassVar[FaultKind]

    broker: int = argument(readers.integer, "the broker")
    fault: WantedFault

    def value_of(self, argument: Argument) -> Any:
        """Return the broker, or the value of one of the fault's parameters."""
        return self.broker if argument.attribute == "broker" else self.fault[argument.attribute]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStep(Step):
    """A step on one partition."""

    partition: TopicPartition | None = argument(readers.partition, "TOPIC-PARTITION; default: the first", default=None)


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
class WaitAnswer(Step):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldFetch(PartitionStep):
    """Followers that fetch only when stepped."""

    verb = "hold_fetch"
    main = "brokers"
    about = "these followers fetch no more, until they are stepped or released; release: true lets them go"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "the followers")
    release: bool = argument(readers.truth, "true: let them go", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFetch(PartitionStep):
    """One round of a held follower."""

    verb = "step_fetch"
    main = "broker"
    about = "one round of a held follower: request, response after its wait in the purgatory, append"

    broker: int = argument(readers.integer, "the follower")
    rounds: int = argument(readers.positive, "how many rounds", default=1)
    until: str = argument(
        readers.choice("request", "answer"),
        "request: stop when the leader has taken the request; the next step gets the response",
        default="answer",
    )
    error: ErrorCode = argument(readers.error_name, "the error with which the leader refuses", default=ErrorCode.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(Step):
    """SIGKILL."""

    verb = "kill"
    main = "brokers"
    about = "kill -9: what was written stays, the ZooKeeper session ends some seconds later"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "broker ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Step):
    """Controlled shutdown."""

    verb = "stop"
    main = "brokers"
    about = "a controlled shutdown: leaders are handed over first"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "broker ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Step):
    """SIGSTOP."""

    verb = "pause"
    main = "brokers"
    about = "freeze the process, as a long garbage collection would"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "broker ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(Step):
    """SIGCONT."""

    verb = "resume"
    main = "brokers"
    about = "let a frozen process run again"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "broker ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Step):
    """A start on the old data."""

    verb = "start"
    main = "brokers"
    about = "start on the old data and port; waits until the broker is registered and responds"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "broker ids")
    held: tuple[TopicPartition, ...] = argument(
        readers.one_or_many(readers.partition), "partitions whose fetches are held from the start", default=()
    )
    after_power_cut: bool = argument(readers.truth, "true: what was never flushed is lost first", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heal(Step):
    """The end of network partitions."""

    verb = "heal"
    main = "brokers"
    about = "end all network partitions of these brokers"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "broker ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearFaults(Step):
    """The end of all faults."""

    verb = "clear_faults"
    main = "brokers"
    about = "end all faults inside these brokers: network partitions, errors, disks; held followers stay held"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "broker ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireSession(Step):
    """The end of a ZooKeeper session."""

    verb = "expire_zk_session"
    main = "broker"
    about = "end a broker's ZooKeeper session, as if it had been silent for too long"

    broker: int = argument(readers.integer, "the broker")


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

    verb = "sync"
    main = "brokers"
    about = "flush these replicas' logs to disk, so that a power loss leaves them"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "broker ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class DropUnsynced(Step):
    """The other half of a power loss."""

    verb = "drop_unsynced"
    main = "brokers"
    about = "take away all that these dead brokers never flushed; with kill before it, a power loss"

    brokers: tuple[int, ...] = argument(readers.one_or_many(readers.integer), "broker ids")


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
    isr: tuple[int, ...] | None = argument(readers.many(readers.integer), "the ISR, in stored order", default=None)
    leo: Mapping[int, int] | None = argument(
        readers.by_broker(readers.integer), "{broker: log end offset}", default=None
    )
    hw: Mapping[int, int] | None = argument(
        readers.by_broker(readers.integer), "{broker: high watermark}", default=None
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
    about = kind.meaning[0].lower() + kind.meaning[1:]
    return type(kind.name, (FaultStep,), {"verb": kind.name, "about": about, "kind": kind, "__doc__": kind.meaning})


STEPS: dict[str, type[Step]] = {
    step.verb: step
    for step in (
        CreateTopic,
        Produce,
        WaitAnswer,
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
        _fault_step(INJECT_DISK),
        ClearFaults,
        ExpireSession,
        Elect,
        Sync,
        DropUnsynced,
        WaitLeader,
        WaitIsr,
        WaitHw,
        WaitLeo,
        WaitEpoch,
        WaitCheckpoint,
        WaitController,
        WaitEvent,
        Mark,
        Table,
        Expect,
        Verify,
    )
}
