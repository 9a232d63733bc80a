"""The control requests that one event causes, gathered, then sent in Kafka's order.

Order per batch: all LeaderAndIsr, then all UpdateMetadata, then all StopReplica. Every LeaderAndIsr of a partition also
adds it to the UpdateMetadata for all registered brokers. Requests for brokers that are not registered are dropped.
Source: AbstractControllerBrokerRequestBatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import (
    ControlHeader,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.metadata_update import ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge_controller.zookeeper.decisions.context import ControllerContext
from tidegauge_controller.zookeeper.decisions.steps import (
    ITEMS_PER_TURN,
    NOTHING_TO_SEND,
    TURN,
    ControlRequest,
    Send,
    Turn,
)


class RequestBatch:
    """Gathers requests; ``send`` returns them and starts with an empty batch."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._leader_and_isr: dict[int, dict[TopicPartition, LeaderAndIsrPartition]] = {}
        self._metadata_brokers: set[int] = set()
        self._metadata: dict[TopicPartition, ReportedPartition] = {}
        self._stop_replica: dict[int, dict[TopicPartition, StopReplicaPartition]] = {}

    def leader_and_isr(self, broker_ids: Iterable[int], at: TopicPartition, *, is_new: bool) -> None:
        """Send these brokers the partition's current state, and all brokers its metadata."""
        state = self._context.state_of(at, self._context.leadership[at])
        for broker_id in broker_ids:
            entries = self._leader_and_isr.setdefault(broker_id, {})
            was_new = at in entries and entries[at].is_new
            entries[at] = LeaderAndIsrPartition(state, is_new or was_new)
        self._metadata_brokers.update(self._context.live)
        self._metadata[at] = self._metadata_of(at, state)

    def update_metadata(self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition]) -> None:
        """Send these brokers the live brokers, and the state of these partitions if they have one."""
        for _ in self.update_metadata_in_turns(broker_ids, partitions):
            pass

    def update_metadata_in_turns(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition]
    ) -> Iterator[Turn]:
        """Do what ``update_metadata`` does, and yield now and then: the partitions may be all that there are."""
        context = self._context
        self._metadata_brokers.update(broker_ids)
        for number, at in enumerate(partitions, 1):
            if not number % ITEMS_PER_TURN:
                yield TURN
            leadership = context.leadership.get(at)
            if leadership is not None:
                self._metadata[at] = self._metadata_of(at, context.state_of(at, leadership))

    def _metadata_of(self, at: TopicPartition, state: PartitionState) -> ReportedPartition:
        context = self._context
        offline = [replica for replica in state.replicas if not context.is_online(replica, at)]
        return ReportedPartition(state, tuple(offline), context.is_to_be_deleted(at.topic))

    def stop_replica(self, broker_id: int, at: TopicPartition, *, delete: bool) -> None:
        """Request that a broker stop its replica. The epoch is not checked while the topic is being deleted."""
        leadership = self._context.leadership.get(at)
        unchecked = leadership is None or self._context.is_to_be_deleted(at.topic)
        entries = self._stop_replica.setdefault(broker_id, {})
        was_delete = at in entries and entries[at].delete
        epoch = None if unchecked or leadership is None else leadership.leader_epoch
        entries[at] = StopReplicaPartition(at, epoch, delete or was_delete)

    def send(self) -> Send:
        """Return the gathered requests, in order."""
        messages: list[tuple[int, ControlRequest]] = []
        if self._leader_and_isr:
            self._add_leader_and_isr_requests(messages)
        if self._metadata_brokers:
            self._add_metadata_requests(messages)
        if self._stop_replica:
            self._add_stop_replica_requests(messages)
        return Send(tuple(messages)) if messages else NOTHING_TO_SEND

    def _header(self, broker_id: int) -> ControlHeader:
        return ControlHeader(self._context.controller_id, self._context.epoch, self._context.live[broker_id].epoch)

    def _add_leader_and_isr_requests(self, messages: list[tuple[int, ControlRequest]]) -> None:
        live = self._context.live
        for broker_id in sorted(self._leader_and_isr):
            if broker_id in live:
                entries = tuple(self._leader_and_isr[broker_id].values())
                leaders = sorted({entry.state.leader for entry in entries})
                endpoints = tuple([live[leader].endpoint for leader in leaders if leader in live])
                messages.append((broker_id, LeaderAndIsrRequest(self._header(broker_id), entries, endpoints)))
        self._leader_and_isr.clear()

    def _add_metadata_requests(self, messages: list[tuple[int, ControlRequest]]) -> None:
        entries, endpoints = tuple(self._metadata.values()), self._context.endpoints()
        messages += [
            (broker_id, UpdateMetadataRequest(self._header(broker_id), entries, endpoints))
            for broker_id in sorted(self._metadata_brokers.intersection(self._context.live))
        ]
        self._metadata_brokers.clear()
        self._metadata.clear()

    def _add_stop_replica_requests(self, messages: list[tuple[int, ControlRequest]]) -> None:
        for broker_id in sorted(self._stop_replica):
            if broker_id in self._context.live:
                entries = tuple(self._stop_replica[broker_id].values())
                messages.append((broker_id, StopReplicaRequest(self._header(broker_id), entries)))
        self._stop_replica.clear()
