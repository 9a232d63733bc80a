"""Holdings of brokers and ZooKeeper, to be compared before and after faults: descriptors, threads, memory, znodes.

The measure is what young brokers hold after a warm-up, without connections. After the faults every broker, restarted
or not, must come back to it; what grew with each fault would not. Connections and threads of clients that went end by
themselves, some time later, so that is waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.integration.chaos import BROKERS
from tests.integration.chaos_truth import truth_of
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

SLACK = {"descriptors": 12, "threads": 12, "memory_mb": 60}
"""More than a young broker that one may hold: connections and gRPC's threads come and go; Python keeps freed memory."""
LIMIT_S = 120
INDEX_FILES = (".index", ".timeindex", ".txnindex")


class Holdings(NamedTuple):
    """What a cluster holds: the most of any broker, and the znodes without sequence numbers (KRaft mode: none)."""

    most: dict[str, int]
    znodes: AbstractSet[str]


def held_by(cluster: LocalCluster, broker: int) -> dict[str, int]:
    """Descriptors, threads and resident memory of a broker's process.

    The index files of a log that has grown, or was recovered, stay open, at most three for each log: they don't count.
    One that is open twice, or was deleted, does.
    """
    process = Path(f"/proc/{cluster.pid_of(broker)}")
    pages = int((process / "statm").read_text().split()[1])
    targets = list(_targets(process))
    indexes = {target for target in targets if target.endswith(INDEX_FILES)}
    return {
        "descriptors": len(targets) - len(indexes),
        "threads": len(list((process / "task").iterdir())),
        "memory_mb": pages * 4096 >> 20,
    }


def kinds_of_descriptors(cluster: LocalCluster, broker: int) -> dict[str, int]:
    """How many descriptors of each kind a broker has: sockets by state and local port, files by their end of path."""
    pid = cluster.pid_of(broker)
    found: Counter[str] = Counter()
    sockets = _sockets(Path(f"/proc/{pid}/net/tcp")) | _sockets(Path(f"/proc/{pid}/net/tcp6"))
    for target in _targets(Path(f"/proc/{pid}")):
        found[sockets.get(target, "/".join(target.split("/")[-2:]) if target.startswith("/") else target[:7])] += 1
    return dict(found.most_common(40))


def _targets(process: Path) -> Iterator[str]:
    """Read what a process's descriptors stand for."""
    for descriptor in (process / "fd").iterdir():
        with suppress(OSError):  # closed since the directory was read
            yield str(descriptor.readlink())


def _sockets(table: Path) -> dict[str, str]:
    """Read sockets by their name in ``/proc/PID/fd``: TCP state, local and remote port, as the kernel writes them."""
    rows = [line.split() for line in table.read_text().splitlines()[1:]] if table.exists() else []
    return {
        f"socket:[{row[9]}]": f"tcp state {row[3]} port {int(row[1].rpartition(':')[2], 16)}"
        f" to {int(row[2].rpartition(':')[2], 16) if row[3] != '0A' else '*'}"
        for row in rows
    }


def holdings(cluster: LocalCluster) -> Holdings:
    """Of now."""
    every = [held_by(cluster, broker) for broker in BROKERS]
    with truth_of(cluster) as truth:
        return Holdings({what: max(one[what] for one in every) for what in SLACK}, truth.kept())


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
        with truth_of(cluster) as truth:
            grown.extend(sorted(truth.kept() ^ before.znodes))
        return not grown

    try:
        until(is_back, LIMIT_S)
    except AssertionError:
        kinds = {broker: kinds_of_descriptors(cluster, broker) for broker in BROKERS}
        raise AssertionError(f"not as it was before the faults: {grown}; descriptors: {kinds}") from None
