"""A look at one cluster by means that both have: Kafka's protocol, ZooKeeper, and the files.

Leader, leader epoch, partition epoch and ISR come from the partition's znode. Of each replica that responds: its LEO
by ListOffsets with replica id -2, to which any replica responds; its leader epoch by which one it takes in such a
request. HW and LSO by a consumer's Fetch of version 12, to which a follower responds too (KIP-392); whether it leads by
ListOffsets. Epoch caches and logs are read from the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from differential_failures_sides import Side
from tests.wire_responses.probe import Peer, message
from tests.wire_responses.records import fetch
from tests.zookeeper_view import ZooKeeperView

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.log.checkpoints import LEADER_EPOCH_CHECKPOINT, EpochCheckpoint
from tidegauge_lab.local import layout
from tidegauge_lab.scenario.facts import LEADER, Facts, Replica, numbers
from tidegauge_lab.scenario.files_on_disk import logged_records
from tidegauge_lab.scenario.readers import NO_LEADER

ANY_REPLICA = -2
LATEST = -1
LIST_OFFSETS_VERSION, FETCH_VERSION, METADATA_VERSION = 7, 12, 9


class Eyes:
    """Looks at one cluster.

    Args:
        side: the cluster.
        view: its ZooKeeper.
    """

    def __init__(self, side: Side, view: ZooKeeperView) -> None:
        self._side, self._view = side, view
        self._addresses = {broker.id: (broker.host, broker.kafka_port) for broker in side.cluster.file.brokers}

    @property
    def responding(self) -> list[int]:
        """The brokers whose processes run."""
        return [broker_id for broker_id in self._addresses if self._side.responds(broker_id)]

    def ask(self, broker_id: int, version: int, request: Any, seconds: float = 30.0) -> Any:
        """Send a broker one request on a connection of its own.

        Raises:
            OSError: it is not there, or closed the connection.
        """
        with closing(Peer(*self._addresses[broker_id])) as peer:
            response = peer.ask(version, request, seconds)
        if isinstance(response, str):
            raise ConnectionError(f"broker {broker_id}: {response}")
        return response

    # ZooKeeper

    def partition_epoch(self, at: TopicPartition) -> int:
        """Return the version of a partition's znode: how often its state was written."""
        return int(self._view.state(at.topic, at.partition)["partition_epoch"])

    def state(self, at: TopicPartition) -> tuple[int, int, tuple[int, ...]]:
        """Return a partition's leader, leader epoch and ISR, or NO_LEADER and -1."""
        if not self._view.exists(f"/brokers/topics/{at.topic}/partitions/{at.partition}/state"):
            return NO_LEADER, -1, ()
        found = self._view.state(at.topic, at.partition)
        return found["leader"], found["leader_epoch"], tuple(found["isr"])

    def controller(self) -> tuple[int | None, int]:
        """Return the controller, None without one, and the controller epoch."""
        return self._view.controller()

    def registered(self) -> list[int]:
        """Return the brokers that are registered."""
        return sorted(int(one) for one in self._view.children("/brokers/ids"))

    # Brokers

    def metadata(self, broker_id: int, topics: Iterable[str] = ()) -> Any:
        """Return a broker's metadata."""
        named = [{"name": name} for name in topics]
        return self.ask(broker_id, METADATA_VERSION, message("Metadata", topics=named))

    def in_metadata(self, broker_id: int, at: TopicPartition) -> str:
        """Return what a broker's metadata says of a partition, as text."""
        try:
            [topic] = self.metadata(broker_id, [at.topic]).topics
        except OSError:
            return "does not respond"
        found = next((one for one in topic.partitions if one.partition_index == at.partition), None)
        if found is None:
            return ErrorCode(topic.error_code).name
        return (
            f"{ErrorCode(found.error_code).name}, leader {found.leader_id}, epoch {found.leader_epoch}, "
            f"replicas {numbers(found.replica_nodes)}, ISR {numbers(found.isr_nodes)}, "
            f"offline {numbers(found.offline_replicas)}"
        )

    def offset(
        self, broker_id: int, at: TopicPartition, *, epoch: int = -1, replica: int = ANY_REPLICA
    ) -> tuple[ErrorCode, int]:
        """Return the latest offset of a replica, or the error."""
        wanted = {"partition_index": at.partition, "current_leader_epoch": epoch, "timestamp": LATEST}
        request = message(
            "ListOffsets", replica_id=replica, topics=[{"name": at.topic, "partitions": [wanted]}], isolation_level=0
        )
        [[found]] = [topic.partitions for topic in self.ask(broker_id, LIST_OFFSETS_VERSION, request).topics]
        return ErrorCode(found.error_code), found.offset

    def fetched(self, broker_id: int, at: TopicPartition) -> Any:
        """Return what a consumer gets from the beginning of a replica."""
        request = fetch([at.partition], topic=at.topic, replica_id=-1)
        [[found]] = [topic.partitions for topic in self.ask(broker_id, FETCH_VERSION, request).responses]
        return found

    def _leader_epoch(self, broker_id: int, at: TopicPartition, newest: int) -> int:
        """Return a replica's leader epoch: the one it takes in a request; -1 for none."""
        for epoch in range(newest + 1, -1, -1):
            error, _ = self.offset(broker_id, at, epoch=epoch)
            if error not in {ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH}:
                return epoch
        return -1

    def _replica(self, broker_id: int, at: TopicPartition, epoch: int) -> Replica | None:
        try:
            error, leo = self.offset(broker_id, at)
            if error is not ErrorCode.NONE:
                return None
            marks = self.fetched(broker_id, at)
            error, _ = self.offset(broker_id, at, replica=-1)
            leads = error is not ErrorCode.NOT_LEADER_OR_FOLLOWER
            known = self._leader_epoch(broker_id, at, epoch)
        except OSError:
            return None
        path = layout.broker_data(self._side.cluster.directory, broker_id) / str(at) / LEADER_EPOCH_CHECKPOINT
        return Replica(
            role=LEADER if leads else "follower",
            leader_epoch=known,
            leo=leo,
            hw=marks.high_watermark,
            epochs=tuple((one.epoch, one.start_offset) for one in EpochCheckpoint(path).read()),
            last_stable_offset=marks.last_stable_offset,
        )

    def look(self, at: TopicPartition, assigned: Sequence[int]) -> Facts:
        """Return the present facts of a partition."""
        leader, epoch, isr = self.state(at)
        living = [broker_id for broker_id in assigned if broker_id in self.responding]
        replicas = {broker_id: self._replica(broker_id, at, epoch) for broker_id in living}
        return Facts(
            leader=leader,
            epoch=epoch,
            isr=isr,
            replicas={broker_id: replica for broker_id, replica in replicas.items() if replica is not None},
            logs={broker_id: logged_records(self._side.cluster.directory, broker_id, at) for broker_id in assigned},
            assigned=tuple(assigned),
        )
