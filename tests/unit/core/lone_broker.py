"""One broker in memory that gets what a controller, clients and another broker would send it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory_broker import START_MS, Broker, make_batch

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import ControlHeader, Endpoint, LeaderAndIsrPartition, LeaderAndIsrRequest, UpdateMetadataRequest
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import patch
from tidegauge_broker.replica.messages import (
    CoreSettings,
    FetchPartition,
    FetchRequest,
    ProducePartition,
    ProduceRequest,
    TopicRules,
)

ME, OTHER = 1, 2
A, B, C = (TopicPartition("t", number) for number in range(3))
BIG = 1 << 20


class LoneBroker(Broker):
    """A broker with a clock, and the partitions that it hosts."""

    now_ms = START_MS
    partitions: tuple[TopicPartition, ...] = ()


def broker_of(*partitions: TopicPartition, **rules: Any) -> LoneBroker:
    """A broker that hosts partitions whose role is not decided yet; broker 2 is alive."""
    broker = LoneBroker(ME, CoreSettings(), {"t": TopicRules(**rules)})
    broker.start(1)
    endpoints = [Endpoint(number, "localhost", number, None) for number in (ME, OTHER)]
    broker.metadata.apply(UpdateMetadataRequest(ControlHeader(0, 1, 1), [], endpoints))
    broker.partitions = partitions
    return broker


def role(
    broker: LoneBroker,
    leader: int,
    epoch: int,
    *,
    isr: Sequence[int] = (ME, OTHER),
    of: Sequence[TopicPartition] = (),
    adding: Sequence[int] = (),
) -> Mapping[TopicPartition, ErrorCode]:
    """A LeaderAndIsr for all its partitions, or for some."""
    items = [
        LeaderAndIsrPartition(
            PartitionState(at, "id", 1, leader, epoch, tuple(isr), epoch, (ME, OTHER, *adding), tuple(adding)),
            is_new=epoch == 0,
        )
        for at in of or broker.partitions
    ]
    request = LeaderAndIsrRequest(ControlHeader(0, 1, 1), items, ())
    loaded = {at: broker.load(at) for at in broker.control_requests.logs_needed(request)}
    response, effects = broker.control_requests.leader_and_isr(request, loaded, broker.now_ms)
    broker.execute(effects)
    return response.partitions


def produce(broker: LoneBroker, *partitions: TopicPartition, acks: int = 1, batch: bytes | None = None) -> object:
    """One batch for each; returns the token."""
    token = object()
    parts = [ProducePartition(at, batch or make_batch("x")) for at in partitions]
    broker.execute(broker.core.produce(ProduceRequest(acks, 1000, parts), token, broker.now_ms))
    return token


def fetch(
    broker: LoneBroker,
    offsets: Mapping[TopicPartition, int],
    replica_id: int = OTHER,
    wait_ms: int = 0,
    max_bytes: int = BIG,
) -> object:
    token = object()
    parts = [FetchPartition(at, offset, BIG, log_start_offset=0) for at, offset in offsets.items()]
    request = FetchRequest(replica_id, wait_ms, 1, max_bytes, parts)
    broker.execute(broker.core.fetch(request, token, broker.now_ms))
    return token


def led(*values: str, epoch: int = 0, offset: int = 0) -> bytes:
    """A batch as a leader wrote it."""
    data = bytearray(make_batch(*values))
    patch(data, 0, offset, epoch)
    return bytes(data)
