"""Asks the controllers of a KRaft quorum, over Kafka's protocol: who leads, how far logs are, which features are there.

It adds and removes voters, and sets levels of features.

Any controller names the others and the active one (DescribeCluster, KIP-919); the active one alone describes the quorum
and changes the voter set (KIP-642, KIP-836, KIP-853). Source: ``KafkaAdminClient``, ``MetadataQuorumCommand``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Self

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge.kafka.apis import DESCRIBE_CLUSTER
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages import (
    add_raft_voter,
    api_versions,
    broker_heartbeat,
    create_topics,
    describe_cluster,
    describe_quorum,
    remove_raft_voter,
    update_features,
)
from tidegauge.kafka_channel import Dialer, KafkaChannel, NotAuthenticated
from tidegauge.partition import METADATA_TOPIC
from tidegauge.security import PLAIN
from tidegauge_client.cluster_file import BootstrapServers

_CONTROLLERS = 2
_SOFTWARE, _SOFTWARE_VERSION = "tidegauge", "1"
_PAUSE_SECONDS = 0.05
_MAY_NEED_SECURITY = "; if its listener has TLS or SASL, --command-config names a file with the settings"
_ELSEWHERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})
"""Errors after which the leader is looked for again."""


class QuorumReplica(NamedTuple):
    """A voter or observer as the leader sees it; times in ms since 1970, -1 where unknown."""

    id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumView(NamedTuple):
    """A quorum as its leader describes it.

    Attributes:
        cluster_id: the cluster.
        leader_id: the leader.
        epoch: its epoch.
        high_watermark: -1 until a record of the epoch is committed.
        voters: the voters.
        observers: the other replicas that fetch.
        endpoints: the listeners of each voter, as NAME://host:port.
    """

    cluster_id: str
    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[str, ...]]


class FeatureView(NamedTuple):
    """A feature of the cluster: the levels that the active controller supports, and the one in force.

    Attributes:
        name: its name.
        lowest: the lowest supported level.
        highest: the highest.
        level: the one in force; 0: none is.
        epoch: the offset of the metadata log at which the levels in force were read; -1: unknown.
    """

    name: str
    lowest: int
    highest: int
    level: int
    epoch: int


class UpgradeType(IntEnum):
    """Kafka's numbers for which changes of a level are allowed (``FeatureUpdate.UpgradeType``)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class QuorumAdmin:
    """The admin client of a quorum of controllers. Use it as an asynchronous context manager.

    Args:
        controllers: ``host:port`` of some controllers; ``BootstrapServers`` have the security settings for them.
        timeout_seconds: limit of each call, the search for the leader included.
    """

    def __init__(self, controllers: Sequence[str], timeout_seconds: float = 30.0) -> None:
        self._bootstrap = list(controllers)
        self._security = controllers.security if isinstance(controllers, BootstrapServers) else PLAIN
        self._dial = Dialer(self._security)
        self._timeout_seconds = timeout_seconds
        self._channels: dict[str, KafkaChannel] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels.values():
            channel.close()

    async def describe(self) -> QuorumView:
        """Return the quorum as its leader describes it.

        Raises:
            TidegaugeError: no controller responds, or there is no leader in time.
        """
        return _view(
            *await self._ask_leader(apis.DESCRIBE_QUORUM, lambda _: _description_request(), _description_error)
        )

    async def features(self) -> list[FeatureView]:
        """Return the features that the active controller supports, by name.

        Raises:
            TidegaugeError: no controller responds, or there is no leader in time.
        """
        _, found = await self._ask_leader(
            apis.API_VERSIONS,
            lambda _: api_versions.ApiVersionsRequest(_SOFTWARE, _SOFTWARE_VERSION),
            lambda response: response.error_code,
        )
        levels = {one.name: one.max_version_level for one in found.finalized_features}
        return sorted(
            FeatureView(
                one.name, one.min_version, one.max_version, levels.get(one.name, 0), found.finalized_features_epoch
            )
            for one in found.supported_features
        )

    async def update_features(self, levels: Mapping[str, int], kind: UpgradeType, *, validate_only: bool) -> None:
        """Set the levels of features: all of them, or none.

        Args:
            levels: by feature.
            kind: which changes are allowed.
            validate_only: say whether it can be done, and change nothing.

        Raises:
            TidegaugeError: the active controller refuses, or there is none in time.
        """
        updates = [
            update_features.FeatureUpdateKey(name, level, upgrade_type=kind) for name, level in sorted(levels.items())
        ]
        await self._ask_leader(
            apis.UPDATE_FEATURES,
            lambda _: update_features.UpdateFeaturesRequest(
                round(self._timeout_seconds * 1000), updates, validate_only
            ),
            lambda response: response.error_code,
        )

    async def create_topic(self, name: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str]) -> None:
        """Ask the active controller for a topic, within this client's limit; return when that is committed.

        A broker would ask the next active controller again (``ForwardingManager``).

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, it is not committed, and may be later; or why the controller refuses.
        """
        topic = create_topics.CreatableTopic(
            name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[create_topics.CreatableReplicaAssignment(*one) for one in enumerate(map(list, assignment))],
            configs=[create_topics.CreatableTopicConfig(*one) for one in configs.items()],
        )
        limit_ms = round(self._timeout_seconds * 1000 / 2)
        await self._ask_leader(
            apis.CREATE_TOPICS,
            lambda _: create_topics.CreateTopicsRequest([topic], limit_ms),
            lambda response: response.topics[0].error_code,
        )

    async def fence_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Send a broker's heartbeat that asks to be fenced; return when that is committed.

        Args:
            broker_id: the broker.
            broker_epoch: of its registration.

        Raises:
            TidegaugeError: STALE_BROKER_EPOCH, it has another registration; or there is no leader in time.
        """
        await self._ask_leader(
            apis.BROKER_HEARTBEAT,
            lambda _: broker_heartbeat.BrokerHeartbeatRequest(broker_id, broker_epoch, -1, want_fence=True),
            lambda response: response.error_code,
        )

    async def add_voter(self, node_id: int, directory_id: bytes, listeners: Sequence[tuple[str, str, int]]) -> None:
        """Add a controller, which must be fetching already, to the voters; return when that is committed.

        Args:
            node_id: its id.
            directory_id: the id of its metadata directory.
            listeners: name, host and port of each of its listeners.

        Raises:
            TidegaugeError: the leader refuses, or there is none in time.
        """
        await self._ask_leader(
            apis.ADD_RAFT_VOTER,
            lambda cluster_id: add_raft_voter.AddRaftVoterRequest(
                cluster_id,
                round(self._timeout_seconds * 1000),
                node_id,
                directory_id,
                [add_raft_voter.Listener(*one) for one in listeners],
            ),
            lambda response: response.error_code,
        )

    async def remove_voter(self, node_id: int, directory_id: bytes) -> None:
        """Remove a voter; return when that is committed.

        Raises:
            TidegaugeError: the leader refuses, or there is none in time.
        """
        await self._ask_leader(
            apis.REMOVE_RAFT_VOTER,
            lambda cluster_id: remove_raft_voter.RemoveRaftVoterRequest(cluster_id, node_id, directory_id),
            lambda response: response.error_code,
        )

    async def _ask_leader(
        self, key: int, request: Callable[[str], Any], error_of: Callable[[Any], int]
    ) -> tuple[str, Any]:
        """Return the cluster's id and the leader's response, within the time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_seconds
        problem: TidegaugeError | None = None
        while loop.time() < deadline:
            try:
                cluster_id, address = await self._find_leader(deadline)
                response = await self._channel(address).request(key, request(cluster_id), deadline - loop.time())
            except NotAuthenticated:
                raise  # as Kafka's clients do: no other attempt would end differently
            except TidegaugeError as error:
                problem = _telling(problem, error)
            else:
                code = ErrorCode.of(error_of(response))
                if code is ErrorCode.NONE:
                    return cluster_id, response
                problem = TidegaugeError(code, getattr(response, "error_message", None) or "")
                if code not in _ELSEWHERE:
                    raise problem
            await asyncio.sleep(_PAUSE_SECONDS)
        raise problem or TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "no controller was asked in time")

    async def _find_leader(self, deadline: float) -> tuple[str, str]:
        """Return the cluster's id and the active controller's address.

        A controller that does not respond has its share of the time that is left, and is asked last from then on.
        """
        loop = asyncio.get_running_loop()
        problem: TidegaugeError | None = None
        for number, address in enumerate(tuple(self._bootstrap)):
            message = describe_cluster.DescribeClusterRequest(endpoint_type=_CONTROLLERS)
            share = (deadline - loop.time()) / (len(self._bootstrap) - number + 1)  # one more is for the request itself
            limit = min(2.0, max(0.1, share))
            try:
                found = await self._channel(address).request(DESCRIBE_CLUSTER, message, limit)
            except NotAuthenticated as error:
                problem = error
                continue
            except TidegaugeError as error:
                self._bootstrap.remove(address)
                self._bootstrap.append(address)
                text = f"The controller at {address} does not respond: {error.message}{self._hint}"
                problem = _telling(problem, TidegaugeError(error.code, text))
                continue
            if found.error_code:
                problem = TidegaugeError(ErrorCode.of(found.error_code), found.error_message or "")
                continue
            active = next((one for one in found.brokers if one.broker_id == found.controller_id), None)
            if active is not None:
                return found.cluster_id, address_of(active.host, active.port)
            problem = TidegaugeError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"The controller at {address} knows no leader of the quorum: no majority of the voters is alive and "
                "connected, or an election is in progress",
            )
        raise problem or TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "No controller was named")

    @property
    def _hint(self) -> str:
        """Return a hint if connections are neither secured nor authenticated; else empty."""
        return "" if self._security.is_tls or self._security.login else _MAY_NEED_SECURITY

    def _channel(self, address: str) -> KafkaChannel:
        if address not in self._channels:
            self._channels[address] = KafkaChannel(
                address, "tidegauge-quorum-admin", self._dial, self._security.login, protocol=KRAFT_PROTOCOL
            )
        return self._channels[address]


async def quorum_by_broker(channel: KafkaChannel, limit_seconds: float) -> QuorumView:
    """Return the quorum as its leader describes it, through a broker.

    Args:
        channel: to a broker's listener for Kafka clients, with ``KRAFT_PROTOCOL``.
        limit_seconds: for all of it.

    Raises:
        TidegaugeError: UNSUPPORTED_VERSION, the broker knows no quorum, as in ZooKeeper mode; or no leader responds.
    """
    response = await channel.request(apis.DESCRIBE_QUORUM, _description_request(), limit_seconds)
    if error := _description_error(response):
        raise TidegaugeError(ErrorCode.of(error), getattr(response, "error_message", None) or "")
    return _view("", response)


def _description_request() -> describe_quorum.DescribeQuorumRequest:
    partitions = [describe_quorum.PartitionData(0)]
    return describe_quorum.DescribeQuorumRequest([describe_quorum.TopicData(METADATA_TOPIC, partitions)])


def _description_error(response: describe_quorum.DescribeQuorumResponse) -> int:
    return response.error_code or response.topics[0].partitions[0].error_code


def _view(cluster_id: str, message: describe_quorum.DescribeQuorumResponse) -> QuorumView:
    data = message.topics[0].partitions[0]
    return QuorumView(
        cluster_id,
        data.leader_id,
        data.leader_epoch,
        data.high_watermark,
        tuple(map(_replica, data.current_voters)),
        tuple(map(_replica, data.observers)),
        {
            node.node_id: tuple(f"{one.name}://{address_of(one.host, one.port)}" for one in node.listeners)
            for node in message.nodes
        },
    )


def _telling(before: TidegaugeError | None, now: TidegaugeError) -> TidegaugeError:
    """Return the newer problem, or the older one if the newer is a timeout."""
    return now if before is None or now.code is not ErrorCode.REQUEST_TIMED_OUT else before


def _replica(state: describe_quorum.ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        bytes(state.replica_directory_id),
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )
