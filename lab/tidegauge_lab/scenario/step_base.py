"""The base of all steps of scenario files, and the declaration of their arguments.

A step is declared once, as a class: its verb, its arguments with their readers, one line about it, and its sentence.
The loader, the narration, ``POST /v1/steps``, the OpenAPI document and the table in ``docs/scenarios.md`` derive from
that class; the player of its family says what it does.
"""

# ruff: noqa: RUF009 - argument() is dataclasses.field() with a shorter call
from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self

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
        default: its value if the file leaves it out; unused if it is required.
        is_required: whether it must be given.
    """

    attribute: str
    read: Reader[Any]
    about: str
    default: Any
    is_required: bool


def in_a_line(meaning: str) -> str:
    """Return a meaning as part of a line; acronyms keep their capitals."""
    return meaning[0].lower() + meaning[1:] if meaning[1:2].islower() else meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: its line in the file, and its author's note.

    Attributes:
        verb: the word that names the step in the file.
        main: the argument that may stand alone after the verb; empty: there is none.
        about: one line for people.
        is_expectation: whether the step only compares; the author's note alone is printed of such a step.
    """

    verb: ClassVar[str]
    main: ClassVar[str] = ""
    about: ClassVar[str]
    is_expectation: ClassVar[bool] = False

    line: int
    note: str = ""

    @classmethod
    def arguments(cls) -> dict[str, Argument]:
        """Return the arguments by their names in the file."""
        own = {
            one.metadata["name"] or one.name: Argument(
                one.name, one.metadata["read"], one.metadata["about"], one.default, one.default is MISSING
            )
            for one in fields(cls)
            if "read" in one.metadata
        }
        return {**own, **cls.more_arguments()}

    @classmethod
    def more_arguments(cls) -> dict[str, Argument]:
        """Return arguments that are declared elsewhere than in the class."""
        return {}

    @classmethod
    def made(cls, line: int, note: str, values: dict[str, Any]) -> Self:
        """Return the step with these values of its arguments, by attribute."""
        return cls(line=line, note=note, **values)

    def value_of(self, argument: Argument) -> Any:
        """Return the value of one of its arguments."""
        return getattr(self, argument.attribute)

    def sentence(self) -> str:
        """Return the step in words, without full stop; empty if its note suffices."""
        if self.is_expectation:
            return ""
        raise NotImplementedError(f"{self.verb} has no sentence: its class declares one, or is_expectation")

    def expectations(self) -> int:
        """Return the number of expectations that the step checks."""
        return int(self.is_expectation)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStep(Step):
    """A step on one partition."""

    partition: TopicPartition | None = argument(readers.partition, "TOPIC-PARTITION; default: the first", default=None)
