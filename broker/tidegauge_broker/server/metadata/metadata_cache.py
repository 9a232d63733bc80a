"""This broker's view of the cluster: live brokers, and each partition's leader, ISR and replicas.

Filled by the controller's updates, in its order; it may lag behind the stored state, and behind other brokers'
caches. The live brokers are always replaced together, partitions one by one. Serves the core
(``ports.Metadata``), the controller's waiting admin requests (``MetadataView``) and clients.
Source: Kafka's ZkMetadataCache and KRaftMetadataCache.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence

from tidegauge.kafka.topic_ids import topic_id_bytes, topic_id_text
from tidegauge.metadata_update import ANY_BROKER, Endpoint, MetadataUpdate, ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import NO_LEADER
from tidegauge.waits import until_set
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.replica.messages import LeaderHint

_MAX_DELETED_TOPICS = 10_000
"""Maximum number of deleted topics that are remembered, the newest ones."""


class CoreMetadata:
    """The cache as the replication core asks it (``replica.ports.Metadata``).

    Args:
        cache: of this broker.
    """

    def __init__(self, cache: MetadataCache) -> None:
        self.knows = cache.knows
        self.leader_hint = cache.leader_hint
        self.is_alive = cache.is_alive
        self.live_brokers = cache.isr_candidates


class MetadataCache:
    """One broker's view of the cluster.

    Args:
        grpc_listener: the listener at which brokers reach one another over gRPC, if that is not the control plane's;
            empty: it is.
        inter_broker_listener: the listener of followers and coordinators, if that is not the control plane's; empty:
            it is.
    """

    def __init__(self, grpc_listener: str = "", inter_broker_listener: str = "") -> None:
        self._grpc_listener = grpc_listener
        self._inter_broker_listener = inter_broker_listener
        self._controller_id, self._controller_epoch = NO_LEADER, 0
        self._brokers: dict[int, Endpoint] = {}
        self._live: frozenset[int] = frozenset()
        self._eligible: frozenset[int] = frozenset()
        self._fenced: Sequence[Endpoint] = ()
        self._topics: dict[str, dict[int, ReportedPartition]] = {}
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._deleted: dict[str, None] = {}
        self._racks: dict[int, str | None] = {}
        self._changed = asyncio.Event()

    def update(self, update: MetadataUpdate) -> set[str]:
        """Take over what a controller made known; return the topics that were deleted."""
        self._controller_id, self._controller_epoch = update.controller_id, update.controller_epoch
        self._brokers = {endpoint.broker_id: endpoint for endpoint in update.live_brokers}
        self._live = frozenset(self._brokers)
        self._eligible = self._live - update.leaving
        self._fenced = update.fenced
        self._racks |= {broker_id: endpoint.rack for broker_id, endpoint in self._brokers.items()}
        deleted: set[str] = set()
        for entry in update.partitions:
            topic, partition = entry.state.topic_partition
            if entry.deleted:
                self._deleted[topic] = None
                partitions = self._topics.get(topic, {})
                partitions.pop(partition, None)
                if not partitions and self._topics.pop(topic, None) is not None:
                    deleted.add(topic)
                    self._set_id(topic, "")
            else:
                self._deleted.pop(topic, None)
                self._topics.setdefault(topic, {})[partition] = entry
                if self._ids.get(topic, "") != entry.state.topic_id:
                    self._set_id(topic, entry.state.topic_id)
        while len(self._deleted) > _MAX_DELETED_TOPICS:
            del self._deleted[next(iter(self._deleted))]
        self._changed.set()
        self._changed = asyncio.Event()
        return deleted

    def deleted_by(self, update: MetadataUpdate) -> list[TopicPartition]:
        """Return the partitions that an update deletes.

        A topic may have been deleted and created again within one update.
        """
        deleted = [one.state.topic_partition for one in update.partitions if one.deleted]
        ids = {one.state.topic_partition.topic: one.state.topic_id for one in update.partitions if not one.deleted}
        replaced = [topic for topic, topic_id in ids.items() if topic_id not in {"", self._ids.get(topic, topic_id)}]
        return deleted + [TopicPartition(name, at) for name in replaced for at in self._topics.get(name, ())]

    def _set_id(self, topic: str, topic_id: str) -> None:
        """Remember a topic's id, which is another one when the topic was created again; empty: it has none."""
        before = self._ids.pop(topic, None)
        if before is not None and self._names.get(before) == topic:
            del self._names[before]
        if topic_id:
            self._ids[topic] = topic_id
            self._names[topic_id] = topic

    def controller(self, active_id: int | None) -> tuple[int | None, int]:
        """Return the active controller's id, and the metadata's controller epoch.

        While a controller's term begins, the store and the metadata name two brokers, and the epoch belongs to one of
        them: no controller is named then, since a client compares the epochs of several brokers' responses.

        Args:
            active_id: the controller that the store names; None: it names none.

        Returns:
            The id is None unless both name the same broker and it is alive. In KRaft mode it is any live broker's,
            another one each time (KRaftMetadataCache.getRandomAliveBrokerId): brokers forward requests.
        """
        if self._controller_id == ANY_BROKER:
            return random.choice(sorted(self._live)) if self._live else None, self._controller_epoch
        is_it = active_id == self._controller_id and self._controller_id in self._live
        return active_id if is_it else None, self._controller_epoch

    # For the core

    def knows(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists."""
        return topic_partition.partition in self._topics.get(topic_partition.topic, {})

    def leader_hint(self, topic_partition: TopicPartition) -> LeaderHint | None:
        """Return the partition's leader and its epoch; None while it has no leader."""
        entry = self._topics.get(topic_partition.topic, {}).get(topic_partition.partition)
        if entry is None or entry.state.leader == NO_LEADER:
            return None
        return LeaderHint(entry.state.leader, entry.state.leader_epoch)

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered."""
        return broker_id in self._live

    def live_brokers(self) -> frozenset[int]:
        """Ids of the registered brokers."""
        return self._live

    def isr_candidates(self) -> frozenset[int]:
        """Ids of the live brokers that may join an ISR: those that do not leave (Partition.isReplicaIsrEligible)."""
        return self._eligible

    def rack_of(self, broker_id: int) -> str | None:
        """Return a live broker's rack, or None."""
        endpoint = self._brokers.get(broker_id)
        return None if endpoint is None else endpoint.rack

    # For the controller's admin requests

    def leader_of(self, topic_partition: TopicPartition, /) -> int | None:
        """Return the leader's id; None without a live leader."""
        hint = self.leader_hint(topic_partition)
        return hint.leader if hint is not None and hint.leader in self._live else None

    def knows_topic(self, topic: str, /) -> bool:
        """Whether the topic exists."""
        return topic in self._topics

    async def wait_changed(self, timeout_ms: int, /) -> None:
        """Return at the next change, or when the time is over."""
        await until_set(self._changed, timeout_ms / 1000)

    # For clients and fetchers

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Return a live broker's endpoint; its address is the control plane's."""
        return self._brokers.get(broker_id)

    def grpc_endpoint(self, broker_id: int) -> Endpoint | None:
        """Return a live broker's gRPC address; None without such a listener.

        Apache Kafka's brokers have none.
        """
        return self._through(self._grpc_listener, broker_id)

    def grpc_address(self, broker_id: int) -> str | None:
        """Return the address of ``grpc_endpoint``."""
        endpoint = self.grpc_endpoint(broker_id)
        return None if endpoint is None else endpoint.address

    def address(self, broker_id: int) -> str | None:
        """Return a live broker's address for followers and coordinators, or None."""
        endpoint = self._through(self._inter_broker_listener, broker_id)
        return None if endpoint is None else endpoint.address

    def _through(self, listener: str, broker_id: int) -> Endpoint | None:
        endpoint = self._brokers.get(broker_id)
        return endpoint if endpoint is None or not listener else endpoint.through(listener)

    def endpoints(self) -> Iterable[Endpoint]:
        """All live brokers, by id."""
        return (self._brokers[broker_id] for broker_id in sorted(self._brokers))

    def fenced_endpoints(self) -> Sequence[Endpoint]:
        """Brokers that are registered and not alive, by id; none in ZooKeeper mode."""
        return self._fenced

    def topics(self) -> Iterable[str]:
        """All topics, by name."""
        return sorted(self._topics)

    def description(self, topic: str) -> TopicDescription | None:
        """Return a topic as the group coordinator sees it, or None.

        None: it does not exist, or has no id.

        The rack of a broker that is not alive is the one that it had: its death is no change of the topic.
        """
        topic_id = self._ids.get(topic)
        if topic_id is None:
            return None
        racks = (
            tuple(rack for broker_id in entry.state.replicas if (rack := self._racks.get(broker_id)))
            for entry in self.partitions(topic).values()
        )
        return TopicDescription(topic, topic_id_bytes(topic_id), tuple(racks))

    def was_deleted(self, topic: str) -> bool:
        """Whether the controller has reported a topic as deleted, and not as created again since.

        Its deletion has begun then; a replica on a dead broker may hold up its end.
        """
        return topic in self._deleted

    def topic_name(self, topic_id: str) -> str | None:
        """Return the name of the topic with this id."""
        return self._names.get(topic_id)

    def topic_id(self, topic: str) -> str | None:
        """Return the id of the topic with this name."""
        return self._ids.get(topic)

    def named(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this Kafka id."""
        return self._names.get(topic_id_text(topic_id))

    def id_of(self, topic: str) -> bytes:
        """Return a topic's id in Kafka's form; zero: it has none."""
        return topic_id_bytes(self._ids.get(topic, ""))

    def partitions(self, topic: str) -> Mapping[int, ReportedPartition]:
        """Return a topic's partitions by index; empty for an unknown topic."""
        return dict(sorted(self._topics.get(topic, {}).items()))
