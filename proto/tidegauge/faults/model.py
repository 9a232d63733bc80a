"""The model of a declaration, of a fault's or an action's, and a fault that a caller asks for.

Rules:
    1. Values have JSON's types: a direction is ``"in"``, an error its name, brokers a list of ids. What a parameter
       means is in ``table``; what a broker does with it is in the broker.
    2. A value is checked by its declaration alone, so every way to ask for a fault refuses the same values. Whether an
       RPC exists, or can carry an error, only the broker knows.
    3. A parameter that equals its default counts as not given.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Literal, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.near_names import did_you_mean
from tidegauge.partition import TopicPartition

Kind = Literal["integer", "number", "text", "flag", "choice", "error", "peers", "partition", "partitions", "time"]
Spelling = Callable[[str], str]
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Plane(Enum):
    """The peers of the calls that a network fault affects."""

    BROKERS = "brokers"
    ZOOKEEPER = "zookeeper"
    CLIENTS = "clients"
    CONTROLLERS = "controllers"


class Direction(Enum):
    """Direction of calls, seen from the broker; a response belongs to its call."""

    IN = "in"
    OUT = "out"
    BOTH = "both"


PLANES = tuple(plane.value for plane in Plane)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a fault or an action.

    Attributes:
        name: in scenario files and JSON; with ``--`` and hyphens on the command line.
        kind: of its values; ``peers`` is a plane or a list of broker ids, ``error`` the name of a Kafka error,
            ``partition`` a text ``TOPIC-PARTITION``, ``partitions`` a list of such texts, ``time`` a text in the form
            of RFC 3339, section 5.6.
        meaning: one sentence, without a full stop.
        default: the value of a parameter that is left out; None if that has no value.
        is_required: whether it must be given.
        is_positional: whether Python's methods take it by position too.
        unit: of a number.
        minimum, maximum: inclusive bounds of an integer; of a number the minimum is exclusive.
        choices: the words of a choice.
        placeholder: of the value in the command line's help.
        python: the keyword of Python's methods, where ``name`` is a reserved word.
        field: the field in the fault's protobuf message, where its name is another.
        base: the number subtracted in that field: an ordinal is a number of calls to skip there.
        is_upper_case: whether a text is the name of a constant, which may be written in lower case.
    """

    name: str
    kind: Kind
    meaning: str
    default: Any = None
    is_required: bool = False
    is_positional: bool = False
    unit: Literal["", "ms"] = ""
    minimum: int = 0
    maximum: int = INT64_MAX
    choices: tuple[str, ...] = ()
    placeholder: str = ""
    python: str = ""
    field: str = ""
    base: int = 0
    is_upper_case: bool = False

    @property
    def keyword(self) -> str:
        """The keyword of Python's methods."""
        return self.python or self.name

    @property
    def message_field(self) -> str:
        """The field of the protobuf message."""
        return self.field or self.name

    @property
    def shown_default(self) -> str:
        """The default for people; empty if a parameter that is left out has no value."""
        if self.default in (None, "", ErrorCode.NONE.name):
            return ""
        return str(self.default).lower() if isinstance(self.default, bool | str) else f"{self.default:g}"

    def is_given(self, value: Any) -> bool:
        """Return whether a value says more than the parameter's absence; rule 3."""
        return value is not None and not (type(value) is type(self.default) and value == self.default)

    def plain(self, value: Any) -> Any:
        """Return a value as JSON has it; rule 1."""
        if isinstance(value, ErrorCode):
            return value.name
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, TopicPartition):
            return str(value)
        if isinstance(value, str):
            return value.upper() if self.is_upper_case else value
        return value if isinstance(value, int | float) or value is None else list(map(self.plain, value))

    def problem(self, value: Any) -> str:
        """Return why the parameter can't have this value; empty if it can."""
        return _CHECKS[self.kind](self, value)


class Alternatives(NamedTuple):
    """Parameters of which one may be given.

    Attributes:
        names: of the parameters.
        question: what they decide.
        is_required: whether one of them must be given.
    """

    names: tuple[str, ...]
    question: str
    is_required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The common part of faults and actions.

    Attributes:
        name: the verb of scenario files, the method in Python and the name in JSON; with hyphens the verb of the
            command line.
        meaning: one sentence, without a full stop.
        parameters: in the order of the help.
        alternatives: parameters that exclude each other.
        rule: what else must hold: gets the values and the broker's id, returns a sentence or nothing.
    """

    name: str
    meaning: str
    parameters: tuple[Parameter, ...] = ()
    alternatives: tuple[Alternatives, ...] = ()
    rule: Callable[[Mapping[str, Any], int], str] = lambda _values, _broker_id: ""

    def parameter(self, name: str) -> Parameter:
        """Return the parameter of this name.

        Raises:
            TidegaugeError: INVALID_REQUEST, the fault has no such parameter.
        """
        for one in self.parameters:
            if one.name == name:
                return one
        known = ", ".join(one.name for one in self.parameters)
        has = f"; its parameters are {known}" if known else ""
        raise _invalid(f"{self.name} has no parameter {name!r}{has}")

    def problem(self, values: Mapping[str, Any], broker_id: int, spelling: Spelling = str) -> str:
        """Return why these values are illegal for a broker; empty if legal.

        Args:
            values: by name of the parameter.
            broker_id: of the broker that it is asked of.
            spelling: how the asker writes a parameter's name.
        """
        given = {name for name, value in values.items() if self.parameter(name).is_given(value)}
        for one in self.parameters:
            if one.name in given:
                if problem := one.problem(values[one.name]):
                    return f"{spelling(one.name)} {problem}"
            elif one.is_required:
                return f"{self.name} needs {spelling(one.name)}"
        for names, question, is_required in self.alternatives:
            count = len(given.intersection(names))
            if count > 1 or (is_required and count == 0):
                which = "exactly one" if is_required else "at most one"
                return f"{question}: give {' or '.join(map(spelling, names))}, {which} of both"
        return self.rule(values, broker_id)

    def given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return these values in JSON's types, without None and defaults.

        Raises:
            TidegaugeError: INVALID_REQUEST, one of the parameters does not exist.
        """
        plain = {name: self.parameter(name).plain(value) for name, value in values.items()}
        return {name: one for name, one in plain.items() if self.parameter(name).is_given(one)}


class Wording(NamedTuple):
    """The sentences of a fault, without a full stop.

    Attributes:
        state: describes the fault in force: ``append takes 5 ms more``.
        order: says what a broker, named by a text, is to do: ``Make append operations of broker 1 take 5 ms longer``.
    """

    state: Callable[[WantedFault], str]
    order: Callable[[str, WantedFault], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind(Declaration):
    """One fault that a broker can be asked for.

    Attributes:
        message: the field of ``LabFault`` that carries it.
        acts_on: what it affects: ``gRPC``, ``Kafka protocol``, ``ZooKeeper``, ``disk``, ``clock``.
        wording: the sentences that say what it does.
        counts: whether a broker counts the calls or operations that it has affected.
    """

    message: str
    acts_on: tuple[str, ...]
    wording: Wording
    counts: bool = True

    @property
    def command(self) -> str:
        """The verb of the command line."""
        return self.name.replace("_", "-")

    def wanted(self, values: Mapping[str, Any]) -> WantedFault:
        """Return the fault with these values.

        Raises:
            TidegaugeError: INVALID_REQUEST, one of the parameters does not exist.
        """
        return WantedFault(self, self.given(values))


@dataclass(frozen=True, slots=True)
class WantedFault:
    """A fault that someone asks for; see the module's rules.

    Attributes:
        kind: its declaration.
        values: by name of the parameter, without those that are not given.
    """

    kind: FaultKind
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return the value of a parameter, or its default."""
        return self.values.get(name, self.kind.parameter(name).default)

    def problem(self, broker_id: int) -> str:
        """Return why the broker can't have it; empty if it can."""
        return self.kind.problem(self.values, broker_id)

    @property
    def text(self) -> str:
        """Return one line that describes the fault in force, for people."""
        return self.kind.wording.state(self)

    def order(self, broker: int | str) -> str:
        """Return the order to a broker, without a full stop."""
        return self.kind.wording.order(f"broker {broker}" if isinstance(broker, int) else broker, self)

    @property
    def brokers(self) -> tuple[int, ...]:
        """The brokers that its parameters name: as the other end of a network fault, or as the sender of calls."""
        peers = (self.values.get(one.name) for one in self.kind.parameters if one.kind == "peers")
        named = tuple(broker_id for found in peers if isinstance(found, list) for broker_id in found)
        caller = str(self.values.get("caller", ""))
        return (*named, int(caller)) if caller.isascii() and caller.isdigit() else named


def _invalid(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_REQUEST, sentence)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integer_problem(parameter: Parameter, value: Any) -> str:
    unit = f" {parameter.unit}" if parameter.unit else ""
    if not _is_integer(value) or value < parameter.minimum:
        return f"is a whole number of {parameter.minimum}{unit} or more, not {value!r}"
    return "" if value <= parameter.maximum else f"is at most {parameter.maximum}{unit}, not {value}"


def _number_problem(parameter: Parameter, value: Any) -> str:
    # Written so that NaN is out of every range.
    if (_is_integer(value) or isinstance(value, float)) and parameter.minimum < value <= parameter.maximum:
        return ""
    return f"is more than {parameter.minimum} and at most {parameter.maximum}, not {value!r}"


def _text_problem(_: Parameter, value: Any) -> str:
    return "" if isinstance(value, str) and value else f"is a text, not {value!r}"


def _flag_problem(_: Parameter, value: Any) -> str:
    return "" if isinstance(value, bool) else f"is true or false, not {value!r}"


def _choice_problem(parameter: Parameter, value: Any) -> str:
    return "" if value in parameter.choices else f"is one of {', '.join(parameter.choices)}, not {value!r}"


def _error_problem(_: Parameter, value: Any) -> str:
    if isinstance(value, str) and value in ErrorCode.__members__ and value != ErrorCode.NONE.name:
        return ""
    names = [name for name in ErrorCode.__members__ if name != ErrorCode.NONE.name]
    hint = did_you_mean(value, names, most=3) if isinstance(value, str) else ""
    return f"is the name of an error of Kafka's protocol, not {value!r}{hint}"


def _peers_problem(_: Parameter, value: Any) -> str:
    if value in PLANES or (isinstance(value, list) and value and all(map(_is_broker_id, value))):
        return ""
    return f"is one of {', '.join(PLANES)}, or a list of ids, not {value!r}"


def _is_broker_id(value: Any) -> bool:
    return _is_integer(value) and 0 <= value <= INT32_MAX


def _is_partition(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        TopicPartition.parse(value)
    except ValueError:
        return False
    return True


def _partition_problem(_: Parameter, value: Any) -> str:
    return "" if _is_partition(value) else f"is TOPIC-PARTITION, for example orders-0, not {value!r}"


def _partitions_problem(_: Parameter, value: Any) -> str:
    if isinstance(value, list) and all(map(_is_partition, value)):
        return ""
    return f"is a list of TOPIC-PARTITION, not {value!r}"


def _time_problem(_: Parameter, value: Any) -> str:
    return "" if time_ms(value) is not None else f"is a time such as 2030-01-01T00:00:00Z, not {value!r}"


def time_ms(value: Any) -> int | None:
    """Return an RFC 3339 text's time in ms since 1970, or None."""
    try:
        read = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return None if read.tzinfo is None or read.timestamp() < 0 else round(read.timestamp() * 1000)


_CHECKS: dict[Kind, Callable[[Parameter, Any], str]] = {
    "integer": _integer_problem,
    "number": _number_problem,
    "text": _text_problem,
    "flag": _flag_problem,
    "choice": _choice_problem,
    "error": _error_problem,
    "peers": _peers_problem,
    "partition": _partition_problem,
    "partitions": _partitions_problem,
    "time": _time_problem,
}
