"""A producer and a consumer as child processes, while the leader of their partition is killed and restarted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.clients.programs import filled
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import LATEST
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster

LIMIT_SECONDS = 120.0
STAGE = 60
"""Records that are sent at once."""
VALUES = [f"record-{number:04d}" for number in range(4 * STAGE)]


class Child:
    """A process of a program; stdout and stderr go to files."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._out, self._log = log.with_suffix(".out"), log
        with self._out.open("wb") as out, log.open("wb") as err:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=err, env=os.environ | dict(environment)
            )

    def lines(self) -> list[str]:
        """Return the whole lines that it has printed; AssertionError if it has failed."""
        assert self._process.poll() in {None, 0}, self.errors()
        return self._out.read_text().split("\n")[:-1]

    def values(self) -> list[str]:
        """Return the lines without a leading offset."""
        return [line.rpartition(" ")[2] for line in self.lines()]

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def errors(self) -> str:
        return f"{self._out.read_text()[-500:]}\n{self._log.read_text()[-3_000:]}"

    def write(self, values: Sequence[str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{value}\n" for value in values).encode())
        self._process.stdin.flush()

    def end(self) -> list[str]:
        """Close its stdin, wait for its end and return what it printed; AssertionError if it fails."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._process.args!r} does not end: {self.errors()}") from None
        assert self._process.returncode == 0, self.errors()
        return self.lines()

    def stop(self) -> list[str]:
        """SIGTERM, for a program that ends in order by it; return what it printed."""
        self._process.terminate()
        self._process.wait(LIMIT_SECONDS)
        return self._out.read_text().split("\n")[:-1]

    def pause(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def abort(self) -> None:
        """SIGABRT: a Python that runs with ``-X faulthandler`` says where it stands."""
        self._process.send_signal(signal.SIGABRT)
        self._process.wait(LIMIT_SECONDS)
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()


class Run:
    """Writes and reads of a client's processes at a topic of one partition."""

    def __init__(
        self, cluster: LocalCluster, topic: str, logs: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._environment = environment or {}
        self._cluster = cluster
        self._at = TopicPartition(topic, 0)
        self._logs = logs
        self._children: list[Child] = []
        self._written = 0
        self._admin = SyncAdmin(cluster.bootstrap_servers)
        self._admin.start()
        self._admin.create_topic(topic, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
        self._admin.wait_for_topic(topic)  # some clients give up when a broker does not know it yet

    def start(self, command: Sequence[str], **values: object) -> Child:
        """Start a process by a command with {servers}, {topic} and other placeholders."""
        servers = ",".join(self._cluster.kafka_bootstrap_servers)
        words = filled(command, servers=servers, topic=self._at.topic, **values)
        child = Child(words, self._environment, self._logs / f"{len(self._children)}.log")
        self._children.append(child)
        return child

    def through_failovers(self, producer: Child, arrived: Callable[[], int], group: str | None = None) -> None:
        """Write four stages: to the first leader, while it is dead, to the next one, while that one restarts.

        Args:
            producer: writes them.
            arrived: counts the records that are known to be written, or read.
            group: of the consumer; its coordinator is killed for the third stage.
        """
        self._write_a_stage(producer)
        self._wait(producer, arrived)
        with self.killed_leader():
            self._write_a_stage(producer)
            self._wait(producer, arrived)
        with self.killed_coordinator(group) if group else contextlib.nullcontext():
            self._write_a_stage(producer)
            if group:
                self._wait(producer, arrived)
        with self.stopped_leader():
            self._write_a_stage(producer)
        self._wait(producer, arrived)

    def _wait(self, producer: Child, arrived: Callable[[], int]) -> None:
        def all_arrived() -> bool:
            producer.lines()  # fails where the producer has failed
            return arrived() >= self._written  # a producer that is not idempotent may have written one twice

        try:
            until(all_arrived, timeout=LIMIT_SECONDS)
        except AssertionError as late:
            raise AssertionError(
                f"{self._written} records were written, {arrived()} arrived; {late}\n{producer.errors()}"
            ) from None

    @contextlib.contextmanager
    def killed_leader(self) -> Iterator[None]:
        """Kill the leader; after the block wait for the next one, start the former and wait until it is in sync."""
        with self._killed(self._cluster.leader_of(*self._at)):
            yield

    @contextlib.contextmanager
    def killed_coordinator(self, group: str) -> Iterator[None]:
        """Kill a group's coordinator likewise."""
        with self._killed(self._cluster.coordinator_of(group)):
            yield

    @contextlib.contextmanager
    def _killed(self, former: int) -> Iterator[None]:
        self._cluster.kill(former)
        yield
        until(lambda: self._led_by_other_than(former), what="another broker leads", timeout=LIMIT_SECONDS)
        self._cluster.start(former)
        until(lambda: self._in_sync() == 3, what="all replicas are in sync", timeout=LIMIT_SECONDS)

    @contextlib.contextmanager
    def stopped_leader(self) -> Iterator[None]:
        """Stop the leader, which hands its partitions over; start it after the block."""
        former = self._cluster.leader_of(*self._at)
        self._cluster.stop(former)
        yield
        self._cluster.start(former)

    def _write_a_stage(self, producer: Child) -> None:
        producer.write(VALUES[self._written : self._written + STAGE])
        self._written += STAGE

    def _led_by_other_than(self, old: int) -> bool:
        with contextlib.suppress(TidegaugeError):  # there is none at the moment
            return self._cluster.leader_of(*self._at) != old
        return False

    def _in_sync(self) -> int:
        [topic] = self._admin.describe_topics([self._at.topic])
        return len(topic.partitions[0].isr)

    def high_watermark(self) -> int:
        """Return the partition's high watermark; -1 if no leader can be asked."""
        with contextlib.suppress(TidegaugeError):
            return self._admin.list_offsets({self._at: LATEST})[self._at].offset
        return -1

    def close(self) -> None:
        """End all processes."""
        for child in self._children:
            child.kill()
        self._admin.stop()
