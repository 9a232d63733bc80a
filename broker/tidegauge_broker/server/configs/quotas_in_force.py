"""The quotas of users and client ids that are in force at this broker: read at the start, followed like all settings.

Source: ``QuotaConfigHandler``, ``UserConfigHandler``, ``ClientIdConfigHandler``, ``QuotaFactory``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.cluster_metadata.client_quotas import CLIENT_ID, IP, USER, Entity
from tidegauge.settings import Values
from tidegauge_broker.quotas.client_quota import MutationQuota, QuotaManagers, RateQuota, Reading
from tidegauge_broker.quotas.limits import DEFAULT, Name, QuotaEntity
from tidegauge_broker.quotas.stats import Window
from tidegauge_broker.server.cluster.ports import ClientQuotaStore


class QuotasInForce:
    """The quotas of users and client ids in force at this broker.

    Args:
        quotas: their store.
        settings: the broker's, for the windows.

    Attributes:
        managers: measure clients.
        are_set: whether a quota was ever in force here: then all clients are measured until the broker restarts, as in
            Kafka (``ClientQuotaManager.quotasEnabled``).
    """

    def __init__(self, quotas: ClientQuotaStore, settings: Values) -> None:
        self._quotas = quotas
        self.managers = QuotaManagers.of(
            window_of(settings, "quota.window.num", "quota.window.size.seconds"),
            window_of(settings, "controller.quota.window.num", "controller.quota.window.size.seconds"),
        )
        self.are_set = False
        self._by_key: Mapping[str, RateQuota | MutationQuota] = {
            "producer_byte_rate": self.managers.produce,
            "consumer_byte_rate": self.managers.fetch,
            "request_percentage": self.managers.request,
            "controller_mutation_rate": self.managers.mutation,
        }

    async def read_all(self) -> None:
        """Read all of them again.

        Raises:
            MetadataUnavailable: they could not be read.
        """
        found = await self._quotas.describe({}, strict=False)
        present = {_entity(one.entity): one.values for one in found if IP not in one.entity}
        known = {entity for quota in self._by_key.values() for entity in quota.limits.entities()}
        for entity in known - present.keys():
            self._take(entity, {})
        for entity, values in present.items():
            self._take(entity, values)

    async def read(self, entity: Entity) -> None:
        """Read the quotas of one user, client id or pair again.

        Raises:
            MetadataUnavailable: they could not be read.
        """
        self._take(_entity(entity), await self._quotas.values(entity))

    def readings(self, now_ms: int) -> list[tuple[str, Reading]]:
        """Return the metrics' readings, each with its ``QuotaType``."""
        managers = self.managers
        kinds: Mapping[str, RateQuota | MutationQuota] = {
            "Produce": managers.produce,
            "Fetch": managers.fetch,
            "Request": managers.request,
            "ControllerMutation": managers.mutation,
        }
        return [(kind, reading) for kind, manager in kinds.items() for reading in manager.readings(now_ms)]

    def _take(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        for key, quota in self._by_key.items():
            quota.set(entity, values.get(key))
        self.are_set = self.are_set or bool(values)


def window_of(settings: Values, count: str, seconds: str) -> Window:
    """Return the window that two settings name."""
    return Window(settings.integer(count), settings.integer(seconds) * 1000)


def _entity(entity: Entity) -> QuotaEntity:
    return QuotaEntity(_part(entity, USER), _part(entity, CLIENT_ID))


def _part(entity: Entity, kind: str) -> Name:
    if kind not in entity:
        return None
    name = entity[kind]
    return DEFAULT if name is None else name
