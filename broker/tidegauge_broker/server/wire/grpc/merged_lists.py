"""Lists that one broker makes of what all live brokers coordinate: consumer groups, transactional ids.

Rules:
    1. A broker that does not respond makes the list incomplete, and not empty: what the others list is there, and the
       status names each broker whose part is missing, if it has one (KafkaAdminClient.listConsumerGroups: ``valid``
       and ``errors``).
    2. So does a partition of the internal topic without a leader: what it holds is there again once it has one, and no
       broker lists it. Kafka's list looks complete then.
    3. The response is there before the caller stops waiting for it: the other brokers get a part of the caller's time.
    4. A broker that has just been started counts as one that responds: a request to it waits until its channel, which
       backs off after a refused connection, is ready again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import grpc.aio

from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2
from tidegauge_broker.server.wire.grpc.forwarding import to_status

MAX_SECONDS = 5.0
PART_OF_DEADLINE = 0.6
_NAMED = 3
"""Maximum number of partitions that a sentence names."""


class Part(Protocol):
    """One broker's own list, with its status."""

    @property
    def status(self) -> common_pb2.Status:
        """Whether the list is whole, and why not."""
        ...


OwnList = TypeVar("OwnList", bound=Part)


async def gather(
    own: tuple[int, OwnList],
    others: Sequence[Endpoint],
    method_at: Callable[[str], Any],
    request: Any,
    context: grpc.aio.ServicerContext[Any, Any],
    what: str,
    leaderless: Sequence[TopicPartition],
) -> tuple[list[OwnList], common_pb2.Status]:
    """Return the lists of this broker and of the others that respond, and the status of them together.

    Args:
        own: this broker's id, and its list.
        others: the other live brokers.
        method_at: gives the method that lists what the broker at an address coordinates.
        request: asks a broker for its own list alone.
        context: of the caller, whose deadline counts.
        what: the things listed, in plural.
        leaderless: the partitions of the internal topic that have no leader.
    """
    limit_seconds = timeout_seconds(context)

    async def list_at(at: Endpoint) -> tuple[OwnList | None, common_pb2.Status]:
        try:
            part: OwnList = await method_at(at.address)(request, timeout=limit_seconds, wait_for_ready=True)
        except grpc.aio.AioRpcError:
            return None, no_response(at.broker_id, own[0], what)
        return part, part.status

    found = await asyncio.gather(*(list_at(at) for at in others))
    own_id, own_list = own
    statuses = {own_id: own_list.status} | {at.broker_id: status for at, (_, status) in zip(others, found, strict=True)}
    return [own_list, *(part for part, _ in found if part is not None)], status_of(statuses, what, leaderless)


def timeout_seconds(context: grpc.aio.ServicerContext[Any, Any]) -> float:
    """Return the timeout of the requests to the other brokers (rule 3)."""
    left: Any = context.time_remaining()  # None without a deadline, whatever its type says
    return MAX_SECONDS if left is None else min(MAX_SECONDS, left * PART_OF_DEADLINE)


def status_of(
    statuses: Mapping[int, common_pb2.Status], what: str, leaderless: Sequence[TopicPartition] = ()
) -> common_pb2.Status:
    """Return the status of a list that is made of several: the first error, with a sentence for each that failed.

    Args:
        statuses: of each broker's own list, by broker id.
        what: the things listed, in plural.
        leaderless: the partitions of the internal topic that have no leader.
    """
    failed = {broker_id: status for broker_id, status in statuses.items() if status.error}
    sentences = [status.message or _missing(broker_id, status, what) for broker_id, status in failed.items()]
    errors = [status.error for status in failed.values()]
    if leaderless:
        sentences.append(f"{_named(leaderless)} no leader; the {what} held there, if there are any, are missing")
        errors.append(to_status(ErrorCode.BROKER_NOT_AVAILABLE).error)
    if not errors:
        return common_pb2.Status()
    return common_pb2.Status(error=errors[0], message="; ".join(sentences))


def no_response(broker_id: int, asking: int, what: str) -> common_pb2.Status:
    """Return the status of a list whose broker does not respond, which it may do to others.

    Args:
        broker_id: the broker's.
        asking: id of the broker that has asked.
        what: the things listed, in plural.
    """
    silent = f"Broker {broker_id} does not respond to broker {asking}"
    words = f"{silent}; the {what} that it coordinates, if there are any, are missing"
    return to_status(ErrorCode.BROKER_NOT_AVAILABLE, words)


def _missing(broker_id: int, status: common_pb2.Status, what: str) -> str:
    error = ErrorCode.of(status.error).name
    return f"Broker {broker_id} can't list all {what} that it coordinates now ({error}); some may be missing"


def _named(partitions: Sequence[TopicPartition]) -> str:
    """Return the names of partitions and the verb; of many the first ones, and the number of the others."""
    names = [str(at) for at in partitions[:_NAMED]]
    if len(partitions) > _NAMED:
        names.append(f"{len(partitions) - _NAMED} more")
    *first, last = names
    return f"{', '.join(first)} and {last} have" if first else f"{last} has"
