"""How long a group's rebalance takes on both sides: ``PYTHONPATH=. python bench/rebalance_times.py``.

Members speak Kafka's protocol by themselves and rejoin as soon as a heartbeat says so, so the measured time is the
coordinator's part and its log's, not a client's poll loop: from the JoinGroup with which a new member begins the
rebalance until every member has the response to its SyncGroup. ``group.initial.rebalance.delay.ms`` is 0 on both. Each
number of members is measured in several rebalances; median and largest are printed, in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import kafka_side
from raw_clients import Connection, Member, coordinators_of

from tidegauge_lab.local.cluster import LocalCluster

SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
READY_SECONDS = 90.0


async def measured(server: str, members: int, times: int) -> list[float]:
    """Return the durations of rebalances of a group of this size, in ms."""
    found: list[float] = []
    for number in range(times + 1):  # the first is not counted
        group = f"rebalance-{members}-{number}"
        coordinator = (await coordinators_of(server, [group]))[group]
        all_members = [Member(await Connection.open(coordinator), group) for _ in range(members)]
        for at, member in enumerate(all_members):
            begin = time.perf_counter()
            await asyncio.gather(member.join(), *(one.rejoin() for one in all_members[:at]))
            last = (time.perf_counter() - begin) * 1000
        if number:
            found.append(last)
        for member in all_members:
            member.close()
    return found


def row(name: str, members: int, found: list[float]) -> dict[str, Any]:
    """Return a row of the table."""
    return {
        "side": name,
        "members": members,
        "median_ms": round(statistics.median(found), 1),
        "largest_ms": round(max(found), 1),
        "times": len(found),
    }


def main() -> int:
    """Measure both, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[3, 30])
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rebalance-") as name:
        directory = Path(name)
        cluster = LocalCluster.create(directory / "tidegauge", 3, profile="kafka", settings=SETTINGS)
        try:
            cluster.up(READY_SECONDS)
            for members in options.members:
                found = asyncio.run(measured(cluster.kafka_bootstrap_servers[0], members, options.times))
                rows.append(row("Tidegauge", members, found))
        finally:
            cluster.down()
        side = kafka_side.Kafka(directory, SETTINGS)
        try:
            side.start()
            for members in options.members:
                found = asyncio.run(measured(side.bootstrap.split(",")[0], members, options.times))
                rows.append(row(side.name, members, found))
        except kafka_side.Unavailable as reason:
            print(f"Apache Kafka can't be had here ({reason}): only Tidegauge was measured")
        finally:
            side.stop()
    for one in rows:
        print(json.dumps(one))
    return 0


if __name__ == "__main__":
    sys.exit(main())
