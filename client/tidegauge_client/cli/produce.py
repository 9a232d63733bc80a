"""``produce``: lines of a file or of stdin, or numbered records, into a topic.

Order is kept per key and per partition. Every record ends acknowledged or failed: sent = acked + failed. Ctrl-C and
SIGTERM stop the reading; records that were handed over get a few seconds for their acknowledgement, then the summary
is printed (exit 130 and 143).

A line may begin with headers, then with a key, each ended by a separator of its own, as ``parse.headers`` and
``parse.key`` of kafka-console-producer.sh; headers have the form that ``consume`` prints for ``%h``.

With ``--transactional-id`` the records are written in transactions (``produce_transactions``).

``--history F`` appends what happened to each record to F, for the accountant (``tidegauge verify``); its format is
described in ``tidegauge_client.history``. In transactions the format is ``tidegauge_client.operation_history``'s,
with the begin and end of each transaction, for ``tidegauge verify --transactions``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, NoReturn

import click

from tidegauge.cli import EXIT_FAILED, fail, print_json, reports_errors, say, verb_options
from tidegauge.counted import counted
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.cli.common import JSON, Ending, run, servers, wire_option
from tidegauge_client.cli.completing import complete_topic
from tidegauge_client.cli.formatting import parse_header, parse_headers, unescape
from tidegauge_client.cli.lines import read_lines
from tidegauge_client.cli.produce_transactions import (
    TRANSACTION_TIMEOUT_MS,
    LastEnds,
    ProduceTransactions,
    TransactionFailed,
    TransactionPlan,
    plan_of,
    transaction_options,
)
from tidegauge_client.history import HistoryWriter
from tidegauge_client.kafka_brokers import led_by, note_of_partitions
from tidegauge_client.metadata import TopicInfo
from tidegauge_client.operation_history import TransactionHistory
from tidegauge_client.partition_queue import RecordMetadata
from tidegauge_client.producer import Producer
from tidegauge_client.records import Headers
from tidegauge_client.sender import Counters
from tidegauge_client.wires import Wire

TOPIC_TIMEOUT_MS = 2_000
LAST_RESPONSES_MS = 5_000
LINGER_MS = 5
REQUEST_TIMEOUT_MS = 30_000
DELIVERY_TIMEOUT_MS = 120_000
BATCH_SIZE_BYTES = 65_536
NUMBERS_AT_ONCE = 1_000
PROBLEMS_REPORTED = 5
ACKS: dict[str, Literal["all", 0, 1]] = {"all": "all", "-1": "all", "1": 1, "0": 0}


class MalformedLine(Exception):
    """A line lacks a required separator, or its headers can't be read."""


@dataclass
class Work:
    """The records to write, and how."""

    topic: str
    partition: int | None
    separator: bytes | None
    rate: float | None
    history: HistoryWriter | TransactionHistory | None
    acks: Literal["all", 0, 1] = "all"
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    headers: Headers = ()
    headers_separator: bytes | None = None
    plan: TransactionPlan | None = None
    wire: Wire = "kafka"
    transactions: ProduceTransactions | None = None
    refused: int = 0
    line_number: int = 0
    problems: Counter[tuple[ErrorCode, str]] = field(default_factory=Counter)

    def producer(self, bootstrap: list[str]) -> Producer:
        """Return a producer whose request timeout fits its delivery timeout."""
        return Producer(
            bootstrap,
            acks=self.acks,
            linger_ms=LINGER_MS,
            batch_size_bytes=BATCH_SIZE_BYTES,
            delivery_timeout_ms=self.delivery_timeout_ms,
            request_timeout_ms=min(self.request_timeout_ms, self.delivery_timeout_ms - LINGER_MS),
            transactional_id=None if self.plan is None else self.plan.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS if self.plan is None else self.plan.timeout_ms,
            wire=self.wire,
        )

    def split(self, line: bytes) -> tuple[Headers, bytes | None, bytes]:
        """Return headers, key and value of a line.

        Raises:
            MalformedLine: a separator is missing, or the headers have another form.
        """
        self.line_number += 1
        headers, key = self.headers, None
        if self.headers_separator is not None:
            begin, line = self._parted(line, self.headers_separator, "headers")
            try:
                headers = [*parse_headers(begin), *headers]
            except ValueError as problem:
                raise MalformedLine(f"Malformed headers on line number {self.line_number}: {problem}") from None
        if self.separator is not None:
            key, line = self._parted(line, self.separator, "key")
        return headers, key, line

    def _parted(self, line: bytes, separator: bytes, name: str) -> tuple[bytes, bytes]:
        begin, found, rest = line.partition(separator)
        if not found:
            raise MalformedLine(f"No {name} separator found on line number {self.line_number}")
        return begin, rest

    def failed(self, index: int, problem: TidegaugeError, *, is_definite: bool) -> None:
        """Note that a record was rejected, or that its outcome is unknown."""
        self.problems[problem.code, problem.message] += 1
        if self.history is not None:
            self.history.failed(index, problem, is_definite=is_definite)

    def responded(self, index: int, future: asyncio.Future[RecordMetadata]) -> None:
        """Handle the acknowledgement, or why there is none."""
        if future.cancelled():
            return
        problem = future.exception()
        if isinstance(problem, TidegaugeError):
            self.failed(index, problem, is_definite=problem.definite)
        elif problem is None and self.history is not None:
            self.history.acknowledged(index, future.result())


async def numbered(count: int) -> AsyncIterator[list[bytes]]:
    """Yield ``0`` to ``count - 1`` as text."""
    for begin in range(0, count, NUMBERS_AT_ONCE):
        yield [b"%d" % number for number in range(begin, min(count, begin + NUMBERS_AT_ONCE))]


async def send_all(producer: Producer, work: Work, lines: AsyncIterator[list[bytes]]) -> None:
    """Hand all lines over, at the rate asked for.

    Raises:
        MalformedLine: a line can't be split; those before it were handed over.
        TransactionFailed: the transaction can't go on.
    """
    begun = time.monotonic()
    index = 0
    async for some in lines:
        for line in some:
            headers, key, value = work.split(line)
            if work.rate is not None:
                ahead = index / work.rate - (time.monotonic() - begun)
                if ahead > 0:
                    await asyncio.sleep(ahead)
            timestamp_ms = int(time.time() * 1000)
            await _begin(work)
            if work.history is not None:
                work.history.sends_to(producer.topic_identity(work.topic))
                work.history.invoked(index, key, value, work.partition, timestamp_ms)
            try:
                future = await producer.send(
                    work.topic, value, key, partition=work.partition, timestamp_ms=timestamp_ms, headers=headers
                )
            except TidegaugeError as problem:
                work.refused += 1
                work.failed(index, problem, is_definite=True)  # it was never handed over
                if work.transactions is not None:
                    raise TransactionFailed(f"The transaction can't go on: {problem}") from None
            else:
                future.add_done_callback(partial(work.responded, index))
            index += 1
            if work.transactions is not None:
                await work.transactions.after_record()


async def _begin(work: Work) -> None:
    """Begin a transaction before its first record.

    Raises:
        TransactionFailed: it can't be begun.
    """
    if work.transactions is None:
        return
    try:
        await work.transactions.before_record()
    except TidegaugeError as problem:
        work.refused += 1
        work.problems[problem.code, problem.message] += 1
        raise TransactionFailed(f"The transaction can't go on: {problem}") from None


@click.command("produce")
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Read lines from this file instead of stdin.",
)
@click.option("--count", type=click.IntRange(min=0), metavar="N", help="Write the numbers 0 to N-1 instead of lines.")
@click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="Acknowledgement by all in-sync replicas (all, -1), by the leader (1), or none (0).",
)
@click.option(
    "--key-separator",
    metavar="S",
    help="Separates key and value at its first occurrence; escapes such as \\t are allowed.",
)
@click.option(
    "--header", "fixed_headers", multiple=True, metavar="NAME=VALUE", help="A header of every record; may be repeated."
)
@click.option(
    "--headers-separator",
    metavar="S",
    help="Separates headers, in front of the key, at its first occurrence: NAME=VALUE,NAME=VALUE, as %h of `consume`.",
)
@click.option("--partition", type=click.IntRange(min=0), metavar="P", help="Write to this partition only.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Maximum number of records per second."
)
@click.option(
    "--delivery-timeout-ms",
    type=click.IntRange(min=2 * LINGER_MS),
    metavar="N",
    default=DELIVERY_TIMEOUT_MS,
    show_default=True,
    help="Time after which a record without acknowledgement has failed.",
)
@click.option(
    "--request-timeout-ms",
    type=click.IntRange(min=1),
    metavar="N",
    default=REQUEST_TIMEOUT_MS,
    show_default=True,
    help="How long a broker may take to respond, before the records are sent again; at most the delivery timeout.",
)
@click.option(
    "--history",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append what happens to each record, for `verify`; in transactions for `verify --transactions`.",
)
@wire_option
@transaction_options
@verb_options
@reports_errors
def produce(
    topic: str,
    file: Path | None,
    count: int | None,
    acks: str,
    key_separator: str | None,
    fixed_headers: Sequence[str],
    headers_separator: str | None,
    partition: int | None,
    rate: float | None,
    delivery_timeout_ms: int,
    request_timeout_ms: int,
    history: Path | None,
    wire: Wire,
    transactional_id: str | None,
    commit_every: int | None,
    ending: LastEnds | None,
    transaction_timeout_ms: int | None,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Write lines to a topic: bytes in, bytes out."""
    separator = _separator("--key-separator", key_separator)
    before_key = _separator("--headers-separator", headers_separator)
    if count is not None and (file is not None or separator is not None or before_key is not None):
        raise click.UsageError("Option --count can't be used with --file, --key-separator or --headers-separator")
    plan = plan_of(transactional_id, commit_every, ending, transaction_timeout_ms)
    if plan is not None and ACKS[acks] != "all":
        raise click.UsageError("Option --transactional-id needs --acks all")
    try:
        headers = [parse_header(text.encode(errors="surrogateescape")) for text in fixed_headers]
    except ValueError as problem:
        raise click.UsageError(f"Invalid value for '--header': {problem}") from None
    bootstrap = servers(bootstrap_server, directory)
    with ExitStack() as files:
        written = None if history is None else _writer(history, topic, str(ACKS[acks]), plan)
        if written is not None:
            files.enter_context(written)
        source = sys.stdin.buffer if file is None else files.enter_context(file.open("rb"))
        work = Work(
            topic,
            partition,
            separator,
            rate,
            written,
            ACKS[acks],
            delivery_timeout_ms,
            request_timeout_ms,
            headers,
            before_key,
            plan,
            wire,
        )
        lines = read_lines(source) if count is None else numbered(count)
        sentence = run(_produce(bootstrap, work, lines, output))
    if sentence is not None:
        fail(sentence, output)


def _writer(path: Path, topic: str, acks: str, plan: TransactionPlan | None) -> HistoryWriter | TransactionHistory:
    """Return what appends to the history: in transactions with their begins and ends."""
    if plan is not None:
        return TransactionHistory(path, topic)
    return HistoryWriter(path, topic, acks, is_idempotent=acks == "all")


def _separator(option: str, text: str | None) -> bytes | None:
    """Return the bytes of a separator, or raise a usage error."""
    try:
        return None if text is None else unescape(text)
    except ValueError as problem:
        raise click.UsageError(f"Invalid value for '{option}': {problem}") from None


async def _produce(bootstrap: list[str], work: Work, lines: AsyncIterator[list[bytes]], output: str) -> str | None:
    """Write all records and print the summary; return the sentence to fail with."""
    stopped: str | None = None
    interrupted = False
    ending = Ending()
    async with work.producer(bootstrap) as producer:
        info = await producer.partitions_for(work.topic, timeout_ms=TOPIC_TIMEOUT_MS)
        if work.partition is not None and work.partition not in info.partitions:
            raise TidegaugeError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {work.topic}-{work.partition}; the topic has "
                f"{counted(len(info.partitions), 'partition')}",
            )
        _check_leaders(producer, work, info)
        if work.plan is not None:
            history = work.history if isinstance(work.history, TransactionHistory) else None
            work.transactions = ProduceTransactions(producer, work.plan, history)
            await work.transactions.init()
        begun = time.monotonic()
        try:
            stopped = await _write(producer, work, lines)
        except asyncio.CancelledError:
            interrupted = True
            await _interrupt(producer, work)
        seconds = time.monotonic() - begun
        # The acknowledgements' callbacks run in the loop's next turn.
        await asyncio.sleep(0)
        # A transaction that has not ended by now is left open on purpose, or its outcome is said to be unknown.
        await producer.stop(timeout_ms=0)
    _tell(work, producer.counters, seconds, output)
    if interrupted:
        raise SystemExit(ending.exit_code)
    if stopped is None and (producer.counters.failed or work.refused):
        if output == JSON:
            fail_as_json(work.problems)
        raise SystemExit(EXIT_FAILED)
    return stopped


def _check_leaders(producer: Producer, work: Work, info: TopicInfo) -> None:
    """Refuse at once what gRPC can't reach, and say which partitions get no records.

    Raises:
        OnKafkaBroker: an Apache Kafka broker leads the partition, or all of them.
    """
    elsewhere = producer.led_by_kafka(work.topic)
    wanted = [index for index in info.partitions if work.partition in {None, index}]
    if not elsewhere or not elsewhere.keys() & set(wanted):
        return
    if elsewhere.keys() >= set(wanted):
        raise led_by(TopicPartition(work.topic, wanted[0]), elsewhere[wanted[0]])
    keyed = "" if work.separator is None else "; records whose keys belong there fail"
    say(note_of_partitions(work.topic, elsewhere, "no record can be written to") + keyed)


async def _write(producer: Producer, work: Work, lines: AsyncIterator[list[bytes]]) -> str | None:
    """Write all records, and end the last transaction; return why it stopped before the last line, if it did."""
    try:
        await send_all(producer, work, lines)
        if work.transactions is not None:
            await work.transactions.finish()
        await producer.flush()
    except (MalformedLine, TransactionFailed) as problem:
        if work.transactions is not None:
            with suppress(TransactionFailed):  # the first problem is the one to report
                await work.transactions.give_up()
        await producer.flush()
        return str(problem)
    return None


async def _interrupt(producer: Producer, work: Work) -> None:
    """Abort the open transaction, or wait for the last acknowledgements; both only for a while."""
    if work.transactions is not None:
        with suppress(TransactionFailed, TimeoutError):
            async with asyncio.timeout(LAST_RESPONSES_MS / 1000):
                await work.transactions.give_up()
    await producer.stop(LAST_RESPONSES_MS)


def _tell(work: Work, counters: Counters, seconds: float, output: str) -> None:
    """Print the summary."""
    summary = {
        "sent": counters.sent + work.refused,
        "acked": counters.acked,
        "failed": counters.failed + work.refused,
        "retries": counters.retries,
        "seconds": round(seconds, 3),
    }
    done = work.transactions
    if output == JSON:
        ends = {} if done is None else {"committed": done.committed, "aborted": done.aborted, "open": int(done.is_open)}
        print_json(summary | ({"transactions": ends} if ends else {}))
    else:
        for (code, sentence), times in work.problems.most_common(PROBLEMS_REPORTED):
            say(f"{counted(times, 'record')} failed: {TidegaugeError(code, sentence)}")
        retries = counted(counters.retries, "retry", "retries")
        say(
            f"Sent {counted(counters.sent + work.refused, 'record')} in {seconds:.2f} s: "
            f"{summary['acked']} acknowledged, {summary['failed']} failed, {retries}"
        )
        if done is not None:
            left_open = "; the last one is open until its timeout" if done.is_open else ""
            say(f"Transactions: {done.committed} committed, {done.aborted} aborted{left_open}")


def fail_as_json(problems: Counter[tuple[ErrorCode, str]]) -> NoReturn:
    """Fail with one error document, with the code of most failed records."""
    reported = problems.most_common(PROBLEMS_REPORTED)
    sentence = "; ".join(f"{counted(times, 'record')} failed: {sentence}" for (_, sentence), times in reported)
    fail(sentence or "records failed", JSON, code=reported[0][0][0] if reported else None)
