"""A run that snapshots and restores between faults (docs/chaos.md): ``verify`` judges each time line by itself.

Records acknowledged between a snapshot and its restore are undone, and nothing else. Faults are drawn from a seed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.chaos import DAMAGE, FAULTS, Chaos, with_two_directories
from tests.integration.conftest import LIMIT_SECONDS
from tests.integration.verify_shell import Shell, counts

from tidegauge.partition import TopicPartition
from tidegauge_client.admin import LATEST
from tidegauge_client.cli.consume import consume
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.cli.snapshot import restore, snapshot
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
SEED = int(os.environ.get("SOAK_SEED", "1"))
NOT_HERE = {DAMAGE, "kill a client", *(name for name in FAULTS if "disk f" in name or "disk is full" in name)} | {
    name for name in FAULTS if "directories" in name
}
"""A damaged batch is a finding, no client could die, and disks that fail need clients that write meanwhile."""
BATCH = 5


class Run:
    """A cluster with a topic of three replicas, whose producer notes acknowledged records."""

    def __init__(self, cluster: LocalCluster, directory: Path, seed: int) -> None:
        self.shell = Shell(cluster, directory)
        self.topic = self.shell.topic("kept", (0, 1, 2), **{"min.insync.replicas": "2"})
        self.chaos = Chaos(cluster, [self.topic], seed, without=NOT_HERE)
        self._numbers = itertools.count()
        self.time_line: list[list[int]] = [[]]
        """The values that must be there, and before them those that each snapshot holds."""

    def produce(self) -> None:
        numbers = list(itertools.islice(self._numbers, BATCH))
        self.shell.produce(self.topic, *map(str, numbers))
        self.time_line[-1] += numbers

    def fault(self) -> None:
        """Let a fault happen, with records before and after it."""
        self.produce()
        self.chaos.one_fault()
        self.produce()

    def snapshot(self, name: str) -> None:
        done = self.shell.run(snapshot, name)
        assert done.exit_code == 0, done.stderr
        self.chaos.heal()
        self.time_line.append([*self.time_line[-1]])

    def restore(self, name: str) -> None:
        done = self.shell.run(restore, name)
        assert done.exit_code == 0, done.stderr
        self.chaos.heal()
        self.time_line[-1] = [*self.time_line[-2]]

    def judge(self) -> None:
        """Check that nothing is found, and the records belong to this time line."""
        code, document = self.shell.verify(self.topic, "h")
        assert (code, counts(document)) == (0, {}), (document, self.chaos.done)
        assert set(self._values()) == set(self.time_line[-1]), self.chaos.done

    def _values(self) -> list[int]:
        at = TopicPartition(self.topic, 0)
        with SyncAdmin(self.shell.cluster.bootstrap_servers) as admin:
            end = admin.list_offsets({at: LATEST})[at].offset
        read = self.shell.run(consume, self.topic, "--from-beginning", "--max-messages", end)
        assert read.exit_code == 0, read.stderr
        return [int(line) for line in read.stdout.split()]


@pytest.mark.parametrize(
    ("seed", "rounds"), [(SEED, 1), *(pytest.param(SEED + more, 3, marks=pytest.mark.long) for more in range(1, 4))]
)
def test_each_time_line_is_judged_by_itself_amid_faults(
    make_cluster: Callable[..., LocalCluster], tmp_path: Path, seed: int, rounds: int
) -> None:
    cluster = make_cluster(up=False, brokers=3, zookeeper=None)
    with_two_directories(cluster).up(LIMIT_SECONDS)
    run = Run(cluster, tmp_path, seed)
    for number in range(rounds):
        run.produce()
        run.snapshot(f"s{number}")
        run.fault()
        run.restore(f"s{number}")
        run.judge()
        run.fault()
        run.judge()
