"""Reads one range of a partition: for the source's tasks, and for a sink that looks for what it has written.

Contract: survives leader changes, and says of each loss what was lost. gRPC and pyarrow are imported when first needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_spark.offsets import EARLIEST, LATEST
from tidegauge_spark.options import Options
from tidegauge_spark.planner import OffsetRange
from tidegauge_spark.resolve import ask
from tidegauge_spark.setup import missing

if TYPE_CHECKING:
    from tidegauge_spark.cluster_metadata import PartitionLeader

log = logging.getLogger(__name__)

LOSS_HINT = (
    "Some data may have been lost because they are not available any more. If you don't want your query to fail on "
    'such cases, set the source option "failOnDataLoss" to "false"'
)


def report_losses(options: Options, losses: list[str]) -> None:
    """Log that records are lost, one sentence each.

    Raises:
        TidegaugeError: OFFSET_OUT_OF_RANGE, there are some and failOnDataLoss is true.
    """
    if losses and options.fail_on_data_loss:
        raise TidegaugeError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{'; '.join(losses)}. {LOSS_HINT}")
    for loss in losses:
        log.warning("%s (failOnDataLoss is false)", loss)


def read_range(
    options: Options, client: Any, offsets: OffsetRange, leader: PartitionLeader, last_epoch: int = -1
) -> Iterator[Any]:
    """Yield Arrow batches of one range, each record once and in order.

    Args:
        options: of the query.
        client: a ``ClusterClient``.
        offsets: the range.
        leader: the partition's, as far as it was known when the range was planned.
        last_epoch: the leader epoch of the record before the range; -1 where it is not known.

    Raises:
        TidegaugeError: records of the range are lost and failOnDataLoss is true; no progress for
            kafkaConsumer.pollTimeoutMs; a corrupt batch.
    """
    try:
        from tidegauge_spark.decode import ArrowDecoder  # noqa: PLC0415  (pyarrow only in the worker)
    except ModuleNotFoundError as error:
        raise missing(error) from None
    from tidegauge_spark.transport import LogTruncatedError  # noqa: PLC0415  (gRPC only in the worker)

    topic_partition, from_offset, until_offset = offsets
    decoder = ArrowDecoder(topic_partition, from_offset, until_offset, options.columns, last_epoch=last_epoch)
    while not decoder.done:
        try:
            for fetched in client.fetch(
                topic_partition, leader, lambda: decoder.next_offset, lambda: decoder.last_epoch, until_offset
            ):
                yield from decoder.decode(fetched.records, fetched.high_watermark, fetched.aborted)
                if decoder.done:
                    break
        except LogTruncatedError as error:
            report_losses(options, [error.message])
            decoder.skip_to(decoder.next_offset)
        except TidegaugeError as error:
            decoder.skip_to(_after_loss(options, client, topic_partition, decoder.next_offset, until_offset, error))
    yield from decoder.rest()


def _after_loss(
    options: Options,
    client: Any,
    topic_partition: TopicPartition,
    offset: int,
    until_offset: int,
    error: TidegaugeError,
) -> int:
    """Return where to continue when the leader does not have an offset: its log start, else the range's end.

    A read that makes no progress at the end of the log, short of the range's, is such a loss too: the options named an
    end that the partition has not reached (``InternalKafkaConsumer.fetch``, ``KafkaDataConsumer.get``). An end that the
    partition had when the query was planned will be there again, so that is waited for.
    """
    is_named = options.ending.offsets.get(topic_partition, LATEST) >= 0
    if is_named and error.code is ErrorCode.REQUEST_TIMED_OUT and _is_at_end(client, topic_partition, offset):
        report_losses(
            options,
            [f"Cannot read {topic_partition} at offset {offset} of {until_offset}: the partition ends there"],
        )
        return until_offset
    if error.code not in {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.INCONSISTENT_TOPIC_ID}:
        raise error
    report_losses(options, [f"Cannot read {topic_partition} at offset {offset} of {until_offset}: {error.message}"])
    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        earliest = ask(client, [topic_partition], EARLIEST)[topic_partition]
        if earliest > offset:
            return earliest
    return until_offset


def _is_at_end(client: Any, topic_partition: TopicPartition, offset: int) -> bool:
    """Return whether a partition's leader has nothing to read from an offset on; False: it can't be asked."""
    try:
        return ask(client, [topic_partition], LATEST)[topic_partition] <= offset
    except TidegaugeError:
        return False
