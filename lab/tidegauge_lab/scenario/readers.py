"""Readers: from a node of a scenario file to a value of the right kind, or a sentence with the line.

Contract: a reader takes a node and gives a value, or raises ``MalformedYaml`` with the node's line and the value
expected there. Readers know nothing of the scenario around them; the loader checks the rest
afterwards (does this broker exist?).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as MappingOf
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from tidegauge.errors import ErrorCode
from tidegauge.faults.model import PLANES
from tidegauge.partition import TopicPartition
from tidegauge_lab.local.roles import ROLE_WORDS, Role, RoleKind, read_role, role_of
from tidegauge_lab.scenario.yaml_reader import MalformedYaml, Mapping, Node, Scalar, Sequence

Read = TypeVar("Read")
Reader = Callable[[Node], Read]

NO_LEADER = -1
"""Leader of a partition that has none, as Kafka writes it."""
ANY, NONE = "any", "none"


class LoggedRecord(NamedTuple):
    """A record as a scenario expects it in a log: its value, and its batch's leader epoch if given."""

    value: str
    leader_epoch: int | None = None

    def __str__(self) -> str:
        return self.value if self.leader_epoch is None else f"{self.value}@{self.leader_epoch}"


def shown(node: Node) -> str:
    """Return a node's text, for a sentence."""
    if isinstance(node, Scalar):
        return repr(node.text) if node.text else "nothing"
    return "a list" if isinstance(node, Sequence) else "a mapping"


def text(node: Node) -> str:
    """Read any text; numbers count as written."""
    if not isinstance(node, Scalar) or not node.text:
        raise MalformedYaml(node.line, f"a text is expected, not {shown(node)}")
    return node.text


def integer(node: Node) -> int:
    """Read a whole number, 0 or more."""
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MalformedYaml(node.line, f"a number (0 or more) is expected, not {shown(node)}")
    return value


def signed(node: Node) -> int:
    """Read a whole number, which may be negative."""
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedYaml(node.line, f"a whole number is expected, not {shown(node)}")
    return value


def positive(node: Node) -> int:
    """Read a whole number, 1 or more."""
    value = integer(node)
    if value == 0:
        raise MalformedYaml(node.line, "a number of 1 or more is expected, not 0")
    return value


def seconds(node: Node) -> float:
    """Read a time in seconds, more than 0."""
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise MalformedYaml(node.line, f"a number of seconds is expected, not {shown(node)}")
    return float(value)


def probability(node: Node) -> float:
    """Read a chance: more than 0, at most 1."""
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise MalformedYaml(node.line, f"a probability (more than 0, at most 1) is expected, not {shown(node)}")
    return float(value)


def truth(node: Node) -> bool:
    """Read ``true`` or ``false``."""
    if not isinstance(node, Scalar) or not isinstance(node.value, bool):
        raise MalformedYaml(node.line, f"true or false is expected, not {shown(node)}")
    return node.value


def leader(node: Node) -> int:
    """Read a broker id, or ``none``."""
    if isinstance(node, Scalar) and node.text in {"none", "-1"}:
        return NO_LEADER
    try:
        return integer(node)
    except MalformedYaml:
        raise MalformedYaml(node.line, f"a broker id or none is expected, not {shown(node)}") from None


def quorum_leader(node: Node) -> int | str | Role:
    """Read a controller's id, a voter by its name, ``any`` or ``none``."""
    if isinstance(node, Scalar) and node.text in {ANY, NONE}:
        return node.text
    if isinstance(node, Mapping):
        return broker_or_role(node)
    try:
        return integer(node)
    except MalformedYaml:
        raise MalformedYaml(node.line, f"a controller's id, any or none is expected, not {shown(node)}") from None


def acks(node: Node) -> int:
    """``all`` (-1), 1 or 0."""
    found = node.text if isinstance(node, Scalar) else ""
    if found not in {"all", "-1", "1", "0"}:
        raise MalformedYaml(node.line, f"acks is all, 1 or 0, not {shown(node)}")
    return -1 if found == "all" else int(found)


def error_name(node: Node) -> ErrorCode:
    """Read the name of one of Kafka's errors; NONE for none."""
    name = text(node)
    if name not in ErrorCode.__members__:
        raise MalformedYaml(node.line, f"there is no error {name}")
    return ErrorCode[name]


def partition(node: Node) -> TopicPartition:
    """``TOPIC-PARTITION``."""
    try:
        return TopicPartition.parse(text(node))
    except ValueError as problem:
        raise MalformedYaml(node.line, str(problem)) from None


def broker_or_role(node: Node) -> int | Role:
    """Read a broker id, or a role: as a word, ``leader-of:T-P``, or as ``{leader_of: T-P}``.

    ``{voter: NAME}`` is the controller to which the step ``name_voters`` has given this name.
    """
    try:
        if isinstance(node, Scalar) and not isinstance(node.value, int):
            role = read_role(node.text)
        elif isinstance(node, Mapping) and len(node.entries) == 1:
            [(name, value)] = node.entries.items()
            if name == RoleKind.VOTER.value:
                return Role(RoleKind.VOTER, name=text(value))
            is_controller = name == RoleKind.CONTROLLER.value and truth(value)
            role = Role(RoleKind.CONTROLLER) if is_controller else role_of(name, text(value))
        else:
            return integer(node)
    except ValueError as problem:
        raise MalformedYaml(node.line, str(problem)) from None
    if role is None:
        raise MalformedYaml(node.line, f"a broker id, {ROLE_WORDS} is expected, not {shown(node)}")
    return role


def logged_record(node: Node) -> LoggedRecord:
    """``value`` or ``value@leader-epoch``."""
    value, separator, epoch = text(node).rpartition("@")
    if not separator:
        return LoggedRecord(epoch)
    if not value or not epoch.isdigit():
        raise MalformedYaml(node.line, f"a record is expected as VALUE or VALUE@EPOCH, not {shown(node)}")
    return LoggedRecord(value, int(epoch))


def pair(node: Node) -> tuple[int, int]:
    """Read an entry of an epoch cache: ``[epoch, start offset]``."""
    if not isinstance(node, Sequence) or len(node.items) != 2:
        raise MalformedYaml(node.line, f"[epoch, start offset] is expected, not {shown(node)}")
    return integer(node.items[0]), integer(node.items[1])


def plane(node: Node) -> str | tuple[int, ...]:
    """Read what a broker is isolated from: a plane, or some brokers."""
    if isinstance(node, Sequence) or (isinstance(node, Scalar) and isinstance(node.value, int)):
        return one_or_many(integer)(node)
    return choice(*PLANES)(node)


def choice(*allowed: str) -> Reader[str]:
    """Read one of some words."""

    def read(node: Node) -> str:
        if not isinstance(node, Scalar) or node.text not in allowed:
            raise MalformedYaml(node.line, f"{' or '.join(allowed)} is expected, not {shown(node)}")
        return node.text

    return read


def one_or_many(item: Reader[Read]) -> Reader[tuple[Read, ...]]:
    """Read a value, or a list of at least one."""

    def read(node: Node) -> tuple[Read, ...]:
        if not isinstance(node, Sequence):
            return (item(node),)
        if not node.items:
            raise MalformedYaml(node.line, "at least one is expected, but the list is empty")
        return tuple(item(one) for one in node.items)

    return read


def many(item: Reader[Read]) -> Reader[tuple[Read, ...]]:
    """Read a list, which may be empty."""

    def read(node: Node) -> tuple[Read, ...]:
        if not isinstance(node, Sequence):
            raise MalformedYaml(node.line, f"a list is expected, not {shown(node)}")
        return tuple(item(one) for one in node.items)

    return read


def by_broker(item: Reader[Read]) -> Reader[MappingOf[int, Read]]:
    """Read a value for each of some brokers: ``{1: ..., 2: ...}``."""

    def read(node: Node) -> MappingOf[int, Read]:
        if not isinstance(node, Mapping) or not node.entries:
            raise MalformedYaml(node.line, f"broker ids with a value each are expected, not {shown(node)}")
        found = {}
        for key, value in node.entries.items():
            if not key.isdigit():
                raise MalformedYaml(node.key_lines[key], f"a broker id is expected, not {key!r}")
            found[int(key)] = item(value)
        return MappingProxyType(found)

    return read


def by_name(item: Reader[Read]) -> Reader[MappingOf[str, Read]]:
    """Named values."""

    def read(node: Node) -> MappingOf[str, Read]:
        if not isinstance(node, Mapping):
            raise MalformedYaml(node.line, f"names with a value each are expected, not {shown(node)}")
        return MappingProxyType({key: item(value) for key, value in node.entries.items()})

    return read


def setting(node: Node) -> str:
    """Read the value of a setting, as text."""
    if not isinstance(node, Scalar):
        raise MalformedYaml(node.line, f"a setting's value is expected, not {shown(node)}")
    return node.text


def assignment(node: Node) -> tuple[tuple[int, ...], ...]:
    """Replicas: ``[1, 2, 0]`` of the one partition, or a list of such lists."""
    if isinstance(node, Sequence) and node.items and isinstance(node.items[0], Sequence):
        return tuple(one_or_many(integer)(one) for one in node.items)
    return (one_or_many(integer)(node),)


def scalar(node: Node) -> Any:
    """Read any scalar, as JSON has it."""
    if not isinstance(node, Scalar):
        raise MalformedYaml(node.line, f"a single value is expected, not {shown(node)}")
    return node.value
