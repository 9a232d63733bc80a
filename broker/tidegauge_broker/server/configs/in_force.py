"""Changed settings reach the parts of a broker that keep a copy of what they read, and its registration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidegauge.settings import Values
from tidegauge_broker.server.coordinators.group_runner import GroupRunner
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_controller.port import Controller


class InForce:
    """The parts that ``DynamicConfigs`` notifies (``Affected``).

    Args:
        settings: the broker's settings in force.
        replicas: its replicas, and their logs.
        controller: the one in its process.
        advertise: registers the addresses that are advertised now, if others are registered.
        groups: runs the group coordinator.
    """

    def __init__(
        self,
        settings: Values,
        replicas: ReplicaManager,
        controller: Controller,
        advertise: Callable[[], Awaitable[None]],
        groups: GroupRunner,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._controller = controller
        self._advertise = advertise
        self._groups = groups

    def topic_settings_changed(self, topic: str, values: Values) -> None:
        """Take over a topic's new settings."""
        self._replicas.configure_topic(topic, values)
        self._replicas.logs.settings_changed(topic)

    def broker_settings_changed(self) -> None:
        """Take over the broker's new settings."""
        expiration_ms = self._settings.integer("producer.id.expiration.ms")
        self._replicas.core.settings.producer_id_expiration_ms = expiration_ms
        verifies = self._settings.flag("transaction.partition.verification.enable")
        self._replicas.core.settings.verifies_transactions = verifies
        self._groups.defaults_changed(self._settings)

    def unclean_election_enabled(self, topic: str | None) -> None:
        """Have the controller elect if that helps; None: for all topics."""
        self._controller.unclean_election_enabled(topic)

    def group_settings_changed(self, group_id: str, values: Values | None) -> None:
        """Take over a group's settings; None: it has none of its own any more."""
        self._groups.settings_changed(group_id, values)

    async def advertise(self) -> None:
        """Register the addresses that are advertised now."""
        await self._advertise()
