"""Settings of topics, groups and brokers: shown, altered, and awaited until all brokers apply them.

Rules:
    1. Any broker describes topics, groups and the settings of all brokers; only a broker itself describes its own
       settings.
    2. An alteration that was sent twice, because a response was lost, is the same alteration.
    3. ``wait_for_change`` asks every live broker which change it has applied last; changes are applied in order.
    4. A broker that the controller can't reach may not have heard of a topic: it is unknown if no broker
       knows it.
Source: KafkaAdminClient.describeConfigs and incrementalAlterConfigs, ConfigCommand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.v1 import topics_pb2
from tidegauge_client.admin_base import AdminBase, raise_for
from tidegauge_client.channels import call
from tidegauge_client.cluster import PROBE_TIMEOUT_MS, now_ms
from tidegauge_client.kafka_brokers import own_words

TOPIC = topics_pb2.CONFIG_RESOURCE_TYPE_TOPIC
GROUP = topics_pb2.CONFIG_RESOURCE_TYPE_GROUP
BROKER = topics_pb2.CONFIG_RESOURCE_TYPE_BROKER

_Response = TypeVar("_Response")

RECONNECT_LIMIT_MS = 3_000
"""How long a broker that has restarted is asked again to apply a change."""


class ConfigSynonym(NamedTuple):
    """One of the places that can define a setting."""

    source: str
    name: str
    value: str


class ConfigEntry(NamedTuple):
    """One setting as it is in force; ``value`` is None if a broker's setting has none of its own.

    ``source`` is a name of Kafka's ConfigEntry.ConfigSource: DYNAMIC_TOPIC_CONFIG, DYNAMIC_GROUP_CONFIG,
    DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG. ``synonyms``
    are all places that define it, highest precedence first.
    """

    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]


class ConfigAdmin(AdminBase):
    """Requests about settings."""

    async def describe_topic_settings(self, topic: str) -> list[ConfigEntry]:
        """Return all settings of a topic, by name.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or no broker responds.
        """
        return _entries(await self._describe(None, TOPIC, topic))

    async def describe_broker_settings(self, broker_id: int | None) -> list[ConfigEntry]:
        """Return a broker's settings, by name; None: the settings for all brokers.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, there is no such live broker, or it does not respond.
        """
        if broker_id is None:
            return _entries(await self._describe(None, BROKER, ""))
        return _entries(await self._describe(await self._address_of(broker_id), BROKER, str(broker_id)))

    async def describe_group_settings(self, group_id: str) -> list[ConfigEntry]:
        """Return all settings of a group, which need not exist, by name.

        Raises:
            TidegaugeError: INVALID_REQUEST, the cluster does not serve the consumer protocol; or no broker responds.
        """
        return _entries(await self._describe(None, GROUP, group_id))

    async def alter_group_settings(
        self, group_id: str, changes: Mapping[str, str], deleted: Collection[str] = ()
    ) -> int:
        """Set and remove settings of a group; return the change's number, for ``wait_for_change``.

        Raises:
            TidegaugeError: INVALID_REQUEST, INVALID_CONFIG with key and bound; nothing was changed.
        """
        return await self._alter(None, GROUP, group_id, changes, deleted)

    async def alter_topic_settings(self, topic: str, changes: Mapping[str, str], deleted: Collection[str] = ()) -> int:
        """Set and remove settings of a topic; return the change's number, for ``wait_for_change``.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG with key and range; nothing was changed.
        """
        return await self._alter(None, TOPIC, topic, changes, deleted)

    async def alter_broker_settings(
        self, broker_id: int | None, changes: Mapping[str, str], deleted: Collection[str] = ()
    ) -> int:
        """Set and remove dynamic settings of a broker, or (None) of all; return the change's number.

        Raises:
            TidegaugeError: INVALID_REQUEST, a setting is not dynamic. INVALID_CONFIG, BROKER_NOT_AVAILABLE.
        """
        if broker_id is None:
            return await self._alter(None, BROKER, "", changes, deleted)
        address = await self._address_of(broker_id)
        return await self._alter(address, BROKER, str(broker_id), changes, deleted)

    async def wait_for_change(self, number: int, *, timeout_ms: float = 10_000) -> dict[int, bool]:
        """Wait until every live broker has applied a change; return by broker id which have."""
        deadline_ms = now_ms() + timeout_ms
        while True:
            brokers = list((await self.metadata([])).brokers.values())
            responses = await asyncio.gather(*(self._applied_change(broker.address) for broker in brokers))
            applied = {broker.id: last >= number for broker, last in zip(brokers, responses, strict=True)}
            if all(applied.values()) or now_ms() >= deadline_ms:
                return dict(sorted(applied.items()))
            await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def _applied_change(self, address: str) -> int:
        try:
            return (await self._describe(address, BROKER, "")).applied_change
        except TidegaugeError:
            return -1

    async def _address_of(self, broker_id: int) -> str:
        info = await self.metadata([])
        broker = info.brokers.get(broker_id)
        if broker_id in info.kafka_brokers:
            raise own_words(info.kafka_brokers[broker_id], "kafka-configs.sh")
        if broker is None:
            raise TidegaugeError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"Broker {broker_id} is not alive: only the broker itself can show and alter its own settings",
            )
        return broker.address

    async def _describe(
        self, address: str | None, kind: topics_pb2.ConfigResourceType.ValueType, name: str
    ) -> topics_pb2.DescribeConfigsResponse:
        request = topics_pb2.DescribeConfigsRequest(resource_type=kind, resource_name=name)

        async def ask(asked: str) -> topics_pb2.DescribeConfigsResponse:
            stub = self._cluster.channels.admin(asked)
            return await call(stub.DescribeConfigs, request, timeout_ms=PROBE_TIMEOUT_MS, address=asked)

        response = await self._first_response(address, ask)
        if address is None and ErrorCode.of(response.status.error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            response = await self._where_known(ask) or response
        raise_for(response.status)
        return response

    async def _where_known(
        self, ask: Callable[[str], Awaitable[topics_pb2.DescribeConfigsResponse]]
    ) -> topics_pb2.DescribeConfigsResponse | None:
        """Return the settings from the first broker that knows the topic (rule 4)."""
        for broker in (await self.metadata([])).brokers.values():
            try:
                response = await ask(broker.address)
            except TidegaugeError:
                continue
            if ErrorCode.of(response.status.error) is ErrorCode.NONE:
                return response
        return None

    async def _alter(
        self,
        address: str | None,
        kind: topics_pb2.ConfigResourceType.ValueType,
        name: str,
        changes: Mapping[str, str],
        deleted: Collection[str],
    ) -> int:
        request = topics_pb2.AlterConfigsRequest(
            resource_type=kind, resource_name=name, set=dict(changes), delete=sorted(deleted)
        )
        await self.metadata([])  # so that a paused broker is known as one, and asked last
        deadline_ms = now_ms() + RECONNECT_LIMIT_MS
        while True:
            try:
                response: topics_pb2.AlterConfigsResponse = await self._first_response(
                    address,
                    lambda asked: call(
                        self._cluster.channels.admin(asked).AlterConfigs,
                        request,
                        timeout_ms=self._request_timeout_ms,
                        address=asked,
                    ),
                )
            except TidegaugeError as problem:
                # A restarted broker may be unreachable for a moment: gRPC waits between its attempts to connect.
                if problem.code is not ErrorCode.NETWORK_EXCEPTION or now_ms() >= deadline_ms:
                    raise
                await asyncio.sleep(self._retry_backoff_ms / 1000)
                continue
            raise_for(response.status)
            return response.change_number

    async def _first_response(self, address: str | None, ask: Callable[[str], Awaitable[_Response]]) -> _Response:
        """Return the first response; ``address`` None: of any broker."""
        problem: TidegaugeError | None = None
        for asked in self._cluster.addresses() if address is None else [address]:
            try:
                return await ask(asked)
            except TidegaugeError as error:
                self._cluster.note_failure(asked)
                problem = error
        assert problem is not None, "there is always an address to ask"
        raise problem


def _entries(response: topics_pb2.DescribeConfigsResponse) -> list[ConfigEntry]:
    return [
        ConfigEntry(
            entry.name,
            entry.value if entry.HasField("value") else None,
            entry.source,
            entry.is_default,
            entry.is_read_only,
            tuple(ConfigSynonym(synonym.source, synonym.name, synonym.value) for synonym in entry.synonyms),
        )
        for entry in sorted(response.entries, key=lambda entry: entry.name)
    ]
