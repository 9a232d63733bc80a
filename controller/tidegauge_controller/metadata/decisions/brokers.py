"""Brokers come and leave: heartbeats, fencing, controlled shutdown, failed directories, unregistering.

Source: ``ReplicationControlManager.processBrokerHeartbeat``, ``handleBrokerFenced`` and its siblings,
``BrokerHeartbeatManager.calculateNextBrokerState``; KIP-631, KIP-858, KIP-1066.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.broker_registration_change_record import BrokerRegistrationChangeRecord
from tidegauge.kafka.metadata_records.unregister_broker_record import UnregisterBrokerRecord
from tidegauge_controller.metadata.decisions.heartbeats import Heartbeats
from tidegauge_controller.metadata.decisions.partition_change import changes_without, partitions_where
from tidegauge_controller.metadata.decisions.view import ClusterView, Decision
from tidegauge_controller.metadata.image import PartitionRegistration, RegisteredBroker
from tidegauge_controller.metadata.records import made
from tidegauge_controller.metadata.snapshot import uuids
from tidegauge_controller.metadata.versions import supports_cordoned_directories

FENCE, UNFENCE = 1, -1


class BrokerState(enum.Enum):
    """The state of a broker, as the controller controls it (BrokerControlState)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A broker's heartbeat.

    Attributes:
        metadata_offset: the last one that it has applied.
        want_fence: whether it asks to be or to stay fenced.
        want_shut_down: whether it asks to stop.
        offline_log_dirs: its directories that have failed.
        cordoned_log_dirs: its directories that take no new replicas; None if it does not say.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[str, ...] = ()
    cordoned_log_dirs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """The response to a heartbeat.

    Attributes:
        is_caught_up: the broker has applied its own registration.
        is_fenced: it is, or is to be, fenced.
        should_shut_down: it may stop now.
        begins_shutdown: its controlled shutdown begins or continues; ``Heartbeats.shutdown_began`` is to be called with
            the offset of the decision's last record. Not sent.
    """

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    begins_shutdown: bool = False


def heartbeat(view: ClusterView, heartbeats: Heartbeats, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
    """Decide what a heartbeat changes.

    Raises:
        TidegaugeError: STALE_BROKER_EPOCH.
    """
    broker = view.check_broker_epoch(request.broker_id, request.broker_epoch)
    current = _current_state(heartbeats, broker.broker_id)
    following = _next_state(view, heartbeats, request, current, broker)
    records: list[MetadataRecord] = []
    if following is not current:
        if following in {BrokerState.FENCED, BrokerState.SHUTDOWN_NOW}:
            records = fence(view, broker)
        elif following is BrokerState.UNFENCED:
            records = unfence(view, broker)
        else:
            records = _begin_controlled_shutdown(view, broker)
    is_fenced = following in {BrokerState.FENCED, BrokerState.SHUTDOWN_NOW}
    heartbeats.touch(broker.broker_id, request.metadata_offset, fenced=is_fenced)
    if current is BrokerState.UNFENCED and following is BrokerState.FENCED:
        # No broker of Kafka asks for this while it serves; the lab does, so that its restart need not wait.
        heartbeats.end_session(broker.broker_id, broker.epoch)
    is_caught_up = request.metadata_offset >= broker.registration_offset
    # Kafka decides both parts on the state of before; a broker that is unfenced with a failed directory could then be
    # made leader of a partition in it.
    records += _directories_offline(view.after(records), broker, request.offline_log_dirs)
    records += _directories_cordoned(view, broker, request.cordoned_log_dirs)
    response = HeartbeatResponse(
        is_caught_up,
        is_fenced,
        following is BrokerState.SHUTDOWN_NOW,
        following is BrokerState.CONTROLLED_SHUTDOWN,
    )
    return Decision(records, response)


def expired_heartbeat(view: ClusterView, heartbeats: Heartbeats, request: HeartbeatRequest) -> None:
    """Take in a heartbeat that waited too long for its turn: the broker lives, but nothing else changes.

    Raises:
        TidegaugeError: STALE_BROKER_EPOCH.
    """
    broker = view.check_broker_epoch(request.broker_id, request.broker_epoch)
    heartbeats.touch(broker.broker_id, request.metadata_offset, fenced=broker.fenced)


def _current_state(heartbeats: Heartbeats, broker_id: int) -> BrokerState:
    contact = heartbeats.brokers[broker_id]
    if contact.is_shutting_down:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.FENCED if contact.fenced else BrokerState.UNFENCED


def _next_state(
    view: ClusterView,
    heartbeats: Heartbeats,
    request: HeartbeatRequest,
    current: BrokerState,
    broker: RegisteredBroker,
) -> BrokerState:
    if current is BrokerState.FENCED:
        if request.want_shut_down:
            return BrokerState.SHUTDOWN_NOW
        may_unfence = not request.want_fence and request.metadata_offset >= broker.registration_offset
        return BrokerState.UNFENCED if may_unfence else BrokerState.FENCED
    if current is BrokerState.UNFENCED:
        if request.want_fence:
            return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        if not request.want_shut_down:
            return BrokerState.UNFENCED
        leads = leads_something(view, broker.broker_id)
        return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
    others_know = heartbeats.brokers[broker.broker_id].shutdown_offset <= heartbeats.lowest_active_offset()
    if not others_know or leads_something(view, broker.broker_id):
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.SHUTDOWN_NOW


def leads_something(view: ClusterView, broker_id: int) -> bool:
    """Return whether a broker leads a partition."""
    return any(state.leader == broker_id for _, _, state in view.image.all_partitions())


def registration_change(broker: RegisteredBroker, version: int, **fields: object) -> MetadataRecord:
    """Return the change of a registration; each kind of change has its version."""
    change = BrokerRegistrationChangeRecord(broker.broker_id, broker.epoch, **fields)  # type: ignore[arg-type] # by name
    return made(change, version)


def out_of_isrs(view: ClusterView, broker_id: int) -> list[MetadataRecord]:
    """Return the changes that remove a broker from all ISRs, with elections."""
    return changes_without(view, _in_sync_at(view, broker_id), removed=broker_id)


def _in_sync_at(view: ClusterView, broker_id: int) -> dict[tuple[str, int], PartitionRegistration]:
    return partitions_where(view, lambda state: broker_id in state.isr)


def fence(view: ClusterView, broker: RegisteredBroker) -> list[MetadataRecord]:
    """Take a broker out of all ISRs, then fence it."""
    return [*out_of_isrs(view, broker.broker_id), registration_change(broker, 0, fenced=FENCE)]


def unfence(view: ClusterView, broker: RegisteredBroker) -> list[MetadataRecord]:
    """Unfence a broker, then elect for all partitions without a leader.

    A broker in controlled shutdown that no longer asks to stop is unfenced, as in Kafka, but is given no leadership.
    """
    leaderless = partitions_where(view, lambda state: not state.has_leader)
    added = None if broker.in_controlled_shutdown else broker.broker_id
    elections = changes_without(view, leaderless, added=added)
    return [registration_change(broker, 0, fenced=UNFENCE), *elections]


def _begin_controlled_shutdown(view: ClusterView, broker: RegisteredBroker) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    if not broker.in_controlled_shutdown:
        records.append(registration_change(broker, 1, in_controlled_shutdown=1))
    return records + out_of_isrs(view, broker.broker_id)


def _directories_offline(view: ClusterView, broker: RegisteredBroker, offline: tuple[str, ...]) -> list[MetadataRecord]:
    """Treat the replicas in failed directories as if their broker were dead (handleDirectoriesOffline)."""
    failed = [directory for directory in broker.log_dirs if directory in offline]
    if not failed:
        return []
    broker_id = broker.broker_id
    affected = partitions_where(
        view,
        lambda state: broker_id in state.replicas and state.directory(broker_id) in failed,
    )
    remaining = [directory for directory in broker.log_dirs if directory not in failed]
    changes = changes_without(view, affected, removed=broker_id)
    return [*changes, registration_change(broker, 2, log_dirs=uuids(remaining))]


def _directories_cordoned(
    view: ClusterView, broker: RegisteredBroker, cordoned: tuple[str, ...] | None
) -> list[MetadataRecord]:
    if cordoned is None or not supports_cordoned_directories(view.metadata_version):
        return []
    if broker.cordoned_log_dirs is not None and set(broker.cordoned_log_dirs) == set(cordoned):
        return []
    return [registration_change(broker, 3, cordoned_log_dirs=uuids(cordoned))]


def fence_one_stale_broker(view: ClusterView, heartbeats: Heartbeats, now_ms: int) -> Decision[bool]:
    """Fence the broker whose session expired first; the response is whether there may be more.

    As in Kafka a broker that is fenced already is fenced again when its last session expires, for instance after a
    controlled shutdown. A session of an earlier incarnation is forgotten.
    """
    expired = heartbeats.pop_expired(now_ms)
    if expired is None:
        return Decision([], False)
    broker_id, epoch = expired
    broker: RegisteredBroker | None = view.image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        return Decision([], True)
    heartbeats.fence(broker_id)
    return Decision(fence(view, broker), True)


def unregister(view: ClusterView, broker_id: int) -> Decision[None]:
    """Remove a broker's registration; its replicas stay assigned.

    It leaves all ISRs. It stays in the ELRs that it is in: it can't be elected while it is not registered.

    Raises:
        TidegaugeError: BROKER_ID_NOT_REGISTERED.
    """
    broker: RegisteredBroker | None = view.image.brokers.get(broker_id)
    if broker is None:
        raise TidegaugeError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    records = out_of_isrs(view, broker_id)
    return Decision([*records, made(UnregisterBrokerRecord(broker_id, broker.epoch))], None)
