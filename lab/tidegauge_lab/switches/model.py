"""What a fault inside a broker is, what a step changed: plain values, and their form on the wire.

The words are those of the command line (design, sections 6 and 7). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2


class Plane(Enum):
    """The other end of what is cut."""

    BROKERS = "brokers"
    ZOOKEEPER = "zookeeper"
    CLIENTS = "clients"


class Direction(Enum):
    """In: calls that arrive at the broker. Out: calls it makes. Answers included."""

    IN = "in"
    OUT = "out"
    BOTH = "both"


class Until(Enum):
    """How far a step goes; see ``Switches.step_fetch``."""

    REQUEST = "request"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class NetworkEffect:
    """What happens to calls: nothing passes (the default), or each message waits, or each call may be lost.

    Attributes:
        delay_ms: each message waits so long instead.
        drop_probability: each call is lost with this chance instead, in (0, 1].
        seed: of the chances.
    """

    delay_ms: int = 0
    drop_probability: float = 0.0
    seed: int = 0


CUT = NetworkEffect()


@dataclass(frozen=True, slots=True)
class InjectedError:
    """Which calls of an RPC fail, and how.

    Attributes:
        rpc: its name in the .proto files: ``ProduceStream``, ``ReplicaFetch``, ``LeaderAndIsr``, ...; on a stream each
            request counts.
        error: Kafka's error, put where it belongs in the answer; NONE with ``grpc_status``.
        grpc_status: instead, the name of a gRPC status (``UNAVAILABLE``): the call or stream ends with it.
        after_effect: the call takes effect, only its answer is exchanged.
        skip: so many calls pass first (``nth`` call: skip n - 1, times 1).
        times: so many fail; 0 for no end.
        probability: with which each then fails.
        seed: of the chances.
    """

    rpc: str
    error: ErrorCode = ErrorCode.NONE
    grpc_status: str = ""
    after_effect: bool = False
    skip: int = 0
    times: int = 1
    probability: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class DiskEffect:
    """Which operations of the broker's disk are slow or fail.

    Attributes:
        delay_ms: each takes so much longer; or
        errno_name: each fails so (``EIO``, ``ENOSPC``).
        operation: append, sync, truncate, replace, rename, remove; empty for each of them.
        path_contains: only files whose path contains it.
        skip: so many operations pass first.
        times: so many are met; 0 for no end.
    """

    delay_ms: int = 0
    errno_name: str = ""
    operation: str = ""
    path_contains: str = ""
    skip: int = 0
    times: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in force on a broker.

    Attributes:
        text: for people, one line.
        met: calls or operations that it has met.
    """

    broker_id: int
    fault_id: int
    text: str
    met: int
    message: lab_pb2.LabFault = field(repr=False)


@dataclass(frozen=True, slots=True)
class BrokerSwitches:
    """All that is in force on a broker.

    Attributes:
        held: followers that are held; the value is the leader that keeps an answer back, or None.
    """

    broker_id: int
    faults: Sequence[Fault]
    held: dict[TopicPartition, int | None]


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
    """What became of one step of one follower.

    Attributes:
        error: NONE, or why the round was refused (FENCED_LEADER_EPOCH, NETWORK_EXCEPTION for a leader that is gone).
        leader: who was asked, or None.
        answer_kept_back: the step stopped at its request.
        text: what was asked and answered, one line for people.
        changes: at the follower and, where its leader responded, there, in this order.
        response: the follower's broker's own words.
    """

    topic_partition: TopicPartition
    broker_id: int
    error: ErrorCode
    message: str
    leader: int | None
    answer_kept_back: bool
    text: str
    changes: Sequence[Change]
    response: lab_pb2.StepFetchResponse = field(repr=False)
