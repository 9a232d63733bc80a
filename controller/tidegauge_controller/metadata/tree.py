"""An image as a tree of names and texts, as kafka-metadata-shell of Kafka 4.3.1 shows it below ``/image``.

Secrets are never shown: the keys of SCRAM credentials, and values of settings that the caller calls sensitive.
Source: ``org.apache.kafka.image.node`` (``MetadataImageNode`` and its children); leaves have the texts of
``BrokerRegistration``, ``ControllerRegistration``, ``PartitionRegistration`` and ``StandardAcl`` (``toString``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from tidegauge.cluster_metadata.access_lists import Binding
from tidegauge.kafka.kraft.features import LEVELS
from tidegauge_controller.metadata import image as images
from tidegauge_controller.metadata.image import (
    ConfigResource,
    FeatureRange,
    MetadataImage,
    NodeEndpoint,
    PartitionRegistration,
    QuotaKey,
    RegisteredBroker,
    RegisteredController,
    TopicImage,
)

Tree = Mapping[str, "Tree | str"]
"""Directories by name, and leaves with their texts."""
REDACTED = "[redacted]"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_KINDS = {
    images.TOPIC: "TOPIC",
    images.BROKER: "BROKER",
    images.BROKER_LOGGER: "BROKER_LOGGER",
    images.CLIENT_METRICS: "CLIENT_METRICS",
    images.GROUP: "GROUP",
}
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_QUOTA_TYPES = (("client-id", "clientId"), ("ip", "ip"), ("user", "user"))


def tree_of(image: MetadataImage, is_sensitive: Callable[[str], bool]) -> Tree:
    """Return the tree of an image.

    Args:
        image: the image.
        is_sensitive: whether the value of a setting, by its name, is not to be shown.
    """
    return {
        "provenance": _provenance(image),
        "features": _features(image),
        "cluster": {
            "brokers": {str(one): _broker(broker) for one, broker in image.brokers.items()},
            "controllers": {str(one): _controller(controller) for one, controller in image.controllers.items()},
        },
        "topics": {
            "byName": {name: _topic(image.topics[topic_id]) for name, topic_id in image.topic_ids.items()},
            "byId": {topic_id: _topic(topic) for topic_id, topic in image.topics.items()},
        },
        "configs": {_resource(one): _settings(pairs, is_sensitive) for one, pairs in image.configs.items()},
        "clientQuotas": {
            _entity(key): {name: repr(value) for name, value in sorted(limits.items())}
            for key, limits in image.quotas.items()
        },
        "producerIds": {"nextProducerId": str(image.next_producer_id)} if image.next_producer_id else {},
        "acls": {"byId": {entry_id: _access(binding) for entry_id, binding in image.access_lists.items()}},
        "scram": _credentials(image),
        "delegationToken": {},
    }


def below(tree: Tree, path: str) -> Tree | str | None:
    """Return the directory or leaf at a path (``/``: the tree), or None."""
    found: Tree | str = tree
    for name in _names(path):
        if isinstance(found, str) or name not in found:
            return None
        found = found[name]
    return found


def leaves(tree: Tree | str, path: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield each node below a tree with its path, directories before their children; a directory's text is None."""
    if isinstance(tree, str):
        yield path, tree
        return
    for name, child in tree.items():
        at = f"{path}/{name}"
        if isinstance(child, str):
            yield at, child
        else:
            yield at, None
            yield from leaves(child, at)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _provenance(image: MetadataImage) -> str:
    at = image.provenance
    time = datetime.fromtimestamp(at.timestamp_ms / 1000, UTC)
    return (
        f"offset {at.offset}, epoch {at.epoch}, time {time.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"
    )


def _features(image: MetadataImage) -> Tree:
    level = image.metadata_version
    version = "Optional.empty" if level is None else f"Optional[{LEVELS.get(level, level)}]"
    return {"metadataVersion": version} | {
        f"finalized_{name}": str(level) for name, level in sorted(image.features.items())
    }


def _list(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _endpoints(endpoints: Sequence[NodeEndpoint]) -> str:
    return _list(
        f"Endpoint(listenerName='{one.name}', securityProtocol={_protocol(one.security_protocol)}, "
        f"host='{one.host}', port={one.port})"
        for one in sorted(endpoints)
    )


def _protocol(number: int) -> str:
    return _PROTOCOLS[number] if 0 <= number < len(_PROTOCOLS) else str(number)


def _ranges(features: Mapping[str, FeatureRange]) -> str:
    return f"{{{', '.join(f'{name}: {levels}' for name, levels in sorted(features.items()))}}}"


def _broker(one: RegisteredBroker) -> str:
    rack = "Optional.empty" if one.rack is None else f"Optional[{one.rack}]"
    cordoned = "null" if one.cordoned_log_dirs is None else _list(one.cordoned_log_dirs)
    return (
        f"BrokerRegistration(id={one.broker_id}, epoch={one.epoch}, incarnationId={one.incarnation_id}, "
        f"listeners={_endpoints(one.endpoints)}, supportedFeatures={_ranges(one.features)}, rack={rack}, "
        f"fenced={_flag(one.fenced)}, inControlledShutdown={_flag(one.in_controlled_shutdown)}, "
        f"isMigratingZkBroker={_flag(one.is_migrating_zk_broker)}, directories={_list(one.log_dirs)}, "
        f"cordonedDirectories={cordoned})"
    )


def _controller(one: RegisteredController) -> str:
    return (
        f"ControllerRegistration(id={one.controller_id}, incarnationId={one.incarnation_id}, "
        f"zkMigrationReady={_flag(one.zk_migration_ready)}, listeners={_endpoints(one.endpoints)}, "
        f"supportedFeatures={_ranges(one.features)})"
    )


def _topic(topic: TopicImage) -> Tree:
    partitions = {str(number): _partition(state) for number, state in topic.partitions.items()}
    return {"name": topic.name, "id": topic.topic_id, **partitions}


def _partition(state: PartitionRegistration) -> str:
    return (
        f"PartitionRegistration(replicas={_list(state.replicas)}, directories={_list(state.directories)}, "
        f"isr={_list(state.isr)}, removingReplicas={_list(state.removing)}, addingReplicas={_list(state.adding)}, "
        f"elr={_list(state.elr)}, lastKnownElr={_list(state.last_known_elr)}, leader={state.leader}, "
        f"leaderRecoveryState={'RECOVERING' if state.recovering else 'RECOVERED'}, leaderEpoch={state.leader_epoch}, "
        f"partitionEpoch={state.partition_epoch})"
    )


def _resource(resource: ConfigResource) -> str:
    kind = _KINDS.get(resource.kind, str(resource.kind))
    return f"{kind}:{resource.name}" if resource.name else kind


def _settings(pairs: Mapping[str, str], is_sensitive: Callable[[str], bool]) -> Tree:
    return {name: REDACTED if is_sensitive(name) else text for name, text in sorted(pairs.items())}


def _entity(key: QuotaKey) -> str:
    names = {kind: name for kind, _, name in key}
    parts = [f"{label}({_escaped(names[kind])})" for kind, label in _QUOTA_TYPES if kind in names]
    return "_".join(parts)


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _access(binding: Binding) -> str:
    pattern, entry = binding.pattern, binding.entry
    return (
        f"StandardAcl[resourceType={pattern.kind.name}, resourceName={pattern.name}, "
        f"patternType={pattern.pattern_type.name}, principal={entry.principal}, host={entry.host}, "
        f"operation={entry.operation.name}, permissionType={entry.permission.name}]"
    )


def _credentials(image: MetadataImage) -> Tree:
    found: dict[str, dict[str, str]] = {}
    for key, credential in image.credentials.items():
        hidden = f"salt={REDACTED}, storedKey={REDACTED}, serverKey={REDACTED}"
        users = found.setdefault(_MECHANISMS.get(key.mechanism, str(key.mechanism)), {})
        users[key.user] = f"ScramCredentialData({hidden}, iterations={credential.iterations})"
    return found
