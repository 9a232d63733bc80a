"""How long a rebalance of the consumer protocol (KIP-848) takes beside Apache Kafka 4.3.1's, and a heartbeat's CPU.

``PYTHONPATH=. python bench/consumer_rebalance_times.py``: a controller and a broker of each, both up; each number of
members is measured at one side, then at the other. Members speak Kafka's protocol by themselves, one heartbeat after
the other over all members in turn and without an interval, so that the time is the coordinator's and its log's. A
rebalance lasts from the heartbeat with which one more member joins until all members are in the group's epoch and have
all partitions, two for each member; its CPU is the broker's. Then the broker's CPU for a heartbeat is measured while
nothing changes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from differential_kraft import ALONE, Side, both_sides, note
from measure import cpu_seconds
from tests.clients.programs import Unavailable
from tests.wire_responses.probe import Peer, built

from tidegauge.kafka.apis import CONSUMER_GROUP_HEARTBEAT
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL

SETTINGS = ALONE | {
    "offsets.topic.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.max.size": "1000",
}
EACH = 2
"""Partitions for each member."""
LEAVE = -1
ROUNDS = 1_000
"""Maximum rounds of heartbeats until a group is stable."""
HEARTBEAT = KRAFT_BROKER_PROTOCOL.message_class(CONSUMER_GROUP_HEARTBEAT, response=False)


class Member:
    """A member with a connection of its own.

    Attributes:
        epoch: of its last response.
        assigned: its partitions.
    """

    def __init__(self, peer: Peer, group: str, number: int, topic: str) -> None:
        self._peer, self._group, self._topic = peer, group, topic
        self._name = f"{number:022d}"
        self.epoch = 0
        self.assigned: list[int] = []
        self._topic_id = b""
        self._is_news = False

    def beat(self) -> None:
        """Send a heartbeat; the one after a new assignment says that the member has it."""
        is_first = self.epoch == 0
        owned = [{"topic_id": self._topic_id, "partitions": self.assigned}] if self.assigned else []
        response = self._ask(
            member_epoch=self.epoch,
            rebalance_timeout_ms=300_000 if is_first else -1,
            subscribed_topic_names=[self._topic] if is_first else None,
            topic_partitions=owned if self._is_news or is_first else None,
        )
        self.epoch, self._is_news = response.member_epoch, response.assignment is not None
        if response.assignment is not None:
            topics = response.assignment.topic_partitions
            self.assigned = [at for one in topics for at in one.partitions]
            self._topic_id = topics[0].topic_id if topics else self._topic_id

    def leave(self) -> None:
        """Leave the group."""
        self._ask(member_epoch=LEAVE)
        self.epoch, self.assigned, self._is_news = 0, [], False

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()

    def _ask(self, **fields: Any) -> Any:
        response = self._peer.ask(1, built(HEARTBEAT, {"group_id": self._group, "member_id": self._name} | fields))
        if isinstance(response, str) or response.error_code:
            raise RuntimeError(f"ConsumerGroupHeartbeat: {response}")
        return response


def settled(members: Sequence[Member]) -> int:
    """Send heartbeats until all members have all partitions in one epoch; return how many rounds it took."""
    partitions = list(range(EACH * len(members)))
    for number in range(1, ROUNDS + 1):
        for member in members:
            member.beat()
        epochs = {member.epoch for member in members}
        if len(epochs) == 1 and sorted(at for one in members for at in one.assigned) == partitions:
            return number
    raise RuntimeError(f"a group of {len(members)} members is not stable after {ROUNDS} rounds")


def measured(side: Side, name: str, count: int, times: int, beats: int) -> dict[str, Any]:
    """Return a row of the table."""
    topic = f"of-{count}"
    side.new_topic(topic, EACH * count)
    members = [Member(side.new_peer(), f"group-{count}", number, topic) for number in range(count)]
    settled(members)
    broker = side.cluster.brokers[0].pid
    found, rounds, cpus = [], [], []
    for number in range(times + 1):  # the first is not counted
        members[-1].leave()
        _give_up_all(members[:-1])
        begin, before = time.perf_counter(), cpu_seconds([broker])
        members[-1].beat()
        took = settled(members)
        if number:
            found.append((time.perf_counter() - begin) * 1000)
            cpus.append((cpu_seconds([broker]) - before) * 1000)
            rounds.append(took)
    before, begin, done = cpu_seconds([broker]), time.perf_counter(), 0
    while done < beats:
        for member in members:
            member.beat()
        done += count
    seconds, cpu = time.perf_counter() - begin, cpu_seconds([broker]) - before
    for member in members:
        member.leave()
        member.close()
    return {
        "side": name,
        "members": count,
        "median_ms": round(statistics.median(found), 1),
        "largest_ms": round(max(found), 1),
        "cpu_ms": round(statistics.mean(cpus), 1),
        "rounds": statistics.median(rounds),
        "times": len(found),
        "heartbeat_us": round(seconds / done * 1e6),
        "heartbeat_cpu_us": round(cpu / done * 1e6),
    }


def _give_up_all(members: Sequence[Member]) -> None:
    """Have the members take over the partitions of one that has left."""
    wanted = EACH * (len(members) + 1)
    for _ in range(ROUNDS):
        for member in members:
            member.beat()
        if sum(len(one.assigned) for one in members) == wanted and len({one.epoch for one in members}) == 1:
            return
    raise RuntimeError("the other members do not take over")


def main() -> int:
    """Measure; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[3, 30, 300])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--beats", type=int, default=6_000, help="heartbeats whose CPU is measured")
    options = parser.parse_args()
    try:
        with both_sides("consumer-rebalances", SETTINGS) as sides:
            for count in options.members:
                for kind, side in sides.items():
                    note(f"{kind}: {count} members")
                    print(json.dumps(measured(side, kind, count, options.times, options.beats)), flush=True)
    except Unavailable as problem:
        print(f"Apache Kafka can't be had here: {problem}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
