"""Copiers from consume to produce as processes, and the check that they copied each record once.

The clients' programs are in tests/clients. The cells come from Kafka's system test ``transactions_test``: brokers or
copiers are bounced, hard (SIGKILL) or cleanly, while the copiers are at work.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from tests.clients.copier_history import History
from tests.clients.programs import KAFKA, go_programs, kafka_jars
from tests.clients.runs import Child
from tests.clients.transactional_copier import delivered
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge.java import java_program
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster

LIMIT_SECONDS = 150.0
CLIENTS = Path(__file__).parents[1] / "clients"
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128M")
PARTITIONS = 2
"""Of the topic that is copied; there are as many copiers."""
COPIERS_SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
"""Of a cluster for copiers: small coordinators, and transactions whose time is over end soon."""


class Cell(NamedTuple):
    """A cell of the matrix.

    Attributes:
        clean: a bounce is a stop that is asked for, and not SIGKILL.
        brokers: brokers are bounced; else the copiers.
        ordered: each partition is copied to one of its own, whose order is checked.
        grouped: the group assigns partitions, and its metadata goes with the offsets; else each copier has its own.
    """

    clean: bool
    brokers: bool
    ordered: bool
    grouped: bool

    def __str__(self) -> str:
        return "-".join(
            (
                "clean" if self.clean else "hard",
                "brokers" if self.brokers else "clients",
                "ordered" if self.ordered else "spread",
                "group" if self.grouped else "assigned",
            )
        )


def bounce_broker(cluster: LocalCluster, broker: int, topic: str, *, clean: bool) -> None:
    """Stop a broker and start it again; after SIGKILL only once others lead what it led."""

    def leads_nothing() -> bool:
        with contextlib.suppress(TidegaugeError):  # a partition has no leader at the moment
            return all(cluster.leader_of(topic, partition) != broker for partition in range(PARTITIONS))
        return False

    if clean:
        cluster.stop(broker)
    else:
        cluster.kill(broker)
        until(leads_nothing, LIMIT_SECONDS, "others lead")
    cluster.start(broker)
    cluster.wait_ready(LIMIT_SECONDS)


def differences(copies: Sequence[bytes], originals: Sequence[bytes]) -> str:
    """Return the missing, repeated or reordered records of a copy in words; empty: none."""
    if list(copies) == list(originals):
        return ""
    counts, wanted = Counter(copies), Counter(originals)
    found = {
        "missing": wanted - counts,
        "more than once": counts - wanted,
    }
    words = [f"{len(which)} {what}, as {sorted(which.items())[:5]}" for what, which in found.items() if which]
    pairs = enumerate(zip(copies, originals, strict=False))
    at = next((number for number, (copy, original) in pairs if copy != original), min(len(copies), len(originals)))
    return "; ".join([*words, f"the first difference is at record {at}"])


class Copiers:
    """Two copiers of a topic, one for each client that is named.

    Args:
        cluster: on which they work.
        cell: the bounced processes, and how.
        clients: ``confluent``, ``java``, ``franz`` (grouped only) or ``aiokafka`` (assigned only), of the first and the
            second copier.
        logs: a directory for what they print.
        size: limit of the records of a transaction.
        history: a file for what all clients do (docs/histories.md), or none.
        name: topics, group and transactional ids begin with it; by default the cell's.
        rate: limit of the records per second that ``write`` sends to a partition; none: as fast as they are
            acknowledged.
        kafka: the release of the Java client.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        cell: Cell,
        clients: Sequence[str],
        logs: Path,
        size: int = 50,
        history: Path | None = None,
        name: str | None = None,
        rate: float | None = None,
        kafka: str = KAFKA,
    ) -> None:
        self._kafka = kafka
        self._name, self._rate = name or str(cell), rate
        self._history_path = None if history is None else str(history)
        self.history = History(self._history_path, f"{self._name}-test")
        self._cluster, self._cell, self._clients, self._logs, self._size = cluster, cell, clients, logs, size
        self.source, self.target, self.group = f"{self._name}-in", f"{self._name}-out", f"{self._name}-copiers"
        self._servers = ",".join(cluster.kafka_bootstrap_servers)
        self._started_count = 0
        self.children: list[Child] = []
        self.written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        with SyncAdmin(cluster.bootstrap_servers) as admin:
            for topic in (self.source, self.target):
                configs = {"min.insync.replicas": "2"}
                admin.create_topic(topic, partitions=PARTITIONS, replication_factor=3, configs=configs)

    @property
    def targets(self) -> int:
        """How many partitions of the target are written."""
        return PARTITIONS if self._cell.ordered else 1

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Have the copiers run, and kill the remaining ones."""
        self.children = [self._started(number) for number in range(PARTITIONS)]
        try:
            yield
        finally:
            for child in self.children:
                child.kill()
            self.history.close()

    def _started(self, number: int) -> Child:
        self._started_count += 1
        log = self._logs / f"{self._name}-{number}-{self._started_count}.log"
        return Child(self._command(number), {"PYTHONPATH": str(CLIENTS.parents[1])}, log)

    def _command(self, number: int) -> list[str]:
        assigned = None if self._cell.grouped else number
        names = (f"{self.group}-{number}", self.group, self.source, self.target)
        if self._clients[number] == "java":
            words = [self._servers, *names, self.targets, -1 if assigned is None else assigned, self._size]
            words += [] if self._history_path is None else [self._history_path]
            program = str(CLIENTS / "java" / "TransactionalCopier.java")
            return [java_program(), *JVM, "-cp", f"{kafka_jars(self._kafka)}/*", program, *map(str, words)]
        keys = ("servers", "transactional_id", "group", "source", "target", "partitions", "assigned", "size", "history")
        values = (self._servers, *names, self.targets, assigned, self._size, self._history_path)
        given = dict(zip(keys, values, strict=True))
        if self._clients[number] == "franz":
            assert assigned is None, "franz-go's session is a member of a group"
            return [str(go_programs() / "copier"), json.dumps(given)]
        assert assigned is not None or self._clients[number] == "confluent", "aiokafka has no KIP-447"
        program = {"confluent": "transactional_copier.py", "aiokafka": "aiokafka_copier.py"}[self._clients[number]]
        return [sys.executable, "-W", "ignore", str(CLIENTS / program), json.dumps(given)]

    def revive(self) -> None:
        """Start again the copiers that have ended by themselves, which ``transactions`` has found."""
        for number, child in enumerate(self.children):
            if child.has_ended():
                self.children[number] = self._started(number)

    def bounce(self, number: int) -> None:
        """End a copier, as the cell says, and start it again."""
        if self._cell.clean:
            self.children[number].end()
        else:
            self.children[number].kill()
        self.children[number] = self._started(number)

    def transactions(self) -> int:
        """Return how many transactions the copiers have ended; raise if one failed."""
        return sum(len(child.lines()) for child in self.children)

    # Copied records

    def write(self, count: int, go_on: Callable[[], bool] = lambda: False) -> None:
        """Write so many records to each partition, and more while ``go_on`` says so."""
        producer: Any = confluent_kafka.Producer(
            {"bootstrap.servers": self._servers, "enable.idempotence": True, "log_level": 2}
        )
        failed: list[str] = []

        def written(number: int, error: Any, message: Any) -> None:
            delivered(self.history, number)(error, message)
            if error is not None:
                failed.append(f"{error.name()}: {error.str()}")
                print(f"{time.strftime('%H:%M:%S')} a record failed: {failed[-1]}", flush=True)

        while count > 0 or go_on():
            count -= 1
            for partition, values in enumerate(self.written):
                values.append(b"%d-%06d" % (partition, len(values)))
                where = {"topic": self.source, "partition": partition, "value": values[-1].decode()}
                on_delivery = partial(written, self.history.invoke("send", **where))
                producer.produce(self.source, values[-1], partition=partition, on_delivery=on_delivery)
            self._pace(producer, is_first=count > 0)
        left = producer.flush(LIMIT_SECONDS)
        assert left == 0, f"{left} records were neither acknowledged nor failed in {LIMIT_SECONDS} s"
        assert failed == [], f"{len(failed)} of {sum(map(len, self.written))} records failed: {sorted(set(failed))}"

    def _pace(self, producer: Any, *, is_first: bool) -> None:
        """Serve the producer's callbacks, until the next record may be written."""
        if self._rate is None:
            producer.poll(0 if is_first else 0.1)
            return
        end = time.monotonic() + 1 / self._rate
        while (rest := end - time.monotonic()) > 0:
            producer.poll(rest)

    @contextlib.contextmanager
    def writing(self, count: int) -> Iterator[None]:
        """Write so many records to each partition, and more as long as the caller is at work."""
        at_work = threading.Event()
        at_work.set()
        problems: list[BaseException] = []

        def work() -> None:
            try:
                self.write(count, at_work.is_set)
            except BaseException as problem:  # noqa: BLE001 - reported to the caller
                problems.append(problem)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            at_work.clear()
            thread.join(LIMIT_SECONDS * 2)
        assert problems == [], "; ".join(f"{type(one).__name__}: {one}" for one in problems)

    def finish(self) -> None:
        """Wait until everything has been copied, and end the copiers."""
        self.wait_until_copied()
        for child in self.children:
            child.end()

    def wait_until_copied(self) -> None:
        """Wait until the group has committed everything that was written."""
        consumer = self._consumer(self.group)
        ends = [len(values) for values in self.written]
        wanted = [confluent_kafka.TopicPartition(self.source, partition) for partition in range(PARTITIONS)]

        def committed() -> list[int]:
            self.transactions()
            with contextlib.suppress(confluent_kafka.KafkaException):  # the coordinator may be on its way
                return [one.offset for one in consumer.committed(wanted, 10.0)]
            return []

        try:
            until(lambda: committed() == ends, LIMIT_SECONDS, f"all is copied: {ends}")
        finally:
            consumer.close()

    def _consumer(self, group: str) -> Any:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )

    def copied(self) -> list[list[bytes]]:
        """Read the committed records of the target, by partition."""
        consumer = self._consumer("reader")
        found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        total = sum(map(len, self.written))
        at_end: set[int] = set()
        consumer.assign([confluent_kafka.TopicPartition(self.target, partition, 0) for partition in range(PARTITIONS)])

        def is_read() -> bool:
            for message in consumer.consume(1_000, timeout=0.2):
                if message.error() is None:
                    found[message.partition()].append(message.value().partition(b"#")[0])
                    at_end.discard(message.partition())
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
            return len(at_end) == PARTITIONS and sum(map(len, found)) >= total

        try:
            until(is_read, LIMIT_SECONDS, f"{total} records are read")
        except AssertionError as problem:
            raise AssertionError(f"{problem}: {self._left(consumer, found, at_end)}") from None
        finally:
            consumer.close()
        return found

    def _left(self, consumer: Any, found: list[list[bytes]], at_end: set[int]) -> str:
        """Say how far each partition of the target was read, and what of the originals was not."""
        lines = []
        for partition in range(PARTITIONS):
            at = confluent_kafka.TopicPartition(self.target, partition)
            (position,) = consumer.position([at])
            try:
                ends = consumer.get_watermark_offsets(at, timeout=10.0)
            except confluent_kafka.KafkaException as problem:
                ends = problem
            where = f"position {position.offset}, first offset and last stable offset {ends}"
            lines.append(
                f"{self.target}-{partition}: {len(found[partition])} read, at its end: {partition in at_end}, {where}"
            )
        copies, originals = Counter(chain.from_iterable(found)), Counter(chain.from_iterable(self.written))
        missing, more = originals - copies, copies - originals
        lines.append(
            f"{missing.total()} missing, as {sorted(missing)[:5]}; {more.total()} too many, as {sorted(more)[:5]}"
        )
        return "; ".join(lines)

    def check(self) -> None:
        """Each record was copied once; where order counts, in the order of its partition."""
        found = self.copied()
        if self._cell.ordered:
            wrong = [
                f"{self.target}-{at}: {differences(*both)}"
                for at, both in enumerate(zip(found, self.written, strict=True))
            ]
        else:
            both = [sorted(chain.from_iterable(values)) for values in (found, self.written)]
            wrong = [f"{self.target}: {differences(*both)}"]
        assert [one for one in wrong if not one.endswith(": ")] == []
