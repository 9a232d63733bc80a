"""The interface to a cluster's metadata, in either mode.

Contract: ``Cluster`` is the broker's membership and the metadata that all brokers share. A method that cannot reach the
store raises ``MetadataUnavailable``; its other errors belong to the request. ``chosen`` picks the
implementation.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidegauge.cluster_metadata import BrokerRegistration, Leadership
from tidegauge.cluster_metadata.access_lists import Binding, Filter, Operation, ResourceType
from tidegauge.cluster_metadata.client_quotas import Entity, Quota
from tidegauge.cluster_metadata.client_quotas import Filter as QuotaFilter
from tidegauge.cluster_metadata.credentials import CredentialOutcome, Deletion, ScramCredential, Upsertion
from tidegauge.control import Endpoint, IsrProposal, IsrVerdict
from tidegauge.errors import ErrorCode
from tidegauge.metadata_update import MetadataUpdate
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import PartitionState, ReplicaStop
from tidegauge.principal import Principal
from tidegauge.settings import Values
from tidegauge_broker.log.manager import LogManager, Owner
from tidegauge_broker.security.acls.authorizer import AclAuthorizer
from tidegauge_broker.server.acls.access_control import Outcome
from tidegauge_broker.server.cluster.control_ways import ControlWay
from tidegauge_broker.server.configs.topic_configs import TopicConfigs
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.registration.to_controller import ToController
from tidegauge_controller.admin import NewTopic
from tidegauge_controller.port import Controller

if TYPE_CHECKING:  # its package imports what knows the ports
    from tidegauge_broker.server.service.caller import Caller

Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the new settings, given the present ones, or raises TidegaugeError."""
StoredTopicIds = Callable[[Collection[str]], Awaitable[Mapping[str, str]]]
"""Returns the ids of topics as they are stored."""
Dial = Callable[[Callable[[], socket.socket]], socket.socket]
"""Opens a connection to the store by calling its argument, and returns the socket that is to be used."""


class SettingsStore(Protocol):
    """Reads and alters the settings of entities; an entity is named by type and name, such as ``topics/T``."""

    async def read(self, entity: str) -> dict[str, str]:
        """Return an entity's own settings.

        Raises:
            MalformedMetadata: the stored value is malformed.
        """
        ...

    async def names(self, kind: str) -> Collection[str]:
        """Return the entities of a kind, such as ``groups``, with settings."""
        ...

    async def alter(self, entity: str, change: Change) -> int:
        """Store what ``change`` makes of the settings, and notify all brokers; return the change's number.

        Raises:
            TidegaugeError: what ``change`` rejects, or UNKNOWN_SERVER_ERROR; nothing was changed.
        """
        ...


class ClientQuotaStore(Protocol):
    """Quotas of users, client ids and addresses."""

    async def alter(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool) -> None:
        """Set quotas of an entity, or (None) remove them.

        Raises:
            TidegaugeError: INVALID_REQUEST; nothing was changed.
        """
        ...

    async def describe(self, wanted: QuotaFilter, *, strict: bool) -> list[Quota]:
        """Return the quotas of all entities that a filter matches.

        Raises:
            TidegaugeError: INVALID_REQUEST, the filter names addresses and clients.
        """
        ...

    async def values(self, entity: Entity) -> dict[str, float]:
        """Return one entity's quotas, by key."""
        ...


class CredentialStore(Protocol):
    """SCRAM credentials of users."""

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism, as known here, or None."""
        ...

    def iterations(self, mechanism: str) -> list[int]:
        """Return the iterations of each user that has a credential for a mechanism."""
        ...

    async def read_all(self) -> None:
        """Read all users again."""
        ...

    async def read(self, user: str) -> None:
        """Read a user again, by the name in the notification."""
        ...

    async def describe(self, users: Sequence[str]) -> dict[str, CredentialOutcome]:
        """Return the mechanisms of these users; none named: of all who have one."""
        ...

    async def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> dict[str, CredentialOutcome]:
        """Remove and set credentials; return what became of each user's."""
        ...


class AccessLists(Protocol):
    """Access control lists: asked by all wires, followed, and altered for admins."""

    authorizer: AclAuthorizer

    @property
    def operations(self) -> Mapping[ResourceType, tuple[Operation, ...]]:
        """The operations that there are for each kind of resource."""
        ...

    def allows(
        self, caller: Caller, operation: Operation, kind: ResourceType, name: str, api: str, *, logs: bool = True
    ) -> bool:
        """Whether a caller may do an operation with a resource; a refusal is logged."""
        ...

    def allows_cluster(self, caller: Caller, operation: Operation, api: str, *, logs: bool = True) -> bool:
        """Return whether a caller may do an operation with the cluster."""
        ...

    def allows_somewhere(self, caller: Caller, operation: Operation, kind: ResourceType, api: str) -> bool:
        """Whether a caller may do an operation with any resource of a kind; a refusal is logged."""
        ...

    async def read_all(self) -> None:
        """Read all lists.

        Raises:
            TidegaugeError: INVALID_CONFIG, a list is unreadable, and nothing was known before.
        """
        ...

    async def create(self, bindings: Sequence[Binding]) -> list[Outcome]:
        """Add entries; return what became of each, in their order."""
        ...

    async def delete(self, filters: Sequence[Filter]) -> list[list[tuple[Binding, Outcome]]]:
        """Remove the entries that filters match; return each filter's entries."""
        ...


class SettingsListener(Protocol):
    """Notified of each change, one after the other, in the order in which they were made."""

    async def topic_changed(self, topic: str) -> None:
        """Take over the settings of a topic."""

    async def broker_changed(self, broker: str) -> None:
        """Take over the settings of a broker, by its id, or the default of all brokers."""

    async def group_changed(self, name: str) -> None:
        """Take over the settings of a group, by its entity's name."""

    async def addresses_changed(self) -> None:
        """Take over the quotas of addresses."""

    async def quota_changed(self, entity: Entity) -> None:
        """Take over the quotas of a user, a client id, or both."""

    async def user_changed(self, user: str) -> None:
        """Take over the credentials of a user."""

    async def read_all(self) -> None:
        """Take over everything again: changes may have been missed."""


class MetadataStores(Protocol):
    """The stores that the cluster keeps for all of its brokers."""

    @property
    def settings(self) -> SettingsStore:
        """Return the settings of entities."""
        ...

    @property
    def topics(self) -> TopicConfigs:
        """Return the settings of topics."""
        ...

    @property
    def quotas(self) -> ClientQuotaStore:
        """Return the client quotas."""
        ...

    @property
    def users(self) -> CredentialStore:
        """Return the credentials of users."""
        ...

    @property
    def acls(self) -> AccessLists | None:
        """Return the access control lists; None: everything is allowed."""
        ...

    @property
    def applied_change(self) -> int:
        """Return the number of the last settings change in force; -1: none."""
        ...

    def follow(self, listener: SettingsListener) -> None:
        """Notify a listener of changes from now on."""

    async def close(self) -> None:
        """Follow no more."""


class ControllerRequests(Protocol):
    """The requests of this broker itself to the active controller, with retries."""

    async def alter_partition(self, proposals: list[IsrProposal]) -> dict[TopicPartition, IsrVerdict]:
        """Return the controller's verdicts; retry until a controller responds."""
        ...

    async def allocate_producer_ids(self) -> tuple[ErrorCode, int, int]:
        """Ask once for a block of producer ids; return error, first id and count."""
        ...

    async def create_topic(self, topic: NewTopic) -> tuple[ErrorCode, str]:
        """Ask once for a topic; return an error with its message."""
        ...

    async def controlled_shutdown(self) -> bool:
        """Have this broker's leaders moved away; return whether they are."""
        ...


class Forwarding(Protocol):
    """Hands requests of clients on to the active controller, in KRaft mode (KIP-590)."""

    async def forward(self, request: bytes, principal: Principal, host: str) -> bytes:
        """Have a whole request, its header included, responded to by the controller; return the whole response.

        Args:
            request: as the client sent it, without its length.
            principal: of the client's user.
            host: the client's address.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, no controller has responded in time. UNSUPPORTED_VERSION, the controller
                does not know the request. Another one: the request could not be read there.
        """
        ...

    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Return the controller's version range of each API; empty if unknown."""
        ...


class Features(NamedTuple):
    """The features of a KRaft cluster.

    Attributes:
        epoch: the offset of the last metadata record that is in force.
        finalized: levels in force, by name.
        supported: levels that this broker supports, by name.
    """

    epoch: int
    finalized: Mapping[str, int]
    supported: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Applied:
    """The parts of a broker that take in published metadata, in KRaft mode.

    Attributes:
        metadata_changed: takes over the metadata for clients.
        replicas_decided: deletes replicas, and takes over the states of others; of some no log can exist.
        levels_changed: takes over the levels of the cluster's features, by name.
        logs: returns the logs of this broker.
        failed: is called with a sentence when the broker can't continue.
    """

    metadata_changed: Callable[[MetadataUpdate], None]
    replicas_decided: Callable[
        [Sequence[ReplicaStop], Sequence[PartitionState], Collection[TopicPartition]], Awaitable[object]
    ]
    levels_changed: Callable[[Mapping[str, int]], None]
    logs: Callable[[], LogManager]
    failed: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Member:
    """This broker as a member of its cluster.

    Attributes:
        endpoint: its address for the controller.
        control_plane_listener: name of the listener through which the controller and the brokers reach each other.
        registration: what it registers.
        settings: its settings.
        metadata: its metadata cache.
        to_brokers: how its requests reach the others while it is the controller.
        to_controller: how its requests reach a controller that is one of the brokers.
        broker_epoch: returns the broker epoch of its registration; -1 before it.
        registered: called with each new broker epoch.
        complete: called with the broker epoch when all is there that its registration brings.
        applied: what it takes in of published metadata.
        note: writes to the event log (kind, cause, fields).
        now_ms: wall clock.
        random_bytes: source of randomness.
    """

    endpoint: Endpoint
    control_plane_listener: str
    registration: BrokerRegistration
    settings: Values
    metadata: MetadataCache
    to_brokers: ControlWay
    to_controller: ToController
    broker_epoch: Callable[[], int]
    registered: Callable[[int], None]
    complete: Callable[[int], None]
    applied: Applied
    note: Callable[[str, str, dict[str, Any]], None]
    now_ms: Callable[[], int]
    random_bytes: Callable[[int], bytes]


class Session(NamedTuple):
    """The proof of a broker's membership, and the servers that can end it."""

    servers: str
    session_id: int
    password: bytes


class Cluster(Protocol):
    """A cluster that a broker has connected to.

    Order: ``stores``, ``prepare``, ``register``, ``take_part``; then ``leave``, ``close``.
    """

    @property
    def forwarding(self) -> Forwarding | None:
        """Return the forwarding of client requests; None in ZooKeeper mode.

        There clients ask the controller themselves.
        """
        ...

    @property
    def requests(self) -> ControllerRequests:
        """Return what this broker asks of the controller; ``prepare`` comes first."""
        ...

    @property
    def log_owner(self) -> Owner | None:
        """Return the owner of the log directories; None in ZooKeeper mode."""
        ...

    def features(self) -> Features | None:
        """Return the features in force; None in ZooKeeper mode."""
        ...

    def is_stray(self, at: TopicPartition, topic_id: str) -> bool:
        """Whether a log on disk belongs to no replica of this broker any more.

        Args:
            at: the partition.
            topic_id: from the log's directory; empty if it has none.
        """
        ...

    @property
    def cluster_id(self) -> str:
        """Return the cluster's id."""
        ...

    def stores(self, settings: Values, now_ms: Callable[[], int]) -> MetadataStores:
        """Return what the cluster keeps; ``settings`` are the broker's, changed in place."""
        ...

    async def read(self, work: Callable[[], Awaitable[None]]) -> None:
        """Carry out the first reads from ``stores``, again if the membership ends meanwhile."""
        ...

    def prepare(self, member: Member) -> Controller:
        """Take over what the broker is; return what it asks the controller in its process."""
        ...

    async def register(self) -> None:
        """Become a member of the cluster.

        Raises:
            TidegaugeError: INVALID_REQUEST, another broker has this id, or an address of this one.
        """
        ...

    async def take_part(self) -> None:
        """Stay a member, and offer this broker as the controller if the cluster chooses it among brokers."""
        ...

    async def advertise(self, registration: BrokerRegistration) -> None:
        """Register these addresses in place of the former ones; return when that is done."""
        ...

    async def leave(self) -> None:
        """End what ``prepare`` and ``take_part`` began; the membership ends with ``close``."""
        ...

    async def close(self) -> None:
        """End the membership and the connection."""
        ...

    async def leadership(self, at: TopicPartition) -> Leadership | None:
        """Return a partition's state, not older than this call, or None.

        None: it has no readable state.
        """
        ...

    async def deleted_partitions(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions without assignment; unreadable topics count as existing."""
        ...

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the stored ids of readable topics, empty without one."""
        ...

    def report_failed_replicas(self) -> None:
        """Notify the controller that replicas of this broker are offline, again and again until it is notified."""
        ...

    def stop_reporting(self) -> None:
        """Give up the reports that have not arrived."""
        ...

    async def fence(self) -> None:
        """Have the controller fence this broker at once, for the lab (KRaft mode).

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, no controller responds; UNSUPPORTED_VERSION, in ZooKeeper mode.
        """
        ...

    def session(self) -> Session:
        """Return this broker's session, in KRaft mode its epoch, for the lab."""
        ...

    def on_session(self, listener: Callable[[Session], None]) -> None:
        """Call a listener with the session of this broker: now, and whenever there is another one."""
