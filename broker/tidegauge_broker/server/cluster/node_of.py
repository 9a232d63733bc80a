"""A broker in KRaft mode by its settings: a quorum node's settings, and a broker's own, out of one file. Pure.

Source: ``KafkaConfig.validateValues`` for ``process.roles=broker``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.listeners import GRPC, parse_listeners
from tidegauge.settings import BROKER_SETTINGS
from tidegauge.settings.quorum import CONTROLLER_SETTINGS
from tidegauge_broker.server.quorum.node_settings import NodeSettings, read_node_settings

ROLES = "process.roles"
_INTER_BROKER = ("inter.broker.listener.name", "security.inter.broker.protocol")
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_AUTHORIZER = "authorizer.class.name"


def is_kraft(texts: Mapping[str, str]) -> bool:
    """Whether the settings belong to a node of a KRaft cluster: they give it roles."""
    return bool(texts.get(ROLES, "").strip())


def kraft_node(texts: Mapping[str, str], host_name: str) -> NodeSettings:
    """Return the node that settings with ``process.roles=broker``, or both roles, describe.

    Args:
        texts: the settings as texts, by name.
        host_name: this machine's name.

    Raises:
        TidegaugeError: INVALID_CONFIG, a value is illegal or missing, or two contradict each other.
    """
    node = read_node_settings(texts, host_name)
    if "broker" not in node.values["process.roles"]:
        roles = ",".join(node.values["process.roles"])
        raise _refusal(f"process.roles is {roles}; this verb runs a process with process.roles=broker")
    if node.is_controller:
        return node
    controllers = {name.upper() for name in node.values["controller.listener.names"]}
    named = parse_listeners(texts.get("listeners") or "PLAINTEXT://127.0.0.1:9092", "listeners")
    if any(one.name in controllers for one in named):
        raise _refusal(
            "controller.listener.names must not contain a value appearing in the 'listeners' configuration when "
            "running KRaft with just the broker role"
        )
    if node.node_id in node.static_voters.voters:
        raise _refusal(
            f"If process.roles contains just the 'broker' role, the node id {node.node_id} must not be included in the "
            f"set of voters controller.quorum.voters={node.static_voters.ids}"
        )
    return node


def as_broker(texts: Mapping[str, str], node: NodeSettings) -> dict[str, str]:
    """Return a broker's own settings in a node's settings.

    Its id is the node's. Without another word brokers speak Kafka's protocol among themselves, as Kafka's do: a cluster
    may have brokers of both kinds.
    """
    found = {name: text for name, text in texts.items() if name in BROKER_SETTINGS or name not in CONTROLLER_SETTINGS}
    found["broker.id"] = str(node.node_id)
    if node.is_controller:
        controllers = {one.upper() for one in node.values["controller.listener.names"]}
        for name in ("listeners", "advertised.listeners"):
            if texts.get(name):
                found[name] = ",".join(
                    str(one) for one in parse_listeners(texts[name], name) if one.name not in controllers
                )
    found["log.dirs"] = texts.get("log.dirs") or node.values.text("log.dir")
    if not any(texts.get(name) for name in _INTER_BROKER):
        listeners = parse_listeners(found.get("listeners") or "PLAINTEXT://127.0.0.1:9092", "listeners")
        of_kafka = [one.name for one in listeners if not one.name.startswith(GRPC)]
        if of_kafka:
            found["inter.broker.listener.name"] = of_kafka[0]
    return with_own_authorizer(found)


def with_own_authorizer(texts: Mapping[str, str]) -> dict[str, str]:
    """Return settings with KRaft's authorizer renamed to the broker's own, equal one."""
    found = dict(texts)
    if found.get(_AUTHORIZER) == STANDARD_AUTHORIZER:
        found[_AUTHORIZER] = "kafka.security.authorizer.AclAuthorizer"
    return found


def _refusal(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, sentence)
