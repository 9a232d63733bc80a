"""A consumer's read from a leader of a cluster that is driven by hand: what the core gives, by its isolation level."""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import iterate_headers
from tidegauge_broker.replica.messages import CONSUMER, FetchPartition, FetchRequest
from tidegauge_client.isolation import Aborted, without_aborted
from tidegauge_proof.simulator.memory_broker import Reading
from tidegauge_proof.simulator.sim_partition import SimPartition
from tidegauge_proof.simulator.world import World

_MAX_BYTES = 1 << 20


class Found(NamedTuple):
    """The result of a read: an error, or the records as offset and number, and the offset to read on from."""

    error: ErrorCode
    records: list[tuple[int, int]]
    next_offset: int


def read(world: World, partition: SimPartition, broker_id: int, from_offset: int, *, is_committed: bool) -> Found:
    """Read all that a running broker gives to a consumer from an offset on, without waiting.

    Args:
        world: has the broker.
        partition: to read.
        broker_id: of the broker.
        from_offset: of the first record.
        is_committed: whether isolation.level is read_committed: up to the last stable offset, without aborted records.
    """
    broker, reading = world.brokers[broker_id], Reading()
    wanted = [FetchPartition(partition.at, from_offset, _MAX_BYTES)]
    request = FetchRequest(CONSUMER, 0, 1, _MAX_BYTES, wanted, reads_committed=is_committed)
    broker.execute(broker.core.fetch(request, reading, world.now_ms))
    assert reading.results is not None, "a fetch that waits for nothing is responded to at once"
    ((result, records),) = reading.results
    if result.error is not ErrorCode.NONE:
        return Found(result.error, [], from_offset)
    headers = list(iterate_headers(records))
    listed = [Aborted(one.first_offset, one.producer_id) for one in result.aborted_transactions or ()]
    number_of = partition.clients.number_of
    found = [
        (one.base_offset + place, number_of[one.crc] + place)
        for one in (without_aborted(records, headers, listed) if is_committed else headers)
        if not one.is_control
        for place in range(one.record_count)
        if one.base_offset + place >= from_offset
    ]
    return Found(ErrorCode.NONE, found, headers[-1].next_offset if headers else from_offset)
