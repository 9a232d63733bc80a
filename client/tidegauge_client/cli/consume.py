"""``consume``: committed records of a topic on stdout, as kcat prints them.

Partitions that can't be read are reported on stderr: a partition without a leader or whose leader does not respond,
once for each reason, when no record has come for a while; and an offset that is out of range, with where reading
continues.

With ``--group`` the topic's partitions are shared with the other members of the group, as by kafka-console-consumer.sh:
it begins at the committed offsets, and commits every five seconds, before partitions are given up, and at the end.

``--history F`` appends what each poll returned to F, for ``tidegauge verify --transactions``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal

import click

from tidegauge.cli import EXIT_TERMINATED, reports_errors, say, verb_options
from tidegauge.counted import counted
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.cli.common import INDEX, INT64_MAX, JSON, Ending, run, servers, wire_option
from tidegauge_client.cli.completing import complete_topic
from tidegauge_client.cli.formatting import compile_format, record_json
from tidegauge_client.cli.group_properties import GroupSettings, parse_properties
from tidegauge_client.consumer import Consumer
from tidegauge_client.group.group_consumer import GroupConsumer
from tidegauge_client.isolation import IsolationLevel
from tidegauge_client.kafka_brokers import led_by, note_of_partitions
from tidegauge_client.operation_history import PollHistory
from tidegauge_client.subscription import ConsumerRecord
from tidegauge_client.wires import Wire

TOPIC_TIMEOUT_MS = 2_000
POLL_MS = 500
POLL_RECORDS = 2_000
LOOKUP_SECONDS = 2.0
GROUP_TROUBLE_SECONDS = 3.0
"""How long a group may not be joinable before that is reported."""


class OffsetType(click.ParamType[int | str]):
    """A number, earliest or latest; a negative number counts back from the high watermark, as for kcat."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Read the value, or fail as a usage error."""
        if value in {"earliest", "latest"}:
            return str(value)
        try:
            number = int(value)
        except ValueError:
            number = INT64_MAX + 1
        if abs(number) > INT64_MAX:
            self.fail(
                f"The provided offset value '{value}' is incorrect. Valid values are 'earliest', 'latest', a "
                "non-negative long, or -N for the last N records of each partition.",
                param,
                ctx,
            )
        return number


def _json_line(record: ConsumerRecord, topic_id: str = "") -> bytes:
    return json.dumps(record_json(record, topic_id), separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


class Printing:
    """Reads until its limits, and counts."""

    def __init__(
        self,
        render: Callable[[ConsumerRecord], bytes],
        max_messages: int | None,
        timeout_ms: int | None,
        history: PollHistory | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.render = render
        self._now = now
        self._history = history
        self._max_messages = max_messages
        self._timeout_ms = timeout_ms
        self._shown: dict[TopicPartition, str] = {}
        self._group_shown = ""
        self._group_trouble = ("", 0.0)  # what it is, and since when
        self.count = 0

    async def run(self, consumer: Consumer) -> None:
        """Print the records as they come."""
        while self._max_messages is None or self.count < self._max_messages:
            limit = POLL_RECORDS if self._max_messages is None else min(POLL_RECORDS, self._max_messages - self.count)
            wait_ms = POLL_MS if self._timeout_ms is None else self._timeout_ms
            begun_us = 0 if self._history is None else self._history.now_us()
            records = await consumer.poll(wait_ms, limit)
            self.tell_news(consumer, has_waited=not records)
            if self._history is not None:
                self._history.polled(begun_us, records)
            if not records and self._timeout_ms is not None:
                return
            sys.stdout.buffer.write(b"".join(map(self.render, records)))
            sys.stdout.buffer.flush()
            self.count += len(records)

    def tell_news(self, consumer: Consumer, *, has_waited: bool) -> None:
        """Report what happened to positions, and, when no record has come for a while, what can't be read and why."""
        notices = consumer.take_notices()
        for notice in notices:
            say(notice)
        if notices and self._history is not None:
            self._history.on_partitions_assigned()
        now = {at: str(problem) for at, problem in consumer.troubles().items()}
        if has_waited and isinstance(consumer, GroupConsumer):
            self._tell_group(consumer)
        if has_waited:
            for at, words in now.items():
                if self._shown.get(at) != words:
                    say(f"Nothing can be read from {at} at the moment, and it is retried: {words}")
            self._shown = now
        else:
            self._shown = {at: words for at, words in self._shown.items() if at in now}

    def _tell_group(self, consumer: GroupConsumer) -> None:
        """Report, once for each reason, why the group cannot be joined.

        A reason that goes by itself is none to report: the first group of a cluster waits for __consumer_offsets to be
        created. It is reported when it has lasted for a while, or no more is waited for.
        """
        trouble = consumer.group_trouble()
        words = "" if trouble is None else str(trouble)
        now = self._now()
        if words != self._group_trouble[0]:
            self._group_trouble = (words, now)
        has_lasted = self._timeout_ms is not None or now - self._group_trouble[1] >= GROUP_TROUBLE_SECONDS
        if words and has_lasted and words != self._group_shown:
            group = consumer.group_metadata().group_id
            say(f"Group {group} cannot be joined at the moment, and it is retried: {words}")
            self._group_shown = words
        elif not words:
            self._group_shown = ""

    def tell_count(self) -> None:
        """Print Kafka's last line."""
        say(f"Processed a total of {self.count} messages")


_WITHOUT_LEADER = {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND}


async def begin(consumer: Consumer, topic: str, partition: int | None, offset: int | str, printing: Printing) -> None:
    """Assign the topic's partitions, or one, and go to the offset in each.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION; LISTENER_NOT_FOUND, an Apache Kafka broker leads all of it.
    """
    await consumer.subscribe([topic], timeout_ms=TOPIC_TIMEOUT_MS)
    elsewhere = consumer.led_by_kafka(topic)
    if partition in elsewhere or (elsewhere and len(elsewhere) == len(consumer.assignment())):
        first = min(elsewhere) if partition is None else partition
        raise led_by(TopicPartition(topic, first), elsewhere[first])
    if elsewhere and partition is None:
        say(note_of_partitions(topic, elsewhere, "nothing can be read from"))
    if partition is not None:
        chosen = TopicPartition(topic, partition)
        if chosen not in consumer.assignment():
            known = len(consumer.assignment())
            raise TidegaugeError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {chosen}; the topic has {counted(known, 'partition')}",
            )
        consumer.assign([chosen])
    if isinstance(offset, int) and offset >= 0:
        for assigned in consumer.assignment():
            consumer.seek(assigned, offset)
    elif offset != "earliest":
        # The position of "new" is determined before anything is waited for.
        await settle(consumer, consumer.seek_to_end(), printing)
        if isinstance(offset, int):
            await settle(consumer, go_back(consumer, -offset), printing)


async def go_back(consumer: Consumer, count: int) -> None:
    """Go to the last ``count`` records of each partition whose end is known, or to its first record."""
    unreadable = consumer.troubles()
    ends = {at: await consumer.position(at) for at in consumer.assignment() if at not in unreadable}
    if ends:
        await consumer.seek_to_beginning(ends)
    for at, end in ends.items():
        consumer.seek(at, max(await consumer.position(at), end - count))


async def settle(consumer: Consumer, lookup: Coroutine[Any, Any, None], printing: Printing) -> None:
    """Wait until offsets are looked up; a partition without a leader, which may take for ever, delays no other."""
    settling = asyncio.ensure_future(lookup)
    try:
        while not (await asyncio.wait({settling}, timeout=LOOKUP_SECONDS))[0]:
            printing.tell_news(consumer, has_waited=True)
            troubles = consumer.troubles().values()
            if troubles and all(problem.code in _WITHOUT_LEADER for problem in troubles):
                return
    finally:
        settling.cancel()
    await settling


def _consumer(
    bootstrap: Sequence[str],
    group: str | None,
    settings: GroupSettings,
    isolation_level: IsolationLevel,
    wire: Wire,
    *,
    is_from_beginning: bool,
) -> Consumer:
    where: Literal["earliest", "latest"] = "earliest" if is_from_beginning else "latest"
    limit = POLL_RECORDS
    if group is None:
        return Consumer(
            bootstrap, auto_offset_reset=where, max_poll_records=limit, isolation_level=isolation_level, wire=wire
        )
    chosen: GroupSettings = {"client_id": "console-consumer", "auto_offset_reset": where, **settings}
    return GroupConsumer(bootstrap, group, max_poll_records=limit, isolation_level=isolation_level, wire=wire, **chosen)


@click.command("consume")
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Read from the log start offset; otherwise only new records. With --group: if nothing is committed.",
)
@click.option("--group", metavar="GROUP", help="Share the partitions with the members of this group, and commit to it.")
@click.option(
    "--consumer-property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the group's member, such as group.instance.id or session.timeout.ms; may be repeated.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed: nothing of open and of aborted transactions.",
)
@click.option("--partition", type=INDEX, help="Read only this partition.")
@click.option(
    "--offset",
    type=OffsetType(),
    metavar="N|-N|earliest|latest",
    help="Where to begin, in each partition that is read; -N: at the last N records.",
)
@click.option("--max-messages", type=click.IntRange(min=0), metavar="N", help="End after N records.")
@click.option("--timeout-ms", type=click.IntRange(min=0), metavar="N", help="End when no record has come for N ms.")
@click.option(
    "--format", "template", default="%v\\n", show_default=True, help="As kcat: %t %p %o %T %k %v %h %K %S %%."
)
@click.option(
    "--history",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append the records that are read, for `verify --transactions`.",
)
@wire_option
@verb_options
@reports_errors
def consume(
    topic: str,
    from_beginning: bool,
    group: str | None,
    properties: tuple[str, ...],
    isolation_level: IsolationLevel,
    partition: int | None,
    offset: int | str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    template: str,
    history: Path | None,
    wire: Wire,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Print the committed records of a topic."""
    if offset is not None and from_beginning:
        raise click.UsageError("The options from-beginning and offset cannot be specified together.")
    if group is not None and (partition is not None or offset is not None):
        raise click.UsageError(
            "The options group and partition or offset cannot be specified together: a group assigns the partitions, "
            "and `tidegauge reset-offsets` sets its position."
        )
    if properties and group is None:
        raise click.UsageError("--consumer-property needs --group")
    try:
        settings = parse_properties(properties)
        render = _json_line if output == JSON else compile_format(template)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    bootstrap = servers(bootstrap_server, directory)
    where = ("earliest" if from_beginning else "latest") if offset is None else offset
    written = None if history is None else PollHistory(history, isolation_level)
    printing = Printing(render, max_messages, timeout_ms, written)

    ending: Ending | None = None

    async def work() -> None:
        nonlocal ending
        ending = Ending(with_reader=True)
        is_from_beginning = where == "earliest"
        async with _consumer(
            bootstrap, group, settings, isolation_level, wire, is_from_beginning=is_from_beginning
        ) as consumer:
            if isinstance(consumer, GroupConsumer):
                await consumer.subscribe([topic], timeout_ms=TOPIC_TIMEOUT_MS, listener=written)
            else:
                await begin(consumer, topic, partition, where, printing)
                if written is not None:
                    written.on_partitions_assigned()
            if output == JSON:
                printing.render = lambda record: _json_line(record, consumer.topic_identity(topic).topic_id)
            await printing.run(consumer)

    try:
        run(work())
    except TidegaugeError:
        if printing.count:
            printing.tell_count()
        raise  # a reading that never began leaves only its error
    except KeyboardInterrupt:
        printing.tell_count()
        raise
    except asyncio.CancelledError:
        printing.tell_count()
        raise SystemExit(EXIT_TERMINATED if ending is None else ending.exit_code) from None
    printing.tell_count()
