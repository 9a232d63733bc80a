"""Members of share groups whose requests a test makes by hand, over Kafka's protocol.

A group's share partition is initialised as kafka-share-groups does it: by AlterShareGroupOffsets at the coordinator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.waiting import until_async

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import (
    ALTER_SHARE_GROUP_OFFSETS,
    FIND_COORDINATOR,
    METADATA,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
)
from tidegauge.kafka.messages import alter_share_group_offsets as alter
from tidegauge.kafka.messages import share_acknowledge, share_fetch
from tidegauge.kafka.messages.find_coordinator import FindCoordinatorRequest
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidegauge.kafka_channel import KafkaChannel

LIMIT_SECONDS = 90.0
ACCEPT, RELEASE, REJECT, RENEW = range(1, 5)


class Led(NamedTuple):
    """A partition's leader, and the topic's id."""

    broker_id: int
    address: str
    topic_id: bytes


class Servers:
    """A cluster's brokers, as a client without a group finds them.

    Args:
        addresses: of brokers that are up.
    """

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses

    async def ask(self, address: str, key: int, message: Any, **limits: int) -> Any:
        """Send one request on a connection of its own."""
        channel = KafkaChannel(address, "test")
        try:
            return await channel.request(key, message, LIMIT_SECONDS, **limits)
        finally:
            channel.close()

    async def leader(self, topic: str, other_than: int = -1) -> Led:
        """Wait until a partition 0 has a leader that is not this one, by the metadata of all brokers that are up."""

        async def found() -> Led | None:
            leaders = [await self._leader(address, topic) for address in self.addresses]
            one = leaders[0]
            return one if one is not None and one.broker_id != other_than and set(leaders) == {one} else None

        found_one = await until_async(found, LIMIT_SECONDS, f"a leader of {topic}-0")
        assert found_one is not None
        return found_one

    async def _leader(self, address: str, topic: str) -> Led | None:
        request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response = await self.ask(address, METADATA, request)
        (found,) = response.topics
        at = {one.node_id: f"{one.host}:{one.port}" for one in response.brokers}
        partition = next((one for one in found.partitions if one.partition_index == 0), None)
        if found.error_code or partition is None or partition.leader_id not in at:
            return None
        return Led(partition.leader_id, at[partition.leader_id], bytes(found.topic_id))

    async def begin_group(self, group: str, topic: str, offset: int = 0) -> None:
        """Initialise a group's share partition 0 at an offset; the group has no members."""
        partitions = [alter.AlterShareGroupOffsetsRequestPartition(0, offset)]
        request = alter.AlterShareGroupOffsetsRequest(
            group, [alter.AlterShareGroupOffsetsRequestTopic(topic, partitions)]
        )

        async def is_done() -> bool:
            question = FindCoordinatorRequest(coordinator_keys=[group])
            found = await self.ask(self.addresses[0], FIND_COORDINATOR, question)
            (coordinator,) = found.coordinators
            if coordinator.error_code:
                return False
            at = f"{coordinator.host}:{coordinator.port}"
            response = await self.ask(at, ALTER_SHARE_GROUP_OFFSETS, request)
            errors = {one.error_code for them in response.responses for one in them.partitions}
            return not response.error_code and errors == {0}

        await until_async(is_done, LIMIT_SECONDS, f"group {group} is initialised at {topic}-0")


class Member:
    """A member at the leader of one partition, with its share session.

    Args:
        led: the partition.
        group: the group.
        name: the member's id.
    """

    def __init__(self, led: Led, group: str, name: str) -> None:
        self.led, self.group, self.name = led, group, name
        self._channel = KafkaChannel(led.address, name)
        self._epoch = 0

    def close(self) -> None:
        """Close the connection, and with it the session."""
        self._channel.close()

    async def fetch(
        self, wait_ms: int = 20_000, max_records: int = 100, *, exact: bool = False
    ) -> list[tuple[int, int, int]]:
        """Return what the member acquires; AssertionError for an error."""
        response = await self.ask_fetch(wait_ms, max_records, exact=exact)
        assert response.error_code == 0, ErrorCode.of(response.error_code)
        partitions = [one for topic in response.responses for one in topic.partitions]
        assert {one.error_code for one in partitions} <= {0}, [ErrorCode.of(one.error_code) for one in partitions]
        return acquired(response)

    async def ask_fetch(self, wait_ms: int, max_records: int = 100, *, exact: bool = False) -> Any:
        """Return the response to a ShareFetch."""
        topics = [share_fetch.FetchTopic(self.led.topic_id, [share_fetch.FetchPartition(0)])] if not self._epoch else []
        request = share_fetch.ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=1 if exact else 0,
            topics=topics,
        )
        self._epoch += 1
        return await self._channel.request(SHARE_FETCH, request, LIMIT_SECONDS)

    async def acknowledge(self, first: int, last: int, *types: int, epoch: int | None = None) -> ErrorCode:
        """Acknowledge a range of offsets; return the error, of the whole or of the partition."""
        batches = [share_acknowledge.AcknowledgementBatch(first, last, types)]
        topics = [
            share_acknowledge.AcknowledgeTopic(self.led.topic_id, [share_acknowledge.AcknowledgePartition(0, batches)])
        ]
        request = share_acknowledge.ShareAcknowledgeRequest(
            self.group, self.name, self._epoch if epoch is None else epoch, RENEW in types, topics
        )
        self._epoch += 1
        response = await self._channel.request(SHARE_ACKNOWLEDGE, request, LIMIT_SECONDS)
        if response.error_code:
            return ErrorCode.of(response.error_code)
        return ErrorCode.of(response.responses[0].partitions[0].error_code)


def acquired(response: Any) -> list[tuple[int, int, int]]:
    """Return first offset, last offset and count in a ShareFetch response."""
    partitions = [one for topic in response.responses for one in topic.partitions]
    return [(it.first_offset, it.last_offset, it.delivery_count) for one in partitions for it in one.acquired_records]
