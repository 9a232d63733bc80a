"""A cluster as its controller sees it, for tests of decisions: records are appended and committed at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.config_record import ConfigRecord
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions import brokers, registration, topics
from tidegauge_controller.metadata.decisions.activation import activate
from tidegauge_controller.metadata.decisions.view import ClusterView, ControllerSettings, Decision
from tidegauge_controller.metadata.image import EMPTY, FeatureRange, NodeEndpoint, PartitionRegistration
from tidegauge_controller.metadata.records import made

CLUSTER_ID = "pQKNjKG6SIW1R46E3fVjJA"
FEATURES = {
    "metadata.version": FeatureRange(7, 30),
    "kraft.version": FeatureRange(0, 1),
    "eligible.leader.replicas.version": FeatureRange(0, 1),
}
SESSION_MS = 9_000


def directory(broker_id: int, number: int = 0) -> str:
    """Return the id of a broker's log directory."""
    return f"{broker_id:02d}{number:02d}aaaaaaaaaaaaaaaaaA"


class World:
    """An active controller with its cluster.

    Args:
        broker_ids: registered and unfenced at the start.
        elr: whether eligible leader replicas are enabled.
        metadata_version: of the bootstrap records.
        directories: log directories of each broker.
        settings: of the controller, beside the usual ones.
    """

    def __init__(
        self,
        broker_ids: Sequence[int] = (0, 1, 2),
        *,
        elr: bool = True,
        metadata_version: int = 30,
        directories: int = 1,
        **settings: Any,
    ) -> None:
        self.now_ms = 1_000
        self.random = Random(1)
        self.incarnations = 0
        self.directories = directories
        settings = {"session_timeout_ms": SESSION_MS} | settings
        self.controller = ActiveController(
            ControllerSettings(3000, CLUSTER_ID, **settings), EMPTY, epoch=1, next_offset=0, now_ms=0
        )
        bootstrap = [made(FeatureLevelRecord("metadata.version", metadata_version))]
        if elr:
            bootstrap.append(made(FeatureLevelRecord("eligible.leader.replicas.version", 1)))
        self.take(activate(self.view, bootstrap, in_transaction=False))
        for broker_id in broker_ids:
            self.start(broker_id)

    @property
    def view(self) -> ClusterView:
        return self.controller.view

    def take(self, decision: Decision[Any]) -> list[MetadataRecord]:
        """Append the records of a decision, and commit them."""
        if decision.records:
            self.controller.commit(self.controller.appended(decision.records, self.now_ms))
        return decision.records

    def epoch(self, broker_id: int) -> int:
        return int(self.view.image.brokers[broker_id].epoch)

    def request(self, broker_id: int, **fields: Any) -> registration.RegistrationRequest:
        """Return a registration of a new incarnation."""
        self.incarnations += 1
        values: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": directory(50, self.incarnations),
            "endpoints": (NodeEndpoint("PLAINTEXT", "localhost", 9092 + broker_id, 0),),
            "features": FEATURES,
            "log_dirs": tuple(directory(broker_id, number) for number in range(self.directories)),
        }
        return registration.RegistrationRequest(**(values | fields))

    def register(self, broker_id: int, **fields: Any) -> list[MetadataRecord]:
        request = self.request(broker_id, **fields)
        return self.take(registration.register_broker(self.view, self.controller.heartbeats, request, 1, self.now_ms))

    def heartbeat(self, broker_id: int, offset: int | None = None, **fields: Any) -> brokers.HeartbeatResponse:
        """Decide a heartbeat of a broker that knows all records, or those up to an offset."""
        heartbeats = self.controller.heartbeats
        known = self.controller.next_offset - 1 if offset is None else offset
        request = brokers.HeartbeatRequest(broker_id, self.epoch(broker_id), known, **fields)
        heartbeats.contacted(broker_id, request.broker_epoch, self.now_ms)
        decision = brokers.heartbeat(self.view, heartbeats, request)
        self.take(decision)
        if decision.response.begins_shutdown:
            heartbeats.shutdown_began(broker_id, self.controller.next_offset - 1)
        return decision.response

    def start(self, broker_id: int, *, previous_epoch: int = -1) -> None:
        """Register a broker and unfence it."""
        self.register(broker_id, previous_broker_epoch=previous_epoch)
        self.heartbeat(broker_id)

    def fence(self, broker_id: int) -> list[MetadataRecord]:
        """Fence a broker as its session's end does."""
        heartbeats = self.controller.heartbeats
        heartbeats.fence(broker_id)
        return self.take(Decision(brokers.fence(self.view, self.view.image.brokers[broker_id]), None))

    def create(self, name: str, *assignment: Sequence[int], configs: Mapping[str, str] | None = None) -> None:
        """Create a topic with an assignment."""
        topic = topics.TopicToCreate(
            name, assignment=list(enumerate(assignment)), configs=list((configs or {}).items())
        )
        decision = topics.create_topics(self.view, [topic], self.random)
        assert [one.message for one in decision.response] == [""]
        self.take(decision)

    def set(self, kind: int, name: str, key: str, value: str | None) -> None:
        """Write a setting without checks."""
        self.take(Decision([made(ConfigRecord(kind, name, key, value))], None))

    def state(self, name: str = "t", partition: int = 0) -> PartitionRegistration:
        topic = self.view.image.topic_named(name)
        assert topic is not None
        return topic.partitions[partition]

    def topic_id(self, name: str = "t") -> str:
        return str(self.view.image.topic_ids[name])
