"""The steps of scenario files about consumer groups; part of the vocabulary in ``steps``.

A consumer is a process of its own with an unmodified Kafka client (``consumer_process``). Between its steps it polls
and is given no records, so it takes part in rebalances; ``busy`` lets it poll no more, as an application that processes
for a long time.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.groups import GROUP_STATES
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.step_base import Step, argument

LIBRARIES = ("confluent-kafka", "kafka-python")
_STATES = GROUP_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStep(Step):
    """A step on a consumer group or one of its consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartConsumer(GroupStep):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStep(GroupStep):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy(ConsumerStep):
    """Processing that takes long."""

    verb = "busy"
    main = "consumer"
    about = "the consumer polls no more, as if it processed something; its heartbeats go on. Its next step ends that"


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll(ConsumerStep):
    """The end of long processing."""

    verb = "poll"
    main = "consumer"
    about = "the consumer polls again, without getting records"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCommit(ConsumerStep):
    """The outcome of a commit."""

    verb = "wait_commit"
    main = "consumer"
    about = "wait for the response to an earlier commit"

    error: str = argument(readers.text, "the error that is expected, by the client's name for it", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseConsumer(ConsumerStep):
    """An end in order."""

    verb = "close_consumer"
    main = "consumer"
    about = "close the consumer: it leaves the group, unless it is a static member"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillConsumer(ConsumerStep):
    """An end by kill -9."""

    verb = "kill_consumer"
    main = "consumer"
    about = "kill -9 the consumer's process: its group learns of it when the session times out"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitGroup(GroupStep):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectGroup(GroupStep):
    """What must be so of a group now."""

    verb = "expect_group"
    main = ""
    about = "check what is true of a group now"

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


GROUP_STEPS: tuple[type[GroupStep], ...] = (
    StartConsumer,
    Consume,
    Busy,
    Poll,
    Commit,
    WaitCommit,
    CloseConsumer,
    KillConsumer,
    WaitGroup,
    ExpectGroup,
)
