"""Topics' settings as the cluster keeps them, over the broker's own.

Read at start for all topics, at each notification of a change, and again when the first replica of a topic is opened
(a topic's creation notifies no one); forgotten when the topic is deleted, which notifies no one either. An unreadable
or unknown setting is logged and left out: a broker must not fail because of what another program wrote.
Source: ZkConfigManager, TopicConfigHandler.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from tidegauge.cluster_metadata import MalformedMetadata
from tidegauge.settings import Values, topic_values, usable_topic_settings

LOG = logging.getLogger("tidegauge.configs")


class TopicConfigs:
    """Reads topics' settings and remembers them.

    Args:
        read: returns an entity's own settings (``SettingsStore.read``).
        topics: returns the topics that have settings.
        broker: the broker's settings, changed in place.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[Mapping[str, str]]],
        topics: Callable[[], Awaitable[Collection[str]]],
        broker: Values,
    ) -> None:
        self._read = read
        self._topics = topics
        self._broker = broker
        self._own: dict[str, dict[str, str]] = {}
        self._known: dict[str, Values] = {}

    async def read_all(self) -> None:
        """Read the settings of all topics; forget topics without any: they were deleted without this broker."""
        there = await self._topics()
        for topic in self._own.keys() - set(there):
            self.forget(topic)
        for topic in there:
            await self.read_values(topic)

    def forget(self, topic: str) -> None:
        """Drop the settings of a topic that was deleted: one that is created again begins with its own."""
        self._own.pop(topic, None)
        self._known.pop(topic, None)

    async def read(self, topic: str) -> dict[str, str]:
        """Return a topic's own legal settings, as text."""
        try:
            texts = await self._read(f"topics/{topic}")
        except MalformedMetadata as problem:
            LOG.warning("The settings of topic %s are unreadable: %s", topic, problem)
            return {}
        usable, left_out = usable_topic_settings(texts)
        for why in left_out:
            LOG.warning("Topic %s: %s", topic, why)
        return usable

    def values(self, own: Mapping[str, str]) -> Values:
        """Return a topic's settings over the broker's."""
        return topic_values(own, self._broker)

    async def read_values(self, topic: str) -> Values:
        """Read a topic's settings and remember them."""
        self._own[topic] = own = await self.read(topic)
        self._known[topic] = values = self.values(own)
        return values

    def known(self, topic: str) -> Values:
        """Return the settings read last, or else the broker's own."""
        return self._known.get(topic) or self.values({})

    def broker_changed(self) -> dict[str, Values]:
        """Apply the broker's changed settings; return all known topics' settings."""
        self._known = {topic: self.values(own) for topic, own in self._own.items()}
        return dict(self._known)
