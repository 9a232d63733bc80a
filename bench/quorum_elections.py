"""Elections of a quorum and its CPU at rest, beside Apache Kafka: ``PYTHONPATH=. python bench/quorum_elections.py``.

Three controllers of each side, without brokers, with the same timers (Kafka's defaults). By turns the leader of one and
of the other side is killed (SIGKILL). The time runs from the kill to the first DescribeQuorum that one of the other two
responds to as the leader of a later epoch (``KafkaRaftClient.handleDescribeQuorumRequest``: only a leader does), and to
the first one with a high watermark, which needs a committed record of that epoch. Then the killed process starts again,
and the next kill waits until it has the whole log.

Before the first kill the CPU time of both quorums at rest is read, over the same seconds.
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
from typing import NamedTuple

from measure import cpu_seconds
from tests.clients.programs import Unavailable, kafka_classpath
from tests.integration.quorum_nodes import KAFKA, OURS, Quorum

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages import describe_quorum
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.partition import METADATA_TOPIC

SETTINGS = {"metadata.max.idle.interval.ms": "500"}
"""Kafka's default, which the tests' quorums switch off."""
NAMES = {OURS: "Tidegauge", KAFKA: "Apache Kafka 4.3.1"}
POLL_SECONDS = 0.01
LIMIT_SECONDS = 120.0
IDLE_SECONDS = 60.0


class Election(NamedTuple):
    """Seconds from the kill of a leader.

    Attributes:
        led: until another controller leads.
        committed: until it has committed a record of its epoch.
    """

    led: float
    committed: float


def election(quorum: Quorum) -> Election:
    """Kill the leader, wait for the next one, and start the killed controller again."""
    view = quorum.wait_equal()
    leader = quorum.node(view.leader_id)
    others = [node.address for node in quorum.nodes if node is not leader]
    found = asyncio.run(_next_leader(others, view.epoch, leader.kill))
    leader.start()
    return found


async def _next_leader(addresses: Sequence[str], epoch: int, kill: Callable[[], None]) -> Election:
    channels = [KafkaChannel(address, "bench", protocol=KRAFT_PROTOCOL) for address in addresses]
    try:
        for channel in channels:  # connections are open before the clock runs
            await _described(channel)
        began, led = time.perf_counter(), 0.0
        kill()
        while time.perf_counter() - began < LIMIT_SECONDS:
            for channel in channels:
                partition = await _described(channel)
                if partition is None or partition.leader_epoch <= epoch:
                    continue
                led = led or time.perf_counter() - began
                if partition.high_watermark >= 0:
                    return Election(led, time.perf_counter() - began)
            await asyncio.sleep(POLL_SECONDS)
        raise RuntimeError(f"no controller leads {LIMIT_SECONDS:.0f} s after the kill")
    finally:
        for channel in channels:
            channel.close()


async def _described(channel: KafkaChannel) -> describe_quorum.ResponsePartitionData | None:
    """Describe the quorum by a controller; None if it does not lead."""
    topics = [describe_quorum.TopicData(METADATA_TOPIC, [describe_quorum.PartitionData(0)])]
    try:
        found = await channel.request(apis.DESCRIBE_QUORUM, describe_quorum.DescribeQuorumRequest(topics), 5.0)
    except TidegaugeError:
        return None
    if found.error_code != ErrorCode.NONE:
        return None
    partition = found.topics[0].partitions[0]
    return partition if partition.error_code == ErrorCode.NONE else None


def idle_cpu(quorums: Sequence[Quorum], seconds: float) -> list[float]:
    """Measure the CPU time of each quorum at rest, over the same seconds; in ms a second."""
    pids = [[node.pid for node in quorum.nodes] for quorum in quorums]
    before = [cpu_seconds(one) for one in pids]
    time.sleep(seconds)
    return [(cpu_seconds(one) - was) / seconds * 1000 for one, was in zip(pids, before, strict=True)]


def table(found: dict[str, dict[str, list[float]]]) -> str:
    """Return the figures as a table in Markdown."""
    lines = [
        "| | elections | until another leads, s: median, worst | until it has committed, s | CPU at rest, ms/s |",
        "|---|---|---|---|---|",
    ]
    for name, figures in found.items():
        led, committed, idle = figures["led"], figures["committed"], figures["idle"]
        cells = [f"{statistics.median(one):.2f}, {max(one):.2f}" if one else "" for one in (led, committed)]
        cpu = f"{statistics.median(idle):.1f}" if idle else ""
        lines.append(f"| {name} | {len(led)} | {cells[0]} | {cells[1]} | {cpu} |")
    return "\n".join(lines)


def _kept(path: Path | None) -> dict[str, dict[str, list[float]]]:
    if path is not None and path.exists():
        found: dict[str, dict[str, list[float]]] = json.loads(path.read_text())
        return found
    return {}


def main() -> int:
    """Measure both sides, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="of the leader of each side (default 100)")
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS, help="at rest before the kills (0: none)")
    parser.add_argument("--json", type=Path, help="also write every figure to this file, beside those it has")
    options = parser.parse_args()
    kinds, classpath = [OURS], ""
    try:
        kinds, classpath = [OURS, KAFKA], kafka_classpath()
    except Unavailable as reason:
        print(f"Apache Kafka can't be had here ({reason}): only Tidegauge is measured", file=sys.stderr)
    found = _kept(options.json)
    with tempfile.TemporaryDirectory(prefix="quorum-elections-") as name:
        quorums = {kind: _quorum(Path(name), kind, classpath) for kind in kinds}
        try:
            for quorum in quorums.values():
                quorum.start()
            for quorum in quorums.values():
                quorum.wait_equal()
            if options.idle_seconds:
                for kind, used in zip(kinds, idle_cpu(list(quorums.values()), options.idle_seconds), strict=True):
                    _note(found, kind, idle=used)
            for _ in range(options.kills):
                for kind, quorum in quorums.items():
                    one = election(quorum)
                    _note(found, kind, led=one.led, committed=one.committed)
        finally:  # a run that ends early has still measured something
            for quorum in quorums.values():
                quorum.end()
            if options.json is not None:
                options.json.write_text(json.dumps(found, indent=1) + "\n")
            print(table(found))
    return 0


def _quorum(directory: Path, kind: str, classpath: str) -> Quorum:
    at = directory / kind
    at.mkdir()
    return Quorum(at, [kind] * 3, classpath, SETTINGS)


def _note(found: dict[str, dict[str, list[float]]], kind: str, **figures: float) -> None:
    of_side = found.setdefault(NAMES[kind], {"led": [], "committed": [], "idle": []})
    for name, figure in figures.items():
        of_side[name].append(figure)


if __name__ == "__main__":
    sys.exit(main())
