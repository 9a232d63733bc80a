"""Active faults inside a broker, and changes by a step: plain values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import Enum

from tidegauge.errors import ErrorCode
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2


class Until(Enum):
    """How far a step goes; see ``Switches.step_fetch``."""

    REQUEST = "request"
    RESPONSE = "response"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in force on a broker.

    Attributes:
        text: for people, one line.
        met: calls or operations that it has met.
        held: requests and responses that it holds now.
    """

    broker_id: int
    fault_id: int
    text: str
    met: int
    held: int
    message: lab_pb2.LabFault = field(repr=False)


@dataclass(frozen=True, slots=True)
class BrokerSwitches:
    """All that is in force on a broker.

    Attributes:
        held: followers that are held; the value is the leader that withholds a response, or None.
    """

    broker_id: int
    faults: Sequence[Fault]
    held: dict[TopicPartition, int | None]


@dataclass(frozen=True, slots=True)
class RuleInForce:
    """A rule for requests of Kafka's clients, at a broker.

    Attributes:
        rule_id: chosen by who set it.
        text: the rule as JSON.
        held: number of requests and responses that it holds now.
        hits: number of requests that it has affected or observed, at all brokers that share its numbers.
    """

    rule_id: str
    text: str
    held: int
    hits: int


@dataclass(frozen=True, slots=True)
class Change:
    """One value that a step changed.

    Attributes:
        broker_id: at which broker.
        role: ``leader`` or ``follower``.
        attribute: ``LEO``, ``HW``, ``log start``, ``leader epoch``, ``remote LEO of N``, ``ISR``, ``epochs``.
        before: as text; ``-`` for unknown.
        after: the same.
    """

    broker_id: int
    role: str
    attribute: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step of one follower.

    Attributes:
        error: NONE, or why the round was refused (FENCED_LEADER_EPOCH, NETWORK_EXCEPTION for a leader that is dead).
        leader: who was asked, or None.
        response_withheld: the step stopped at its request.
        text: request and response, one line for people.
        changes: at the follower and, where its leader responded, there, in this order.
        response: the follower's broker's own words.
    """

    topic_partition: TopicPartition
    broker_id: int
    error: ErrorCode
    message: str
    leader: int | None
    response_withheld: bool
    text: str
    changes: Sequence[Change]
    response: lab_pb2.StepFetchResponse = field(repr=False)
