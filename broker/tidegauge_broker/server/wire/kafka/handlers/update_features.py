"""UpdateFeatures (57), versions 0-1: a broker in ZooKeeper mode supports no feature, so each update is refused.

The controller responds, any other broker with NOT_CONTROLLER. A level below 1 deletes a finalized feature, of which
there is none; it must be asked for as a downgrade.
Source: ``KafkaController.processFeatureUpdatesWithActiveController``, KIP-584.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.handlers.common import NOT_CONTROLLER_MESSAGE
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_FIRST_WITH_TYPES = 1


def handle(request: UpdateFeaturesRequest, context: Context) -> UpdateFeaturesResponse:
    """Refuse each."""
    if not context.service.is_controller:
        return UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=NOT_CONTROLLER_MESSAGE)
    results = [
        UpdatableFeatureResult(one.feature, ErrorCode.INVALID_REQUEST, _reason(one, context.version))
        for one in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _reason(update: FeatureUpdateKey, version: int) -> str:
    if not update.feature:
        return "Feature name can not be empty."
    kind = update.upgrade_type
    if version < _FIRST_WITH_TYPES:
        kind = _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
    if kind not in {_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE}:
        return "Received unknown upgrade type."
    if update.max_version_level < 1:
        if kind == _UPGRADE:
            return (
                f"Can not provide versionLevel: {update.max_version_level} less than 1 without setting the SAFE "
                "downgradeType in the request."
            )
        return "Can not delete non-existing finalized feature."
    return "Could not apply finalized feature update because the provided feature is not supported."


API = ServedApi(apis.UPDATE_FEATURES, handle, guard=whole.of_cluster(Operation.ALTER))
