"""Kafka clients at work while faults happen, judged by their histories (docs/histories.md): copiers in transactions of
each client, and a group whose members die, pause and return.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from tests.clients.programs import KAFKA, go_programs, kafka_jars
from tests.clients.runs import Child
from tests.integration.chaos_odd_members import OddMembers
from tests.integration.copiers import CLIENTS, COPIERS_SETTINGS, LIMIT_SECONDS, PARTITIONS, Cell, Copiers
from tests.integration.copies_reader import reading
from tests.integration.verify_shell import Shell, counts, judged
from tests.waiting import until

from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_lab.accountant.transactions.findings import Anomaly
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.roles import GROUP, TRANSACTION, CoordinatedKind

SETTINGS = COPIERS_SETTINGS
GROUPED = Cell(clean=False, brokers=True, ordered=True, grouped=True)
RATE = 20.0
"""Records per second and partition of a source."""
PAUSES_SECONDS = (1.0, 3.0, 8.0)
"""The last one is longer than the session of a member, and than what a rebalance waits for it."""


class Workload(NamedTuple):
    """Two copiers of a topic: their clients, and whether a group assigns the partitions."""

    cell: Cell
    clients: tuple[str, str]


LIBRDKAFKA = "librdkafka"
WORKLOADS: Mapping[str, Workload] = {
    LIBRDKAFKA: Workload(GROUPED, ("confluent", "confluent")),
    "java-franz": Workload(GROUPED, ("java", "franz")),
}
MEMBERS = "members"
"""The workload beside the copiers: a group that reads the first source."""
LOST_OFFSETS = Anomaly.OFFSETS_LOST.value


def prepare(workloads: Mapping[str, Workload] = WORKLOADS) -> None:
    """Fetch what the clients need; Unavailable says what can't be had."""
    clients = set(itertools.chain.from_iterable(one.clients for one in workloads.values()))
    if "java" in clients:
        kafka_jars(KAFKA)
    if "franz" in clients:
        go_programs()


class KafkaLoad:
    """Copiers and members, at work from ``at_work``; each may be killed, or paused and resumed.

    Args:
        cluster: where; with the settings of this module.
        directory: for histories and for what clients print.
        name: topics and groups begin with it.
        workloads: the copiers.
    """

    def __init__(
        self, cluster: LocalCluster, directory: Path, name: str, workloads: Mapping[str, Workload] = WORKLOADS
    ) -> None:
        self._cluster, self._directory, self._name = cluster, directory, name
        self._servers = ",".join(cluster.kafka_bootstrap_servers)
        self._shell = Shell(cluster, directory)
        self.copiers = {
            kind: Copiers(
                cluster,
                workload.cell,
                workload.clients,
                directory,
                history=directory / f"{kind}.jsonl",
                name=f"{name}-{kind}",
                rate=RATE,
            )
            for kind, workload in workloads.items()
        }
        self._source = next(iter(self.copiers.values())).source
        self._group = f"{name}-{MEMBERS}"
        self._members: list[Child] = []
        self._members_history = directory / f"{MEMBERS}.jsonl"
        self.odd_members = OddMembers(cluster.kafka_bootstrap_servers, f"{name}-odd")
        self._turns = itertools.count()
        self._pauses = itertools.cycle(PAUSES_SECONDS)
        self._started_count = 0
        self.deaths = self.pauses = 0

    @property
    def kinds(self) -> list[str]:
        """The workloads."""
        return [*self.copiers, MEMBERS]

    @property
    def topics(self) -> list[str]:
        """All topics of the clients, and the coordinators'."""
        named = [topic for one in self.copiers.values() for topic in (one.target, one.source)]
        return [*named, OFFSETS_TOPIC, TRANSACTION_TOPIC]

    @property
    def coordinated(self) -> Mapping[CoordinatedKind, str]:
        """A group and a transactional id."""
        first = next(iter(self.copiers.values()))
        return {GROUP: first.group, TRANSACTION: f"{first.group}-0"}

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Have all clients run; at the end they are killed."""
        with contextlib.ExitStack() as stack:
            for kind, one in self.copiers.items():
                stack.enter_context(one.running())
                stack.enter_context(reading(one.target, self._servers, self._directory / f"{kind}.jsonl"))
            stack.callback(self._kill_members)
            self._members = [self._member(at) for at in range(PARTITIONS)]
            stack.enter_context(self.odd_members.at_work())
            with self.writing():
                self.wait_for_more()
            yield

    def _kill_members(self) -> None:
        for child in self._members:
            child.kill()

    def _member(self, at: int) -> Child:
        """Start a member; every second one is static, so that its successor takes its place without a rebalance."""
        self._started_count += 1
        program = str(CLIENTS / "group_reader.py")
        words = [program, self._servers, self._group, self._source, str(self._members_history)]
        words += [f"static-{at}"] if at % 2 else []
        log = self._directory / f"{self._group}-{self._started_count}.log"
        return Child([sys.executable, "-W", "ignore", *words], {"PYTHONPATH": str(CLIENTS.parents[1])}, log)

    def revive(self) -> None:
        """Start again the clients that have ended by themselves, so that one case's failure is not the next one's."""
        for one in self.copiers.values():
            one.revive()
        self._members = [self._member(at) if child.has_ended() else child for at, child in enumerate(self._members)]

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Write to the sources, with idempotent producers, as long as the caller is at work."""
        with contextlib.ExitStack() as stack:
            for one in self.copiers.values():
                stack.enter_context(one.writing(20))
            yield

    def wait_for_more(self) -> None:
        """Wait until each workload has ended three more transactions, and the members have committed."""
        before = {kind: one.transactions() for kind, one in self.copiers.items()}
        commits = self._commits()
        until(
            lambda: all(one.transactions() >= before[kind] + 3 for kind, one in self.copiers.items()),
            LIMIT_SECONDS,
            "each pair of copiers ends transactions",
        )
        until(lambda: self._commits() > commits, LIMIT_SECONDS, "members commit")

    def _commits(self) -> int:
        return sum(len(child.lines()) for child in self._members)

    # Faults of clients

    def kill_one(self) -> None:
        """Kill a copier of each workload and a member; others take their places."""
        at = next(self._turns) % PARTITIONS
        for one in self.copiers.values():
            one.bounce(at)
        self._members[at].kill()
        self._members[at] = self._member(at)
        self.deaths += 1 + len(self.copiers)

    def pause_one(self) -> None:
        """Pause a copier of each workload and a member; then they go on, perhaps as zombies."""
        at = next(self._turns) % PARTITIONS
        paused = [self._members[at], *(one.children[at] for one in self.copiers.values())]
        end = time.monotonic() + next(self._pauses)
        for child in paused:
            child.pause()
        until(lambda: time.monotonic() > end)
        for child in paused:
            child.resume()
        self.pauses += len(paused)

    # Verdicts

    def settle(self) -> None:
        """Wait until everything that was written has been copied, and members have committed all of it."""
        for one in self.copiers.values():
            one.wait_until_copied()
        self.odd_members.wait_for_more()
        first = next(iter(self.copiers.values()))
        self._wait_until_committed([len(values) for values in first.written])

    def _wait_until_committed(self, ends: Sequence[int]) -> None:
        consumer: Any = confluent_kafka.Consumer(
            {"bootstrap.servers": self._servers, "group.id": self._group, "log_level": 2}
        )
        wanted = [confluent_kafka.TopicPartition(self._source, partition) for partition in range(PARTITIONS)]

        def is_committed() -> bool:
            self._commits()
            with contextlib.suppress(confluent_kafka.KafkaException):  # the coordinator may be on its way
                return [one.offset for one in consumer.committed(wanted, 10.0)] == list(ends)
            return False

        try:
            until(is_committed, LIMIT_SECONDS, f"members have committed {ends}")
        finally:
            consumer.close()

    def wrong(self, kind: str, late_commits: int = 0) -> dict[str, int]:
        """Return the violations of a workload; raise AssertionError for a wrong copy.

        Args:
            kind: the workload.
            late_commits: how many commits of members may have taken effect after their repeat. A coordinator knows no
                order among the commits of one generation (GroupCoordinator.validateOffsetCommit), so each of them can
                take a group's position back behind commits that were acknowledged after the repeat.
        """
        if kind == MEMBERS:
            first = next(iter(self.copiers))
            histories = (self._members_history, self._directory / f"{first}.jsonl")
            found = self._counted(self._source, *histories)
            if found.get(LOST_OFFSETS, 0) <= late_commits:
                found.pop(LOST_OFFSETS, None)
            return found
        self.copiers[kind].check()
        return self._counted(self.copiers[kind].target, self._directory / f"{kind}.jsonl")

    def _counted(self, topic: str, *histories: Path) -> dict[str, int]:
        code, document = judged(self._shell, topic, *histories)
        found = counts(document["transactions"]) | counts(document)
        assert code == int(bool(found)), document
        return found

    def transactions(self) -> dict[str, int]:
        """Return how many transactions there were of each fate, in all workloads together."""
        total: dict[str, int] = {}
        for kind, one in self.copiers.items():
            _, document = judged(self._shell, one.target, self._directory / f"{kind}.jsonl")
            for fate, count in document["transactions"]["transactions"].items():
                total[fate] = total.get(fate, 0) + count
        return total

    def records(self) -> int:
        """Return how many records were written to the sources."""
        return sum(len(values) for one in self.copiers.values() for values in one.written)
