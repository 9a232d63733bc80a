"""Starts and ends the cluster of a lab: an ordinary cluster in a directory, with a note of which lab it belongs to.

Rules:
    1. A lab begins on a fresh cluster, so that all events are the lab's own. A directory that holds one is refused.
    2. In ZooKeeper mode the controller's broker is started first, so that it is the controller; then the others.
    3. A start that fails leaves no cluster behind. ``stop`` deletes a lab's cluster, and never another one.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.files import naming, read_json
from tidegauge_client.cluster_file import FILE_NAME, KRAFT_MODE, ZOOKEEPER_MODE
from tidegauge_client.sync_admin import SyncAdmin
from tidegauge_lab.labs.catalogue import lab_named
from tidegauge_lab.labs.model import Lab
from tidegauge_lab.local.broker_settings import in_kraft
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster
from tidegauge_lab.local.launcher import kept
from tidegauge_lab.local.layout import LAB_NOTE

USUAL_KAFKA_PORT = 9092


class Ports(NamedTuple):
    """First ports; None: the usual ones, or the next free ones."""

    base: int | None = None
    kafka: int | None = None
    zookeeper: int | None = None


def begin(
    lab: Lab,
    directory: Path,
    ports: Ports = Ports(),  # noqa: B008 - it is immutable
    *,
    kraft: bool = False,
) -> LocalCluster:
    """Start a lab's cluster and create its topics; return it when they have leaders.

    Args:
        lab: the lab.
        directory: where.
        ports: first ports.
        kraft: whether the cluster is in KRaft mode; a lab of KRaft mode alone has no other.

    Raises:
        TidegaugeError: INVALID_REQUEST, the directory holds a cluster, or the lab is of ZooKeeper mode alone; or it
            does not start.
    """
    directory = directory.absolute()
    kraft = kraft or bool(lab.kraft_only)
    if kraft and lab.zookeeper_only:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"lab {lab.name} needs a cluster in ZooKeeper mode: {lab.zookeeper_only}"
        )
    if (directory / FILE_NAME).exists():
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, _occupied(directory))
    cluster = LocalCluster.create(
        directory,
        lab.brokers,
        settings=in_kraft(lab.all_settings) if kraft else lab.all_settings,
        base_port=ports.base,
        kafka_port=ports.kafka,
        zookeeper_port=ports.zookeeper,
        mode=KRAFT_MODE if kraft else ZOOKEEPER_MODE,
    )
    try:
        with naming(directory / LAB_NOTE):
            (directory / LAB_NOTE).write_text(json.dumps({"lab": lab.name}) + "\n", encoding="utf-8")
        if lab.advertised_port:
            brokers = [
                replace(one, advertised=f"{one.host}:{lab.advertised_port + one.id}") for one in cluster.file.brokers
            ]
            cluster.change_brokers(brokers, [])
        with kept(directory):
            if not kraft:
                cluster.start(ZOOKEEPER, lab.controller)
            cluster.up()
        _create_topics(lab, cluster)
    except BaseException:
        _remove(cluster)
        raise
    return cluster


def _occupied(directory: Path) -> str:
    running = _noted(directory)
    if running is not None:
        return f"lab {running} is in {directory}; {command_for(directory, 'lab stop')} ends it and deletes its data"
    return (
        f"there is a cluster in {directory}, and a lab begins on one of its own; "
        f"{command_for(directory, 'down --purge')} deletes it, or use another directory (--dir)"
    )


def _create_topics(lab: Lab, cluster: LocalCluster) -> None:
    with SyncAdmin(list(cluster.bootstrap_servers)) as admin:
        for topic in lab.topics:
            admin.create_topic(topic.name, assignment=topic.assignment, configs=topic.config)
            admin.wait_for_topic(topic.name)


def lab_in(directory: Path) -> Lab | None:
    """Return the lab whose cluster is in a directory, if any."""
    name = _noted(directory) if (directory / FILE_NAME).exists() else None
    return None if name is None else lab_named(name)


def _noted(directory: Path) -> str | None:
    try:
        name = read_json(directory / LAB_NOTE)["lab"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return name if isinstance(name, str) else None


def end(directory: Path) -> Lab | None:
    """Stop a lab's cluster and delete it; return the lab, None if there was none.

    Raises:
        TidegaugeError: INVALID_REQUEST, the cluster is not a lab's.
    """
    lab = lab_in(directory)
    if lab is None:
        if (directory / FILE_NAME).exists():
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"the cluster in {directory.absolute()} was not started by a lab; "
                f"{command_for(directory, 'down')} stops it",
            )
        return None
    _remove(LocalCluster(directory))
    return lab


def _remove(cluster: LocalCluster) -> None:
    """Take a cluster down, and delete it with its note."""
    cluster.down(purge=True, grace_seconds=0)


def where(cluster: LocalCluster) -> list[str]:
    """Return lines with the cluster's addresses, and replacements for the usual ports."""
    servers = ",".join(listening(cluster))
    lines = [f"The cluster is up, in {cluster.directory}; Kafka clients use {servers}"]
    if not servers.startswith(f"127.0.0.1:{USUAL_KAFKA_PORT},"):
        lines.append(f"Port {USUAL_KAFKA_PORT} was not free: write these addresses where a program has 127.0.0.1:9092")
    return lines


def listening(cluster: LocalCluster) -> list[str]:
    """Return where brokers listen for Kafka clients, whatever they advertise."""
    return [one.kafka_listener for one in cluster.file.brokers]
