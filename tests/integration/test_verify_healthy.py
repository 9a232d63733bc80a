"""A healthy history must be judged healthy, whatever its topic went through: compaction, deletion, retention, restarts.

Metamorphic tests of ``verify``: nothing here may lose or change an acknowledged record, so each look at the books must
find nothing, with one history file and one file of reads for the whole run.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.verify_shell import Shell, counts
from tests.waiting import until

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import read_events
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge_client.admin import EARLIEST, Admin
from tidegauge_client.cli.consume import consume
from tidegauge_client.history import HistoryWriter
from tidegauge_client.producer import Producer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "0",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "400",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    "min.insync.replicas": "2",
}
RETAINED = {"retention.bytes": "1500", "segment.bytes": "400", "min.insync.replicas": "2"}
Row = tuple[bytes | None, bytes | None]


class Story:
    """A topic's history on real brokers; ``look`` judges it."""

    def __init__(self, brokers: LocalCluster, directory: Path, topic: str, settings: dict[str, str]) -> None:
        self.cluster = brokers
        self.shell = Shell(brokers, directory)
        self.topic = topic
        self.settings = settings
        self.at = TopicPartition(topic, 0)
        self.written = 0
        self.down: int | None = None
        self.looks = 0
        for name in ("h", "reads"):
            (directory / name).touch()
        self.create()

    @property
    def has_keys(self) -> bool:
        return "compact" in self.settings["cleanup.policy"] if "cleanup.policy" in self.settings else False

    def admin(self, work: Callable[[Admin], Awaitable[Any]]) -> object:
        async def do() -> Any:
            async with Admin(self.cluster.bootstrap_servers) as admin:
                return await work(admin)

        return asyncio.run(do())

    def create(self) -> None:
        self.shell.topic(self.topic, **self.settings)

    def create_again(self) -> None:
        self.start()
        self.admin(lambda admin: admin.delete_topic(self.topic))
        self.admin(lambda admin: admin.wait_for_topic_gone(self.topic))
        until(self._is_created, 150)

    def _is_created(self) -> bool:
        try:
            self.create()
        except TidegaugeError as problem:
            if problem.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return False  # it is marked for deletion for a while
            raise
        return True

    def produce(self, rows: Sequence[Row] = ()) -> None:
        """Write rows, or ten of a few keys, now and then a tombstone; the history knows all of it."""
        rows = rows or [
            (
                b"k%d" % (number % 3) if self.has_keys else None,
                None if self.has_keys and number % 7 == 0 else b"value %d" % number,
            )
            for number in range(self.written, self.written + 10)
        ]
        self.written += len(rows)

        async def send() -> None:
            async with Producer(self.cluster.bootstrap_servers, batch_size_bytes=200) as producer:
                await producer.partitions_for(self.topic)
                with HistoryWriter(self.shell.directory / "h", self.topic, "all", is_idempotent=True) as history:
                    for number, (key, value) in enumerate(rows):
                        stamp = time.time_ns() // 1_000_000
                        history.sends_to(producer.topic_identity(self.topic))
                        history.invoked(number, key, value, 0, stamp)
                        future = await producer.send(self.topic, value, key, partition=0, timestamp_ms=stamp)
                        history.acknowledged(number, await future)

        asyncio.run(send())

    def stop(self, broker: int, *, kill: bool = False) -> None:
        self.start()
        (self.cluster.kill if kill else self.cluster.stop)(broker)
        self.down = broker
        others = ",".join(str(one) for one in range(3) if one != broker)
        self.shell.wait("--isr", f"{self.at}={others}")

    def start(self) -> None:
        if self.down is not None:
            self.cluster.start(self.down)
            self.down = None
            self.shell.wait("--in-sync", self.topic)

    def delete_records(self) -> None:
        """Everything below the high watermark, on the leader; a replica that is down begins again there."""
        self.admin(lambda admin: admin.delete_records({self.at: -1}))

    def consume(self) -> None:
        read = self.shell.run(
            consume, self.topic, "--from-beginning", "--partition", 0, "--timeout-ms", 1500, "-o", "json"
        )
        with (self.shell.directory / "reads").open("ab") as file:
            file.write(read.stdout_bytes)

    def log_start(self) -> int:
        """The leader's."""
        return self.admin(lambda admin: admin.list_offsets({self.at: EARLIEST}))[self.at].offset

    def batches(self, broker: int) -> list[tuple[int, int]]:
        """Base offset and CRC of each batch in a replica's files; none while the cleaner replaces one."""
        directory = self.cluster.directory / f"broker-{broker}" / "data" / str(self.at)
        try:
            data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
            return [(header.base_offset, header.crc) for header in iterate_headers(data)]
        except (TidegaugeError, FileNotFoundError):
            return []

    def look(self) -> None:
        code, document = self.shell.verify(self.topic, "h", reads="reads")
        self.looks += 1
        assert (code, counts(document)) == (0, {}), document["findings"]


MakeStory = Callable[[str, dict[str, str]], Story]


@pytest.fixture
def make_story(brokers: LocalCluster, tmp_path: Path) -> Iterator[MakeStory]:
    """Makes topics whose brokers are all up again in the end, whatever failed."""
    brokers.up()
    yield lambda topic, settings: Story(brokers, tmp_path, topic, settings)
    brokers.up()


@pytest.mark.zookeeper_mode("Kafka 4 has no segments below 1 MiB (KIP-1030)")
def test_replicas_that_were_compacted_at_different_times_are_equal(make_story: MakeStory) -> None:
    """Each broker's cleaner goes its own way (KIP-58); tombstones vanish on one replica before the other."""
    incarnation = make_story("healthy-compacted", COMPACTED)
    incarnation.produce()
    incarnation.look()
    incarnation.stop(2)
    for _ in range(4):
        incarnation.produce()
    until(lambda: 0 < len(incarnation.batches(0)) < 40, 150)
    until(lambda: set(incarnation.batches(0)) != set(incarnation.batches(2)), 150)
    incarnation.look()
    incarnation.start()
    incarnation.look()
    incarnation.produce()
    incarnation.look()


def test_a_topic_created_again_owes_nothing_of_the_deleted_one(make_story: MakeStory) -> None:
    """KIP-516: another id, another topic; the same history and reads go on."""
    incarnation = make_story("healthy-again", {})
    for times in range(3):
        incarnation.produce()
        incarnation.consume()
        incarnation.look()
        reported = incarnation.shell.verify(incarnation.topic, "h", reads="reads")[1]["not_checked"]
        assert sum("of another topic healthy-again" in line for line in reported) == 2 * times
        if times < 2:
            incarnation.create_again()


@pytest.mark.zookeeper_mode("Kafka 4 has no segments below 1 MiB (KIP-1030)")
def test_a_follower_that_begins_again_at_the_leaders_log_start_is_no_epoch_that_fell(
    brokers: LocalCluster, make_story: MakeStory
) -> None:
    """ReplicaFetcherThread truncates fully where its log ends below the leader's start, in the same leader epoch."""
    incarnation = make_story("healthy-start", RETAINED)
    incarnation.produce()
    incarnation.shell.hold(incarnation.topic, 2)
    incarnation.produce()  # acks=all: until the follower that is held has left the ISR
    incarnation.shell.wait("--isr", f"{incarnation.at}=0,1")

    def is_left_behind() -> bool:
        incarnation.produce()
        return incarnation.log_start() > 10

    until(is_left_behind, 150)
    incarnation.shell.hold(incarnation.topic, 2, release=True)
    incarnation.shell.wait("--in-sync", incarnation.topic)
    incarnation.produce()
    incarnation.look()
    events = read_events(brokers.logs / "broker-2.events.jsonl")
    truncated = [event for event in events if event["kind"] == "truncation" and event["topic"] == incarnation.topic]
    assert [event["old"] for event in truncated][:1] == [10], "it did begin again; retention may overtake it once more"
    assert all(event["new"] == event["log_start_offset"] > 10 for event in truncated)


def walk(story: Story, seed: int, steps: int) -> None:
    dice = random.Random(seed)
    for _ in range(steps):
        name = dice.choices(["produce", "stop", "kill", "start", "delete", "again", "consume"], [6, 2, 2, 3, 1, 1, 2])[
            0
        ]
        match name:
            case "produce":
                story.produce()
            case "stop" | "kill":
                story.stop(dice.randrange(3), kill=name == "kill")
            case "start":
                story.start()
            case "delete":
                story.delete_records()
            case "again":
                story.create_again()
            case _:
                story.consume()
        story.look()
    story.start()
    story.look()


@pytest.mark.long
@pytest.mark.parametrize("settings", [COMPACTED, RETAINED, COMPACTED | {"cleanup.policy": "compact,delete"}])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_healthy_topic_goes_through_its_books_balance(
    make_story: MakeStory, settings: dict[str, str], seed: int
) -> None:
    policy = settings.get("cleanup.policy", "delete").replace(",", "-")
    walk(make_story(f"healthy-{policy}-{seed}", settings), seed, 25)
