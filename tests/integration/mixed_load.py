"""Clients at work on a cluster while its nodes are killed, paused, moved and replaced; everything is accounted for.

A librdkafka producer (acks=all, idempotent), a member of a group of the consumer protocol, a copier in transactions v2
with a member of a classic group (kafka-clients 4.3.1), and a member of a share group.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import confluent_kafka
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.clients.programs import KAFKA_4, java_program_of
from tests.clients.runs import Child
from tests.integration.swap_clients import LIMIT_SECONDS, History, Log, Writer, consumer_of, read_all, retried
from tests.waiting import until

SOURCE, MOVED, COPY = "source", "moved", "copy"
GROUP, COPIERS, SHARERS = "readers", "copiers", "sharers"
PARTITIONS = 3
PAUSE_SECONDS = 0.02
LIVE_SECONDS = 300.0
"""Limit of a wait for all clients, some of which are JVMs that share the machine with brokers that start."""
OF_MEMBER = {"group.protocol": "consumer", "auto.offset.reset": "earliest"}
TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))


class Worker:
    """A thread that repeats one step until it is closed; what a step raises is raised by ``check``."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step, self._ends = step, threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.wait(PAUSE_SECONDS):
                self._step()
        except BaseException as problem:  # noqa: BLE001 - raised by check
            self._problem = problem

    def check(self) -> None:
        """Raise what the thread has raised."""
        if self._problem is not None:
            raise self._problem

    def close(self) -> None:
        """End the thread after its step."""
        self._ends.set()
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive()


class Load:
    """The load. A context manager.

    Args:
        servers: of the cluster.
        directory: for histories and logs.
    """

    def __init__(self, servers: str, directory: Path) -> None:
        self._servers, self._directory = servers, directory
        self.history, self.copiers_history = directory / "history.jsonl", directory / "copier.jsonl"
        self.given: Counter[tuple[int, int]] = Counter()
        self._stack = contextlib.ExitStack()
        self._workers: list[Worker] = []
        self._copier: Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _work(self, step: Callable[[], None]) -> Worker:
        worker = Worker(step)
        self._workers.append(worker)
        self._stack.callback(worker.close)
        return worker

    # Clients

    def write(self) -> None:
        """Begin to write to SOURCE and MOVED."""
        self.writer = Writer(self._servers, "writer", self.history, **{"linger.ms": 20})

        def step() -> None:
            if len(self.writer.producer) < 500:
                for partition in range(PARTITIONS):
                    self.writer.send(SOURCE, partition, b"k")
                    self.writer.send(MOVED, partition, b"k")
            self.writer.producer.poll(0)

        self._writing = self._work(step)

    def consume(self) -> None:
        """Begin to read as members of groups, and to copy."""
        names = (self._servers, "copier", COPIERS, SOURCE, COPY, PARTITIONS, -1, 100, self.copiers_history)
        command = [*java_program_of(KAFKA_4, "TransactionalCopier"), *map(str, names)]
        self._copier = Child(command, {}, self._directory / "copier.log")
        self._stack.callback(self._copier.kill)
        member: Any = consumer_of(self._servers, GROUP, committed=False, **OF_MEMBER)
        member.subscribe([SOURCE])
        self._stack.callback(member.close)

        def read() -> None:
            found = [one for one in member.consume(200, timeout=0.2) if one.error() is None]
            self.given.update((one.partition(), one.offset()) for one in found)
            with contextlib.suppress(confluent_kafka.KafkaException):  # a later commit has these offsets, too
                member.commit(asynchronous=False)

        self._work(read)
        self._share()

    def _share(self) -> None:
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, SHARERS, incremental_configs=[entry])

        def alter() -> None:
            admin: Any = AdminClient({"bootstrap.servers": self._servers, "log_level": 2})
            admin.incremental_alter_configs([resource])[resource].result(LIMIT_SECONDS)

        retried(alter)
        names = (self._servers, SHARERS, SOURCE, "implicit")
        self._sharer = Child([*java_program_of(KAFKA_4, "ShareMember"), *names], {}, self._directory / "sharer.log")
        self._stack.callback(self._sharer.kill)

    # Progress

    def counts(self) -> dict[str, int]:
        """Return each client's progress; raise the error of a failed one."""
        for worker in self._workers:
            worker.check()
        found = {"records acknowledged": sum(map(len, self.writer.acknowledged.values()))}
        if self._copier is not None:
            found["transactions"] = len(self._copier.lines())
            found["records given to the group"] = len(self.given)
            found["records given to the share group"] = len(self._shared())
        return found

    def _shared(self) -> Counter[tuple[int, int]]:
        words = (line.split(" ", 3) for line in self._sharer.lines())
        return Counter((int(one[0]), int(one[1])) for one in words if len(one) == 4 and one[0].isdigit())

    def wait_progress(self) -> None:
        """Wait until each client has done something more."""
        before = self.counts()

        def all_went_on() -> bool:
            now = self.counts()
            return all(now[name] > count for name, count in before.items())

        until(all_went_on, LIVE_SECONDS, f"all clients go on from {before}; now {self.counts()}")

    # The end

    def finish(self) -> dict[str, int]:
        """End the writer, have all others go on to the end, and end them. Check everything; return counts."""
        self._writing.close()
        self._writing.check()
        self.writer.flush()
        wanted = {
            (at, offset) for (topic, at), them in self.writer.acknowledged.items() if topic == SOURCE for offset in them
        }

        def all_at_end() -> bool:
            self.counts()
            ends = {at: 1 + max(offset for one, offset in wanted if one == at) for at in range(PARTITIONS)}
            return self._committed(COPIERS) == ends and self._committed(GROUP) == ends and set(self._shared()) >= wanted

        until(all_at_end, LIVE_SECONDS, "all groups are at the end")
        found = self.counts()
        assert self._copier is not None
        self._copier.end()
        self._sharer.write(["end"])
        self._sharer.end()
        self._check(wanted)
        return found

    def _committed(self, group: str) -> dict[int, int]:
        consumer = consumer_of(self._servers, group, committed=True)
        try:
            wanted = [Position(SOURCE, partition) for partition in range(PARTITIONS)]
            return {one.partition: one.offset for one in consumer.committed(wanted, 10.0)}
        except confluent_kafka.KafkaException:  # the coordinator moves
            return {}
        finally:
            consumer.close()

    def _check(self, wanted: set[tuple[int, int]]) -> None:
        """Check that nothing is lost or duplicated, and that the accountant agrees."""
        positions = [Position(topic, at, 0) for topic in (SOURCE, MOVED) for at in range(PARTITIONS)]
        everything = read_all(self._servers, positions, committed=False)
        kept = {at: {offset: one.value for offset, one in records.items()} for at, records in everything.items()}
        assert kept == dict(self.writer.acknowledged)
        copied = read_all(self._servers, [Position(COPY, at, 0) for at in range(PARTITIONS)], committed=True)
        sources = Counter(value for (topic, _), them in kept.items() if topic == SOURCE for value in them.values())
        copies = Counter((one.value or b"").rpartition(b"#")[0] for them in copied.values() for one in them.values())
        assert copies == sources, "the copy has each record once"
        assert set(self.given) == wanted, "the group was given every record"
        assert set(self._shared()) == wanted, "the share group was given every record"
        note_final_poll(self.history, everything | copied)
        verify(self.history, self.copiers_history)


def note_final_poll(history: Path, found: Log) -> None:
    """Note the final contents of a cluster, as docs/histories.md says."""
    file = History(history, "final")
    records = [
        (topic, partition, offset, (record.value or b"").decode())
        for (topic, partition), them in found.items()
        for offset, record in sorted(them.items())
    ]
    ends = {f"{topic}-{partition}": 1 + max(them, default=-1) for (topic, partition), them in found.items()}
    number = file.invoke("poll", isolation="read_committed")
    file.end(number, records=records, ends=ends)


def verify(*histories: Path) -> None:
    """Have the accountant judge histories; AssertionError with what it says."""
    command = [TIDEGAUGE, "verify", *(word for one in histories for word in ("--transactions", str(one)))]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=LIVE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["transactions"]["clean"], done.stdout
