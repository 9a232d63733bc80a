"""Changes of finalised features: all updates of a request, or none.

A level must be supported by this controller, by each registered broker, alive or not, and by each controller; a voter
that has not registered may not support it. metadata.version may only fall if no level in between changed records.
kraft.version is a control record of the quorum and decided there.
Source: ``FeatureControlManager``, ``QuorumFeatures``, ``ConfigurationControlManager.updateFeatures``; KIP-584, KIP-778,
KIP-966.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import ELR_VERSION, METADATA_VERSION
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.config_record import ConfigRecord
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge_controller.metadata.decisions.view import MIN_INSYNC_REPLICAS, ClusterView, Decision
from tidegauge_controller.metadata.image import BROKER, CLUSTER_DEFAULT, FeatureRange
from tidegauge_controller.metadata.records import made
from tidegauge_controller.metadata.versions import LATEST_METADATA_VERSION, METADATA_CHANGES_AT, OLDEST_METADATA_VERSION

_UNSUPPORTED = FeatureRange(0, 0)
SUPPORTED_FEATURES: Mapping[str, FeatureRange] = {
    METADATA_VERSION: FeatureRange(OLDEST_METADATA_VERSION, LATEST_METADATA_VERSION),
    ELR_VERSION: FeatureRange(0, 1),
}
"""The features that a controller supports by itself; its process may add its brokers' features."""


class UpgradeType(enum.Enum):
    """The permitted changes of a level (``FeatureUpdate.UpgradeType``)."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature's new level; 0 disables it."""

    name: str
    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


def update_features(
    view: ClusterView,
    updates: Sequence[FeatureUpdate],
    voters: Collection[int],
    supported: Mapping[str, FeatureRange] = SUPPORTED_FEATURES,
    *,
    validate_only: bool = False,
) -> Decision[None]:
    """Change levels of features, all records in one batch.

    Args:
        view: of the cluster.
        updates: in the request's order.
        voters: the quorum's, which must all have registered.
        supported: the levels that this controller supports.
        validate_only: check, and change nothing.

    Raises:
        TidegaugeError: INVALID_UPDATE_VERSION, with the sentence of the first update that is refused.
    """
    records: list[MetadataRecord] = []
    for update in updates:
        _check(view, update, voters, supported)
        if update.name == METADATA_VERSION:
            _check_metadata_version(view, update)
        records.append(made(FeatureLevelRecord(update.name, update.level)))
        if update.name == ELR_VERSION and update.level > 0 and not view.image.elr_enabled:
            records = [*_settings_for_elr(view), *records]
    return Decision([] if validate_only else records, None, atomic=True)


def update_failed(sentence: str) -> str:
    """Return the message of a whole UpdateFeatures response from version 2 on."""
    return f"The update failed for all features since the following feature had an error: {sentence}"


def _refused(update: FeatureUpdate, why: str) -> TidegaugeError:
    return TidegaugeError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.name}. {why}",
    )


def _check(
    view: ClusterView, update: FeatureUpdate, voters: Collection[int], supported: Mapping[str, FeatureRange]
) -> None:
    """Check an update as Kafka does, in its order (FeatureControlManager.updateFeature).

    Dependencies between features need no check: each supported level of metadata.version meets them.
    """
    if update.upgrade_type is UpgradeType.UNKNOWN:
        raise _refused(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _refused(update, "A feature version cannot be less than 0.")
    for node, levels in _supporting(view, update.name, supported):
        if update.level not in levels:
            what = "does not support this feature." if levels.last == 0 else f"only supports versions {levels}"
            raise _refused(update, f"{node} {what}")
    for voter in sorted(voters):
        if voter != view.settings.node_id and voter not in view.image.controllers:
            raise _refused(update, f"controller {voter} has not registered, and may not support this feature")
    current = view.metadata_version
    if update.name != METADATA_VERSION:
        current = view.image.features.get(update.name, 0)
    if update.level < current and update.upgrade_type is UpgradeType.UPGRADE:
        raise _refused(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if update.level > current and update.upgrade_type is not UpgradeType.UPGRADE:
        raise _refused(update, "Can't downgrade to a newer version.")
    if update.name not in supported:
        raise _refused(update, f"Feature {update.name} not found.")


def _supporting(
    view: ClusterView, name: str, supported: Mapping[str, FeatureRange]
) -> Iterator[tuple[str, FeatureRange]]:
    """Yield the nodes that must support a feature's level, with the levels that they do."""
    yield f"Local controller {view.settings.node_id}", supported.get(name, _UNSUPPORTED)
    for broker in view.image.brokers.values():
        yield f"Broker {broker.broker_id}", broker.features.get(name, _UNSUPPORTED)
    for controller in view.image.controllers.values():
        if controller.controller_id != view.settings.node_id:
            yield f"Controller {controller.controller_id}", controller.features.get(name, _UNSUPPORTED)


def _check_metadata_version(view: ClusterView, update: FeatureUpdate) -> None:
    current = view.metadata_version
    if not any(update.level < level <= current for level in METADATA_CHANGES_AT):
        return
    if update.upgrade_type is UpgradeType.UNSAFE_DOWNGRADE:
        why = "Unsafe metadata downgrade is not supported in this version."
    else:
        why = "Refusing to perform the requested downgrade because it might delete metadata information."
    raise TidegaugeError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Unsupported metadata.version downgrade from {current} to {update.level}. {why}",
    )


def _settings_for_elr(view: ClusterView) -> Iterator[MetadataRecord]:
    """Yield the settings that eligible leader replicas need: a cluster-wide min.insync.replicas, none of a broker."""
    if MIN_INSYNC_REPLICAS not in view.image.config(BROKER, CLUSTER_DEFAULT):
        value = str(view.settings.min_insync_replicas)
        yield made(ConfigRecord(BROKER, CLUSTER_DEFAULT, MIN_INSYNC_REPLICAS, value))
    for (kind, name), settings in view.image.configs.items():
        if kind == BROKER and name != CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS in settings:
            yield made(ConfigRecord(BROKER, name, MIN_INSYNC_REPLICAS, None))
