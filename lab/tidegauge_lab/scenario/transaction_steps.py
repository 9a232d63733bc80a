"""The steps of scenario files about transactions.

A producer is a process of its own with a real client (``producer_process``), so it can be frozen between two steps as a
long garbage collection would freeze an application.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge_client.isolation import IsolationLevel
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.step_base import PartitionStep, Step, argument
from tidegauge_lab.scenario.wording import failing
from tidegauge_lab.transaction_conditions import SHOWN_STATES

LIBRARIES = ("confluent-kafka", "tidegauge", "transactions-v2")
_STATES = tuple(state.value for state in SHOWN_STATES)
_LEVEL = readers.choice(*get_args(IsolationLevel))
_ERROR = "the error that is expected, by the client's name for it"
_LATER = "later: go on without the outcome; wait_producer looks"


def _outcome(response: str, error: str) -> str:
    return "; the outcome is awaited later" if response == "later" else failing(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProducer(Step):
    """A producer that takes over a transactional id."""

    verb = "start_producer"
    main = ""
    about = "start a process with a transactional producer, which takes over its transactional id (InitProducerId)"

    producer: str = argument(readers.text, "its name, which is its client.id")
    transactional_id: str = argument(readers.text, "transactional.id")
    library: str = argument(
        readers.choice(*LIBRARIES),
        "confluent-kafka (default), tidegauge, or transactions-v2 (KIP-890, part 2; in KRaft mode)",
        default=LIBRARIES[0],
    )
    settings: Mapping[str, str] = argument(
        readers.by_name(readers.setting), "settings of the client, by Kafka's names", default=None
    )

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Start the producer {self.producer} ({self.library}) with the transactional id {self.transactional_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStep(Step):
    """A step of one producer."""

    producer: str = argument(readers.text, "its name")


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransaction(ProducerStep):
    """The begin of a transaction."""

    verb = "begin_transaction"
    main = "producer"
    about = "begin a transaction; the coordinator learns of it with the first record"

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Producer {self.producer} begins a transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(PartitionStep):
    """Records in a transaction."""

    verb = "send"
    main = ""
    about = "send each value as a batch of its own in the producer's transaction"

    producer: str = argument(readers.text, "its name")
    values: tuple[str, ...] = argument(readers.one_or_many(readers.text), "one value or several")
    error: str = argument(readers.text, _ERROR, default="")
    answer: str = argument(readers.choice("now", "later"), _LATER, default="now")

    def sentence(self) -> str:
        """Return the step in words."""
        outcome = _outcome(self.answer, self.error)
        return f"Producer {self.producer} sends {', '.join(self.values)}{outcome}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOffsets(ProducerStep):
    """Positions of a group in a transaction."""

    verb = "send_offsets"
    main = ""
    about = "commit offsets of a group in the producer's transaction; they count when it is committed"

    group: str = argument(readers.text, "group.id")
    offsets: Mapping[str, int] = argument(readers.by_name(readers.integer), "{partition: offset to be committed}")
    error: str = argument(readers.text, _ERROR, default="")
    answer: str = argument(readers.choice("now", "later"), _LATER, default="now")

    def sentence(self) -> str:
        """Return the step in words."""
        offsets = ", ".join(f"{offset} of {at}" for at, offset in self.offsets.items())
        outcome = _outcome(self.answer, self.error)
        return f"Producer {self.producer} adds offsets of group {self.group} to its transaction: {offsets}{outcome}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndStep(ProducerStep):
    """The end of a transaction."""

    error: str = argument(readers.text, _ERROR, default="")
    answer: str = argument(readers.choice("now", "later"), _LATER, default="now")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTransaction(EndStep):
    """A commit."""

    verb = "commit_transaction"
    main = "producer"
    about = "commit the producer's transaction, as often as the client says that it may be repeated"

    def sentence(self) -> str:
        """Return the step in words."""
        outcome = _outcome(self.answer, self.error)
        return f"Producer {self.producer} commits{outcome}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransaction(EndStep):
    """An abort."""

    verb = "abort_transaction"
    main = "producer"
    about = "abort the producer's transaction, as often as the client says that it may be repeated"

    def sentence(self) -> str:
        """Return the step in words."""
        outcome = _outcome(self.answer, self.error)
        return f"Producer {self.producer} aborts{outcome}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitProducer(ProducerStep):
    """The outcome of an earlier step."""

    verb = "wait_producer"
    main = "producer"
    about = "wait for the outcome of the producer's step that was to be awaited later"

    error: str = argument(readers.text, _ERROR, default="")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Wait until the call of producer {self.producer} ends{failing(self.error) or ' without an error'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillProducer(ProducerStep):
    """An end by kill -9."""

    verb = "kill_producer"
    main = "producer"
    about = "kill -9 the producer's process: its open transaction waits for its timeout or the next producer"

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Kill the producer {self.producer} (SIGKILL)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseClient(Step):
    """SIGSTOP."""

    verb = "pause_client"
    main = "client"
    about = "freeze the process of a producer or consumer (SIGSTOP), as a long garbage collection would"

    client: str = argument(readers.text, "its name")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Pause the client {self.client} (SIGSTOP)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeClient(Step):
    """SIGCONT."""

    verb = "resume_client"
    main = "client"
    about = "let the process of a paused producer or consumer run again (SIGCONT)"

    client: str = argument(readers.text, "its name")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Resume the client {self.client} (SIGCONT)"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTransaction(Step):
    """Until a transactional id is so."""

    verb = "wait_transaction"
    main = ""
    about = "wait until all of this is true of a transactional id, by its coordinator"

    transactional_id: str = argument(readers.text, "transactional.id")
    state: str | None = argument(readers.choice(*_STATES), "its state, such as Ongoing", default=None)
    epoch: int | None = argument(readers.integer, "its producer epoch, or a later one", default=None)
    partitions: tuple[TopicPartition, ...] | None = argument(
        readers.many(readers.partition), "the partitions of its transaction that have no marker", default=None
    )

    def sentence(self) -> str:
        """Return the step in words."""
        parts = []
        if self.state is not None:
            parts.append(f"is {self.state}")
        if self.epoch is not None:
            parts.append(f"is in epoch {self.epoch} or later")
        if self.partitions is not None:
            lacking = ", ".join(map(str, self.partitions))
            parts.append(f"lacks a marker in {lacking}" if lacking else "lacks no marker")
        return f"Wait until transactional id {self.transactional_id} {' and '.join(parts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectTransaction(Step):
    """The expected state of a transactional id now."""

    verb = "expect_transaction"
    main = ""
    about = "check the present state of a transactional id"
    is_expectation = True

    transactional_id: str = argument(readers.text, "transactional.id")
    state: str | None = argument(readers.choice(*_STATES), "its state, such as Ongoing", default=None)
    epoch: int | None = argument(readers.integer, "its producer epoch, exactly", default=None)
    partitions: tuple[TopicPartition, ...] | None = argument(
        readers.many(readers.partition), "the partitions of its transaction that have no marker", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectRead(PartitionStep):
    """The records that a consumer of an isolation level can read."""

    verb = "expect_read"
    main = ""
    about = "check which values a consumer reads now from the start of a partition"
    is_expectation = True

    isolation_level: IsolationLevel = argument(_LEVEL, "read_committed or read_uncommitted")
    values: tuple[str, ...] = argument(readers.many(readers.text), "exactly these, in this order")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectStarts(PartitionStep):
    """Base of the steps that say where transactions begin."""

    main = ""
    is_expectation = True

    starts: tuple[int, ...] = argument(readers.many(readers.integer), "offsets of their first records; [] for none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectProducers(ExpectStarts):
    """Which transactions the leader of a partition calls open."""

    verb = "expect_producers"
    about = "check where the transactions begin that are open in a partition now, by its leader (describe-producers)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectHanging(ExpectStarts):
    """Which of them no coordinator knows."""

    verb = "expect_hanging"
    about = (
        "check where the transactions begin that are open in a partition and not at their coordinator (find-hanging)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortHanging(PartitionStep):
    """The end of such a one."""

    verb = "abort_hanging"
    main = ""
    about = "let a partition's leader write an ABORT marker for the transaction that begins there (abort-transaction)"

    start: int = argument(readers.integer, "the offset of its first record")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Write an ABORT marker for the transaction that begins at offset {self.start}"


TRANSACTION_STEPS: tuple[type[Step], ...] = (
    StartProducer,
    BeginTransaction,
    Send,
    SendOffsets,
    CommitTransaction,
    AbortTransaction,
    WaitProducer,
    KillProducer,
    PauseClient,
    ResumeClient,
    WaitTransaction,
    ExpectTransaction,
    ExpectRead,
    ExpectProducers,
    ExpectHanging,
    AbortHanging,
)
