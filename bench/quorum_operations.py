"""Metadata operations of a quorum and its failover, beside Kafka's: ``PYTHONPATH=. python bench/quorum_operations.py``.

Two clusters of three brokers of Apache Kafka 4.3.1 each: one on three controllers of Tidegauge, one on three of Apache
Kafka, with the same timers. By turns:

- Operations: topics are created, a setting of each is changed, and they are deleted, one to a request, at the active
  controller, over several connections that each have one request in flight. Besides the rate it reads the CPU time of
  the three controllers for one operation, and how long one connection alone waits for an operation.
- Failovers: the active controller is killed (SIGKILL); the time runs until a broker has forwarded a CreateTopics with
  success (KIP-590), asked again and again by one client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from failures import creation_seconds
from measure import cpu_seconds
from quorum_elections import NAMES, SETTINGS
from tests.clients.programs import Unavailable, kafka_classpath
from tests.integration.kafka_brokers import KraftBroker
from tests.integration.quorum_nodes import KAFKA, OURS, Quorum

from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages import create_topics, delete_topics, incremental_alter_configs
from tidegauge.kafka_channel import KafkaChannel

BROKERS = 3
TIMERS = SETTINGS | {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "500"}
TOPIC_RESOURCE = 2
LIMIT_MS = 60_000
CREATE, ALTER, DELETE = "topics created", "settings changed", "topics deleted"
RATE, CPU, ALONE, FAILOVER = "a second", "CPU of the controllers, ms", "alone, ms", "failover, s"

Figures = dict[str, dict[str, list[float]]]
"""Figures by their names, by side."""


class Side:
    """One cluster.

    Args:
        at: where its files go.
        kind: of its controllers.
        classpath: of Kafka's jars.
    """

    def __init__(self, at: Path, kind: str, classpath: str) -> None:
        at.mkdir()
        self.name = NAMES[kind]
        self.quorum = Quorum(at, [kind] * 3, classpath, TIMERS)
        self.brokers = [KraftBroker(one, at, self.quorum.servers, classpath, TIMERS) for one in range(BROKERS)]

    def start(self) -> None:
        """Start all processes, and wait until all brokers are unfenced."""
        self.quorum.start()
        self.quorum.wait_leader()
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            broker.wait_started()

    def end(self) -> None:
        """Kill what runs."""
        for broker in self.brokers:
            broker.end()
        self.quorum.end()

    def controllers_cpu(self) -> float:
        """CPU time that the controllers have used, in seconds."""
        return cpu_seconds(node.pid for node in self.quorum.nodes)

    def operate(self, prefix: str, count: int, connections: int) -> dict[str, float]:
        """Create topics, change a setting of each, delete them; return rates and CPU times."""
        leader = self.quorum.node(self.quorum.wait_equal().leader_id)
        names = [f"{prefix}-{number}" for number in range(count)]
        found: dict[str, float] = {}
        for what, operation in OPERATIONS.items():
            before, began = self.controllers_cpu(), time.perf_counter()
            asyncio.run(_all(leader.address, operation, names, connections))
            found[f"{what} {RATE}"] = count / (time.perf_counter() - began)
            found[f"{what}: {CPU}"] = (self.controllers_cpu() - before) / count * 1000
        return found

    def fail_over(self, topic: str) -> float:
        """Kill the active controller; return how long no topic could be created, in seconds."""
        leader = self.quorum.node(self.quorum.wait_equal().leader_id)
        admin = AdminClient({"bootstrap.servers": ",".join(one.address for one in self.brokers), "log_level": 0})
        admin.list_topics(timeout=60)  # it knows its brokers
        leader.kill()
        seconds = creation_seconds(admin, topic)
        leader.start()
        return seconds


def _create(name: str) -> tuple[int, Any, Callable[[Any], int]]:
    place = create_topics.CreatableReplicaAssignment(0, [int(name.rpartition("-")[2]) % BROKERS])
    topic = create_topics.CreatableTopic(name, num_partitions=-1, replication_factor=-1, assignments=[place])
    request = create_topics.CreateTopicsRequest([topic], LIMIT_MS)
    return apis.CREATE_TOPICS, request, lambda response: response.topics[0].error_code


def _alter(name: str) -> tuple[int, Any, Callable[[Any], int]]:
    config = incremental_alter_configs.AlterableConfig("retention.ms", 0, "3600000")
    resource = incremental_alter_configs.AlterConfigsResource(TOPIC_RESOURCE, name, [config])
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
    return apis.INCREMENTAL_ALTER_CONFIGS, request, lambda response: response.responses[0].error_code


def _delete(name: str) -> tuple[int, Any, Callable[[Any], int]]:
    request = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(name)], [], LIMIT_MS)
    return apis.DELETE_TOPICS, request, lambda response: response.responses[0].error_code


OPERATIONS = {CREATE: _create, ALTER: _alter, DELETE: _delete}


async def _all(
    address: str,
    operation: Callable[[str], tuple[int, Any, Callable[[Any], int]]],
    names: Sequence[str],
    connections: int,
) -> None:
    """Do an operation for each name; every one must succeed."""
    waiting = iter(names)

    async def one_after_the_other(channel: KafkaChannel) -> None:
        for name in waiting:
            key, request, error_of = operation(name)
            code = ErrorCode.of(error_of(await channel.request(key, request, LIMIT_MS / 1000)))
            if code is not ErrorCode.NONE:
                raise RuntimeError(f"{name}: {code.name}")

    channels = [KafkaChannel(address, f"bench-{at}", protocol=KRAFT_PROTOCOL) for at in range(connections)]
    try:
        await asyncio.gather(*map(one_after_the_other, channels))
    finally:
        for channel in channels:
            channel.close()


def alone(side: Side, prefix: str, count: int) -> float:
    """Measure how long one connection waits for a created topic, in ms, on average; the topics are deleted."""
    leader = side.quorum.node(side.quorum.wait_equal().leader_id)
    names = [f"{prefix}-alone-{number}" for number in range(count)]
    began = time.perf_counter()
    asyncio.run(_all(leader.address, _create, names, 1))
    seconds = time.perf_counter() - began
    asyncio.run(_all(leader.address, _delete, names, 4))
    return seconds / count * 1000


def table(figures: Figures) -> str:
    """Return medians and extremes as a table in Markdown."""
    sides = list(figures)
    rows = list(dict.fromkeys(name for of_side in figures.values() for name in of_side))
    lines = [f"| median (least, greatest) | {' | '.join(sides)} |", "|---" * (len(sides) + 1) + "|"]
    for name in rows:
        cells = [figures[side].get(name, []) for side in sides]
        words = [f"{statistics.median(one):.2f} ({min(one):.2f}, {max(one):.2f})" if one else "" for one in cells]
        lines.append(f"| {name} | {' | '.join(words)} |")
    return "\n".join(lines)


def main() -> int:
    """Measure both sides, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of operations (default 3)")
    parser.add_argument("--operations", type=int, default=300, help="of each kind in a round (default 300)")
    parser.add_argument("--connections", type=int, default=16, help="of the client (default 16)")
    parser.add_argument("--kills", type=int, default=20, help="of the active controller of each side (default 20)")
    parser.add_argument("--json", type=Path, help="also write every figure to this file, beside those it has")
    options = parser.parse_args()
    try:
        classpath = kafka_classpath()
    except Unavailable as reason:
        print(f"Apache Kafka can't be had here ({reason}), and its brokers are needed", file=sys.stderr)
        return 1
    figures: Figures = {}
    if options.json is not None and options.json.exists():
        figures = json.loads(options.json.read_text())
    with tempfile.TemporaryDirectory(prefix="quorum-operations-") as name:
        sides = [Side(Path(name) / kind, kind, classpath) for kind in (OURS, KAFKA)]
        try:
            for side in sides:
                side.start()
            _measure(sides, figures, options)
        finally:  # a run that ends early has still measured something
            for side in sides:
                side.end()
            if options.json is not None:
                options.json.write_text(json.dumps(figures, indent=1) + "\n")
            print(table(figures))
    return 0


def _measure(sides: Sequence[Side], figures: Figures, options: argparse.Namespace) -> None:
    def note(side: Side, found: dict[str, float]) -> None:
        of_side = figures.setdefault(side.name, {})
        for name, figure in found.items():
            of_side.setdefault(name, []).append(figure)

    for number in range(options.rounds + 1):
        for side in sides if number % 2 else sides[::-1]:
            found = side.operate(f"round-{number}", options.operations, options.connections)
            found[f"a topic is created, {ALONE}"] = alone(side, f"round-{number}", options.operations // 10)
            if number:  # the first round warms both up
                note(side, found)
    for number in range(options.kills):
        for side in sides:
            note(side, {FAILOVER: side.fail_over(f"after-{number}")})


if __name__ == "__main__":
    sys.exit(main())
