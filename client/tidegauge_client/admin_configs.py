"""Settings of topics and brokers: shown and altered, and waiting until all brokers apply them.

Rules:
    1. Of topics and of all brokers any broker answers; of one broker only itself.
    2. An alteration that was sent twice, because an answer did not come, is the same alteration.
    3. ``wait_for_change`` asks every live broker which change it has applied last; changes are applied in order.
Source: KafkaAdminClient.describeConfigs and incrementalAlterConfigs, ConfigCommand (kafka-behaviour 7.2).
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

TOPIC = topics_pb2.CONFIG_RESOURCE_TYPE_TOPIC
BROKER = topics_pb2.CONFIG_RESOURCE_TYPE_BROKER

_Answer = TypeVar("_Answer")

RECONNECT_LIMIT_MS = 3_000
"""How long a broker that is back is asked again to take a change."""


class ConfigSynonym(NamedTuple):
    """One place that has a say in a setting."""

    source: str
    name: str
    value: str


class ConfigEntry(NamedTuple):
    """One setting as it is in force; ``value`` is None where a broker's setting has none of its own.

    ``source`` has Kafka's words: DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG, DEFAULT_CONFIG. ``synonyms`` are all places that have a say, the strongest first.
    """

    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]


class ConfigAdmin(AdminBase):
    """Settings."""

    async def describe_topic_settings(self, topic: str) -> list[ConfigEntry]:
        """All settings of a topic, by name.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or no broker answers.
        """
        return _entries(await self._describe(None, TOPIC, topic))

    async def describe_broker_settings(self, broker_id: int | None) -> list[ConfigEntry]:
        """All settings of a broker, by name; None: those that are set for all brokers.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, there is no such live broker; or it does not answer.
        """
        if broker_id is None:
            return _entries(await self._describe(None, BROKER, ""))
        return _entries(await self._describe(await self._address_of(broker_id), BROKER, str(broker_id)))

    async def alter_topic_settings(self, topic: str, changes: Mapping[str, str], deleted: Collection[str] = ()) -> int:
        """Set and take back settings of a topic; returns the change's number, for ``wait_for_change``.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG with key and range; nothing was changed.
        """
        return await self._alter(None, TOPIC, topic, changes, deleted)

    async def alter_broker_settings(
        self, broker_id: int | None, changes: Mapping[str, str], deleted: Collection[str] = ()
    ) -> int:
        """The same for a broker's dynamic settings; None: those of all brokers.

        Raises:
            TidegaugeError: INVALID_REQUEST, a setting is not dynamic; INVALID_CONFIG; BROKER_NOT_AVAILABLE.
        """
        if broker_id is None:
            return await self._alter(None, BROKER, "", changes, deleted)
        address = await self._address_of(broker_id)
        return await self._alter(address, BROKER, str(broker_id), changes, deleted)

    async def wait_for_change(self, number: int, *, timeout_ms: float = 10_000) -> dict[int, bool]:
        """Wait until every live broker has applied a change; answers by broker id which have."""
        deadline_ms = now_ms() + timeout_ms
        while True:
            brokers = list((await self.metadata([])).brokers.values())
            answers = await asyncio.gather(*(self._applied_change(broker.address) for broker in brokers))
            applied = {broker.id: last >= number for broker, last in zip(brokers, answers, strict=True)}
            if all(applied.values()) or now_ms() >= deadline_ms:
                return dict(sorted(applied.items()))
            await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def _applied_change(self, address: str) -> int:
        try:
            return (await self._describe(address, BROKER, "")).applied_change
        except TidegaugeError:
            return -1

    async def _address_of(self, broker_id: int) -> str:
        broker = (await self.metadata([])).brokers.get(broker_id)
        if broker is None:
            raise TidegaugeError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"Broker {broker_id} is not alive: a broker's own settings are shown and altered by itself",
            )
        return broker.address

    async def _describe(
        self, address: str | None, kind: topics_pb2.ConfigResourceType.ValueType, name: str
    ) -> topics_pb2.DescribeConfigsResponse:
        request = topics_pb2.DescribeConfigsRequest(resource_type=kind, resource_name=name)
        answer: topics_pb2.DescribeConfigsResponse = await self._first_answer(
            address,
            lambda asked: call(
                self._cluster.channels.admin(asked).DescribeConfigs,
                request,
                timeout_ms=PROBE_TIMEOUT_MS,
                address=asked,
            ),
        )
        raise_for(answer.status)
        return answer

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
        await self.metadata([])  # so that a frozen broker is known as one, and asked last
        deadline_ms = now_ms() + RECONNECT_LIMIT_MS
        while True:
            try:
                answer: topics_pb2.AlterConfigsResponse = await self._first_answer(
                    address,
                    lambda asked: call(
                        self._cluster.channels.admin(asked).AlterConfigs,
                        request,
                        timeout_ms=self._request_timeout_ms,
                        address=asked,
                    ),
                )
            except TidegaugeError as problem:
                # A broker that is back may be refused for a moment: gRPC waits between its attempts to connect.
                if problem.code is not ErrorCode.NETWORK_EXCEPTION or now_ms() >= deadline_ms:
                    raise
                await asyncio.sleep(self._retry_backoff_ms / 1000)
                continue
            raise_for(answer.status)
            return answer.change_number

    async def _first_answer(self, address: str | None, ask: Callable[[str], Awaitable[_Answer]]) -> _Answer:
        """What the first broker says that answers at all; ``address`` None: any broker may be asked."""
        problem: TidegaugeError | None = None
        for asked in self._cluster.addresses() if address is None else [address]:
            try:
                return await ask(asked)
            except TidegaugeError as error:
                self._cluster.note_failure(asked)
                problem = error
        assert problem is not None, "there is always an address to ask"
        raise problem


def _entries(answer: topics_pb2.DescribeConfigsResponse) -> list[ConfigEntry]:
    return [
        ConfigEntry(
            entry.name,
            entry.value if entry.HasField("value") else None,
            entry.source,
            entry.is_default,
            entry.is_read_only,
            tuple(ConfigSynonym(synonym.source, synonym.name, synonym.value) for synonym in entry.synonyms),
        )
        for entry in sorted(answer.entries, key=lambda entry: entry.name)
    ]
