"""Blocks of producer ids, each allocated once.

Compare-and-set on the znode's version: the loser of a race reads again. A write whose response was lost costs a block,
never a duplicate. Source: ZkProducerIdManager, KafkaController.processAllocateProducerIds.
"""

from __future__ import annotations

from tidegauge.cluster_metadata import ProducerIdBlock
from tidegauge.errors import ErrorCode
from tidegauge.znodes import PRODUCER_ID_BLOCK, MalformedZnode, decode_producer_ids, encode_producer_ids
from tidegauge_controller.zookeeper.decisions.context import ControllerContext
from tidegauge_controller.zookeeper.decisions.steps import Outcome, Read, ReadResult, SetNode, Steps, Write, WriteResult


def allocate_producer_ids(
    context: ControllerContext, broker_id: int, broker_epoch: int
) -> Steps[tuple[ErrorCode, int, int]]:
    """Allocate the next block for a broker: error, first id, count."""
    broker = context.live.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH, 0, 0
    while True:
        results: list[ReadResult] = yield Read((PRODUCER_ID_BLOCK,))
        if results[0].stat is None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, 0, 0
        try:
            block = ProducerIdBlock.after(decode_producer_ids(results[0].data), broker_id)
        except MalformedZnode:
            return ErrorCode.UNKNOWN_SERVER_ERROR, 0, 0
        write = SetNode(PRODUCER_ID_BLOCK, encode_producer_ids(block), results[0].stat.version)
        responses: list[WriteResult] = yield Write((write,))
        if responses[0].outcome is Outcome.OK:
            return ErrorCode.NONE, block.first, block.last - block.first + 1
        if responses[0].outcome is not Outcome.BAD_VERSION:
            return ErrorCode.UNKNOWN_SERVER_ERROR, 0, 0
