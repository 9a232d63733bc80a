"""Registration of brokers and of controllers.

A broker's epoch is the offset of the first record of its registration. The clean-up of its former incarnation is
before the registration itself, so that a controller that dies in between makes the broker register again.
Source: ``ClusterControlManager.registerBroker`` and ``registerController``,
``ReplicationControlManager.handleBrokerShutdown``; KIP-631, KIP-858, KIP-919, KIP-966.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import KRAFT_VERSION, METADATA_VERSION
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_controller.metadata.decisions.brokers import out_of_isrs
from tidegauge_controller.metadata.decisions.heartbeats import Heartbeats
from tidegauge_controller.metadata.decisions.partition_change import changes_without, partitions_where
from tidegauge_controller.metadata.decisions.view import ClusterView, Decision
from tidegauge_controller.metadata.image import FeatureRange, NodeEndpoint, RegisteredBroker, RegisteredController
from tidegauge_controller.metadata.snapshot import broker_record, controller_record

NO_EPOCH = -1
_RESERVED_IDS = 100
_NO_FEATURE = FeatureRange(0, 0)


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """A broker's request to be registered.

    Attributes:
        previous_broker_epoch: the epoch with which the broker was shut down cleanly; -1 if it was not.
    """

    broker_id: int
    cluster_id: str
    incarnation_id: str
    endpoints: tuple[NodeEndpoint, ...]
    features: Mapping[str, FeatureRange]
    rack: str | None = None
    log_dirs: tuple[str, ...] = ()
    previous_broker_epoch: int = NO_EPOCH
    is_migrating_zk_broker: bool = False


def register_broker(
    view: ClusterView, heartbeats: Heartbeats, request: RegistrationRequest, kraft_version: int, now_ms: int
) -> Decision[int]:
    """Register a broker; the response is its epoch.

    Args:
        view: of the cluster.
        heartbeats: which sessions are alive.
        request: of the broker.
        kraft_version: the quorum's, which is a feature too.
        now_ms: a clock that never goes back.

    Raises:
        TidegaugeError: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED,
            INVALID_REGISTRATION or UNSUPPORTED_VERSION, in this order.
    """
    known: RegisteredBroker | None = view.image.brokers.get(request.broker_id)
    _check_identity(view, heartbeats, request, known, now_ms)
    _check_directories(view, request)
    _check_features(view, request, kraft_version)
    is_same = known is not None and known.incarnation_id == request.incarnation_id
    records: list[MetadataRecord] = []
    if not is_same:
        records = _clean_up(view, request, known)
    epoch = known.epoch if known is not None and is_same else view.next_offset
    registration = RegisteredBroker(
        request.broker_id,
        epoch,
        request.incarnation_id,
        request.endpoints,
        request.features,
        request.rack,
        fenced=known.fenced if known is not None and is_same else True,
        in_controlled_shutdown=known is not None and is_same and known.in_controlled_shutdown,
        log_dirs=request.log_dirs,
    )
    return Decision([*records, broker_record(registration, view.metadata_version)], epoch)


def _check_identity(
    view: ClusterView,
    heartbeats: Heartbeats,
    request: RegistrationRequest,
    known: RegisteredBroker | None,
    now_ms: int,
) -> None:
    expected = view.settings.cluster_id
    if request.cluster_id != expected:
        raise TidegaugeError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {expected}, but got cluster ID {request.cluster_id}",
        )
    if (
        known is not None
        and known.incarnation_id != request.incarnation_id
        and heartbeats.has_valid_session(known.broker_id, known.epoch, now_ms)
    ):
        raise TidegaugeError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    if request.is_migrating_zk_broker:
        raise TidegaugeError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "Controller does not support registering ZK brokers.",
        )


def _check_directories(view: ClusterView, request: RegistrationRequest) -> None:
    invalid = ErrorCode.INVALID_REGISTRATION
    if not request.log_dirs:
        raise TidegaugeError(invalid, "No directories specified in request")
    if any(is_reserved(directory) for directory in request.log_dirs):
        raise TidegaugeError(invalid, "Reserved directory ID in request")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise TidegaugeError(invalid, "Duplicate directory ID in request")
    for other in view.image.brokers.values():
        if other.broker_id != request.broker_id:
            for directory in request.log_dirs:
                if directory in other.log_dirs:
                    raise TidegaugeError(
                        invalid, f"Broker {other.broker_id} is already registered with directory {directory}"
                    )


def is_reserved(directory: str) -> bool:
    """Whether an id is one of the first hundred UUIDs, which name no directory (DirectoryId.reserved)."""
    number = int.from_bytes(topic_id_bytes(directory), "big")
    return number < _RESERVED_IDS


def _check_features(view: ClusterView, request: RegistrationRequest, kraft_version: int) -> None:
    finalized = {
        METADATA_VERSION: view.metadata_version,
        KRAFT_VERSION: kraft_version,
        **view.image.features,
    }
    for name, supported in request.features.items():
        _check_level(name, finalized.get(name, 0), supported)
    if METADATA_VERSION not in request.features:
        raise TidegaugeError(ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")
    for name, level in finalized.items():
        if level and name not in request.features:
            _check_level(name, level, _NO_FEATURE)


def _check_level(name: str, level: int, supported: FeatureRange) -> None:
    if level not in supported:
        raise TidegaugeError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {level} of {name}. The broker "
            f"wants a version between {supported.first} and {supported.last}, inclusive.",
        )


def _clean_up(view: ClusterView, request: RegistrationRequest, known: RegisteredBroker | None) -> list[MetadataRecord]:
    """Return the changes that end the broker's former incarnation.

    After a clean shutdown it leaves the ISRs, as if it were fenced. After any other, or if it was unregistered, it may
    have lost records that it had acknowledged, so that it leaves the ELRs as well.
    """
    broker_id = request.broker_id
    was_clean = known is not None and request.previous_broker_epoch == known.epoch
    if was_clean or not view.image.elr_enabled:
        return out_of_isrs(view, broker_id)
    in_sync = partitions_where(view, lambda state: broker_id in state.isr)
    eligible = partitions_where(view, lambda state: broker_id in state.elr and broker_id not in state.isr)
    return changes_without(view, {**in_sync, **eligible}, unclean_shutdown=broker_id)


def register_controller(registration: RegisteredController) -> Decision[None]:
    """Register a controller; Kafka checks nothing of it."""
    return Decision([controller_record(registration)], None)


def needs_registration(image_registration: RegisteredController | None, incarnation_id: str) -> bool:
    """Whether a controller must register itself: the log has no registration of its process."""
    return image_registration is None or image_registration.incarnation_id != incarnation_id
