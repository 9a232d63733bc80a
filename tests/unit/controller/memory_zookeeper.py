"""A ZooKeeper of dictionaries and a controller's term over it, for tests of decisions: no network, no clock.

The tree knows what the decisions rely on: versions, czxids, parents that must exist, compare-and-set, and the check
of ``/controller_epoch`` with every write. ``Term`` drives decisions and keeps what they send, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge.control import Endpoint
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    BROKER_IDS,
    BROKER_TOPICS,
    CONFIG,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    PRODUCER_ID_BLOCK,
    BrokerNode,
    PartitionStateNode,
    TopicNode,
    broker_path,
    encode_config,
    encode_controller_epoch,
    state_path,
    topic_config_path,
    topic_path,
)
from tidegauge_controller.decisions.context import ControllerContext, ControllerSettings
from tidegauge_controller.decisions.failover import fail_over
from tidegauge_controller.decisions.steps import (
    AddBroker,
    ControllerMoved,
    CreateNode,
    DeleteNode,
    Note,
    Outcome,
    RandomBytes,
    Read,
    ReadChildren,
    ReadResult,
    RemoveBroker,
    Request,
    Send,
    SetNode,
    Steps,
    UnwatchData,
    WatchData,
    Write,
    WriteResult,
    ZnodeStat,
    run,
)


@dataclass(slots=True)
class Znode:
    data: bytes | None
    czxid: int
    mzxid: int
    version: int = 0


class MemoryZooKeeper:
    """The tree that brokers create at start, ready."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Znode] = {"": Znode(None, 0, 0)}
        for path in (BROKER_IDS, BROKER_TOPICS, DELETE_TOPICS, ISR_CHANGE_NOTIFICATION, LOG_DIR_EVENT_NOTIFICATION):
            self.ensure(path)
        for path in (f"{CONFIG}/topics", PRODUCER_ID_BLOCK):
            self.ensure(path)
        self.ensure(CONTROLLER_EPOCH)
        self.set(CONTROLLER_EPOCH, encode_controller_epoch(0))

    def ensure(self, path: str) -> None:
        parent = ""
        for part in path.strip("/").split("/"):
            parent = f"{parent}/{part}"
            if parent not in self.nodes:
                self.create(parent, None)

    def create(self, path: str, data: bytes | None) -> int:
        """Create a znode; its czxid is returned."""
        assert path not in self.nodes, path
        assert path.rpartition("/")[0] in self.nodes, f"no parent for {path}"
        self.zxid += 1
        self.nodes[path] = Znode(data, self.zxid, self.zxid)
        return self.zxid

    def set(self, path: str, data: bytes | None) -> int:
        """Set a znode; its new version is returned."""
        self.zxid += 1
        node = self.nodes[path]
        node.data, node.mzxid, node.version = data, self.zxid, node.version + 1
        return node.version

    def children(self, path: str) -> list[str] | None:
        if path not in self.nodes:
            return None
        prefix = f"{path}/"
        return sorted(
            name[len(prefix) :] for name in self.nodes if name.startswith(prefix) and "/" not in name[len(prefix) :]
        )

    def register_broker(self, broker_id: int, rack: str | None = None) -> int:
        """A broker's ephemeral znode, anew; the broker epoch is returned."""
        self.nodes.pop(broker_path(broker_id), None)
        return self.create(
            broker_path(broker_id), BrokerNode(broker_id, "127.0.0.1", 19000 + broker_id, 0, rack).encode()
        )

    def unregister_broker(self, broker_id: int) -> None:
        del self.nodes[broker_path(broker_id)]

    def add_topic(
        self, topic: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, str] | None = None
    ) -> str:
        """What a creation writes; the topic id is returned."""
        topic_id = f"{topic:A<22}"[:22]
        self.create(topic_config_path(topic), encode_config(config or {}))
        self.create(topic_path(topic), TopicNode(assignment, topic_id).encode())
        return topic_id

    def state(self, at: TopicPartition) -> PartitionStateNode:
        return PartitionStateNode.decode(state_path(*at), self.nodes[state_path(*at)].data)

    def version(self, at: TopicPartition) -> int:
        """The partition epoch."""
        return self.nodes[state_path(*at)].version

    def write_state(self, at: TopicPartition, state: PartitionStateNode) -> int:
        """As somebody else than the controller under test; the new version is returned."""
        self.ensure(state_path(*at))
        return self.set(state_path(*at), state.encode())

    def write(self, operation: CreateNode | SetNode | DeleteNode) -> WriteResult:
        path = operation.path
        node = self.nodes.get(path)
        if isinstance(operation, CreateNode):
            if node is not None:
                return WriteResult(Outcome.NODE_EXISTS)
            if path.rpartition("/")[0] not in self.nodes:
                return WriteResult(Outcome.NO_NODE)
            self.create(path, operation.data)
            return WriteResult(Outcome.OK, 0)
        if node is None:
            return WriteResult(Outcome.NO_NODE)
        if operation.version not in {-1, node.version}:
            return WriteResult(Outcome.BAD_VERSION)
        if isinstance(operation, SetNode):
            return WriteResult(Outcome.OK, self.set(path, operation.data))
        if self.children(path):
            return WriteResult(Outcome.FAILED)
        del self.nodes[path]
        return WriteResult(Outcome.OK)


class Term:
    """One controller's term: elected at once, not failed over yet (``start`` does that).

    Attributes:
        sent: every control request, with its receiver, in the order in which it was sent.
        before_write: called once before the next write, to play whoever comes between.
        queues: brokers that have a queue.
    """

    def __init__(
        self, zookeeper: MemoryZooKeeper, controller_id: int = 1, settings: ControllerSettings | None = None
    ) -> None:
        self.zookeeper = zookeeper
        epoch = int(zookeeper.nodes[CONTROLLER_EPOCH].data or b"0") + 1
        version = zookeeper.set(CONTROLLER_EPOCH, encode_controller_epoch(epoch))
        self.context = ControllerContext(controller_id, epoch, version, settings or ControllerSettings())
        self.sent: list[tuple[int, Any]] = []
        self.notes: list[Note] = []
        self.writes: list[CreateNode | SetNode | DeleteNode] = []
        self.before_write: Callable[[], object] | None = None
        self.queues: set[int] = set()

    def start(self) -> Term:
        self.run(fail_over(self.context))
        return self

    def run(self, steps: Steps[Any]) -> Any:
        return run(steps, self.answer)

    def take_sent(self) -> list[tuple[int, Any]]:
        """What was sent since the last call."""
        sent, self.sent = self.sent, []
        return sent

    def answer(self, request: Request) -> Any:
        match request:
            case Read():
                return [self._read(path) for path in request.paths]
            case ReadChildren():
                return self.zookeeper.children(request.path)
            case Write():
                return self._write(request)
            case Send():
                self.sent += request.messages
            case Note():
                self.notes.append(request)
            case AddBroker(Endpoint(broker_id=broker_id)):
                assert broker_id not in self.queues
                self.queues.add(broker_id)
            case RemoveBroker(broker_id=broker_id):
                self.queues.remove(broker_id)
            case RandomBytes():
                return bytes(range(request.count))
            case WatchData() | UnwatchData():
                pass
        return None

    def _read(self, path: str) -> ReadResult:
        node = self.zookeeper.nodes.get(path)
        if node is None:
            return ReadResult(Outcome.NO_NODE)
        return ReadResult(Outcome.OK, node.data, ZnodeStat(node.czxid, node.mzxid, node.version, 0))

    def _write(self, request: Write) -> list[WriteResult]:
        intruder, self.before_write = self.before_write, None
        if intruder is not None:
            intruder()
        if self.zookeeper.nodes[CONTROLLER_EPOCH].version != self.context.epoch_version:
            raise ControllerMoved("Another controller has been elected")
        self.writes += request.operations
        return [self.zookeeper.write(operation) for operation in request.operations]
