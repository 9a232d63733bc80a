"""ConsumerGroupHeartbeat (68), versions 0-1: a member of a consumer group joins, reconciles and leaves (KIP-848).

An extension of ZooKeeper mode, served if ``tidegauge.zookeeper.group.protocols`` has ``consumer``; the rules are Kafka
4.3's. From version 1 on the client makes the member id (KIP-1082), and a subscription may have a regular
expression.
Source: ``KafkaApis.handleConsumerGroupHeartbeat``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tidegauge import consumer_groups
from tidegauge.kafka import apis
from tidegauge.kafka.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.wire.kafka.authorization import consumers
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

_FIRST_WITH_CLIENTS_MEMBER_ID = 1


def handle(request: ConsumerGroupHeartbeatRequest, context: Context) -> Any:
    """Take a heartbeat; the response comes when what it changes is committed."""
    return begun(_beat(request, context))


async def _beat(request: ConsumerGroupHeartbeatRequest, context: Context) -> ConsumerGroupHeartbeatResponse:
    client_id, host = context.header.client_id, f"/{context.caller.host}"
    owned = request.topic_partitions or ()
    is_large = len(owned) > ITEMS_PER_TURN
    small = replace(request, topic_partitions=()) if is_large else request
    wanted = heartbeat_of(small, context.version, client_id, host, _permits(context))
    if is_large:
        wanted = replace(wanted, owned=tuple([_owned(one) async for one in with_turns(owned, ITEMS_PER_TURN)]))
    return response_of(await context.service.groups.ask(wanted))


def _owned(topic: TopicPartitions) -> tuple[bytes, tuple[int, ...]]:
    return bytes(topic.topic_id), tuple(topic.partitions)


def _permits(context: Context) -> consumer_groups.Permits | None:
    """Return a filter of topics that the sender may describe; None: all."""
    may_describe = context.may_describe
    if may_describe is None:
        return None

    def permits(topics: Iterable[str]) -> set[str]:
        return {topic for topic in topics if may_describe(topic)}

    return permits


def heartbeat_of(
    request: ConsumerGroupHeartbeatRequest,
    version: int,
    client_id: str | None,
    client_host: str,
    permits: consumer_groups.Permits | None = None,
) -> consumer_groups.ConsumerGroupHeartbeat:
    """Return a heartbeat as the coordinator takes it."""
    owned, names = request.topic_partitions, request.subscribed_topic_names
    return consumer_groups.ConsumerGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else tuple(names),
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if owned is None else tuple(map(_owned, owned)),
        client_id=client_id or "",
        client_host=client_host,
        needs_member_id=version >= _FIRST_WITH_CLIENTS_MEMBER_ID,
        permits=permits,
    )


def response_of(result: consumer_groups.ConsumerGroupHeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    """Return the coordinator's result as a response."""
    assignment = None
    if result.assignment is not None:
        assignment = Assignment([TopicPartitions(topic_id, ones) for topic_id, ones in result.assignment])
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


API = ServedApi(apis.CONSUMER_GROUP_HEARTBEAT, handle, guard=consumers.heartbeat, is_small=True)
