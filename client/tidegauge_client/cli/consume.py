"""``consume``: committed records of a topic on stdout, as kcat prints them (design, section 6)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import say, tells_errors, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.cli.common import JSON, run, servers
from tidegauge_client.cli.formatting import compile_format, record_json
from tidegauge_client.consumer import Consumer
from tidegauge_client.subscription import ConsumerRecord

TOPIC_TIMEOUT_MS = 2_000
POLL_MS = 500
POLL_RECORDS = 2_000


class OffsetType(click.ParamType[int | str]):
    """A number, or earliest or latest."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Read it, or fail as a usage error."""
        if value in {"earliest", "latest"}:
            return str(value)
        try:
            number = int(value)
        except ValueError:
            number = -1
        if number < 0:
            self.fail(
                f"The provided offset value '{value}' is incorrect. Valid values are 'earliest', 'latest', or a "
                "non-negative long.",
                param,
                ctx,
            )
        return number


def _json_line(record: ConsumerRecord) -> bytes:
    return json.dumps(record_json(record), separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


class Printing:
    """Reads until its limits, and counts."""

    def __init__(
        self, render: Callable[[ConsumerRecord], bytes], max_messages: int | None, timeout_ms: int | None
    ) -> None:
        self._render = render
        self._max_messages = max_messages
        self._timeout_ms = timeout_ms
        self.count = 0

    async def run(self, consumer: Consumer) -> None:
        """Print what comes."""
        while self._max_messages is None or self.count < self._max_messages:
            limit = POLL_RECORDS if self._max_messages is None else min(POLL_RECORDS, self._max_messages - self.count)
            wait_ms = POLL_MS if self._timeout_ms is None else self._timeout_ms
            records = await consumer.poll(wait_ms, limit)
            if not records and self._timeout_ms is not None:
                return
            sys.stdout.buffer.write(b"".join(map(self._render, records)))
            sys.stdout.buffer.flush()
            self.count += len(records)

    def tell_count(self) -> None:
        """Kafka's last line."""
        say(f"Processed a total of {self.count} messages")


async def begin(consumer: Consumer, topic: str, partition: int | None, offset: int | str) -> None:
    """Assign the topic's partitions, or one, and go to the offset in each.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    await consumer.subscribe([topic], timeout_ms=TOPIC_TIMEOUT_MS)
    if partition is not None:
        chosen = TopicPartition(topic, partition)
        if chosen not in consumer.assignment():
            known = len(consumer.assignment())
            raise TidegaugeError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {chosen}; the topic has {known} partitions",
            )
        consumer.assign([chosen])
    if isinstance(offset, int):
        for assigned in consumer.assignment():
            consumer.seek(assigned, offset)
    elif offset == "latest":
        # Where "new" begins is settled before anything is waited for.
        await consumer.seek_to_end()


@click.command("consume")
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="From the log start offset; else only new records.")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option(
    "--offset", type=OffsetType(), metavar="N|earliest|latest", help="Where to begin, in each partition that is read."
)
@click.option("--max-messages", type=click.IntRange(min=0), metavar="N", help="End after N records.")
@click.option("--timeout-ms", type=click.IntRange(min=0), metavar="N", help="End when no record has come for N ms.")
@click.option(
    "--format", "template", default="%v\\n", show_default=True, help="As kcat: %t %p %o %T %k %v %h %K %S %%."
)
@verb_options
@tells_errors
def consume(
    topic: str,
    from_beginning: bool,
    partition: int | None,
    offset: int | str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    template: str,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Print the committed records of a topic."""
    if offset is not None and from_beginning:
        raise click.UsageError("The options from-beginning and offset cannot be specified together.")
    try:
        render = _json_line if output == JSON else compile_format(template)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    bootstrap = servers(bootstrap_server, directory)
    where = ("earliest" if from_beginning else "latest") if offset is None else offset
    printing = Printing(render, max_messages, timeout_ms)

    async def work() -> None:
        async with Consumer(
            bootstrap, auto_offset_reset="earliest" if where == "earliest" else "latest", max_poll_records=POLL_RECORDS
        ) as consumer:
            await begin(consumer, topic, partition, where)
            await printing.run(consumer)

    try:
        run(work())
    except TidegaugeError:
        if printing.count:
            printing.tell_count()
        raise  # a reading that never began leaves nothing but its error
    except KeyboardInterrupt:
        printing.tell_count()
        raise
    printing.tell_count()
