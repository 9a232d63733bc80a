"""Common steps of tests on real brokers."""

from __future__ import annotations

import os
from pathlib import Path

from tests.waiting import until_async

from tidegauge.partition import TopicPartition
from tidegauge_client import Admin
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState


def whole(cluster: LocalCluster) -> LocalCluster:
    """All processes up and ready, whatever an earlier test left."""
    resume_all(cluster)
    cluster.up(limit_seconds=150)
    return cluster


def resume_all(cluster: LocalCluster) -> None:
    """A test that failed may have left a broker frozen."""
    for broker in cluster.file.brokers:
        if cluster.state_of(broker.id) is ProcessState.PAUSED:
            cluster.resume(broker.id)


async def make_topic(brokers: LocalCluster, name: str, replicas: list[int], **settings: str) -> TopicPartition:
    """Create a topic of one partition on these brokers; wait until those that respond host it.

    In KRaft mode a broker follows the metadata log by itself, so that the leader may be ready before a follower is.
    """
    async with Admin(brokers.bootstrap_servers) as admin:
        await admin.create_topic(name, assignment=[replicas], configs=settings)
        await admin.wait_for_topic(name)

        async def is_hosted() -> bool:
            found = await admin.describe_replicas([name])
            return all(found[broker] for broker in replicas if found.get(broker) is not None)

        await until_async(is_hosted)
    return TopicPartition(name, 0)


def without_java(links: Path) -> dict[str, str]:
    """Return this process's variables with a PATH that has no Java.

    Args:
        directory: for the links; made here.
    """
    links.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).glob("*") if directory else ():
            link = links / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    hidden = {"JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR"}
    return {name: value for name, value in os.environ.items() if name not in hidden} | {"PATH": str(links)}
