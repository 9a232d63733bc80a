"""Verbs that the tests of ``tidegauge verify`` run on a cluster, in their own process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from tidegauge.partition import TopicPartition
from tidegauge_client.cli.produce import produce
from tidegauge_client.cli.wait import wait
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.cli.verify import verify
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Switches


class Shell:
    """Verbs on the shared cluster, run in this process: a start of Python for each would cost more than the work."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory

    def run(self, verb: click.Command, *arguments: object, given: bytes = b"") -> Result:
        where = ("--dir", str(self.cluster.directory))
        return CliRunner().invoke(verb, [*map(str, arguments), *where], input=given, catch_exceptions=False)

    def produce(self, topic: str, *values: str, acks: str = "all", history: str = "h") -> None:
        given = "".join(f"{value}\n" for value in values).encode()
        done = self.run(produce, topic, "--acks", acks, "--history", self.directory / history, given=given)
        assert done.exit_code == 0, done.stderr

    def verify(
        self, topic: str, *histories: str, reads: str = "", complete: bool = False
    ) -> tuple[int, dict[str, Any]]:
        more = [word for name in histories for word in ("--history", self.directory / name)]
        more += ["--reads", self.directory / reads] if reads else []
        done = self.run(verify, topic, *more, *(["--complete"] if complete else []), "-o", "json")
        assert done.stdout, done.stderr
        return done.exit_code, json.loads(done.stdout)

    def topic(self, name: str, assignment: tuple[int, ...] = (0, 1, 2), **configs: str) -> str:
        with SyncAdmin(self.cluster.bootstrap_servers) as admin:
            admin.create_topic(name, assignment=[list(assignment)], configs=configs)
            admin.wait_for_topic(name)
        return name

    def hold(self, topic: str, *brokers: int, release: bool = False) -> None:
        async def work() -> None:
            async with Switches.of_cluster(self.cluster.file) as switches:
                change = switches.release_fetch if release else switches.hold_fetch
                await change(TopicPartition(topic, 0), brokers)

        asyncio.run(work())

    def wait(self, *condition: str) -> None:
        done = self.run(wait, *condition, "--timeout-ms", 60_000)
        assert done.exit_code == 0, done.stderr


def judged(shell: Shell, topic: str, *histories: Path) -> tuple[int, dict[str, Any]]:
    """Return exit code and document of ``verify --transactions``, with the present topic."""
    named = [word for path in histories for word in ("--transactions", path)]
    done = shell.run(verify, topic, *named, "-o", "json")
    assert done.stdout, done.stderr
    return done.exit_code, json.loads(done.stdout)


def counts(document: dict[str, Any]) -> dict[str, int]:
    return {kind: count for kind, count in document["counts"].items() if count}
