"""``describe-producers``, ``find-hanging`` and ``abort-transaction``: kafka-transactions.sh over gRPC (KIP-664).

Columns, options and their checks follow Kafka's tool (TransactionsCommand).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import print_json, print_line, print_text, reports_errors, say, verb_options
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.admin_transactions import ProducerDescription
from tidegauge_client.cli.common import INDEX, INT32_MAX, JSON, LIST_LIMIT_MS, LONG, run, servers
from tidegauge_client.cli.transactions import table
from tidegauge_client.hanging_transactions import (
    OpenTransaction,
    candidates,
    coordinated,
    hanging,
    open_transactions_at,
    partitions_in_scope,
)
from tidegauge_client.kafka_brokers import note, on_kafka_brokers

MAX_TRANSACTION_TIMEOUT_MINUTES = 15
"""The default of transaction.max.timeout.ms: no transaction that a coordinator knows lasts longer."""
_NONE = "None"
_MINUTE_MS = 60_000
_EPOCH = click.IntRange(0, 2**15 - 1)
_COORDINATOR_EPOCH = click.IntRange(-1, INT32_MAX)


@click.command("describe-producers")
@click.option("--topic", required=True, help="Topic.")
@click.option("--partition", required=True, type=INDEX, help="Its partition.")
@click.option("--broker-id", type=INDEX, metavar="ID", help="Ask this broker instead of the leader.")
@verb_options
@reports_errors
def describe_producers(
    topic: str, partition: int, broker_id: int | None, bootstrap_server: str | None, directory: Path, output: str
) -> None:
    """Show the producers that a partition knows, and where their open transactions begin."""
    at = TopicPartition(topic, partition)
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> list[ProducerDescription]:
        async with Admin(bootstrap) as admin:
            return await admin.describe_producers(at, broker_id=broker_id)

    found = run(work())
    if output == JSON:
        print_json({"topic": topic, "partition": partition, "producers": [_producer_json(one) for one in found]})
        return
    columns = (
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    )  # fmt: skip
    rows = [
        (
            str(one.producer_id),
            str(one.producer_epoch),
            str(one.coordinator_epoch),
            str(one.last_sequence),
            str(one.last_timestamp_ms),
            _NONE if one.transaction_start_offset is None else str(one.transaction_start_offset),
        )
        for one in found
    ]
    for line in table(columns, rows):
        print_line(line)


def _producer_json(one: ProducerDescription) -> dict[str, Any]:
    return {
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator_epoch": one.coordinator_epoch,
        "last_sequence": one.last_sequence,
        "last_timestamp_ms": one.last_timestamp_ms,
        "transaction_start_offset": one.transaction_start_offset,
    }


@click.command("find-hanging")
@click.option("--topic", help="Search this topic.")
@click.option("--partition", type=INDEX, help="Search this partition of it only.")
@click.option("--broker-id", type=INDEX, metavar="ID", help="Search the replicas of this broker.")
@click.option(
    "--max-transaction-timeout",
    "minutes",
    type=click.IntRange(min=0),
    default=MAX_TRANSACTION_TIMEOUT_MINUTES,
    show_default=True,
    metavar="MINUTES",
    help="Only transactions whose last batch is older.",
)
@verb_options
@reports_errors
def find_hanging(
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    minutes: int,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Find transactions that are open at a partition and unknown to their coordinator, so that no timeout ends them."""
    if topic is None and broker_id is None:
        raise click.UsageError("find-hanging needs --topic or --broker-id, to limit the search")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> tuple[list[OpenTransaction], int]:
        async with Admin(bootstrap) as admin:
            partitions = await partitions_in_scope(admin, topic, partition, broker_id)
            if broker_id is None and (
                elsewhere := on_kafka_brokers(await admin.metadata(), {at.topic for at in partitions})
            ):
                leaders = {broker.id: broker for at, broker in elsewhere.items() if at in partitions}
                if leaders:
                    say(note(leaders, "the open transactions of the partitions that are led there"))
                partitions = [at for at in partitions if at not in elsewhere]
            found = await open_transactions_at(admin, partitions, broker_id)
            now_ms = int(time.time() * 1000)
            old = candidates(found, now_ms, minutes * _MINUTE_MS)
            known = await coordinated(admin, {one.producer.producer_id for one in old}, missing_ms=LIST_LIMIT_MS)
            return hanging(old, known), now_ms

    found, now_ms = run(work())
    if output == JSON:
        print_json(
            {
                "hanging": [
                    {"topic": one.at.topic, "partition": one.at.partition, **_producer_json(one.producer)}
                    for one in found
                ]
            }
        )
        return
    for line in _hanging_lines(found, now_ms):
        print_line(line)


def _hanging_lines(found: Sequence[OpenTransaction], now_ms: int) -> Iterator[str]:
    columns = (
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
        "Duration(min)",
    )  # fmt: skip
    rows = [
        (
            one.at.topic,
            str(one.at.partition),
            str(one.producer.producer_id),
            str(one.producer.producer_epoch),
            str(one.producer.coordinator_epoch),
            str(one.start_offset),
            str(one.producer.last_timestamp_ms),
            str((now_ms - one.producer.last_timestamp_ms) // _MINUTE_MS),
        )
        for one in found
    ]
    return table(columns, rows)


@click.command("abort-transaction")
@click.option("--topic", required=True, help="Topic of the hanging transaction.")
@click.option("--partition", required=True, type=INDEX, help="Its partition.")
@click.option("--start-offset", type=LONG, metavar="N", help="First offset of the transaction.")
@click.option("--producer-id", type=LONG, metavar="N", help="Instead of --start-offset: the producer.")
@click.option("--producer-epoch", type=_EPOCH, metavar="N", help="With --producer-id: its epoch.")
@click.option(
    "--coordinator-epoch", type=_COORDINATOR_EPOCH, metavar="N", help="With --producer-id: its coordinator's epoch."
)
@verb_options
@reports_errors
def abort_transaction(
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Abort a hanging transaction, of which its coordinator knows nothing any more, at one partition.

    The marker goes straight to the partition's leader; the coordinator is not asked (KIP-664). A transaction that its
    coordinator knows is ended by its producer, by a new producer of the same id, or by its timeout.
    """
    if (start_offset is None) == (producer_id is None):
        raise click.UsageError("abort-transaction needs either --start-offset or --producer-id")
    if producer_id is None and not producer_epoch == coordinator_epoch is None:
        raise click.UsageError("--producer-epoch and --coordinator-epoch need --producer-id")
    if producer_id is not None and (producer_epoch is None or coordinator_epoch is None):
        raise click.UsageError("--producer-id needs --producer-epoch and --coordinator-epoch")
    at = TopicPartition(topic, partition)
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> tuple[int, int]:
        async with Admin(bootstrap) as admin:
            if start_offset is not None:
                found = await admin.abort_transaction(at, start_offset)
                return found.producer_id, found.producer_epoch
            assert producer_id is not None
            assert producer_epoch is not None
            assert coordinator_epoch is not None
            await admin.write_abort_marker(at, producer_id, producer_epoch, max(0, coordinator_epoch))
            return producer_id, producer_epoch

    aborted_id, aborted_epoch = run(work())
    if output == JSON:
        print_json(
            {
                "topic": topic,
                "partition": partition,
                "start_offset": start_offset,
                "producer_id": aborted_id,
                "producer_epoch": aborted_epoch,
            }
        )
        return
    where = f"at {at}" if start_offset is None else f"at offset {start_offset} of {at}"
    print_text(f"The transaction of producer {aborted_id}, epoch {aborted_epoch}, {where} is aborted.")
