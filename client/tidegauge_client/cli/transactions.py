"""``list-transactions`` and ``describe-transaction``: kafka-transactions.sh list and describe, over gRPC.

The verbs about partitions (``describe-producers``, ``find-hanging``, ``abort-transaction``) are in ``hanging``.

Columns follow Kafka's tool (TransactionsCommand).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from tidegauge.cli import EXIT_FAILED, EXIT_OK, print_json, print_line, reports_errors, say, verb_options
from tidegauge_client.admin import Admin
from tidegauge_client.admin_transactions import ListedTransaction, TransactionDescription
from tidegauge_client.cli.common import JSON, LONG, list_limit, run, servers

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
_UNKNOWN = "None"


@click.command("list-transactions")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only transactional ids in this state; may be repeated.",
)
@click.option("--producer-id", "producer_ids", multiple=True, type=LONG, help="Only of this producer; may be repeated.")
@click.option(
    "--duration-filter",
    type=LONG,
    metavar="MS",
    help="Only transactions that have been open longer, in ms.",
)
@list_limit
@verb_options
@reports_errors
def list_transactions(
    states: Sequence[str],
    producer_ids: Sequence[int],
    duration_filter: int | None,
    timeout_ms: int,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> int:
    """List the transactional ids of the cluster; if a broker's ids stay missing, list the others and fail."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> tuple[list[ListedTransaction], str]:
        async with Admin(bootstrap) as admin:
            return await admin.list_transactions_there(
                states,
                producer_ids,
                running_longer_than_ms=duration_filter,
                timeout_ms=timeout_ms,
            )

    found, lacks = run(work())
    if lacks:
        say(lacks)
    if output == JSON:
        print_json(
            {
                "transactions": [
                    {
                        "transactional_id": one.transactional_id,
                        "coordinator": one.coordinator,
                        "producer_id": one.producer_id,
                        "state": one.state,
                    }
                    for one in found
                ]
            }
        )
    else:
        rows = [(one.transactional_id, str(one.coordinator), str(one.producer_id), one.state) for one in found]
        for line in table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows):
            print_line(line)
    return EXIT_FAILED if lacks else EXIT_OK


@click.command("describe-transaction")
@click.argument("transactional_id", metavar="ID")
@verb_options
@reports_errors
def describe_transaction(transactional_id: str, bootstrap_server: str | None, directory: Path, output: str) -> None:
    """Show the state of a transactional id: its producer, timeout, and the partitions of its transaction."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> TransactionDescription:
        async with Admin(bootstrap) as admin:
            return await admin.describe_transaction(transactional_id)

    found = run(work())
    is_open = found.state in {"Ongoing", "PrepareCommit", "PrepareAbort"} and found.start_time_ms >= 0
    open_ms = max(0, int(time.time() * 1000) - found.start_time_ms) if is_open else None
    if output == JSON:
        print_json(
            {
                "transactional_id": found.transactional_id,
                "coordinator": found.coordinator,
                "producer_id": found.producer_id,
                "producer_epoch": found.producer_epoch,
                "state": found.state,
                "timeout_ms": found.timeout_ms,
                "start_time_ms": found.start_time_ms if is_open else None,
                "duration_ms": open_ms,
                "partitions": [{"topic": at.topic, "partition": at.partition} for at in found.partitions],
            }
        )
        return
    columns = (
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
        "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    )  # fmt: skip
    row = (
        str(found.coordinator),
        found.transactional_id,
        str(found.producer_id),
        str(found.producer_epoch),
        found.state,
        str(found.timeout_ms),
        str(found.start_time_ms) if is_open else _UNKNOWN,
        _UNKNOWN if open_ms is None else str(open_ms),
        ",".join(map(str, found.partitions)),
    )
    for line in table(columns, [row]):
        print_line(line)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, as Kafka's tools align them."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        yield "\t".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
