"""The admin client for scripts without an event loop, as in ``tidegauge_client.sync``.

Made by tools/generate-mirrors.py from ``Admin``; change them instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Unpack

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.security import Security
from tidegauge.v1 import metadata_pb2
from tidegauge_client.admin import Admin, OffsetAndTimestamp, TopicConfig
from tidegauge_client.admin_configs import ConfigEntry
from tidegauge_client.admin_groups import ListedGroup
from tidegauge_client.admin_records import Outcomes
from tidegauge_client.admin_transactions import ListedTransaction, ProducerDescription, TransactionDescription
from tidegauge_client.bootstrap import SecurityArguments
from tidegauge_client.cluster import PROBE_TIMEOUT_MS
from tidegauge_client.group_descriptions import GroupDescription, MemberDescription
from tidegauge_client.kafka_offsets import OffsetAndMetadata
from tidegauge_client.loop_thread import Facade, LoopThread, made_on
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, TopicInfo
from tidegauge_client.ongoing_reassignment import OngoingReassignment
from tidegauge_client.share_groups import ShareOffset


class SyncAdmin(Facade[Admin]):
    """``Admin`` without ``await``; keywords are the same."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        request_timeout_ms: float = 30_000,
        retry_backoff_ms: float = 100,
        **security: Unpack[SecurityArguments],
    ) -> None:
        """Build the client; arguments are those of ``Admin``."""
        self._loop = LoopThread("tidegauge-admin")
        self._inner = made_on(
            self._loop,
            lambda: Admin(
                bootstrap_servers, request_timeout_ms=request_timeout_ms, retry_backoff_ms=retry_backoff_ms, **security
            ),
        )

    def list_topics(self) -> list[str]:
        """Return all topics, sorted by name."""
        return self._loop.run(self._inner.list_topics())

    def describe_topics(self, topics: Collection[str]) -> list[TopicInfo]:
        """Return the named topics, in the order given.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or the topic's own error.
        """
        return self._loop.run(self._inner.describe_topics(topics))

    def topics_in(self, cluster: ClusterInfo, names: Collection[str]) -> list[TopicInfo]:
        """Return the named topics of some metadata, in the order given.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, which says whether a topic is marked for deletion; or the
                topic's own error.
        """
        return self._loop.run(self._inner.topics_in(cluster, names))

    def describe_replicas(
        self, topics: Collection[str] = (), *, timeout_ms: float = PROBE_TIMEOUT_MS
    ) -> dict[int, list[metadata_pb2.ReplicaDescription] | None]:
        """Return the replicas at each live broker (no topics: all); None: no response."""
        return self._loop.run(self._inner.describe_replicas(topics, timeout_ms=timeout_ms))

    def describe_replicas_of(
        self, brokers: Sequence[BrokerInfo], topics: Collection[str] = (), *, timeout_ms: float = PROBE_TIMEOUT_MS
    ) -> dict[int, list[metadata_pb2.ReplicaDescription] | None]:
        """Return the replicas at the given brokers, by id; None: no response."""
        return self._loop.run(self._inner.describe_replicas_of(brokers, topics, timeout_ms=timeout_ms))

    def replica_reports_of(
        self,
        brokers: Sequence[BrokerInfo],
        topics: Collection[str] = (),
        *,
        with_znodes: bool = False,
        timeout_ms: float = PROBE_TIMEOUT_MS,
    ) -> dict[int, metadata_pb2.DescribeReplicasResponse | None]:
        """Return the replicas at the given brokers, and refused requests about them.

        Args:
            brokers: that are asked.
            topics: none named: all.
            with_znodes: whether the brokers also read the topics' znodes.
            timeout_ms: for each broker.

        Returns:
            The responses by broker id; None for a broker that did not respond.
        """
        return self._loop.run(
            self._inner.replica_reports_of(brokers, topics, with_znodes=with_znodes, timeout_ms=timeout_ms)
        )

    def describe_topic_config(self, topic: str) -> list[TopicConfig]:
        """Return a topic's settings by name, defaults included.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or no broker responds.
        """
        return self._loop.run(self._inner.describe_topic_config(topic))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return offsets by time in ms, or by Kafka's special values.

        -1 is the high watermark, -2 the log start offset, -3 the largest timestamp. A partition without such a record
        is left out, as in Kafka.

        Raises:
            TidegaugeError: the last error of a broker, when the timeout has passed, or at once if it is not retriable.
        """
        return self._loop.run(self._inner.list_offsets(wanted, timeout_ms=timeout_ms))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
        timeout_ms: float | None = None,
    ) -> str:
        """Create a topic; return its id when the controller's metadata shows a leader for each partition.

        Raises:
            TidegaugeError: the request is invalid, checked before anything is sent if possible.
                TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR, ... as the controller responds. REQUEST_TIMED_OUT, the
                topic may exist all the same.
        """
        return self._loop.run(
            self._inner.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                assignment=assignment,
                configs=configs,
                timeout_ms=timeout_ms,
            )
        )

    def delete_topic(self, name: str, *, timeout_ms: float | None = None) -> None:
        """Delete a topic; return when the controller's metadata no longer shows it.

        Replicas on dead brokers, and with them the topic's znodes, are deleted when their brokers return.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED, or REQUEST_TIMED_OUT: the topic is
                marked for deletion and will be deleted.
        """
        self._loop.run(self._inner.delete_topic(name, timeout_ms=timeout_ms))

    def create_partitions(
        self, name: str, total_count: int, *, assignment: Sequence[Sequence[int]] = (), timeout_ms: float | None = None
    ) -> None:
        """Add partitions to a topic; return when each has a leader in the controller's metadata.

        Args:
            name: the topic.
            total_count: the number of partitions that it shall have.
            assignment: broker ids of each *added* partition; empty: by Kafka's algorithm.
            timeout_ms: how long to wait.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
                REASSIGNMENT_IN_PROGRESS, ... as the controller responds; REQUEST_TIMED_OUT, they may be added all the
                same.
        """
        self._loop.run(self._inner.create_partitions(name, total_count, assignment=assignment, timeout_ms=timeout_ms))

    def is_marked_for_deletion(self, name: str) -> bool:
        """Return whether a topic is being deleted, so that no metadata shows it.

        Kafka has no request for that. The controller is asked to grow the topic to one partition, which changes nothing
        in any case: a topic that exists has one at least, and one in deletion is refused with INVALID_TOPIC_EXCEPTION
        (KafkaApis.handleCreatePartitionsRequest). False as well where the controller does not respond.
        """
        return self._loop.run(self._inner.is_marked_for_deletion(name))

    def unknown_topic(self, name: str) -> TidegaugeError:
        """Return the error for a topic in no metadata: in deletion, or unknown."""
        return self._loop.run(self._inner.unknown_topic(name))

    def elect_leaders(
        self, partitions: Collection[TopicPartition] | None, *, unclean: bool = False, timeout_ms: float | None = None
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Elect the preferred leaders, or unclean ones if there is no leader.

        Args:
            partitions: the partitions; None: all that need an election.
            unclean: whether any live replica may lead if no in-sync one is alive. Acknowledged records may be lost.
            timeout_ms: how long to wait.

        Returns:
            For each partition None if a leader was elected, else why not: ELECTION_NOT_NEEDED,
                PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, ...

        Raises:
            TidegaugeError: an error of the whole request.
        """
        return self._loop.run(self._inner.elect_leaders(partitions, unclean=unclean, timeout_ms=timeout_ms))

    def wait_for_topic(self, name: str, *, partitions: int = 0, timeout_ms: float = 30_000) -> None:
        """Wait until every live broker's metadata shows the topic with a leader for each partition.

        Args:
            name: the topic.
            partitions: the minimum number of partitions.
            timeout_ms: how long to wait.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, naming the broker that lags.
        """
        self._loop.run(self._inner.wait_for_topic(name, partitions=partitions, timeout_ms=timeout_ms))

    def wait_for_topic_gone(self, name: str, *, timeout_ms: float = 30_000) -> None:
        """Wait until no live broker's metadata shows the topic.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, naming the broker that lags.
        """
        self._loop.run(self._inner.wait_for_topic_gone(name, timeout_ms=timeout_ms))

    def wait_for_epochs(self, leader_epochs: Mapping[TopicPartition, int], *, timeout_ms: float = 30_000) -> None:
        """Wait until every live broker's metadata shows these leader epochs, or later ones.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, naming the broker that lags.
        """
        self._loop.run(self._inner.wait_for_epochs(leader_epochs, timeout_ms=timeout_ms))

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> Outcomes:
        """Delete the records below offsets, for good; -1 means the high watermark.

        Args:
            before_offsets: the first offset to keep, by partition.
            timeout_ms: how long to wait for all live replicas.

        Returns:
            For each partition its low watermark (the smallest log start offset of the live replicas), or the error:
            OFFSET_OUT_OF_RANGE, POLICY_VIOLATION, UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT, ...

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no broker responds.
        """
        return self._loop.run(self._inner.delete_records(before_offsets, timeout_ms=timeout_ms))

    def describe_topic_settings(self, topic: str) -> list[ConfigEntry]:
        """Return all settings of a topic, by name.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or no broker responds.
        """
        return self._loop.run(self._inner.describe_topic_settings(topic))

    def describe_broker_settings(self, broker_id: int | None) -> list[ConfigEntry]:
        """Return a broker's settings, by name; None: the settings for all brokers.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, there is no such live broker, or it does not respond.
        """
        return self._loop.run(self._inner.describe_broker_settings(broker_id))

    def describe_group_settings(self, group_id: str) -> list[ConfigEntry]:
        """Return all settings of a group, which need not exist, by name.

        Raises:
            TidegaugeError: INVALID_REQUEST, the cluster does not serve the consumer protocol; or no broker responds.
        """
        return self._loop.run(self._inner.describe_group_settings(group_id))

    def alter_group_settings(self, group_id: str, changes: Mapping[str, str], deleted: Collection[str] = ()) -> int:
        """Set and remove settings of a group; return the change's number, for ``wait_for_change``.

        Raises:
            TidegaugeError: INVALID_REQUEST, INVALID_CONFIG with key and bound; nothing was changed.
        """
        return self._loop.run(self._inner.alter_group_settings(group_id, changes, deleted))

    def alter_topic_settings(self, topic: str, changes: Mapping[str, str], deleted: Collection[str] = ()) -> int:
        """Set and remove settings of a topic; return the change's number, for ``wait_for_change``.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG with key and range; nothing was changed.
        """
        return self._loop.run(self._inner.alter_topic_settings(topic, changes, deleted))

    def alter_broker_settings(
        self, broker_id: int | None, changes: Mapping[str, str], deleted: Collection[str] = ()
    ) -> int:
        """Set and remove dynamic settings of a broker, or (None) of all; return the change's number.

        Raises:
            TidegaugeError: INVALID_REQUEST, a setting is not dynamic. INVALID_CONFIG, BROKER_NOT_AVAILABLE.
        """
        return self._loop.run(self._inner.alter_broker_settings(broker_id, changes, deleted))

    def wait_for_change(self, number: int, *, timeout_ms: float = 10_000) -> dict[int, bool]:
        """Wait until every live broker has applied a change; return by broker id which have."""
        return self._loop.run(self._inner.wait_for_change(number, timeout_ms=timeout_ms))

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Start to move partitions to these replicas, or (None) cancel a reassignment."""
        return self._loop.run(self._inner.alter_partition_reassignments(targets, timeout_ms=timeout_ms))

    def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """Return the reassignments in progress, of these partitions or (None) of all.

        Raises:
            TidegaugeError: there is no controller, or it does not respond.
        """
        return self._loop.run(self._inner.list_partition_reassignments(partitions, timeout_ms=timeout_ms))

    def list_transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        *,
        running_longer_than_ms: int | None = None,
        timeout_ms: float | None = None,
        missing_ms: float | None = None,
    ) -> list[ListedTransaction]:
        """Return the transactional ids of all live brokers, in order.

        Args:
            states: only those in one of these states, such as Ongoing; none: all.
            producer_ids: only ids of these producers; none: all.
            running_longer_than_ms: only transactions that began earlier.
            timeout_ms: how long to retry.
            missing_ms: how long to retry if a part is missing (rule 4 of ``admin_groups``); None: until the
                timeout, 0: not at all.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, a broker does not respond: its transactional ids would be missing.
        """
        return self._loop.run(
            self._inner.list_transactions(
                states,
                producer_ids,
                running_longer_than_ms=running_longer_than_ms,
                timeout_ms=timeout_ms,
                missing_ms=missing_ms,
            )
        )

    def list_transactions_there(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        *,
        running_longer_than_ms: int | None = None,
        timeout_ms: float | None = None,
        missing_ms: float | None = None,
    ) -> tuple[list[ListedTransaction], str]:
        """Return the transactional ids of responding brokers, and the missing parts.

        Args:
            states: only those in one of these states, such as Ongoing; none: all.
            producer_ids: only ids of these producers; none: all.
            running_longer_than_ms: only transactions that began earlier.
            timeout_ms: how long to retry.
            missing_ms: how long to retry if a part is missing (rule 4 of ``admin_groups``); None: until the
                timeout, 0: not at all.
        """
        return self._loop.run(
            self._inner.list_transactions_there(
                states,
                producer_ids,
                running_longer_than_ms=running_longer_than_ms,
                timeout_ms=timeout_ms,
                missing_ms=missing_ms,
            )
        )

    def describe_transaction(self, transactional_id: str, *, timeout_ms: float | None = None) -> TransactionDescription:
        """Return a transactional id's state.

        Raises:
            TidegaugeError: TRANSACTIONAL_ID_NOT_FOUND, ...
        """
        return self._loop.run(self._inner.describe_transaction(transactional_id, timeout_ms=timeout_ms))

    def transaction_version(self, broker_id: int, *, timeout_ms: float | None = None) -> int | None:
        """Return the cluster's transaction.version by a broker; None in ZooKeeper mode.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, NETWORK_EXCEPTION, ...
        """
        return self._loop.run(self._inner.transaction_version(broker_id, timeout_ms=timeout_ms))

    def describe_producers(
        self, topic_partition: TopicPartition, *, broker_id: int | None = None, timeout_ms: float | None = None
    ) -> list[ProducerDescription]:
        """Return the producers that a replica of a partition knows, by id.

        Args:
            topic_partition: the partition.
            broker_id: the broker to ask; None: the leader.
            timeout_ms: how long to wait for the response.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER,
                BROKER_NOT_AVAILABLE, ...
        """
        return self._loop.run(
            self._inner.describe_producers(topic_partition, broker_id=broker_id, timeout_ms=timeout_ms)
        )

    def abort_transaction(
        self, topic_partition: TopicPartition, start_offset: int, *, timeout_ms: float | None = None
    ) -> ProducerDescription:
        """Abort the transaction that begins at an offset of a partition; rule 3. Return the producer that had it.

        Raises:
            TidegaugeError: INVALID_REQUEST, no open transaction begins there; or why the marker was not written.
        """
        return self._loop.run(self._inner.abort_transaction(topic_partition, start_offset, timeout_ms=timeout_ms))

    def write_abort_marker(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Let a partition's leader write an ABORT marker of a producer, whether or not a transaction is open.

        Raises:
            TidegaugeError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: the leader knows a higher epoch; ...
        """
        self._loop.run(
            self._inner.write_abort_marker(
                topic_partition, producer_id, producer_epoch, coordinator_epoch, timeout_ms=timeout_ms
            )
        )

    def list_groups(
        self, states: Collection[str] = (), *, timeout_ms: float | None = None, missing_ms: float | None = None
    ) -> list[ListedGroup]:
        """Return the groups of all live brokers, by id.

        Args:
            states: only those in one of these states, such as Stable; none: all.
            timeout_ms: how long to retry.
            missing_ms: how long to retry if a part is missing (rule 4); None: until the timeout, 0: not at all.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, a broker does not respond: its groups would be missing.
        """
        return self._loop.run(self._inner.list_groups(states, timeout_ms=timeout_ms, missing_ms=missing_ms))

    def list_groups_there(
        self, states: Collection[str] = (), *, timeout_ms: float | None = None, missing_ms: float | None = None
    ) -> tuple[list[ListedGroup], str]:
        """Return the groups of responding brokers, by id, and the missing parts.

        Args:
            states: only those in one of these states, such as Stable; none: all.
            timeout_ms: how long to retry.
            missing_ms: how long to retry if a part is missing (rule 4); None: until the timeout, 0: not at all.
        """
        return self._loop.run(self._inner.list_groups_there(states, timeout_ms=timeout_ms, missing_ms=missing_ms))

    def find_coordinator(self, group_id: str, *, timeout_ms: float | None = None) -> int:
        """Return the broker that coordinates a group; the first such request creates __consumer_offsets."""
        return self._loop.run(self._inner.find_coordinator(group_id, timeout_ms=timeout_ms))

    def describe_group(self, group_id: str, *, timeout_ms: float | None = None) -> GroupDescription:
        """Return a group's state and members; an unknown group is Dead.

        Raises:
            TidegaugeError: as the coordinator responds; UNKNOWN_SERVER_ERROR says why a group is out of service, where
                the coordinator has the Lab service.
        """
        return self._loop.run(self._inner.describe_group(group_id, timeout_ms=timeout_ms))

    def share_offsets(self, group_id: str, *, timeout_ms: float | None = None) -> dict[TopicPartition, ShareOffset]:
        """Return start offset and lag of a share group's initialized partitions (KIP-932)."""
        return self._loop.run(self._inner.share_offsets(group_id, timeout_ms=timeout_ms))

    def alter_share_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Begin partitions of a share group without members again, at these offsets; the group need not exist.

        Returns:
            For each partition why it failed, or None.

        Raises:
            TidegaugeError: of the whole request, such as NON_EMPTY_GROUP.
        """
        return self._loop.run(self._inner.alter_share_offsets(group_id, offsets, timeout_ms=timeout_ms))

    def delete_group(self, group_id: str, *, timeout_ms: float | None = None) -> None:
        """Delete a group without members, and its offsets.

        Raises:
            TidegaugeError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, ...
        """
        self._loop.run(self._inner.delete_group(group_id, timeout_ms=timeout_ms))

    def remove_members(
        self, group_id: str, members: Collection[MemberDescription], *, timeout_ms: float | None = None
    ) -> None:
        """Remove members from a group, as if each had left it (KafkaAdminClient.removeMembersFromConsumerGroup).

        Raises:
            TidegaugeError: of the whole request; a member that has left by itself is none.
        """
        self._loop.run(self._inner.remove_members(group_id, members, timeout_ms=timeout_ms))

    def committed_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, of some partitions or (None) all."""
        return self._loop.run(self._inner.committed_offsets(group_id, partitions, timeout_ms=timeout_ms))

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Set offsets of a group without members; return for each partition why it failed, or None."""
        return self._loop.run(self._inner.commit_offsets(group_id, offsets, timeout_ms=timeout_ms))

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Delete committed offsets of a group; return for each partition why it failed, or None."""
        return self._loop.run(self._inner.delete_offsets(group_id, partitions, timeout_ms=timeout_ms))

    @property
    def security(self) -> Security:
        """Return how the client connects."""
        return self._inner.security

    def metadata(self, topics: Collection[str] | None = None) -> ClusterInfo:
        """Return one broker's view of topics (None: all); unknown ones carry their error.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no broker responds.
        """
        return self._loop.run(self._inner.metadata(topics))

    def metadata_of(
        self, address: str, topics: Collection[str] | None = None, *, timeout_ms: float = PROBE_TIMEOUT_MS
    ) -> ClusterInfo:
        """Return the view of the broker at ``host:port``.

        Raises:
            TidegaugeError: it does not respond.
        """
        return self._loop.run(self._inner.metadata_of(address, topics, timeout_ms=timeout_ms))

    def metadata_of_each(
        self, brokers: Sequence[BrokerInfo], topics: Collection[str] | None = None
    ) -> dict[int, ClusterInfo]:
        """Return the views of those brokers that respond, by broker id."""
        return self._loop.run(self._inner.metadata_of_each(brokers, topics))

    def metadata_of_all(self, topics: Collection[str] | None = None) -> dict[int, ClusterInfo]:
        """Return the views of all live brokers that respond, by id.

        At least one. The brokers come from the first view and from the newest one: the first may be old. If
        none responds when it is asked by its address, the first view is under ``NO_ID``.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no broker responds.
        """
        return self._loop.run(self._inner.metadata_of_all(topics))
