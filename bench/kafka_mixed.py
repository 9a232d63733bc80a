"""A mixed cluster as a story to watch: ``make kafka-mixed`` (docs/mixed-clusters.md).

Two Tidegauge brokers and one of Apache Kafka on one ZooKeeper, or with ``--kraft`` on three controllers of both kinds,
under a Kafka client that writes with acks=all all along. It shows the leaders. A broker of each kind is killed with
SIGKILL and returns, each kind is the controller once, and nodes of each kind become the other on the same id and.
directory. At the end every record is read back.

``--kafkas 1,2`` begins with two brokers of Apache Kafka's. Exit 0: every acknowledged record is at its offset,
once, and the writer was refused none; 1: not so, or Apache Kafka can't be had here, which is said.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition as Position
from tests.clients.programs import Unavailable, kafka_classpath
from tests.integration.mixed_cluster import SETTINGS, MixedCluster
from tests.integration.mixed_kraft import MixedKraft
from tests.integration.quorum_nodes import KAFKA, OURS
from tests.integration.swap_clients import read_all
from tests.waiting import until

from tidegauge_client.cli.main import run
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster

TOPIC = "orders"
ROUND = "0:1:2,1:2:0,2:0:1"
"""Three partitions, one led by each broker."""
PARTITIONS = 3
LIMIT_SECONDS = 180.0
PAUSE_SECONDS = 0.02
DELIVERY_TIMEOUT_MS = 300_000


class Writer(threading.Thread):
    """A Kafka client that writes numbered values round by round, idempotent, and keeps the acknowledged ones."""

    def __init__(self, servers: str) -> None:
        super().__init__(name="writer")
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.refused: list[str] = []
        self._ends = threading.Event()
        settings = {"enable.idempotence": True, "delivery.timeout.ms": DELIVERY_TIMEOUT_MS, "log_level": 2}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers, **settings})

    def run(self) -> None:
        number = 0
        while not self._ends.is_set():
            self._producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS, callback=self._delivered)
            number += 1
            self._producer.poll(PAUSE_SECONDS)
        self._producer.flush(LIMIT_SECONDS)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition(), message.offset()] = message.value()
        else:
            self.refused.append(str(error))

    def end(self) -> None:
        """Write no more, and wait for the last acknowledgements."""
        self._ends.set()
        self.join()


class Story:
    """Tells and does: see the module.

    Args:
        mixed: the cluster.
        where: options of verbs that find it.
    """

    WAITED = "its session had to end first"
    """Why the next leader takes a while."""

    def __init__(self, mixed: Any, where: Sequence[str]) -> None:
        self._mixed, self._where = mixed, where
        self._begun = time.monotonic()

    @property
    def servers(self) -> str:
        """The addresses of the cluster for Kafka clients."""
        return str(self._mixed.servers)

    def say(self, text: str) -> None:
        """Print a line with the time since the beginning."""
        print(f"{time.monotonic() - self._begun:7.1f} s  {text}", flush=True)

    def tidegauge(self, *words: str, where: Sequence[str] | None = None) -> None:
        """Run a verb on the cluster, and print what it prints."""
        print(f"           $ tidegauge {' '.join(words)}", flush=True)
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            run([*words, *(self._where if where is None else where)])
        for line in said.getvalue().splitlines():
            print(f"           {line.expandtabs(4)}", flush=True)

    def kind(self, broker_id: int, role: str = "broker") -> str:
        """Return ``broker ID (kind)``."""
        return f"{role} {broker_id} ({'Apache Kafka' if self._mixed.is_kafkas(broker_id) else 'Tidegauge'})"

    def who_leads(self) -> None:
        """Say which broker leads each partition."""
        found = self._mixed.partitions(TOPIC)
        for index, one in sorted(found.items()):
            self.say(f"  {TOPIC}-{index}: led by {self.kind(one.leader)}, in sync: {', '.join(map(str, one.isrs))}")

    def set_up(self) -> None:
        """Start all brokers, and make the topic."""
        mixed = self._mixed
        self.say(f"Starting {', '.join(map(self.kind, mixed.ids))} on one ZooKeeper")
        mixed.start(*mixed.ids)
        self.say(f"All are up. The controller is {self.kind(mixed.controller())}")
        self.make_controller(next(one for one in mixed.ids if not mixed.is_kafkas(one)))
        self.make_topic()

    def make_topic(self) -> None:
        """Make the topic, and show it."""
        mixed = self._mixed
        self.tidegauge("create-topic", TOPIC, "--replica-assignment", ROUND, "--config", "min.insync.replicas=2")
        mixed.wait_in_sync(TOPIC)
        self.tidegauge("describe-cluster")
        self.tidegauge("describe-topic", TOPIC, "--replicas")

    def make_controller(self, broker_id: int) -> None:
        """Have a broker elected as the controller, and say so."""
        self._mixed.make_controller(broker_id)
        self.say(f"The controller is {self.kind(broker_id)}")

    def kill_and_return(self, broker_id: int) -> None:
        """Kill a broker; when another leads its partition and it is back in sync, let it lead again."""
        mixed = self._mixed
        begun = time.monotonic()
        self.say(f"kill -9 of {self.kind(broker_id)}, which leads {TOPIC}-{broker_id}")
        mixed.kill(broker_id)
        leader = until(lambda: self._other_leader(broker_id), LIMIT_SECONDS, "another leads")[0]
        seconds = time.monotonic() - begun
        self.say(f"{TOPIC}-{broker_id} is led by {self.kind(leader)}, {seconds:.1f} s later: {self.WAITED}")
        mixed.start(broker_id)
        mixed.wait_in_sync(TOPIC)
        self.say(f"{self.kind(broker_id)} is back, and in sync")
        self.elect()

    def _other_leader(self, broker_id: int) -> list[int]:
        leader = self._mixed.leader(TOPIC, broker_id)
        return [leader] if leader not in {-1, broker_id} else []

    def elect(self) -> None:
        """Let each broker lead its partition again."""
        self._mixed.elect_preferred(TOPIC, range(PARTITIONS))
        until(
            lambda: [self._mixed.leader(TOPIC, one) for one in range(PARTITIONS)] == list(range(PARTITIONS)),
            LIMIT_SECONDS,
            "each leads its own",
        )
        self.who_leads()

    def swap(self, broker_id: int) -> None:
        """Replace a broker by one of the other kind, on its id, port and directory."""
        before = self.kind(broker_id)
        self._mixed.change(broker_id)
        self._mixed.wait_in_sync(TOPIC)
        self.say(f"{before} was stopped, and is {self.kind(broker_id)} now, on the same directory, in sync")

    def tell(self) -> None:
        """Play it."""
        ours, kafka = self.one_of_each()
        self.kill_and_return(kafka)
        self.kill_and_return(ours)
        self.make_controller(kafka)
        self.tidegauge("status")
        self.elect()
        self.swap(ours)
        self.swap(kafka)
        self.elect()
        self.tidegauge("describe-cluster")

    def one_of_each(self) -> tuple[int, int]:
        """Return a broker of Tidegauge's, and one of Apache Kafka's."""
        ids = self._mixed.ids
        return next(one for one in ids if not self._mixed.is_kafkas(one)), next(filter(self._mixed.is_kafkas, ids))

    def outcome(self, writer: Writer) -> bool:
        """Read everything back, and compare it with the acknowledged records."""
        found = read_all(self._mixed.servers, [Position(TOPIC, one, 0) for one in range(PARTITIONS)], committed=False)
        read = {(at, offset): record.value for (_, at), records in found.items() for offset, record in records.items()}
        lost = [at for at, value in writer.acknowledged.items() if read.get(at) != value]
        twice = len(read) - len({(at, value) for (at, _), value in read.items()})
        self.say(
            f"{len(writer.acknowledged)} records were acknowledged, {len(read)} are read: {len(lost)} are not at their "
            f"offset, {twice} stand twice; {len(writer.refused)} were refused"
        )
        for problem in sorted(set(writer.refused)):
            self.say(f"  refused: {problem}")
        return bool(writer.acknowledged) and not lost and not twice and not writer.refused


class KraftStory(Story):
    """Tells and does it in KRaft mode."""

    WAITED = "its session of heartbeats had to end first"

    def set_up(self) -> None:
        """Start all nodes, and make the topic."""
        mixed = self._mixed
        controllers = [self.kind(node.id, "controller") for node in mixed.quorum.nodes]
        self.say(f"Starting {', '.join(controllers)}; then {', '.join(map(self.kind, mixed.ids))}")
        mixed.begin()
        self.say(f"All are up. The active controller is {self.kind(mixed.controller(), 'controller')}")
        self.make_topic()
        self.quorum()

    def quorum(self) -> None:
        """Show the quorum."""
        self.tidegauge("describe-quorum", where=["--bootstrap-controller", self._mixed.quorum.servers])

    def lead(self, kind: str) -> int:
        """Have a controller of a kind become active, and say so; return its id."""
        leader = self._mixed.make_controller(kind)
        self.say(f"The active controller is {self.kind(leader, 'controller')}")
        return int(leader)

    def lose_controller(self, kind: str) -> None:
        """Kill the active controller while it is of a kind; the next one makes a topic, and it returns."""
        leader, mixed = self.lead(kind), self._mixed
        self.say(f"kill -9 of {self.kind(leader, 'controller')}")
        mixed.kill(leader)
        successor = mixed.quorum.wait_leader(other_than=leader)
        self.say(f"{self.kind(successor.leader_id, 'controller')} is active, in epoch {successor.epoch}")
        self.tidegauge("create-topic", f"made-after-{leader}", "--replica-assignment", "0:1:2")
        mixed.start(leader)
        self.say(f"{self.kind(leader, 'controller')} is back, and in step")

    def swap(self, broker_id: int) -> None:
        """Replace a node by one of the other kind."""
        role = "broker" if broker_id in self._mixed.ids else "controller"
        before = self.kind(broker_id, role)
        self._mixed.change(broker_id)
        self._mixed.wait_in_sync(TOPIC)
        self.say(f"{before} was stopped, and is {self.kind(broker_id, role)} now, on the same directory, in sync")

    def tell(self) -> None:
        """Play it."""
        ours, kafka = self.one_of_each()
        self.kill_and_return(kafka)
        self.kill_and_return(ours)
        for kind in (KAFKA, OURS):
            self.lose_controller(kind)
        for node_id in (*self._mixed.one_of_each_kind(self._mixed.quorum.nodes), ours, kafka):
            self.swap(node_id)
        self.elect()
        self.quorum()
        self.tidegauge("describe-cluster")


@contextlib.contextmanager
def zookeeper_story(directory: Path, kafkas: Collection[int]) -> Iterator[Story]:
    """Yield the story of a cluster in ZooKeeper mode; end its processes."""
    with contextlib.ExitStack() as stack:
        cluster = LocalCluster.create(directory / "cluster", 3, settings=SETTINGS)
        stack.callback(cluster.down, grace_seconds=0)
        mixed = MixedCluster(lambda **_: cluster, 0, directory / "kafka", kafkas)
        stack.callback(mixed.end)
        cluster.start(ZOOKEEPER)
        yield Story(mixed, ["--dir", str(cluster.directory)])


@contextlib.contextmanager
def kraft_story(directory: Path, kafkas: Collection[int]) -> Iterator[Story]:
    """Yield the story of a cluster in KRaft mode; end its processes."""
    kinds = [KAFKA if one in kafkas else OURS for one in range(3)]
    mixed = MixedKraft(directory, kinds, kinds, kafka_classpath())
    with contextlib.closing(mixed):
        yield KraftStory(mixed, ["-b", ",".join(node.grpc_address for node in mixed.brokers)])


def main(arguments: Sequence[str]) -> int:
    """Play the story; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--kafkas", default="2", metavar="ID[,ID]", help="brokers that are Apache Kafka's at first")
    parser.add_argument("--kraft", action="store_true", help="with Apache Kafka 4.3.1, in KRaft mode")
    options = parser.parse_args(arguments)
    kafkas = [int(one) for one in options.kafkas.split(",")]
    if not kafkas or not set(kafkas) < {0, 1, 2}:
        parser.error("--kafkas names one or two of the brokers 0, 1 and 2")
    make = kraft_story if options.kraft else zookeeper_story
    try:
        with tempfile.TemporaryDirectory(prefix="kafka-mixed-") as directory, make(Path(directory), kafkas) as story:
            return play(story)
    except Unavailable as problem:
        print(f"Apache Kafka can't be had here: {problem}", file=sys.stderr)
        return 1


def play(story: Story) -> int:
    """Play the story under a writer; return the exit code."""
    story.set_up()
    writer = Writer(story.servers)
    writer.start()
    story.say("A Kafka client writes from now on, idempotent, acks=all")
    try:
        story.tell()
    finally:
        writer.end()
    is_well = story.outcome(writer)
    print(json.dumps({"acknowledged": len(writer.acknowledged), "refused": len(writer.refused), "held": is_well}))
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
