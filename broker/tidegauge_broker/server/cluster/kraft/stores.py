"""Stores of the metadata log for all brokers - settings, client quotas, SCRAM credentials, access control lists - read
from the image, and altered by the active controller (``ports.MetadataStores``).

An image that is published brings the notifications of all that it changes, in Kafka's order: settings, quotas,
credentials, access control lists. The number of a change is the offset of the last record in the image that has it.
Source: ``BrokerMetadataPublisher``, ``DynamicConfigPublisher``, ``DynamicClientQuotaPublisher``, ``ScramPublisher``,
``AclPublisher``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from tidegauge.cluster_metadata import DEFAULT_ENTITY
from tidegauge.cluster_metadata.client_quotas import IP
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.apis import INCREMENTAL_ALTER_CONFIGS
from tidegauge.kafka.kraft.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidegauge.settings import Values
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.acls.access_control import authorizer_of
from tidegauge_broker.server.cluster.kraft.access_lists import ImageAccessLists
from tidegauge_broker.server.cluster.kraft.client_quotas import ImageQuotas
from tidegauge_broker.server.cluster.kraft.credentials import ImageCredentials
from tidegauge_broker.server.cluster.kraft.forwarding import Forwarding
from tidegauge_broker.server.cluster.ports import Change, SettingsListener
from tidegauge_broker.server.configs.topic_configs import TopicConfigs
from tidegauge_controller.metadata.image import BROKER, CLUSTER_DEFAULT, GROUP, TOPIC, MetadataImage, quota_entity
from tidegauge_controller.metadata.sorted_map import differences

LOG = logging.getLogger("tidegauge.configs")
_SET, _DELETE = 0, 1
_KINDS = {"topics": TOPIC, "brokers": BROKER, "groups": GROUP}
"""Types of resources by the kinds of entities."""
_SHOWN_SECONDS = 5.0
"""Maximum time that an alteration waits until its record is in this broker's image."""

ImageNow = Callable[[], MetadataImage]
"""Returns the image that is in force here."""


class ImageSettings:
    """Settings of the image (``ports.SettingsStore``).

    Args:
        image: returns the image.
        forwarding: to the controller.
    """

    def __init__(self, image: ImageNow, forwarding: Forwarding) -> None:
        self._image = image
        self._forwarding = forwarding
        self.changed = asyncio.Event()
        """Set with each published image."""

    async def read(self, entity: str) -> dict[str, str]:
        """Return an entity's own settings; none if it has none."""
        kind, name = _resource(entity)
        return dict(self._image().config(kind, name))

    async def names(self, kind: str) -> Collection[str]:
        """Return the names of the entities of a kind that have settings."""
        number, _ = _resource(f"{kind}/")
        return [name or DEFAULT_ENTITY for found, name in self._image().configs if found == number]

    async def alter(self, entity: str, change: Change) -> int:
        """Have the controller set what ``change`` makes of the settings; return the number of the change.

        Raises:
            TidegaugeError: what ``change`` or the controller rejects; nothing was changed.
        """
        kind, name = _resource(entity)
        current = dict(self._image().config(kind, name))
        wanted = change(current)
        altered = [AlterableConfig(one, _SET, text) for one, text in wanted.items() if current.get(one) != text]
        altered += [AlterableConfig(one, _DELETE, None) for one in current if one not in wanted]
        if altered:
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, altered)])
            response = await self._forwarding.ask(INCREMENTAL_ALTER_CONFIGS, request)
            [result] = response.responses
            error = ErrorCode.of(result.error_code)
            if error is not ErrorCode.NONE:
                raise TidegaugeError(error, result.error_message or error.name)
            await self._until_shown(lambda: dict(self._image().config(kind, name)) == dict(wanted))
        return self._image().provenance.offset

    async def _until_shown(self, is_shown: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(_SHOWN_SECONDS):
                while not is_shown():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            LOG.info("A change of settings is committed, and not in this broker's metadata yet")


def _resource(entity: str) -> tuple[int, str]:
    """Return the resource of an entity such as ``topics/T``."""
    kind, _, name = entity.partition("/")
    return _KINDS[kind], CLUSTER_DEFAULT if name == DEFAULT_ENTITY else name


class KRaftStores:
    """The stores in the metadata log.

    Args:
        image: returns the image that is in force.
        forwarding: to the controller.
        settings: the broker's, changed in place.
    """

    def __init__(self, image: ImageNow, forwarding: Forwarding, settings: Values) -> None:
        self._image = image
        self.settings = ImageSettings(image, forwarding)
        self.topics = TopicConfigs(self.settings.read, self._topics, settings)
        self.quotas = ImageQuotas(image, forwarding)
        self.users = ImageCredentials(image, forwarding)
        authorizer = authorizer_of(settings)
        self.acls = None if authorizer is None else ImageAccessLists(image, forwarding, authorizer)
        self._listener: SettingsListener | None = None

    async def _topics(self) -> Collection[str]:
        return await self.settings.names("topics")

    @property
    def applied_change(self) -> int:
        """The offset of the last record that is in force here."""
        return self._image().provenance.offset

    def follow(self, listener: SettingsListener) -> None:
        """Notify a listener of changes from now on."""
        self._listener = listener

    async def close(self) -> None:
        """Send no notifications any more."""
        self._listener = None

    async def published(self, old: MetadataImage, new: MetadataImage) -> None:
        """Notify the listener of what the step from one image to another changes; one that fails stops no other."""
        self.settings.changed.set()
        if self._listener is None:
            return
        async for notify in with_turns(self._notifications(self._listener, old, new)):
            try:
                await notify()
            except Exception:
                LOG.exception("A change of the metadata could not be put in force; the others are")

    def _notifications(
        self, listener: SettingsListener, old: MetadataImage, new: MetadataImage
    ) -> list[Callable[[], Awaitable[None]]]:
        found: list[Callable[[], Awaitable[None]]] = []
        for (kind, name), _, _ in differences(old.configs, new.configs):
            if kind == TOPIC:
                found.append(_call(listener.topic_changed, name))
            elif kind == BROKER:
                found.append(_call(listener.broker_changed, DEFAULT_ENTITY if name == CLUSTER_DEFAULT else name))
            elif kind == GROUP:
                found.append(_call(listener.group_changed, name))
        quotas = [quota_entity(key) for key, _, _ in differences(old.quotas, new.quotas)]
        if any(IP in entity for entity in quotas):
            found.append(listener.addresses_changed)
        found += [_call(listener.quota_changed, entity) for entity in quotas if IP not in entity]
        users = {key.user for key, _, _ in differences(old.credentials, new.credentials)}
        found += [_call(listener.user_changed, user) for user in sorted(users)]
        if self.acls is not None and old.access_lists is not new.access_lists:
            found.append(self.acls.read_all)
        return found


def _call(
    method: Callable[..., Awaitable[None]], argument: str | Mapping[str, str | None]
) -> Callable[[], Awaitable[None]]:
    return lambda: method(argument)
