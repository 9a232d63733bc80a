"""ZooKeeper as a dictionary: versions, czxids, parents that must exist, compare-and-set. No sessions, no watches.

Its user decides when a session ends and which broker hears of a change; the tree only keeps writes. It begins
as the brokers create it at their start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tidegauge.cluster_metadata import Leadership
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
from tidegauge_controller.zookeeper.decisions.steps import (
    CreateNode,
    DeleteNode,
    Outcome,
    ReadResult,
    SetNode,
    WriteResult,
    ZnodeStat,
)


@dataclass(slots=True)
class Znode:
    """One znode: data (None is ZooKeeper's null), the transactions that made and last changed it, its version."""

    data: bytes | None
    czxid: int
    mzxid: int
    version: int = 0


@lru_cache(maxsize=64)
def _broker_node(broker_id: int, rack: str | None) -> bytes:
    return BrokerNode(broker_id, "127.0.0.1", 19000 + broker_id, 0, rack).encode()


class MemoryZooKeeper:
    """The tree."""

    def __init__(self) -> None:
        self.zxid = 0
        self.requests = 0
        """Number of the controllers' requests."""
        self._children: dict[str, set[str]] = {"": set()}
        """The names of each znode's children."""
        self.nodes: dict[str, Znode] = {"": Znode(None, 0, 0)}
        for path in (BROKER_IDS, BROKER_TOPICS, DELETE_TOPICS, ISR_CHANGE_NOTIFICATION, LOG_DIR_EVENT_NOTIFICATION):
            self.ensure(path)
        for path in (f"{CONFIG}/topics", PRODUCER_ID_BLOCK, CONTROLLER_EPOCH):
            self.ensure(path)
        self.set(CONTROLLER_EPOCH, encode_controller_epoch(0))

    def ensure(self, path: str) -> None:
        """Create a znode and its parents, those that are missing."""
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
        parent, _, name = path.rpartition("/")
        self._children[parent].add(name)
        self._children[path] = set()
        return self.zxid

    def create_sequential(self, prefix: str, data: bytes | None) -> int:
        """Create a znode whose name ends with a number of its own; its czxid is returned."""
        return self.create(f"{prefix}{self.zxid:010}", data)

    def set(self, path: str, data: bytes | None) -> int:
        """Set a znode; its new version is returned."""
        self.zxid += 1
        node = self.nodes[path]
        node.data, node.mzxid, node.version = data, self.zxid, node.version + 1
        return node.version

    def children(self, path: str) -> list[str] | None:
        """Return the names of a znode's children, sorted; None if it is missing."""
        names = self._children.get(path)
        return None if names is None else sorted(names)

    def read(self, path: str) -> ReadResult:
        """Return a znode's data and stat."""
        node = self.nodes.get(path)
        if node is None:
            return ReadResult(Outcome.NO_NODE)
        return ReadResult(Outcome.OK, node.data, ZnodeStat(node.czxid, node.mzxid, node.version, 0))

    def write(self, operation: CreateNode | SetNode | DeleteNode) -> WriteResult:
        """One operation, if the znode's version is the one it expects."""
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
        if self._children[path]:
            return WriteResult(Outcome.FAILED)
        self._delete(path)
        return WriteResult(Outcome.OK)

    def _delete(self, path: str) -> None:
        del self.nodes[path], self._children[path]
        parent, _, name = path.rpartition("/")
        self._children[parent].discard(name)

    # Writes of brokers and administrators

    def register_broker(self, broker_id: int, rack: str | None = None) -> int:
        """Create a broker's znode again; return the broker epoch."""
        if self.is_registered(broker_id):
            self.unregister_broker(broker_id)
        return self.create(broker_path(broker_id), _broker_node(broker_id, rack))

    def unregister_broker(self, broker_id: int) -> None:
        """Remove a broker's znode: its session has ended."""
        self._delete(broker_path(broker_id))

    def is_registered(self, broker_id: int) -> bool:
        """Whether the broker's znode exists."""
        return broker_path(broker_id) in self.nodes

    def next_controller_epoch(self) -> tuple[int, int]:
        """Return the new controller epoch of an election, and the znode's version."""
        epoch = self.controller_epochs + 1
        return epoch, self.set(CONTROLLER_EPOCH, encode_controller_epoch(epoch))

    @property
    def controller_epochs(self) -> int:
        """The number of terms that have begun."""
        return int(self.nodes[CONTROLLER_EPOCH].data or b"0")

    @property
    def controller_epoch_version(self) -> int:
        """The version that every write of a controller checks."""
        return self.nodes[CONTROLLER_EPOCH].version

    def add_topic(
        self, topic: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, str] | None = None
    ) -> str:
        """Write what a creation writes; return the topic id."""
        topic_id = f"{topic:A<22}"[:22]
        self.create(topic_config_path(topic), encode_config(config or {}))
        self.create(topic_path(topic), TopicNode(assignment, topic_id).encode())
        return topic_id

    def state(self, at: TopicPartition) -> PartitionStateNode:
        """Return a partition's state."""
        return PartitionStateNode.decode(state_path(*at), self.nodes[state_path(*at)].data)

    def leadership(self, at: TopicPartition) -> Leadership:
        """Return a partition's state with its partition epoch."""
        return self.state(at).at_version(self.version(at))

    def version(self, at: TopicPartition) -> int:
        """Return the partition epoch."""
        return self.nodes[state_path(*at)].version

    def write_state(self, at: TopicPartition, state: PartitionStateNode) -> int:
        """Write as another writer than a controller; return the new version."""
        self.ensure(state_path(*at))
        return self.set(state_path(*at), state.encode())
