"""Client quotas of the image; alterations are the controller's (``ports.ClientQuotaStore``).

Source: ``ClientQuotasImage.describe``, KIP-546.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidegauge.cluster_metadata.client_quotas import IP, Entity, Filter, Quota, matches
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.apis import ALTER_CLIENT_QUOTAS
from tidegauge.kafka.kraft.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.cluster.kraft.forwarding import Forwarding
from tidegauge_controller.metadata.image import MetadataImage, quota_entity, quota_key

_QUOTAS_PER_TURN = 500


class ImageQuotas:
    """The client quotas of the image.

    Args:
        image: returns the image that is in force.
        forwarding: to the controller.
    """

    def __init__(self, image: Callable[[], MetadataImage], forwarding: Forwarding) -> None:
        self._image = image
        self._forwarding = forwarding

    async def alter(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool) -> None:
        """Have quotas of an entity set, or (None) removed.

        Raises:
            TidegaugeError: what the controller rejects; nothing was changed.
        """
        ops = [OpData(key, 0.0 if value is None else value, value is None) for key, value in changes.items()]
        named = [EntityData(kind, name) for kind, name in entity.items()]
        request = AlterClientQuotasRequest([EntryData(named, ops)], validate_only)
        response = await self._forwarding.ask(ALTER_CLIENT_QUOTAS, request)
        for one in response.entries:
            error = ErrorCode.of(one.error_code)
            if error is not ErrorCode.NONE:
                raise TidegaugeError(error, one.error_message or error.name)

    async def describe(self, wanted: Filter, *, strict: bool) -> list[Quota]:
        """Return the quotas of all entities that a filter matches.

        Raises:
            TidegaugeError: INVALID_REQUEST, the filter names addresses and clients.
        """
        if IP in wanted and len(wanted) > 1:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "Invalid entity filter component combination, IP filter component should not be used with user or "
                "clientId filter component.",
            )
        found = ((quota_entity(key), values) for key, values in self._image().quotas.items())
        turns = with_turns(found, _QUOTAS_PER_TURN)
        return [Quota(entity, values) async for entity, values in turns if matches(entity, wanted, strict=strict)]

    async def values(self, entity: Entity) -> dict[str, float]:
        """Return one entity's quotas, by key."""
        return dict(self._image().quotas.get(quota_key(entity), {}))
