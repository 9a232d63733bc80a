"""Java programs at work on a cluster whose brokers are replaced: a producer, a member of a group, and two copiers.

Kafka's own VerifiableProducer (acks=all, idempotent), VerifiableConsumer and TransactionalMessageCopier, and the copier
of tests/clients, which goes on until it is ended. ``check`` says what must have come out of it all.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Position
from tests.clients.programs import JVM, KAFKA, kafka_jars, tool
from tests.clients.runs import Child
from tests.integration.swap_clients import LIMIT_SECONDS, Log, consumer_of, read_all
from tests.waiting import until

from tidegauge.java import java_program

COPIER = Path(__file__).parents[1] / "clients" / "java" / "TransactionalCopier.java"
SOURCE, COPIED, COPIED_BY_KAFKAS = "swapped", "copied", "copied-by-kafkas"
GROUP, COPIERS, KAFKAS_COPIERS = "readers", "copiers", "kafkas-copiers"
PARTITIONS = 3
PRODUCER = "enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=600000\n"
LIVE_SECONDS = 500.0
"""Limit of a wait for the programs: several JVMs share the machine with brokers that start."""


class Recurring:
    """A program that ends by itself, and is started again until it is closed; one that fails is not."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command, self._log = command, log
        self._closing = threading.Event()
        self._runs: list[Child] = []
        self._problems: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._runs.append(child := Child(self._command, {}, Path(f"{self._log}-{len(self._runs)}.log")))
                try:
                    while not child.has_ended() and not self._closing.wait(0.1):
                        pass
                    child.lines()
                finally:
                    child.kill()
        except BaseException as problem:  # noqa: BLE001 - reported to the caller
            self._problems.append(problem)

    def runs(self) -> int:
        """Return how often it was started; what made it fail is raised."""
        if self._problems:
            raise self._problems[0]
        return len(self._runs)

    def close(self) -> None:
        """Kill it."""
        self._closing.set()
        self._thread.join(LIMIT_SECONDS)


class Programs:
    """The programs. A context manager: its end kills the remaining ones.

    Args:
        servers: of the cluster.
        directory: for what they print.
        create_topic: makes one of the topics.
        release: of Kafka, whose programs and clients are at work.
        protocol: of the group of VerifiableConsumer, where the release knows more than ``classic``.
    """

    def __init__(
        self,
        servers: str,
        directory: Path,
        create_topic: Callable[[str], None],
        release: str = KAFKA,
        protocol: str = "classic",
    ) -> None:
        self._servers, self._directory, self._release, self._protocol = servers, directory, release, protocol
        for topic in (SOURCE, COPIED, COPIED_BY_KAFKAS):
            create_topic(topic)
        self._stack = contextlib.ExitStack()
        self._given: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        properties = self._directory / "producer.properties"
        properties.write_text(PRODUCER)
        producer = [*self._tool("VerifiableProducer"), "--topic", SOURCE, "--throughput", "50", "--acks", "-1"]
        self.producer = self._started("producer", [*producer, "--producer.config", str(properties)])
        member = [*self._tool("VerifiableConsumer"), "--topic", SOURCE, "--reset-policy", "earliest"]
        member += ["--group-id", GROUP, *(["--group-protocol", "consumer"] if self._protocol == "consumer" else [])]
        self.member = self._started("member", member)
        names = (self._servers, "copier", COPIERS, SOURCE, COPIED, PARTITIONS, -1, 300)
        command = [java_program(), *JVM, "-cp", f"{kafka_jars(self._release)}/*", str(COPIER), *map(str, names)]
        self.copier = self._started("copier", command)
        kafkas = [*tool(self._release, "TransactionalMessageCopier"), "--broker-list", self._servers, "--group-mode"]
        kafkas += ["--input-topic", SOURCE, "--input-partition", "-1", "--output-topic", COPIED_BY_KAFKAS]
        kafkas += [
            "--consumer-group",
            KAFKAS_COPIERS,
            "--transactional-id",
            "kafkas-copier",
            "--transaction-size",
            "50",
        ]
        self.kafkas_copier = Recurring([*kafkas, "--enable-random-aborts", "--use-group-metadata"], self._log("kafkas"))
        self._stack.callback(self.kafkas_copier.close)
        return self

    def _tool(self, name: str) -> list[str]:
        return [*tool(self._release, name), "--bootstrap-server", self._servers]

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _started(self, name: str, command: Sequence[str]) -> Child:
        child = Child(command, {}, self._log(name))
        self._stack.callback(child.kill)
        return child

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # Progress

    def counts(self) -> dict[str, int]:
        """Return how much each has done; AssertionError if one has failed."""
        self.kafkas_copier.runs()
        return {
            "records acknowledged": len(sent_of(self.producer.lines())),
            "records given to the group": sum(one["count"] for one in _events(self.member, "records_consumed")),
            "transactions of the copier": len(self.copier.lines()),
            "records in the copy of Kafka's copier": self._copied(KAFKAS_COPIERS),
        }

    def wait_progress(self) -> None:
        """Wait until each program has done something more."""
        before = self.counts()

        def all_went_on() -> bool:
            now = self.counts()
            return all(now[name] > count for name, count in before.items())

        until(all_went_on, LIVE_SECONDS, f"all go on from {before}")

    def _copied(self, group: str) -> int:
        return sum(max(0, offset) for offset in self._committed(group).values())

    def _committed(self, group: str) -> dict[int, int]:
        consumer = consumer_of(self._servers, group, committed=True)
        try:
            wanted = [Position(SOURCE, partition) for partition in range(PARTITIONS)]
            return {one.partition: one.offset for one in consumer.committed(wanted, 10.0)}
        except KafkaException:  # the coordinator is on its way
            return {}
        finally:
            consumer.close()

    # The end

    def finish(self) -> dict[tuple[int, int], str]:
        """End the producer, have all others go on to the end, end them; return the acknowledged records."""
        sent = sent_of(printed := self.producer.stop())
        assert not [line for line in printed if '"producer_send_error"' in line]
        ends = {at: 1 + max(offset for partition, offset in sent if partition == at) for at in range(PARTITIONS)}

        def at_end() -> bool:
            self.kafkas_copier.runs()
            self.copier.lines()
            self.member.lines()
            return all(self._committed(group) == ends for group in (GROUP, COPIERS, KAFKAS_COPIERS))

        until(at_end, LIVE_SECONDS, f"all groups are at the end: {ends}")
        self.copier.end()
        self.kafkas_copier.close()
        self._given = list(self.given())
        return sent

    def check(self, sent: dict[tuple[int, int], str]) -> dict[str, int]:
        """Check that nothing is lost or duplicated: in the log, in both copies, and in the group's records.

        Returns:
            Counts of the work.
        """
        kept = {
            (partition, offset): (record.value or b"").decode()
            for partition, offset, record in _rows(self._read(SOURCE, committed=False))
        }
        assert kept == sent
        assert len(set(kept.values())) == len(kept), "nothing stands twice"
        values = values_of(self._read(SOURCE, committed=True))
        for topic in (COPIED, COPIED_BY_KAFKAS):
            assert values_of(self._read(topic, committed=True)) == values, f"{topic} is what was copied, once each"
        given = self._given
        assert set(given) == set(sent), "the group was given every record"
        return {
            "records": len(sent),
            "transactions": len(self.copier.lines()),
            "runs of Kafka's copier": self.kafkas_copier.runs(),
            "records that the group was given again": len(given) - len(set(given)),
        }

    def _read(self, topic: str, *, committed: bool) -> Log:
        positions = [Position(topic, partition, 0) for partition in range(PARTITIONS)]
        return read_all(self._servers, positions, committed=committed)

    def given(self) -> Iterator[tuple[int, int]]:
        """Partition and offset of each record that the member was given."""
        for event in _events(self.member, "records_consumed"):
            for one in event["partitions"]:
                offsets = range(one["minOffset"], one["maxOffset"] + 1)
                assert len(offsets) == one["count"]
                yield from ((one["partition"], offset) for offset in offsets)


def _events(child: Child, name: str) -> list[dict[str, Any]]:
    return [event for event in map(json.loads, child.lines()) if event["name"] == name]


def _rows(log: Log) -> Iterator[tuple[int, int, Any]]:
    for (_, partition), records in log.items():
        for offset, record in records.items():
            yield partition, offset, record


def values_of(log: Log) -> dict[int, list[bytes | None]]:
    """Return the values of each partition in their order."""
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for partition, _, record in sorted(_rows(log), key=lambda row: row[:2]):
        found[partition].append(record.value)
    return found


def sent_of(printed: Sequence[str]) -> dict[tuple[int, int], str]:
    """Return what VerifiableProducer says was acknowledged, by partition and offset."""
    events = (json.loads(line) for line in printed if '"producer_send_success"' in line)
    return {(event["partition"], event["offset"]): event["value"] for event in events}
