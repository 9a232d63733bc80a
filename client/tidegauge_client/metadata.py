"""A client's knowledge of a cluster: brokers, topics, leaders. Plain values; nothing here sends a request.

Rules:
    1. Metadata with a lower leader epoch than the one known for a partition is ignored for that partition, as long as
       the topic is the same one (Metadata.updateLatestMetadata): caches of different brokers differ for a while, and a
       partitioned broker may report outdated leaders for long.
    2. A hint from a broker (NOT_LEADER_OR_FOLLOWER with the current leader, KIP-951) counts only if its epoch is
       higher.
    3. A leader whose address is not known is treated as no leader.
    4. Brokers of Apache Kafka have no gRPC listener. They are alive, lead and follow, and can't be asked anything: they
       are in ``kafka_brokers``, apart from the ones in ``brokers`` (docs/mixed-clusters.md).
    5. Of several brokers' views the ones of the highest controller epoch count, and if it is among them the
       controller's own alone: it reaches itself in any case. Where several count, most of them decide; with one against
       one, what exists by either of them exists. The Spark source goes by this rule, too (``tidegauge_spark.views``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.host_addresses import address_of
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2, metadata_pb2


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker.

    Attributes:
        kafka_addresses: its addresses for Kafka clients, ``host:port`` by security protocol.
    """

    id: int
    host: str
    port: int
    rack: str | None = None
    kafka_addresses: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def address(self) -> str:
        """Return ``host:port``."""
        return address_of(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition. ``leader_id`` is None while there is no leader or it is not alive; it may be a Kafka broker's.

    Eligible leader replicas (KIP-966) are None in ZooKeeper mode, which has none.
    """

    topic: str
    partition: int
    leader_id: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    partition_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition's topic and number."""
        return TopicPartition(self.topic, self.partition)

    @property
    def age(self) -> tuple[int, int]:
        """Return the order of a partition's states: leader epoch, then partition epoch."""
        return self.leader_epoch, self.partition_epoch


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic; ``partitions`` by index. With an error the other fields are empty."""

    name: str
    topic_id: str = ""
    partitions: Mapping[int, PartitionInfo] = field(default_factory=dict)
    error: ErrorCode = ErrorCode.NONE
    error_message: str = ""


class TopicIdentity(NamedTuple):
    """The ids that distinguish topics of one name (KIP-516, KIP-78); an unknown id is empty."""

    topic_id: str = ""
    cluster_id: str = ""


@dataclass(frozen=True, slots=True)
class Leader:
    """The broker to ask for a partition."""

    broker_id: int
    address: str
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """One broker's response, or several merged.

    Attributes:
        controller_id: the active controller's broker id, None if the responding broker knows none.
        brokers: live brokers that can be asked, by id.
        kafka_brokers: live brokers without a gRPC listener, by id, with their addresses for Kafka clients (rule 4).
        topics: by name; only those requested.
    """

    cluster_id: str = ""
    controller_id: int | None = None
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    kafka_brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)

    @property
    def live(self) -> frozenset[int]:
        """Return the ids of all live brokers, Apache Kafka's included."""
        return frozenset(self.brokers) | frozenset(self.kafka_brokers)

    def partition(self, topic_partition: TopicPartition) -> PartitionInfo | None:
        """Return the known state of a partition, or None."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def identity_of(self, topic: str) -> TopicIdentity:
        """Return the ids of a topic and of this cluster."""
        info = self.topics.get(topic)
        return TopicIdentity("" if info is None else info.topic_id, self.cluster_id)

    def leader(self, topic_partition: TopicPartition, addresses: Mapping[int, str] | None = None) -> Leader | None:
        """Return the partition's leader, if it and its address are known (rule 3).

        Args:
            topic_partition: the partition.
            addresses: where brokers are asked, by id; None, and for a broker that it lacks: over gRPC.
        """
        info = self.partition(topic_partition)
        if info is None or info.leader_id is None:
            return None
        broker = self.brokers.get(info.leader_id)
        if broker is None:
            return None
        address = None if addresses is None else addresses.get(broker.id)
        return Leader(broker.id, address or broker.address, info.leader_epoch)


def from_response(response: metadata_pb2.MetadataResponse) -> ClusterInfo:
    """Read a response."""
    return ClusterInfo(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id if response.HasField("controller_id") else None,
        controller_epoch=response.controller_epoch,
        brokers=_brokers(response.brokers),
        topics={topic.name: _topic(topic) for topic in response.topics},
        kafka_brokers=_brokers(response.brokers_without_listener),
    )


def _brokers(endpoints: Iterable[common_pb2.BrokerEndpoint]) -> dict[int, BrokerInfo]:
    return {
        one.broker_id: BrokerInfo(
            one.broker_id,
            one.host,
            one.port,
            one.rack if one.HasField("rack") else None,
            dict(one.kafka_addresses),
        )
        for one in endpoints
    }


def _topic(topic: metadata_pb2.TopicMetadata) -> TopicInfo:
    partitions = {
        part.partition: PartitionInfo(
            topic=topic.name,
            partition=part.partition,
            leader_id=part.leader_id if part.HasField("leader_id") else None,
            leader_epoch=part.leader_epoch,
            replicas=tuple(part.replicas),
            isr=tuple(part.isr),
            offline_replicas=tuple(part.offline_replicas),
            partition_epoch=part.partition_epoch,
            adding_replicas=tuple(part.adding_replicas),
            removing_replicas=tuple(part.removing_replicas),
            elr=tuple(part.eligible_leaders.elr) if part.HasField("eligible_leaders") else None,
            last_known_elr=tuple(part.eligible_leaders.last_known_elr) if part.HasField("eligible_leaders") else None,
        )
        for part in sorted(topic.partitions, key=lambda part: part.partition)
    }
    return TopicInfo(topic.name, topic.topic_id, partitions, ErrorCode.of(topic.error), topic.error_message)


def newest_view(views: Mapping[int, ClusterInfo]) -> ClusterInfo:
    """Return the view that counts for live brokers and the controller (rule 5).

    A broker that the controller can't reach shows the brokers and the controller of before, for as long as that lasts;
    one without a session with ZooKeeper names no controller.

    Args:
        views: what brokers say, by the broker that says it; not empty.
    """

    def rank(broker: int) -> tuple[int, bool, bool]:
        view = views[broker]
        return view.controller_epoch, view.controller_id == broker, view.controller_id is not None

    return views[max(views, key=rank)]


def that_count(views: Mapping[int, ClusterInfo]) -> list[int]:
    """Return the brokers whose views say which topics there are (rule 5).

    Args:
        views: what brokers say, by the broker that says it.
    """
    latest = max((view.controller_epoch for view in views.values()), default=0)
    current = {broker: view for broker, view in views.items() if view.controller_epoch == latest}
    return [broker for broker, view in current.items() if view.controller_id == broker] or list(current)


def newest_of(views: Mapping[int, ClusterInfo], topic_partition: TopicPartition | None = None) -> list[PartitionInfo]:
    """Return a partition's newest state in some views, by leader and partition epoch.

    A topic that was deleted and created again begins at epoch 0, and a broker that the controller can't reach may still
    show the deleted one: only states of the topic id that counts are compared. It is the controller's own one, or,
    if the controller does not respond, the one that most views of the highest controller epoch show; if that is
    none, the partition has no state.

    Args:
        views: what brokers say, by the broker that says it.
        topic_partition: whose state; None: of every partition in the views.
    """
    topic_ids = {
        name: max(shown, key=lambda one: (shown[one], one is not None, one or "")) for name, shown in _shown_ids(views)
    }
    newest: dict[TopicPartition, PartitionInfo] = {}
    for view in views.values():
        for topic in view.topics.values():
            if topic.topic_id != topic_ids[topic.name]:
                continue
            for part in topic.partitions.values():
                at = part.topic_partition
                known = newest.get(at)
                if topic_partition in {None, at} and (known is None or part.age > known.age):
                    newest[at] = part
    return list(newest.values())


def behind(views: Mapping[int, ClusterInfo]) -> set[int]:
    """Return the brokers whose view is older than others'.

    It shows an older state of a partition, by leader epoch and partition epoch, or a topic that was deleted meanwhile,
    alone or created again with its name, or it lacks a topic. If half of the views show one topic id and half of
    them another one, and the controller does not respond, neither is called old.

    Args:
        views: what brokers say, by the broker that says it.
    """
    topic_ids: dict[str, str | None] = {}
    for name, shown in _shown_ids(views):
        (most, count), *others = shown.most_common(2)
        if not others or count > others[0][1]:
            topic_ids[name] = most
    newest: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
    for view in views.values():
        for topic in view.topics.values():
            for part in topic.partitions.values():
                place = topic.topic_id, part.topic_partition
                newest[place] = max(newest.get(place, part.age), part.age)
    return {
        broker
        for broker, view in views.items()
        if any(_shown_id(view, name) != topic_id for name, topic_id in topic_ids.items())
        or any(
            part.age < newest[topic.topic_id, part.topic_partition]
            for topic in view.topics.values()
            for part in topic.partitions.values()
        )
    }


def _shown_ids(views: Mapping[int, ClusterInfo]) -> Iterator[tuple[str, Counter[str | None]]]:
    """Yield each topic in the views with the number of views that show each id of it; None: that know no such topic.

    Counted are the views of rule 5.
    """
    counted = [views[broker] for broker in that_count(views)]
    for name in {name: None for view in views.values() for name in view.topics}:
        yield name, Counter(_shown_id(view, name) for view in counted)


def _shown_id(view: ClusterInfo, name: str) -> str | None:
    topic = view.topics.get(name)
    return None if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else topic.topic_id


def merge(known: ClusterInfo, response: ClusterInfo) -> ClusterInfo:
    """Merge a newer response into the known metadata; partitions never go back to a lower leader epoch (rule 1).

    Brokers and controller come from the response: a dead broker must not be asked again.
    """
    topics = {name: _merge_topic(known.topics.get(name), topic) for name, topic in response.topics.items()}
    return replace(response, topics=topics)


def _merge_topic(known: TopicInfo | None, response: TopicInfo) -> TopicInfo:
    if known is None or known.topic_id != response.topic_id or response.error is not ErrorCode.NONE:
        return response
    partitions = dict(response.partitions)
    for index, old in known.partitions.items():
        new = partitions.get(index)
        if new is None or new.leader_epoch < old.leader_epoch:
            partitions[index] = old
    return replace(response, partitions=dict(sorted(partitions.items())))


def with_leader(known: ClusterInfo, topic_partition: TopicPartition, leader_id: int, leader_epoch: int) -> ClusterInfo:
    """Accept a broker's hint about the leader, if it is newer than the known one (rule 2)."""
    info = known.partition(topic_partition)
    if info is None or leader_epoch <= info.leader_epoch:
        return known
    topic = known.topics[topic_partition.topic]
    changed = replace(info, leader_id=leader_id, leader_epoch=leader_epoch)
    partitions = {**topic.partitions, topic_partition.partition: changed}
    return replace(known, topics={**known.topics, topic.name: replace(topic, partitions=partitions)})


def leaderless(topics: Iterable[TopicInfo]) -> list[TopicPartition]:
    """Return the partitions without a leader, in the order of the topics."""
    return [info.topic_partition for topic in topics for info in topic.partitions.values() if info.leader_id is None]
