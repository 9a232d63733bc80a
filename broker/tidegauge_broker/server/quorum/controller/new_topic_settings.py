"""The settings in force of a new topic, as the response to CreateTopics has them (KIP-525).

They are the topic's own over the cluster's dynamic ones and Kafka 4's defaults.
Source: ``KafkaConfigSchema.resolveEffectiveTopicConfigs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegauge.kafka.kraft.messages.create_topics import CreatableTopicConfigs
from tidegauge.settings import KRAFT_BROKER_SETTINGS, Values
from tidegauge.settings.dynamic import (
    DEFAULT,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT,
    DYNAMIC_TOPIC,
    STATIC,
    BrokerSettings,
)
from tidegauge.settings.topic import REMOVED_IN_KAFKA_4
from tidegauge_broker.server.quorum.controller.quorum_controller import QuorumController
from tidegauge_controller.metadata.image import BROKER, CLUSTER_DEFAULT

_SOURCES = {DYNAMIC_TOPIC: 1, DYNAMIC_BROKER: 2, DYNAMIC_DEFAULT: 3, STATIC: 4, DEFAULT: 5}
"""Numbers of ``DescribeConfigsResponse.ConfigSource``."""
Configs = Sequence[CreatableTopicConfigs]


class NewTopicSettings:
    """The settings in force of a new topic. Without settings of its own they are kept until the cluster's change.

    Args:
        controller: has the cluster's settings.
    """

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller
        self._known: tuple[Mapping[str, str], Mapping[str, str]] | None = None
        self._plain: Configs = ()

    def of(self, own: Mapping[str, str]) -> Configs:
        """Return the settings of a topic with these of its own."""
        image = self._controller.image
        of_cluster = image.config(BROKER, CLUSTER_DEFAULT)
        of_node = image.config(BROKER, str(self._controller.settings.node_id))
        if own:
            return _in_force(of_cluster, of_node, own)
        if self._known != (of_cluster, of_node):
            self._known = of_cluster, of_node
            self._plain = _in_force(of_cluster, of_node, {})
        return self._plain


def _in_force(of_cluster: Mapping[str, str], of_node: Mapping[str, str], own: Mapping[str, str]) -> Configs:
    settings = BrokerSettings(Values(KRAFT_BROKER_SETTINGS, {}))
    settings.replace(default=of_cluster, own=of_node)
    return [
        CreatableTopicConfigs(
            one.name,
            one.value,
            one.is_read_only,
            _SOURCES[one.source],
        )
        for one in settings.topic_views(own)
        if one.name not in REMOVED_IN_KAFKA_4
    ]
