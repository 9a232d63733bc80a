"""Changes of settings: of topics, brokers, the cluster's default, and of other resources.

Kafka writes a record for each key that changes, and for brokers also for keys that do not: they reload what a file
behind the setting has (KAFKA-14136). A change of min.insync.replicas clears the eligible leader replicas that were
chosen under the old value.
Source: ``ConfigurationControlManager``, ``ControllerConfigurationValidator``; KIP-339, KIP-966.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.clear_elr_record import ClearElrRecord
from tidegauge.kafka.metadata_records.config_record import ConfigRecord
from tidegauge.partition import topic_name_problem
from tidegauge.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    ListChange,
    check_group_configs,
)
from tidegauge.settings.kraft_topic import parse_kraft_topic_settings
from tidegauge.settings.model import Setting
from tidegauge_controller.metadata.decisions.topic_checks import check_record_count
from tidegauge_controller.metadata.decisions.view import MIN_INSYNC_REPLICAS, ClusterView, Decision
from tidegauge_controller.metadata.image import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    CLUSTER_DEFAULT,
    GROUP,
    TOPIC,
    ConfigResource,
)
from tidegauge_controller.metadata.records import made
from tidegauge_controller.metadata.versions import supports_cordoned_directories

MAX_VALUE_LENGTH = 32_767
CORDONED_LOG_DIRS = "cordoned.log.dirs"


class Operation(enum.Enum):
    """The kind of a key's alteration (``AlterConfigOp.OpType``)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """The alteration of one key; DELETE ignores ``value``."""

    operation: Operation
    value: str | None = None


ConfigResults = dict[ConfigResource, TidegaugeError | None]
"""The outcome by resource: the error, or None."""


def alter_configs(
    view: ClusterView,
    wanted: Mapping[ConfigResource, Mapping[str, Alteration]],
    *,
    validate_only: bool = False,
) -> Decision[ConfigResults]:
    """Alter some keys of resources; a resource that is refused leaves the others (IncrementalAlterConfigs).

    Raises:
        TidegaugeError: POLICY_VIOLATION, that takes too many records.
    """
    changes: dict[ConfigResource, Mapping[str, str | None]] = {}
    results: ConfigResults = {}
    for resource, keys in wanted.items():
        try:
            changes[resource] = _altered(view, resource, keys)
        except TidegaugeError as problem:
            results[resource] = problem.with_traceback(None)  # thousands of frames would be kept with it
    return _decided(view, wanted, changes, {}, results, validate_only=validate_only)


def replace_configs(
    view: ClusterView,
    wanted: Mapping[ConfigResource, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
) -> Decision[ConfigResults]:
    """Replace all settings of resources (AlterConfigs); keys that are absent are deleted.

    Raises:
        TidegaugeError: POLICY_VIOLATION, that takes too many records.
    """
    changes: dict[ConfigResource, Mapping[str, str | None]] = {}
    deleted: dict[ConfigResource, list[str]] = {}
    for resource, settings in wanted.items():
        changes[resource] = settings
        deleted[resource] = [key for key in view.image.config(*resource) if key not in settings]
    return _decided(view, wanted, changes, deleted, {}, validate_only=validate_only)


def _decided(
    view: ClusterView,
    wanted: Iterable[ConfigResource],
    changes: Mapping[ConfigResource, Mapping[str, str | None]],
    deleted: Mapping[ConfigResource, list[str]],
    problems: ConfigResults,
    *,
    validate_only: bool,
) -> Decision[ConfigResults]:
    records: list[MetadataRecord] = []
    results: ConfigResults = {}
    for resource in wanted:
        results[resource] = problems.get(resource)
        if resource not in changes:
            continue
        current = view.image.config(*resource)
        altered = {
            key: value
            for key, value in changes[resource].items()
            if current.get(key) != value or resource.kind == BROKER
        }
        altered.update(dict.fromkeys(deleted.get(resource, ())))
        try:
            _check(view, resource, altered)
        except TidegaugeError as problem:
            results[resource] = problem.with_traceback(None)  # thousands of frames would be kept with it
            continue
        records += _records(view, resource, altered)
        check_record_count(records)
    return Decision([] if validate_only else records, results, atomic=True)


def new_topic_records(view: ClusterView, topic: str, configs: Mapping[str, str]) -> list[MetadataRecord]:
    """Return the records of a new topic's settings, which were checked."""
    return _records(view, ConfigResource(TOPIC, topic), configs)


def _records(view: ClusterView, resource: ConfigResource, altered: Mapping[str, str | None]) -> list[MetadataRecord]:
    records = [made(ConfigRecord(*resource, key, value)) for key, value in altered.items()]
    if MIN_INSYNC_REPLICAS in altered and view.image.elr_enabled and resource.kind in {TOPIC, BROKER}:
        records.append(made(ClearElrRecord(resource.name if resource.kind == TOPIC else "")))
    return records


def _altered(view: ClusterView, resource: ConfigResource, keys: Mapping[str, Alteration]) -> dict[str, str | None]:
    """Return the new value of each key; None deletes it."""
    current = view.image.config(*resource)
    new: dict[str, str | None] = {}
    for key, (operation, value) in keys.items():
        if operation is Operation.DELETE:
            new[key] = None
        elif operation is Operation.SET:
            new[key] = value
        else:
            setting = _setting(resource, key)
            if setting is None or setting.kind != "list":
                raise TidegaugeError(
                    ErrorCode.INVALID_CONFIG,
                    f"Can't {operation.name} to key {key} because its type is not LIST.",
                )
            inherited = setting.text_of(setting.default) if setting.default is not None else ""
            parts = tuple((value or "").split(","))
            change = ListChange(parts, operation is Operation.APPEND, inherited)
            new[key] = change.of(current.get(key))
    return new


def _setting(resource: ConfigResource, key: str) -> Setting | None:
    if resource.kind == TOPIC:
        return TOPIC_SETTINGS.get(key)
    return BROKER_SETTINGS.get(key) if resource.kind == BROKER else None


def _check(view: ClusterView, resource: ConfigResource, altered: Mapping[str, str | None]) -> None:
    """Check a change of a resource.

    Raises:
        TidegaugeError: with Kafka's sentence.
    """
    settings = {**view.image.config(*resource), **altered}
    for key, value in settings.items():
        if value is not None and len(value) > MAX_VALUE_LENGTH:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_VALUE_LENGTH} bytes.",
            )
        if key == CORDONED_LOG_DIRS and value is not None and not supports_cordoned_directories(view.metadata_version):
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"The {CORDONED_LOG_DIRS} configuration value cannot be set because it requires metadata.version >= "
                "4.3-IV0",
            )
    kept = {key: value for key, value in settings.items() if value is not None}
    _check_kind(view, resource, kept)
    _check_min_isr(view, resource, altered)


def _check_kind(view: ClusterView, resource: ConfigResource, settings: Mapping[str, str]) -> None:
    if resource.kind == TOPIC:
        _check_topic_name(resource.name)
        parse_kraft_topic_settings(settings)
        if resource.name not in view.image.topic_ids:
            raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    elif resource.kind == BROKER:
        if resource.name == CLUSTER_DEFAULT:
            return
        if not resource.name.isascii() or not resource.name.isdecimal():
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
        node_id = int(resource.name)
        if node_id not in view.image.brokers and node_id not in view.image.controllers:
            raise TidegaugeError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")
    elif resource.kind == GROUP:
        if not resource.name:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        check_group_configs(settings, view.settings.of_groups)
    elif resource.kind in {BROKER_LOGGER, CLIENT_METRICS}:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"Settings of resources of type {resource.kind} are not kept by this controller",
        )
    else:
        raise TidegaugeError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {resource.kind}.")


def _check_topic_name(name: str) -> None:
    """Refuse a name that no topic can have, before anything is said of its settings."""
    if not name:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    problem = topic_name_problem(name)
    if problem is not None:
        raise TidegaugeError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _check_min_isr(view: ClusterView, resource: ConfigResource, altered: Mapping[str, str | None]) -> None:
    """Keep min.insync.replicas where the controller sees it while ELRs depend on it."""
    if resource.kind != BROKER or MIN_INSYNC_REPLICAS not in altered or not view.image.elr_enabled:
        return
    if resource.name != CLUSTER_DEFAULT:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        )
    if altered[MIN_INSYNC_REPLICAS] is None:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        )
