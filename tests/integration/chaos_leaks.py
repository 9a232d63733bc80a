"""What brokers and ZooKeeper hold, to be compared before and after faults: descriptors, threads, memory, znodes.

The measure is what young brokers hold after a warm-up, without connections. After the faults every broker, restarted
or not, must come back to it; what grew with each fault would not. Connections and threads of clients that went end by
themselves, some time later, so that is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

from tests.integration.chaos import BROKERS
from tests.waiting import until
from tests.zookeeper_view import ZooKeeperView

from tidegauge_lab.local.cluster import LocalCluster

SLACK = {"descriptors": 12, "threads": 12, "memory_mb": 60}
"""More than a young broker that one may hold: connections and gRPC's threads come and go; Python keeps freed memory."""
SEQUENCE = re.compile(r"\d{10}$")
LIMIT_S = 120


class Holdings(NamedTuple):
    """What a cluster holds: the most of any broker, and the znodes without their sequence numbers."""

    most: dict[str, int]
    znodes: AbstractSet[str]


def held_by(cluster: LocalCluster, broker: int) -> dict[str, int]:
    """Descriptors, threads and resident memory of a broker's process."""
    process = Path(f"/proc/{cluster.pid_of(broker)}")
    pages = int((process / "statm").read_text().split()[1])
    return {
        "descriptors": len(list((process / "fd").iterdir())),
        "threads": len(list((process / "task").iterdir())),
        "memory_mb": pages * 4096 >> 20,
    }


def holdings(cluster: LocalCluster) -> Holdings:
    """Of now."""
    every = [held_by(cluster, broker) for broker in BROKERS]
    return Holdings({what: max(one[what] for one in every) for what in SLACK}, znodes(cluster))


def znodes(cluster: LocalCluster) -> AbstractSet[str]:
    """All paths; a sequence node counts as one, however many there are."""
    view = ZooKeeperView(cluster.file.zookeeper_address)
    try:
        return {SEQUENCE.sub("N", path) for path in view.tree()}
    finally:
        view.close()


def wait_until_back(cluster: LocalCluster, before: Holdings) -> None:
    """AssertionError, with what there is too much of, if it is not as before in time."""
    grown: list[str] = []

    def is_back() -> bool:
        grown[:] = [
            f"broker {broker} holds {now[what]} {what}, young ones {before.most[what]}"
            for broker in BROKERS
            for now in [held_by(cluster, broker)]
            for what in SLACK
            if now[what] > before.most[what] + SLACK[what]
        ]
        grown.extend(sorted(znodes(cluster) ^ before.znodes))
        return not grown

    try:
        until(is_back, LIMIT_S)
    except AssertionError:
        raise AssertionError(f"not as it was before the faults: {grown}") from None
