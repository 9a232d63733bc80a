"""Tools of Kafka 4.3.1 for groups on Kafka 4.3.1 and on Tidegauge: ``make differential`` with ``KRAFT=1``.

kafka-consumer-groups and kafka-share-groups are run with the same commands at a broker of each, about a group of the
consumer protocol and a share group, both with members, without, with offsets reset, deleted, and as deleted groups. The
output must be the same, line by line; only the broker's address differs. Exit 0: no difference; 1: one or more, or no
Kafka.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from coordinator_stories import MEMBERS, PARTITIONS, Teller, Topic
from differential_coordinators import SETTINGS, ordered_topic
from differential_kraft import Side, note
from tests.clients.programs import JVM, KAFKA_4, Unavailable, kafka_classpath, kafka_jars
from tests.integration.quorum_nodes import KAFKA, OURS
from tests.wire_responses.batches import batch

from tidegauge.java import java_program

PROGRAM = Path(__file__).parents[1] / "tests" / "clients" / "java" / "GroupTools.java"
TOPIC, CONSUMERS, SHARERS, RECORDS = "orders", "readers", "workers", 9
ENDED = "--- exit "
LEAVE = -1
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+(\s+\(\d+\))?\s*")
KEPT = {"log.retention.ms": "-1"}
"""The records' timestamps are old: a broker deletes them when it comes to look."""
LISTS = ("consumer --list", "consumer --list --type", "consumer --list --state", "share --list", "share --list --state")
LOOKS = (
    *LISTS,
    f"consumer --describe --group {CONSUMERS}",
    f"consumer --describe --group {CONSUMERS} --offsets --verbose",
    f"consumer --describe --group {CONSUMERS} --members",
    f"consumer --describe --group {CONSUMERS} --members --verbose",
    f"consumer --describe --group {CONSUMERS} --state --verbose",
    "consumer --describe --all-groups --state",
    f"consumer --describe --group {SHARERS}",
    f"share --describe --group {SHARERS}",
    f"share --describe --group {SHARERS} --offsets --verbose",
    f"share --describe --group {SHARERS} --members",
    f"share --describe --group {SHARERS} --members --verbose",
    f"share --describe --group {SHARERS} --state",
    f"share --describe --group {SHARERS} --state --verbose",
    "share --describe --all-groups --state",
    f"share --describe --group {CONSUMERS}",
)
"""Commands that change nothing."""
REFUSED = (
    f"consumer --reset-offsets --group {CONSUMERS} --all-topics --to-earliest --execute",
    f"consumer --delete --group {CONSUMERS}",
    f"share --reset-offsets --group {SHARERS} --topic {TOPIC} --to-earliest --execute",
    f"share --delete-offsets --group {SHARERS} --topic {TOPIC}",
    f"share --delete --group {SHARERS}",
)
"""Of groups that have members."""
CHANGES = (
    f"consumer --reset-offsets --group {CONSUMERS} --topic {TOPIC}:0,1 --shift-by -1 --execute",
    f"consumer --reset-offsets --group {CONSUMERS} --all-topics --to-latest --dry-run",
    f"consumer --delete-offsets --group {CONSUMERS} --topic {TOPIC}:1",
    f"consumer --describe --group {CONSUMERS}",
    f"share --reset-offsets --group {SHARERS} --topic {TOPIC}:0 --to-latest --execute",
    f"share --reset-offsets --group {SHARERS} --topic {TOPIC} --to-earliest --dry-run",
    f"share --describe --group {SHARERS}",
    f"share --delete-offsets --group {SHARERS} --topic {TOPIC}",
    f"share --delete-offsets --group {SHARERS} --topic none",
    f"share --describe --group {SHARERS}",
    f"share --delete --group {SHARERS}",
    f"share --delete --group {SHARERS}",
    f"share --describe --group {SHARERS}",
    f"consumer --delete --group {CONSUMERS}",
    f"consumer --delete --group {CONSUMERS}",
    *LISTS,
)
"""Of groups without members."""


class Tools:
    """The tools against one broker, in one JVM."""

    def __init__(self, servers: str) -> None:
        self._process = subprocess.Popen(
            [java_program(), *JVM, "-cp", f"{kafka_jars(KAFKA_4)}/*", str(PROGRAM), servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, command: str) -> list[str]:
        """Return the lines that a command prints, and its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = _ADDRESS.sub("BROKER ", line.rstrip())
            if found:
                yield found
            if found.startswith(ENDED):
                return
        raise RuntimeError("the tools have ended")

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Groups:
    """Two members of each group, whose requests are made by hand."""

    def __init__(self, side: Side) -> None:
        self._teller = Teller(side.new_peer, "tools", [Topic(TOPIC, ordered_topic(side, TOPIC))])
        self._epochs: dict[tuple[str, str], int] = {}

    def join(self) -> None:
        """Write records, have all members join, and commit offsets."""
        for at in range(PARTITIONS):
            data = [{"index": at, "records": batch([b"%d" % one for one in range(RECORDS)])}]
            topics = [{"name": TOPIC, "partition_data": data}]
            self._teller.ask("Produce", 9, acks=-1, timeout_ms=30_000, topic_data=topics)
        for _ in range(3):
            self._beat_all()
        self._teller.ask_until(
            lambda found: [len(one.partitions) for one in found.groups[0].topics] == [PARTITIONS],
            *("DescribeShareGroupOffsets", 1),
            groups=[{"group_id": SHARERS, "topics": None}],
        )
        for _ in range(2):
            self._beat_all()
        offsets = [{"partition_index": at, "committed_offset": 2 * at, "committed_metadata": ""} for at in range(3)]
        self._teller.ask(
            "OffsetCommit",
            9,
            group_id=CONSUMERS,
            generation_id_or_member_epoch=self._epochs[CONSUMERS, MEMBERS[0]],
            member_id=MEMBERS[0],
            topics=[{"name": TOPIC, "partitions": offsets}],
        )

    def _beat_all(self) -> None:
        for name in MEMBERS[:2]:
            self._beat("ConsumerGroupHeartbeat", CONSUMERS, name, self._epochs.get((CONSUMERS, name), 0))
            self._beat("ShareGroupHeartbeat", SHARERS, name, self._epochs.get((SHARERS, name), 0))

    def _beat(self, api: str, group: str, name: str, epoch: int) -> None:
        joins = epoch == 0
        more = {} if api.startswith("Share") else {"rebalance_timeout_ms": 300_000 if joins else -1}
        if joins and not api.startswith("Share"):
            more["topic_partitions"] = []
        response = self._teller.ask(
            api,
            1,
            group_id=group,
            member_id=name,
            member_epoch=epoch,
            subscribed_topic_names=[TOPIC] if joins else None,
            **more,
        )
        self._epochs[group, name] = response.member_epoch

    def leave(self) -> None:
        """Have all members leave."""
        for (group, name), _ in list(self._epochs.items()):
            api = "ShareGroupHeartbeat" if group == SHARERS else "ConsumerGroupHeartbeat"
            self._beat(api, group, name, LEAVE)
        self._teller.close()


def printed(side: Side, kind: str) -> list[tuple[str, list[str]]]:
    """Return each command with its output, at one side."""
    groups = Groups(side)
    tools = Tools(side.cluster.brokers[0].address)
    found: list[tuple[str, list[str]]] = []

    def run(commands: Sequence[str], when: str) -> None:
        note(f"{kind}: {when}")
        found.extend((f"{when}: {command}", tools.run(command)) for command in commands)

    try:
        run(LISTS, "no groups")
        groups.join()
        run([*LOOKS, *REFUSED], "with members")
        groups.leave()
        run([*LOOKS, *CHANGES], "without members")
    finally:
        tools.close()
    return found


def main() -> int:
    """Compare; return the exit code."""
    try:
        classpath = kafka_classpath()
    except Unavailable as problem:
        print(f"Apache Kafka can't be had here: {problem}")
        return 1
    heard: dict[str, list[tuple[str, list[str]]]] = {}
    with tempfile.TemporaryDirectory(prefix="differential-group-tools-") as name:
        for kind in (KAFKA, OURS):
            side = Side(Path(name) / kind, kind, classpath, SETTINGS | KEPT)
            with side.cluster:
                side.warm_up()
                heard[kind] = printed(side, kind)
    differing = 0
    for (command, theirs), (_, mine) in zip(heard[KAFKA], heard[OURS], strict=True):
        if theirs != mine:
            differing += 1
            print(command, *(f"  Kafka      {line}" for line in theirs), sep="\n")
            print(*(f"  Tidegauge  {line}" for line in mine), sep="\n")
    print(f"group tools: {len(heard[KAFKA])} outputs compared, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
