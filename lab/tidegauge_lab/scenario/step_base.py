"""What all steps of scenario files have, and how their arguments are declared."""

# ruff: noqa: RUF009 - argument() is dataclasses.field() with a shorter call
from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar, NamedTuple

from tidegauge.partition import TopicPartition
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.readers import Reader


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
class PartitionStep(Step):
    """A step on one partition."""

    partition: TopicPartition | None = argument(readers.partition, "TOPIC-PARTITION; default: the first", default=None)
