"""The quota of partitions that clients create and delete, by the client quotas of the committed metadata (KIP-599).

Requests that a broker forwards count for the client's own principal and client id. Large requests are prepared and
decided in threads, so what requests share has a lock.
Source: ``ControllerMutationQuotaManager``, ``ControllerApis``, ``DynamicClientQuotaPublisher``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

from tidegauge.cluster_metadata.client_quotas import CLIENT_ID, IP, USER
from tidegauge.settings import Values
from tidegauge_broker.quotas.client_quota import MutationQuota, Mutations
from tidegauge_broker.quotas.limits import DEFAULT, Name, QuotaEntity
from tidegauge_broker.quotas.stats import Window
from tidegauge_broker.server.quorum.calls import Call
from tidegauge_controller.metadata.image import MetadataImage, QuotaKey, quota_entity
from tidegauge_controller.metadata.sorted_map import SortedMap

_RATE = "controller_mutation_rate"


class MutationQuotas:
    """The quotas of partitions that clients create and delete.

    Args:
        values: the controller's settings.
        image: returns the committed image.
        now_ms: the node's clock.
    """

    def __init__(self, values: Values, image: Callable[[], MetadataImage], now_ms: Callable[[], int]) -> None:
        seconds = values.integer("controller.quota.window.size.seconds")
        self._quota = MutationQuota(Window(values.integer("controller.quota.window.num"), seconds * 1000))
        self._image = image
        self._now_ms = now_ms
        self._taken: SortedMap[QuotaKey, Mapping[str, float]] | None = None
        self._lock = Lock()

    def of(self, call: Call, first_strict: int) -> RequestMutations:
        """Return the mutations of a request.

        Args:
            call: the request.
            first_strict: the version of its API from which clients know THROTTLING_QUOTA_EXCEEDED; older ones are
                throttled and nothing more.
        """
        with self._lock:
            self._follow()
        mutations = Mutations(self._quota, call.principal.name, call.client_id, is_strict=call.version >= first_strict)
        return RequestMutations(mutations, self._now_ms, self._lock)

    def _follow(self) -> None:
        """Take the limits of the committed image in, if they have changed."""
        quotas = self._image().quotas
        if quotas is self._taken:
            return
        self._taken = quotas
        wanted = {
            _entity(quota_entity(key)): values[_RATE]
            for key, values in quotas.items()
            if _RATE in values and IP not in quota_entity(key)
        }
        for entity in self._quota.limits.entities() - wanted.keys():
            self._quota.set(entity, None)
        for entity, limit in wanted.items():
            self._quota.set(entity, limit)


class RequestMutations:
    """The mutations of one request: ``mutate`` takes their tokens, ``throttle_ms`` says what its client must wait."""

    def __init__(self, mutations: Mutations, now_ms: Callable[[], int], lock: Lock) -> None:
        self._mutations = mutations
        self._now_ms = now_ms
        self._lock = lock

    def mutate(self, count: int) -> None:
        """Take the tokens of a number of partitions.

        Raises:
            TidegaugeError: THROTTLING_QUOTA_EXCEEDED.
        """
        with self._lock:
            self._mutations.record(count, self._now_ms())

    @property
    def throttle_ms(self) -> int:
        """The throttle time of the response."""
        with self._lock:
            return self._mutations.throttle_ms(self._now_ms())


def _entity(entity: Mapping[str, str | None]) -> QuotaEntity:
    return QuotaEntity(_part(entity, USER), _part(entity, CLIENT_ID))


def _part(entity: Mapping[str, str | None], kind: str) -> Name:
    if kind not in entity:
        return None
    name = entity[kind]
    return DEFAULT if name is None else name
