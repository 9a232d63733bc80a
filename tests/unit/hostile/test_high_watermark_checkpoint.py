"""replication-offset-checkpoint beside what changes a log while it is written."""

from __future__ import annotations

from typing import Any

from hostile_broker import HostileBroker
from tests.unit.hostile.test_hostile_requests import batch as record_batch

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.log.checkpoints import REPLICATION_OFFSET_CHECKPOINT, OffsetCheckpoint
from tidegauge_broker.replica.messages import ProducePartition, ProduceRequest

AT = TopicPartition("t", 0)


async def test_what_a_truncation_lowers_while_the_checkpoint_waits_for_the_pool_stays_lowered() -> None:
    """A process that dies before the next checkpoint would take records appended behind it for committed."""
    broker = await HostileBroker().begin()
    for _ in range(3):
        future = broker.replicas.produce(ProduceRequest(1, 0, [ProducePartition(AT, record_batch())]))
        assert future.result()[0].error is ErrorCode.NONE
    await broker.replicas.write_high_watermarks()
    checkpoint = OffsetCheckpoint(broker.directory / REPLICATION_OFFSET_CHECKPOINT)
    assert checkpoint.read()[AT] == 3

    async def truncated_before(call: Any) -> None:
        broker.logs.lower_high_watermark(AT, 1)
        call()

    broker.replicas.in_log_pool = truncated_before
    await broker.replicas.write_high_watermarks()
    assert checkpoint.read()[AT] == 1
    broker.close()
