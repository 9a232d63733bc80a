"""This broker's part in dynamic settings: it reads and follows them, describes them, and alters them for admins.

Rules:
    1. Settings of topics are described as they are stored, settings of brokers as they are in force here, as in Kafka.
    2. A broker's own settings are altered by that broker only; settings of topics and of all brokers by any.
    3. An alteration is validated completely, written, and then reaches this broker the same way as all others.
    4. ``unclean.leader.election.enable`` that becomes true makes the controller look at once for partitions to help.
    5. A changed ``advertised.listeners`` is in force when the broker's registration has it.

Source: ZkConfigManager, TopicConfigHandler, BrokerConfigHandler, DynamicListenerConfig, ConfigHelper,
ZkAdminManager.incrementalAlterConfigs.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

from tidegauge.cluster_metadata import DEFAULT_ENTITY, MalformedMetadata
from tidegauge.cluster_metadata.client_quotas import Entity
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.java_text import java_int
from tidegauge.partition import topic_name_problem
from tidegauge.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSettings,
    ListChange,
    SettingView,
    Values,
    altered,
    check_known,
)
from tidegauge.settings.parsing import check_tiered_storage, check_topic, topic_values
from tidegauge_broker.server.cluster.ports import MetadataStores
from tidegauge_broker.server.configs.address_quotas import AddressQuotas
from tidegauge_broker.server.configs.group_configs import GroupConfigs
from tidegauge_broker.server.configs.quotas_in_force import QuotasInForce

LOG = logging.getLogger("tidegauge.configs")
UNCLEAN = "unclean.leader.election.enable"


class Affected(Protocol):
    """The parts that are notified of changed settings; code that reads ``BrokerSettings.live`` at its use is not."""

    def topic_settings_changed(self, topic: str, values: Values) -> None:
        """Take over a topic's new settings."""

    def broker_settings_changed(self) -> None:
        """Take over the broker's new settings; the settings of all topics follow."""

    def unclean_election_enabled(self, topic: str | None) -> None:
        """Rule 4; None: for all topics."""

    def group_settings_changed(self, group_id: str, values: Values | None) -> None:
        """Take over a group's settings; None: it has none of its own any more."""

    async def advertise(self) -> None:
        """Rule 5: register the addresses that are advertised now, where others are registered."""


class DynamicConfigs:
    """The dynamic settings of this broker.

    Args:
        stores: what the cluster keeps for all brokers.
        broker_id: this broker.
        settings: its settings; dynamic ones are filled in here.
        knows_topic: whether a topic exists, by this broker's metadata.

    Attributes:
        acls: the permissions of principals; None: everything is allowed.
    """

    def __init__(
        self, stores: MetadataStores, broker_id: int, settings: BrokerSettings, knows_topic: Callable[[str], bool]
    ) -> None:
        self.topics = stores.topics
        self.quotas = stores.quotas
        self.users = stores.users
        self.acls = stores.acls
        self.groups = GroupConfigs(stores.settings, settings)
        self.addresses = AddressQuotas(self.quotas)
        self.quotas_in_force = QuotasInForce(self.quotas, settings.live)
        self._stores = stores
        self._broker_id = broker_id
        self._settings = settings
        self._knows_topic = knows_topic
        self._affected: Affected | None = None

    @property
    def applied_change(self) -> int:
        """The number of the last change that is in force here; -1: none since the start."""
        return self._stores.applied_change

    # Start and end

    async def read_all(self) -> None:
        """Read everything: at the start, before anything uses the settings, and after changes may have been missed."""
        await self._read_broker()
        await self.topics.read_all()
        await self.groups.read_all()
        await self.addresses.read()
        await self.quotas_in_force.read_all()
        await self.users.read_all()
        if self.acls is not None:
            await self.acls.read_all()
        self._tell_all()
        if self._affected is not None:
            await self._affected.advertise()

    def follow(self, affected: Affected) -> None:
        """Apply changes from now on."""
        self._affected = affected
        self.groups.follow(affected)
        self._stores.follow(self)

    async def close(self) -> None:
        """Apply no more."""
        await self._stores.close()

    # Changes (``SettingsListener``)

    async def topic_changed(self, topic: str) -> None:
        """Take over the settings of a topic."""
        values = await self.topics.read_values(topic)
        LOG.info("Processing override for entityPath: topics/%s with config: %s", topic, dict(values.given))
        if self._affected is not None:
            self._affected.topic_settings_changed(topic, values)
            if values.flag(UNCLEAN):
                self._affected.unclean_election_enabled(topic)

    async def broker_changed(self, broker: str) -> None:
        """Take over the settings of this broker, or the default of all brokers; another's are none of its."""
        if broker not in {DEFAULT_ENTITY, str(self._broker_id)}:
            LOG.debug("The settings of brokers/%s are none of this broker's", broker)
            return
        was_unclean = self._settings.live.flag(UNCLEAN)
        await self._read_broker()
        self._tell_all()
        if self._affected is not None:
            if self._settings.live.flag(UNCLEAN) and not was_unclean:
                self._affected.unclean_election_enabled(None)
            await self._affected.advertise()

    async def group_changed(self, name: str) -> None:
        """Take over the settings of a group."""
        await self.groups.changed(name)

    async def addresses_changed(self) -> None:
        """Take over the quotas of addresses."""
        await self.addresses.read()

    async def quota_changed(self, entity: Entity) -> None:
        """Take over the quotas of a user, a client id, or both."""
        await self.quotas_in_force.read(entity)

    async def user_changed(self, user: str) -> None:
        """Take over the credentials of a user."""
        await self.users.read(user)

    async def _read_broker(self) -> None:
        layers: list[dict[str, str]] = []
        for name in (DEFAULT_ENTITY, str(self._broker_id)):
            try:
                layers.append(await self._stores.settings.read(f"brokers/{name}"))
            except MalformedMetadata as problem:
                LOG.warning("The settings of broker %s are unreadable and are ignored: %s", name, problem)
                layers.append({})
        for why in self._settings.replace(default=layers[0], own=layers[1]):
            LOG.warning("A dynamic setting of this broker is ignored: %s", why)

    def _tell_all(self) -> None:
        known = self.topics.broker_changed()
        if self._affected is not None:
            self._affected.broker_settings_changed()
            self.groups.broker_changed()
            for topic, values in known.items():
                self._affected.topic_settings_changed(topic, values)

    # Requests of admins

    async def describe_topic(self, topic: str) -> list[SettingView]:
        """Return a topic's settings in force.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, there is no such topic.
        """
        problem = topic_name_problem(topic)
        if problem is not None:
            raise TidegaugeError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if not self._knows_topic(topic):
            raise TidegaugeError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        return self._settings.topic_views(await self.topics.read(topic))

    def describe_broker(self, name: str) -> list[SettingView]:
        """Return this broker's settings; with an empty name, all brokers' settings.

        Raises:
            TidegaugeError: INVALID_REQUEST, it is another broker's name.
        """
        if not name:
            return self._settings.default_views()
        self._check_own_name(name, what="Broker", expected=f"{self._broker_id} or empty string,")
        return self._settings.views()

    def new_topic(self, texts: Mapping[str, str]) -> list[SettingView]:
        """Return the settings that a topic with these of its own would have."""
        return self._settings.topic_views(texts)

    async def alter_topic(
        self,
        topic: str,
        changes: Mapping[str, str | ListChange],
        deleted: Collection[str] | None,
        *,
        validate_only: bool = False,
    ) -> int:
        """Alter a topic's settings; returns the change's number.

        With ``deleted`` None the changes replace all that is set, as the write finds it: of two that replace at once,
        the later one's settings stand alone.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST; nothing was changed.
        """
        if not topic:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if not self._knows_topic(topic):
            raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")

        def change(current: Mapping[str, str]) -> dict[str, str]:
            wanted = altered(current, changes, current.keys() - changes.keys() if deleted is None else deleted)
            check_known(wanted, TOPIC_SETTINGS)
            with _naming_the_topic(topic):
                values = topic_values(wanted, self._settings.live)
                check_tiered_storage(values)
            check_topic(values)
            return wanted

        return await self._alter(f"topics/{topic}", change, validate_only=validate_only)

    async def alter_broker(
        self,
        name: str,
        changes: Mapping[str, str | ListChange],
        deleted: Collection[str] | None,
        *,
        validate_only: bool = False,
    ) -> int:
        """Alter this broker's dynamic settings; with an empty name, all brokers'. Returns the change's number.

        With ``deleted`` None the changes replace all usable settings, as the write finds them.
        A stored setting that is of no use here, such as one that an Apache Kafka broker was given,
        neither prevents the alteration nor is lost by it.

        Raises:
            TidegaugeError: INVALID_CONFIG, INVALID_REQUEST; nothing was changed.
        """
        if name:
            self._check_own_name(name, what="Node", expected=f"{self._broker_id}")

        def change(current: Mapping[str, str]) -> dict[str, str]:
            usable, _ = self._settings.usable(current)
            wanted = altered(current, changes, usable.keys() - changes.keys() if deleted is None else deleted)
            checked = {name: text for name, text in wanted.items() if name in changes or name in usable}
            check_known(checked, BROKER_SETTINGS)
            try:
                self._settings.check(checked, for_all=not name)
            except TidegaugeError as problem:  # of a broker, Kafka refuses the request and not the setting
                raise TidegaugeError(ErrorCode.INVALID_REQUEST, problem.message) from None
            return wanted

        # By its number: ``01`` names broker 1 too, and no broker reads a znode of that name.
        entity = str(self._broker_id) if name else DEFAULT_ENTITY
        return await self._alter(f"brokers/{entity}", change, validate_only=validate_only)

    async def _alter(
        self, entity: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool
    ) -> int:
        if validate_only:
            change(await self._stores.settings.read(entity))
            return -1
        number = await self._stores.settings.alter(entity, change)
        LOG.info("Updated the settings of %s, change %d", entity, number)
        return number

    def _check_own_name(self, name: str, *, what: str, expected: str) -> None:
        try:
            is_own = java_int(name) == self._broker_id
        except ValueError:
            message = f"{what} id must be an integer, but it is: {name}"
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, message) from None
        if not is_own:
            message = f"Unexpected broker id, expected {expected.rstrip(',')}, but received {name}"
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, message)


@contextlib.contextmanager
def _naming_the_topic(topic: str) -> Iterator[None]:
    """Name the topic that was to be altered in an error, in Kafka's words; for brokers Kafka gives only the reason."""
    try:
        yield
    except TidegaugeError as problem:
        resource = f"ConfigResource(type=TOPIC, name='{topic}')"
        raise TidegaugeError(problem.code, f"Invalid config value for resource {resource}: {problem.message}") from None
