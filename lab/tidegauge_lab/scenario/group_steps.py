"""The steps of scenario files about consumer groups.

A consumer is a process of its own with an unmodified Kafka client (``consumer_process``). Between its steps it polls
and is given no records, so it takes part in rebalances; ``busy`` lets it poll no more, as an application that processes
for a long time.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.counted import counted
from tidegauge.groups import GROUP_STATES
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.step_base import Step, argument
from tidegauge_lab.scenario.wording import failing

LIBRARIES = ("confluent-kafka", "kafka-python")
_STATES = GROUP_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class StartConsumer(Step):
    """A consumer that joins a group."""

    verb = "start_consumer"
    main = ""
    about = "start a process with a Kafka consumer that subscribes to a topic; wait_group says when it is a member"

    consumer: str = argument(readers.text, "its name, which is its client.id")
    group: str = argument(readers.text, "group.id")
    topic: str | None = argument(readers.text, "what it subscribes to; default: the first topic", default=None)
    library: str = argument(
        readers.choice(*LIBRARIES), "confluent-kafka (default) or kafka-python", default=LIBRARIES[0]
    )
    settings: Mapping[str, str] = argument(
        readers.by_name(readers.setting), "settings of the client, by Kafka's names", default=None
    )

    def sentence(self) -> str:
        """Return the step in words."""
        instance = (self.settings or {}).get("group.instance.id")
        static = f" as the static member {instance}" if instance else ""
        return f"Start the consumer {self.consumer} ({self.library}) in group {self.group}{static}"


def _offsets_in_words(offsets: Mapping[str, int]) -> str:
    return ", ".join(f"{offset} of {at}" for at, offset in offsets.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStep(Step):
    """A step of one consumer."""

    consumer: str = argument(readers.text, "its name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Consume(ConsumerStep):
    """Records that a consumer gets."""

    verb = "consume"
    main = ""
    about = "poll until the consumer has got records with exactly these values, in this order"

    values: tuple[str, ...] = argument(readers.one_or_many(readers.text), "one value or several")
    busy: bool = argument(readers.truth, "true: it polls no more, as if it processed them", default=False)

    def sentence(self) -> str:
        """Return the step in words."""
        busy = ", and processes for a long time" if self.busy else ""
        return f"Consumer {self.consumer} polls and gets {', '.join(self.values)}{busy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy(ConsumerStep):
    """Processing that takes long."""

    verb = "busy"
    main = "consumer"
    about = "the consumer polls no more, as if it processed something; its heartbeats go on. Its next step ends that"

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Consumer {self.consumer} processes for a long time and does not poll"


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll(ConsumerStep):
    """The end of long processing."""

    verb = "poll"
    main = "consumer"
    about = "the consumer polls again, without getting records"

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Consumer {self.consumer} polls again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(ConsumerStep):
    """A commit of what a consumer has got."""

    verb = "commit"
    main = "consumer"
    about = "commit the offsets after all that the consumer has got (commitSync)"

    error: str = argument(readers.text, "the error that is expected, by the client's name for it", default="")
    answer: str = argument(
        readers.choice("now", "later"), "later: go on without the response; wait_commit looks", default="now"
    )
    offsets: Mapping[str, int] | None = argument(
        readers.by_name(readers.integer),
        "{partition: offset}: these, whether they are the consumer's or not",
        default=None,
    )

    def sentence(self) -> str:
        """Return the step in words."""
        later = "; its response is awaited later" if self.answer == "later" else failing(self.error)
        what = "what it has got" if self.offsets is None else _offsets_in_words(self.offsets)
        return f"Consumer {self.consumer} commits {what}{later}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCommit(ConsumerStep):
    """The outcome of a commit."""

    verb = "wait_commit"
    main = "consumer"
    about = "wait for the response to an earlier commit"

    error: str = argument(readers.text, "the error that is expected, by the client's name for it", default="")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Wait until the commit of consumer {self.consumer} ends{failing(self.error) or ' without an error'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitConsumerError(ConsumerStep):
    """The end of a consumer's work by an error."""

    verb = "wait_consumer_error"
    main = ""
    about = "poll until the client reports a fatal error, after which it consumes no more (confluent-kafka)"

    error: str = argument(readers.text, "the error that is expected, by the client's name for it")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Wait until consumer {self.consumer} ends its work with {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseConsumer(ConsumerStep):
    """An end in order."""

    verb = "close_consumer"
    main = "consumer"
    about = "close the consumer: it leaves the group, unless it is a static member"

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Close the consumer {self.consumer}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillConsumer(ConsumerStep):
    """An end by kill -9."""

    verb = "kill_consumer"
    main = "consumer"
    about = "kill -9 the consumer's process: its group learns of it when the session times out"

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Kill the consumer {self.consumer} (SIGKILL)"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitGroup(Step):
    """Until a group is in a state."""

    verb = "wait_group"
    main = ""
    about = "wait until all of this is true of a group, by its coordinator"

    group: str = argument(readers.text, "group.id")
    state: str | None = argument(readers.choice(*_STATES), "its state, such as Stable", default=None)
    members: int | None = argument(readers.integer, "how many members it has", default=None)
    generation: int | None = argument(readers.integer, "its generation, or a later one", default=None)
    lag: int | None = argument(readers.integer, "at most so many records are not read", default=None)
    assignment: Mapping[str, tuple[TopicPartition, ...]] | None = argument(
        readers.by_name(readers.many(readers.partition)), "{consumer: its partitions}", default=None
    )
    committed: Mapping[str, int] | None = argument(
        readers.by_name(readers.integer), "{partition: committed offset}", default=None
    )
    epochs: Mapping[str, int] | None = argument(
        readers.by_name(readers.integer), "{consumer: its member epoch (KIP-848), or a later one}", default=None
    )

    def sentence(self) -> str:
        """Return the step in words."""
        parts = []
        if self.state is not None:
            parts.append(f"is {self.state}")
        if self.members is not None:
            parts.append(f"has {counted(self.members, 'member')}")
        if self.generation is not None:
            parts.append(f"is in generation {self.generation} or later")
        if self.lag is not None:
            parts.append(f"lags by at most {self.lag}")
        for consumer, partitions in (self.assignment or {}).items():
            parts.append(f"lets {consumer} read {', '.join(map(str, partitions)) or 'nothing'}")
        if self.committed:
            parts.append(f"has committed {_offsets_in_words(self.committed)}")
        if self.epochs:
            epochs = ", ".join(f"{consumer} {epoch}" for consumer, epoch in self.epochs.items())
            parts.append(f"has epochs {epochs} or later")
        return f"Wait until group {self.group} {' and '.join(parts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectGroup(Step):
    """The expected state of a group now."""

    verb = "expect_group"
    main = ""
    about = "check the present state of a group"
    is_expectation = True

    group: str = argument(readers.text, "group.id")
    state: str | None = argument(readers.choice(*_STATES), "its state, such as Stable", default=None)
    members: int | None = argument(readers.integer, "how many members it has", default=None)
    generation: int | None = argument(readers.integer, "its generation, exactly", default=None)
    lag: int | None = argument(readers.integer, "so many records are not read, exactly", default=None)
    assignment: Mapping[str, tuple[TopicPartition, ...]] | None = argument(
        readers.by_name(readers.many(readers.partition)), "{consumer: its partitions}", default=None
    )
    committed: Mapping[str, int] | None = argument(
        readers.by_name(readers.integer), "{partition: committed offset}", default=None
    )
    epochs: Mapping[str, int] | None = argument(
        readers.by_name(readers.integer), "{consumer: its member epoch (KIP-848), exactly}", default=None
    )


GROUP_STEPS: tuple[type[Step], ...] = (
    StartConsumer,
    Consume,
    Busy,
    Poll,
    Commit,
    WaitCommit,
    WaitConsumerError,
    CloseConsumer,
    KillConsumer,
    WaitGroup,
    ExpectGroup,
)
