"""Share partitions (KIP-932) as the brokers' Lab services show them, in plain values: in flight, and durable."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from tidegauge.errors import TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.security import Security
from tidegauge.v1 import lab_pb2, lab_service_pb2_grpc
from tidegauge_client.channels import Channels, call
from tidegauge_client.cluster import PROBE_TIMEOUT_MS

if TYPE_CHECKING:
    from tidegauge.v1.lab_service_pb2_grpc import LabServiceAsyncStub

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = "available", "acquired", "acknowledged", "archived"
UNKNOWN = "unknown"
"""Of a hole in the state that a leader has read: it is delivered once more."""
NONE = "none"
"""Of an offset that has no record."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records with consecutive offsets that are alike.

    Attributes:
        last_offset: inclusive.
        member_id: the member that has them, or had them before a change that is being written; empty: none.
        lock_left_ms: how long its lock lasts; None: there is none.
    """

    first_offset: int
    last_offset: int
    state: str
    delivery_count: int = 0
    member_id: str = ""
    lock_left_ms: int | None = None
    is_being_written: bool = False
    is_archived_by_log: bool = False

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last_offset - self.first_offset + 1

    @property
    def offsets(self) -> str:
        """The offsets, in words."""
        if self.size == 1:
            return str(self.first_offset)
        return f"{self.first_offset} to {self.last_offset}"


@dataclass(frozen=True, slots=True)
class LedShare:
    """A share partition at a broker that leads its partition, or takes itself to lead it.

    Attributes:
        state: empty, initializing, active, failed or fenced.
        end_offset: exclusive: the first record that was never acquired.
        complete_count: records at or after the start offset that are acknowledged or archived.
        has_more_records: whether some records were left out.
        unwritten_count: writes to the share coordinator without an outcome yet.
        waiting_fetches: fetches that wait for records.
    """

    group_id: str
    at: TopicPartition
    state: str
    leader_epoch: int
    state_epoch: int
    start_offset: int
    end_offset: int
    complete_count: int
    records: tuple[Records, ...] = ()
    has_more_records: bool = False
    unwritten_count: int = 0
    waiting_fetches: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    reads_committed: bool = False
    auto_offset_reset: str = "latest"

    @property
    def readable_end(self) -> int:
        """Exclusive end of what members can be given."""
        return self.last_stable_offset if self.reads_committed else self.high_watermark


@dataclass(frozen=True, slots=True)
class KeptShare:
    """The state of a share partition as its share coordinator keeps it.

    Attributes:
        state_partition: its partition of __share_group_state.
        leader_epoch: of the leader that read it last.
        start_offset: -1: the group's reset decides.
        complete_count: -1: unknown.
    """

    group_id: str
    at: TopicPartition
    state_partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    records: tuple[Records, ...] = ()
    has_more_records: bool = False
    is_being_written: bool = False


@dataclass(frozen=True, slots=True)
class BrokerShares:
    """The share partitions at one broker.

    Attributes:
        refusals: why states are out of service, by coordinator key.
    """

    led: tuple[LedShare, ...] = ()
    kept: tuple[KeptShare, ...] = ()
    refusals: Mapping[str, str] | None = None


def shares_of(response: lab_pb2.ObserveSharesResponse) -> BrokerShares:
    """Return a Lab service's response in plain values."""
    return BrokerShares(
        tuple(map(_led, response.shares)), tuple(map(_kept, response.states)), dict(response.out_of_service)
    )


def _led(one: lab_pb2.ObservedShare) -> LedShare:
    return LedShare(
        one.group_id,
        TopicPartition(one.partition.topic, one.partition.partition),
        one.state,
        one.leader_epoch,
        one.state_epoch,
        one.start_offset,
        one.end_offset,
        one.complete_count,
        tuple(map(_records, one.records)),
        one.has_more_records,
        one.unwritten_count,
        one.waiting_fetches,
        one.log_start_offset,
        one.high_watermark,
        one.last_stable_offset,
        one.record_lock_duration_ms,
        one.delivery_count_limit,
        one.max_record_locks,
        one.reads_committed,
        one.auto_offset_reset,
    )


def _kept(one: lab_pb2.ObservedShareState) -> KeptShare:
    return KeptShare(
        one.group_id,
        TopicPartition(one.topic, one.partition),
        one.state_partition,
        one.state_epoch,
        one.leader_epoch,
        one.start_offset,
        one.complete_count,
        tuple(map(_records, one.records)),
        one.has_more_records,
        one.is_being_written,
    )


def _records(one: lab_pb2.ObservedShareRecords) -> Records:
    return Records(
        one.first_offset,
        one.last_offset,
        one.state,
        one.delivery_count,
        one.member_id,
        one.lock_left_ms if one.HasField("lock_left_ms") else None,
        one.is_being_written,
        one.is_archived_by_log,
    )


async def shares_at(
    addresses: Sequence[str], security: Security, group_id: str, at: TopicPartition
) -> dict[int, BrokerShares]:
    """Return a share partition at responding brokers with a lab, by id.

    No fault affects the lab's own calls: a broker that is partitioned from clients still responds.
    """
    channels = Channels(security)
    request = lab_pb2.ObserveSharesRequest(
        group_ids=[group_id], partition=lab_pb2.LabPartition(topic=at.topic, partition=at.partition)
    )

    try:
        found = await asyncio.gather(*(ask_for_shares(channels, one, request, PROBE_TIMEOUT_MS) for one in addresses))
    finally:
        await channels.close()
    return {response.broker_id: shares_of(response) for response in found if response is not None}


async def ask_for_shares(
    channels: Channels, address: str, request: lab_pb2.ObserveSharesRequest, timeout_ms: float
) -> lab_pb2.ObserveSharesResponse | None:
    """Return a broker's response; None without a lab, or without a response."""
    # The generated stub serves both kinds of channel; only its type stub distinguishes two classes.
    lab = cast("LabServiceAsyncStub", lab_service_pb2_grpc.LabServiceStub(channels.channel(address)))
    try:
        return await call(lab.ObserveShares, request, timeout_ms=timeout_ms, address=address)
    except TidegaugeError:
        return None
