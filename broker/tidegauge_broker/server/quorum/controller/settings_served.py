"""Changes of settings, features, client quotas and SCRAM credentials at the controller.

Source: ``ControllerApis.handleIncrementalAlterConfigs``, ``handleLegacyAlterConfigs``, ``handleUpdateFeatures``,
``handleAlterClientQuotas``, ``handleAlterUserScramCredentials``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from tidegauge.cluster_metadata.access_lists import Operation, ResourceType
from tidegauge.cluster_metadata.credentials import Deletion, Upsertion
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.features import KRAFT_VERSION
from tidegauge.kafka.kraft.messages import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    incremental_alter_configs,
    update_features,
)
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.controller.authorization import Authorization
from tidegauge_broker.server.quorum.controller.events import WriteEvent
from tidegauge_broker.server.quorum.controller.features import FEATURE_RANGES, FINALIZED_HERE
from tidegauge_broker.server.quorum.controller.large_requests import prepared
from tidegauge_broker.server.quorum.controller.quorum_controller import QuorumController
from tidegauge_broker.server.quorum.controller.topics_served import text_of
from tidegauge_broker.server.wire.kafka.error_forms import BY_RESOURCE, Form, Part, same
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions import client_quotas, configs, credentials, features
from tidegauge_controller.metadata.decisions.view import Decision
from tidegauge_controller.metadata.image import TOPIC, ConfigResource

_QUOTAS = Form((Part("entries", "entries", {}, Part("entity", "entity", same("entity_type", "entity_name"))),))
_CREDENTIALS = Form((Part("results", "deletions", {"user": "name"}), Part("results", "upsertions", {"user": "name"})))
_WITHOUT_RESULTS = 2
"""The version of UpdateFeatures from which one error stands for all features."""
_WITH_TYPES = 1
"""The version of UpdateFeatures from which updates have types."""


def served(controller: QuorumController, authorization: Authorization) -> list[Served]:
    """Return the APIs."""
    return [
        Served(
            apis.INCREMENTAL_ALTER_CONFIGS,
            prepared(controller, partial(_alter_configs, authorization)),
            BY_RESOURCE,
            is_forwarded=True,
        ),
        Served(
            apis.ALTER_CONFIGS,
            prepared(controller, partial(_replace_configs, authorization)),
            BY_RESOURCE,
            is_forwarded=True,
        ),
        Served(apis.UPDATE_FEATURES, partial(_update_features, controller), is_forwarded=True),
        Served(apis.ALTER_CLIENT_QUOTAS, prepared(controller, _alter_quotas), _QUOTAS, is_forwarded=True),
        Served(apis.ALTER_USER_SCRAM_CREDENTIALS, prepared(controller, _alter_credentials), _CREDENTIALS, True),
    ]


# --- settings


def _refused(
    resources: Sequence[Any], authorization: Authorization, call: Call
) -> dict[ConfigResource, TidegaugeError]:
    """Return the resources that a request repeats or may not alter."""
    named = Counter(ConfigResource(one.resource_type, one.resource_name) for one in resources)
    refused: dict[ConfigResource, TidegaugeError] = {}
    for one in resources:
        resource = ConfigResource(one.resource_type, one.resource_name)
        if named[resource] > 1:
            refused[resource] = _invalid("Each resource must appear at most once.")
        elif len({config.name for config in one.configs}) < len(one.configs):
            refused[resource] = _invalid("Error due to duplicate config keys")
        elif not _may_alter(resource, authorization, call):
            is_topic = resource.kind == TOPIC
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_topic else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            refused[resource] = TidegaugeError(code)
    return refused


def _may_alter(resource: ConfigResource, authorization: Authorization, call: Call) -> bool:
    if resource.kind == TOPIC:
        return authorization.allows(call, Operation.ALTER_CONFIGS, ResourceType.TOPIC, resource.name)
    return authorization.allows_cluster(call, Operation.ALTER_CONFIGS)


def _invalid(text: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_REQUEST, text)


def _alter_configs(authorization: Authorization, call: Call) -> WriteEvent:
    message: incremental_alter_configs.IncrementalAlterConfigsRequest = call.message
    refused = _refused(message.resources, authorization, call)
    known = {one.value for one in configs.Operation}
    wanted: dict[ConfigResource, dict[str, configs.Alteration]] = {}
    for one in message.resources:
        resource = ConfigResource(one.resource_type, one.resource_name)
        unknown = [config.config_operation for config in one.configs if config.config_operation not in known]
        if unknown:
            refused.setdefault(resource, _invalid(f"Unknown config operation {unknown[0]}"))
        if resource not in refused:
            wanted[resource] = {
                config.name: configs.Alteration(configs.Operation(config.config_operation), config.value)
                for config in one.configs
            }

    def decide(active: ActiveController, _: int) -> Decision[configs.ConfigResults]:
        return configs.alter_configs(active.view, wanted, validate_only=message.validate_only)

    def done(results: configs.ConfigResults) -> None:
        response = incremental_alter_configs.AlterConfigsResourceResponse
        found = [response(*one) for one in _config_results(message.resources, refused | results)]
        call.respond(incremental_alter_configs.IncrementalAlterConfigsResponse(responses=found))

    return WriteEvent("incrementalAlterConfigs", decide, done, call.refuse, partitions=None)


def _replace_configs(authorization: Authorization, call: Call) -> WriteEvent:
    message: alter_configs.AlterConfigsRequest = call.message
    refused = _refused(message.resources, authorization, call)
    wanted: dict[ConfigResource, dict[str, str | None]] = {}
    for one in message.resources:
        resource = ConfigResource(one.resource_type, one.resource_name)
        if resource not in refused:
            wanted[resource] = {config.name: config.value for config in one.configs}

    def decide(active: ActiveController, _: int) -> Decision[configs.ConfigResults]:
        return configs.replace_configs(active.view, wanted, validate_only=message.validate_only)

    def done(results: configs.ConfigResults) -> None:
        response = alter_configs.AlterConfigsResourceResponse
        found = [response(*one) for one in _config_results(message.resources, refused | results)]
        call.respond(alter_configs.AlterConfigsResponse(responses=found))

    return WriteEvent("legacyAlterConfigs", decide, done, call.refuse, partitions=None)


def _config_results(
    resources: Sequence[Any], results: Mapping[ConfigResource, TidegaugeError | None]
) -> list[tuple[int, str | None, int, str]]:
    """Return error, message, type and name for each resource of a request."""
    found: list[tuple[int, str | None, int, str]] = []
    for one in resources:
        problem = results.get(ConfigResource(one.resource_type, one.resource_name))
        error, text = (ErrorCode.NONE, None) if problem is None else (problem.code, problem.message)
        found.append((error, text, one.resource_type, one.resource_name))
    return found


# --- features


def _update_features(controller: QuorumController, call: Call) -> None:
    """Change levels; kraft.version rises first, by a control record, if all other updates are possible.

    Of more updates than there are features one of the first is unknown, for which all are refused.
    """
    message: update_features.UpdateFeaturesRequest = call.message
    named = {one.feature: one for one in message.feature_updates}  # the last one of a name counts
    has_types = call.version >= _WITH_TYPES
    updates = [_feature_update(one, has_types=has_types) for one in islice(named.values(), len(FEATURE_RANGES) + 1)]
    of_metadata = [one for one in updates if one.name != KRAFT_VERSION]
    of_quorum = [one for one in updates if one.name == KRAFT_VERSION]

    def decide(active: ActiveController, *, validate_only: bool) -> Decision[None]:
        for one in of_quorum:
            _check_kraft_version(one, controller.kraft_version)
        voters = controller.voter_ids
        return features.update_features(active.view, of_metadata, voters, FINALIZED_HERE, validate_only=validate_only)

    def done(_: None) -> None:
        results: list[update_features.UpdatableFeatureResult] = []
        if call.version < _WITHOUT_RESULTS:
            results = [update_features.UpdatableFeatureResult(one.name, 0, None) for one in updates]
        call.respond(update_features.UpdateFeaturesResponse(error_message=None, results=results))

    def failed(error: ErrorCode, text: str) -> None:
        is_refused = error is ErrorCode.INVALID_UPDATE_VERSION
        call.refuse(error, features.update_failed(text) if is_refused else text)

    def write() -> None:
        def decided(active: ActiveController, _: int) -> Decision[None]:
            return decide(active, validate_only=message.validate_only)

        controller.write(WriteEvent("updateFeatures", decided, done, failed, partitions=None))

    rising = [one.level for one in of_quorum if one.level > controller.kraft_version]
    if not rising or message.validate_only:
        write()
        return
    controller.write(
        WriteEvent(
            "updateFeatures",
            lambda active, _: decide(active, validate_only=True),
            lambda _: controller.upgrade_kraft_version(max(rising), write, failed),
            failed,
        )
    )


def _feature_update(one: update_features.FeatureUpdateKey, *, has_types: bool) -> features.FeatureUpdate:
    kind = features.UpgradeType.UNKNOWN
    if not has_types:
        kind = features.UpgradeType.SAFE_DOWNGRADE if one.allow_downgrade else features.UpgradeType.UPGRADE
    elif one.upgrade_type in {known.value for known in features.UpgradeType}:
        kind = features.UpgradeType(one.upgrade_type)
    return features.FeatureUpdate(one.feature, one.max_version_level, kind)


def _check_kraft_version(update: features.FeatureUpdate, current: int) -> None:
    """Check an update of kraft.version, which never falls (LeaderState.maybeAppendUpgradedKRaftVersion)."""
    prefix = f"Invalid update version {update.level} for feature {KRAFT_VERSION}."
    levels = FEATURE_RANGES[KRAFT_VERSION]
    if update.level not in levels:
        raise TidegaugeError(
            ErrorCode.INVALID_UPDATE_VERSION, f"{prefix} This controller only supports versions {levels}"
        )
    if update.level < current:
        raise TidegaugeError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{prefix} Can't downgrade the version of this feature: {current} is final",
        )


# --- quotas and credentials


def _alter_quotas(call: Call) -> WriteEvent:
    message: alter_client_quotas.AlterClientQuotasRequest = call.message
    wanted = [
        client_quotas.QuotaAlteration(
            [(part.entity_type, part.entity_name) for part in entry.entity],
            [(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in message.entries
    ]

    def decide(active: ActiveController, _: int) -> Decision[list[TidegaugeError | None]]:
        return client_quotas.alter_client_quotas(active.view, wanted, validate_only=message.validate_only)

    def done(results: Sequence[TidegaugeError | None]) -> None:
        entries = [
            alter_client_quotas.ResponseEntryData(*_error_of(problem), entry.entity)
            for entry, problem in zip(message.entries, results, strict=True)
        ]
        call.respond(alter_client_quotas.AlterClientQuotasResponse(entries=entries))

    return WriteEvent("alterClientQuotas", decide, done, call.refuse)


def _error_of(problem: TidegaugeError | None) -> tuple[ErrorCode, str | None]:
    return (ErrorCode.NONE, None) if problem is None else (problem.code, text_of(problem.code, problem.message))


def _alter_credentials(call: Call) -> WriteEvent:
    message: alter_user_scram_credentials.AlterUserScramCredentialsRequest = call.message
    deletions = [Deletion(one.name, one.mechanism) for one in message.deletions]
    upsertions = [
        Upsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
        for one in message.upsertions
    ]

    def decide(active: ActiveController, _: int) -> Decision[dict[str, TidegaugeError | None]]:
        return credentials.alter_credentials(active.view, deletions, upsertions)

    def done(results: Mapping[str, TidegaugeError | None]) -> None:
        found = [
            alter_user_scram_credentials.AlterUserScramCredentialsResult(user, *_error_of(problem))
            for user, problem in results.items()
        ]
        call.respond(alter_user_scram_credentials.AlterUserScramCredentialsResponse(results=found))

    return WriteEvent("alterUserScramCredentials", decide, done, call.refuse)
