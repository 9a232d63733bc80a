"""The steps of scenario files that look at a state: marks, tables, expectations, audits."""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.lazy_dataclasses import dataclass
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.readers import LoggedRecord
from tidegauge_lab.scenario.step_base import PartitionStep, Step, argument
from tidegauge_lab.scenario.wording import joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(PartitionStep):
    """A state to compare with later."""

    verb = "mark"
    main = "name"
    about = "remember the state under a name, for a table"

    name: str = argument(readers.text, "its name")

    def sentence(self) -> str:
        """Return nothing: a mark changes nothing."""
        return ""


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

    def sentence(self) -> str:
        """Return the step in words."""
        return f"In a table: {self.phase}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect(PartitionStep):
    """The expected state now. Logs, epochs and responses are compared as they are; nothing is waited for."""

    verb = "expect"
    main = ""
    about = "check the present state; the scenario fails with the actual state"
    is_expectation = True

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

    def expectations(self) -> int:
        """Return the number of arguments that are given."""
        of_partition = {name: one for name, one in self.arguments().items() if name != "partition"}
        return sum(self.value_of(one) is not None for one in of_partition.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify(Step):
    """The expected findings of the accountant."""

    verb = "verify"
    main = "found"
    about = "let the accountant compare all that was produced with the logs; what it finds must be exactly this"

    found: Mapping[str, int] = argument(
        readers.by_name(readers.positive), "{finding: how often}, such as lost or diverged; {} where the books balance"
    )
    topic: str | None = argument(readers.text, "the topic; default: the first", default=None)

    def expectations(self) -> int:
        """Return one: what the accountant finds."""
        return 1

    def sentence(self) -> str:
        """Return the step in words."""
        found = joined([f"{count} {kind}" for kind, count in self.found.items()]) if self.found else "nothing wrong"
        about = "" if self.topic is None else f" in the topic {self.topic}"
        return f"Compare all that was produced with the logs{about}: {found}"


STATE_STEPS: tuple[type[Step], ...] = (
    Mark,
    Table,
    Expect,
    Verify,
)
