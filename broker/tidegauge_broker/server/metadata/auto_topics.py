"""Creates a topic because a client asked for its metadata (``auto.create.topics.enable``), or an internal topic on its
first use.

The client gets an error all the same and asks again; the controller creates the topic with num.partitions
and default.replication.factor of this broker, or with its own if this broker's are not set, and an internal topic with
settings for it. One attempt at a time for a name, and
``MAX_IN_FLIGHT`` of all names; what a client names beyond ``MAX_WAITING`` it has to name again. (Kafka asks for all
names of a request at once, in one request.)
Source: ``AutoTopicCreationManager``, ``GroupCoordinator.offsetsTopicConfigs``,
``TransactionStateManager.transactionTopicConfigs``, ``ShareCoordinator.shareGroupStateTopicConfigs``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tidegauge.errors import ErrorCode
from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.settings import Values
from tidegauge.share_groups import SHARE_STATE_TOPIC
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_controller.admin import NewTopic

_OFFSETS_CONFIGS = ("cleanup.policy=compact", "compression.type=producer")
_TRANSACTION_CONFIGS = (
    "cleanup.policy=compact",
    "compression.type=uncompressed",
    "unclean.leader.election.enable=false",
)
_SHARE_STATE_CONFIGS = ("cleanup.policy=delete", "retention.ms=-1", "compression.type=producer")
"""Kafka's for these topics alone (GroupMetadataManager, TransactionStateManager, ShareCoordinatorService). As pairs:
they name no settings of this broker."""
LOG = logging.getLogger("tidegauge.auto-topics")
MAX_IN_FLIGHT = 10
"""Maximum number of attempts at a time: a request may name a hundred thousand topics."""
MAX_WAITING = 10_000
"""Maximum number of names that wait for an attempt."""
_MAX_REFUSALS = 1_000
"""Maximum number of names whose refusal is remembered, so that it is logged once."""


def user_topic(name: str, settings: Values) -> NewTopic:
    """Return a user's topic as this broker creates it (DefaultAutoTopicCreationManager).

    Settings that this broker's properties do not have are left to the controller.
    """

    def given(setting: str) -> int | None:
        return None if settings.is_default(setting) else settings.integer(setting)

    return NewTopic(name, given("num.partitions"), given("default.replication.factor"))


def offsets_topic(settings: Values) -> NewTopic:
    """Return __consumer_offsets as a broker with these settings creates it.

    The replication factor is exact: with fewer live brokers the topic is not created. Its min.insync.replicas and
    unclean election are the brokers' defaults.
    """
    return NewTopic(
        name=OFFSETS_TOPIC,
        partition_count=settings.integer("offsets.topic.num.partitions"),
        replication_factor=settings.integer("offsets.topic.replication.factor"),
        configs=_configs(_OFFSETS_CONFIGS) | {"segment.bytes": str(settings.integer("offsets.topic.segment.bytes"))},
    )


def transaction_topic(settings: Values) -> NewTopic:
    """Return __transaction_state by these settings, with the exact replication factor."""
    return NewTopic(
        name=TRANSACTION_TOPIC,
        partition_count=settings.integer("transaction.state.log.num.partitions"),
        replication_factor=settings.integer("transaction.state.log.replication.factor"),
        configs=_configs(_TRANSACTION_CONFIGS)
        | {
            "min.insync.replicas": str(settings.integer("transaction.state.log.min.isr")),
            "segment.bytes": str(settings.integer("transaction.state.log.segment.bytes")),
        },
    )


def share_state_topic(settings: Values) -> NewTopic:
    """Return __share_group_state by these settings, with the exact replication factor.

    It is not compacted: the share coordinator deletes the records that later ones made needless.
    """
    return NewTopic(
        name=SHARE_STATE_TOPIC,
        partition_count=settings.integer("share.coordinator.state.topic.num.partitions"),
        replication_factor=settings.integer("share.coordinator.state.topic.replication.factor"),
        configs=_configs(_SHARE_STATE_CONFIGS)
        | {
            "min.insync.replicas": str(settings.integer("share.coordinator.state.topic.min.isr")),
            "segment.bytes": str(settings.integer("share.coordinator.state.topic.segment.bytes")),
        },
    )


def _configs(pairs: Sequence[str]) -> dict[str, str]:
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


_INTERNAL = {OFFSETS_TOPIC: offsets_topic, TRANSACTION_TOPIC: transaction_topic, SHARE_STATE_TOPIC: share_state_topic}


class AutoTopics:
    """Asks the controller for topics.

    Args:
        ask: asks the controller once; returns an error with its message.
        settings: this broker's.
    """

    def __init__(self, ask: Callable[[NewTopic], Awaitable[tuple[ErrorCode, str]]], settings: Values) -> None:
        self._ask = ask
        self._settings = settings
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, None] = {}
        self._refusals: dict[str, str] = {}

    def create(self, topic: str) -> None:
        """Create a topic in the background, unless an attempt is in flight or waits; an internal one at once."""
        if topic in self._in_flight:
            return
        if len(self._in_flight) < MAX_IN_FLIGHT or topic in _INTERNAL:
            self._begin(topic)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting[topic] = None

    def _begin(self, topic: str) -> None:
        self._in_flight[topic] = asyncio.get_running_loop().create_task(self._create(topic))

    async def _create(self, topic: str) -> None:
        try:
            make = _INTERNAL.get(topic)
            made = user_topic(topic, self._settings) if make is None else make(self._settings)
            error, message = await self._ask(made)
            if error is not ErrorCode.NONE:
                self._refused(topic, message or error.name)
        finally:
            self._in_flight.pop(topic, None)
            if self._waiting and len(self._in_flight) < MAX_IN_FLIGHT:
                following = next(iter(self._waiting))
                del self._waiting[following]
                self._begin(following)

    def _refused(self, topic: str, reason: str) -> None:
        """Log a refusal; clients retry, so the same one is logged once."""
        if self._refusals.get(topic) == reason:
            return
        self._refusals.pop(topic, None)
        while len(self._refusals) >= _MAX_REFUSALS:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[topic] = reason
        LOG.warning("Topic %s was not created: %s", topic, reason)

    async def close(self) -> None:
        """Give up the attempts in flight, and those that wait."""
        self._waiting.clear()
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
