"""Topics' settings as they stand in ZooKeeper (``/config/topics/T``), over the broker's own.

Read at start for all topics, and again when the first replica of a topic is opened; what an unreadable or unknown
setting holds is told in the log and left out, since a broker must not fail for a znode that someone else wrote.
Source: DynamicConfigManager, TopicConfigHandler (kafka-behaviour 5.6, 7.1).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidegauge.errors import TidegaugeError
from tidegauge.settings import TOPIC_SETTINGS, Values, parse_topic_settings
from tidegauge.znodes import MalformedZnode, decode_config, topic_config_path
from tidegauge_controller.zookeeper import NoNode, ZooKeeper

LOG = logging.getLogger("tidegauge.configs")
_FOLDER = "/config/topics"


class TopicConfigs:
    """Reads topics' settings."""

    def __init__(self, zookeeper: ZooKeeper, broker: Values) -> None:
        self._zookeeper = zookeeper
        self._broker = broker
        self._known: dict[str, Values] = {}

    async def read_all(self) -> None:
        """Read those of all topics."""
        for topic in await self._zookeeper.children(_FOLDER):
            await self.read_values(topic)

    async def read(self, topic: str) -> dict[str, str]:
        """What was set for a topic, as text; only what is legal."""
        try:
            data, _ = await self._zookeeper.get(topic_config_path(topic))
            texts = decode_config(data)
        except NoNode:
            return {}
        except MalformedZnode as problem:
            LOG.warning("The settings of topic %s are unreadable: %s", topic, problem)
            return {}
        return {name: text for name, text in texts.items() if self._is_legal(topic, name, text)}

    @staticmethod
    def _is_legal(topic: str, name: str, text: str) -> bool:
        if name not in TOPIC_SETTINGS:
            LOG.warning("Topic %s has an unknown setting %s", topic, name)
            return False
        try:
            TOPIC_SETTINGS[name].parse(text)
        except TidegaugeError as problem:
            LOG.warning("Topic %s: %s", topic, problem.message)
            return False
        return True

    def values(self, own: Mapping[str, str]) -> Values:
        """A topic's settings over the broker's."""
        return parse_topic_settings(own, self._broker)

    async def read_values(self, topic: str) -> Values:
        """Read a topic's settings and remember them."""
        self._known[topic] = values = self.values(await self.read(topic))
        return values

    def known(self, topic: str) -> Values:
        """What was read last; the broker's own where nothing was."""
        return self._known.get(topic) or self.values({})
