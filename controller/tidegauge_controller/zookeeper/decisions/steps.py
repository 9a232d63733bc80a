"""The seam between decisions and the world: the requests that a decision makes, and their results.

A decision is a generator (``Steps``): it yields one request, is resumed with the result of exactly that request, and
returns its own result. It accesses nothing but its arguments, so the same code runs against ZooKeeper in a broker,
against a simulated ZooKeeper in the simulator, and against a dictionary in tests (``run``).

| request | result |
|---|---|
| ``Read(paths)`` | a ``ReadResult`` for each path, in order |
| ``ReadChildren(path)`` | the child names, or None if the znode is missing |
| ``Write(operations)`` | a ``WriteResult`` for each operation, in order |
| ``WatchData(path, name)``, ``UnwatchData(path)`` | None; the event ``name`` comes when the znode changes |
| ``Send(messages)`` | None; control requests go into the brokers' queues, in this order |
| ``AddBroker``, ``RemoveBroker`` | None; the broker's queue and sender, and the watch of its znode, begin or end |
| ``MoveBroker`` | None; the broker's queue continues at another address |
| ``Note(kind, cause, fields)`` | None; a line for the event log |
| ``RandomBytes(count)`` | that many bytes |
| ``TURN`` | None; everything else in the process runs meanwhile |

Rules: every operation of a ``Write`` is a transaction of its own together with a check of ``/controller_epoch``'s
version (``CheckVersion``); if that check fails, the driver throws ``ControllerMoved`` into the decision, which only the
driver catches: the controller resigns. Requests that a decision sent before stay sent.

A decision over all partitions of a cluster yields ``TURN`` after every ``ITEMS_PER_TURN`` that it has looked at: the
controller shares the event loop of its broker, while Kafka's has a thread (ControllerEventThread).

Source: KafkaZkClient.retryRequestsUntilConnected with expectedControllerEpochZkVersion.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tidegauge.control import Endpoint, LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from tidegauge.lazy_dataclasses import dataclass


class ControllerMoved(Exception):
    """Another controller has been elected: this one's decisions no longer count."""


class ZnodeStat(NamedTuple):
    """ZooKeeper's data about a znode. ``czxid`` is the transaction that created it: a broker's epoch.

    ``ctime_ms`` is the time of its creation, by ZooKeeper's clock.
    """

    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int
    ctime_ms: int = 0


class Outcome(Enum):
    """The outcome of a read or a write."""

    OK = "ok"
    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    BAD_VERSION = "bad version"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckVersion:
    """Holds only while the znode has this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Creates a znode; ``data`` None is ZooKeeper's null."""

    path: str
    data: bytes | None
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetNode:
    """Sets a znode's data; version -1 sets it at any version."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Deletes a znode without children; version -1 deletes it at any version."""

    path: str
    version: int = -1


Operation: TypeAlias = CheckVersion | CreateNode | SetNode | DeleteNode


class ReadResult(NamedTuple):
    """A znode's data, or why there is none."""

    outcome: Outcome
    data: bytes | None = None
    stat: ZnodeStat | None = None


class WriteResult(NamedTuple):
    """The outcome of a write; ``version`` is the znode's version after it."""

    outcome: Outcome
    version: int = -1


@dataclass(frozen=True, slots=True)
class Read:
    """Reads znodes."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadChildren:
    """Lists a znode's children."""

    path: str


@dataclass(frozen=True, slots=True)
class Write:
    """Writes znodes, each in a transaction with the check of the controller epoch."""

    operations: tuple[CreateNode | SetNode | DeleteNode, ...]


@dataclass(frozen=True, slots=True)
class WatchData:
    """Watches a znode; ``name`` is the event of a change, ``subject`` the entity concerned."""

    path: str
    name: str
    subject: str


@dataclass(frozen=True, slots=True)
class UnwatchData:
    """Ends a watch."""

    path: str


ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


@dataclass(frozen=True, slots=True)
class Send:
    """Puts requests into brokers' queues, in this order."""

    messages: tuple[tuple[int, ControlRequest], ...]


NOTHING_TO_SEND = Send(())
"""The messages of a decision that has changed nothing."""


@dataclass(frozen=True, slots=True)
class AddBroker:
    """Begins the empty queue of a broker that registered, and watches its znode."""

    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class MoveBroker:
    """Sends queued and later requests to another address of the broker."""

    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class RemoveBroker:
    """Drops the queue of a broker that died, and everything in it."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Note:
    """Adds a line to the event log."""

    kind: str
    cause: str
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class RandomBytes:
    """Returns random bytes, for topic ids."""

    count: int


@dataclass(frozen=True, slots=True)
class Turn:
    """Lets the event loop do everything else that is due."""


TURN = Turn()
ITEMS_PER_TURN = 500

Request: TypeAlias = (
    Read
    | ReadChildren
    | Write
    | WatchData
    | UnwatchData
    | Send
    | AddBroker
    | MoveBroker
    | RemoveBroker
    | Note
    | RandomBytes
    | Turn
)
Result = TypeVar("Result")
Steps: TypeAlias = Generator[Request, Any, Result]


def run(steps: Steps[Result], response: Callable[[Request], Any]) -> Result:
    """Drive a decision with a function that returns the results of its requests; for tests and the simulator.

    An exception of ``response`` is thrown into the decision, as ``ControllerMoved`` must be.
    """
    try:
        request = next(steps)
        while True:
            try:
                reply = response(request)
            except ControllerMoved as moved:
                request = steps.throw(moved)
            else:
                request = steps.send(reply)
    except StopIteration as end:
        result: Result = end.value
        return result
