"""The lines that ``up`` and ``status`` print of a cluster."""

from __future__ import annotations

import os
from typing import Any

from tidegauge.cli import BOOTSTRAP_VARIABLE
from tidegauge.cluster_directory import directory_argument
from tidegauge.counted import counted
from tidegauge_client.cluster_file import BootstrapServers
from tidegauge_client.process_end import ProcessEnd
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState

_EXAMPLE_TOPIC = "orders"


def summary(cluster: LocalCluster, status_now: dict[str, Any]) -> list[str]:
    """Return the lines of ``up`` and ``status``: one per process, and the directories."""
    zookeeper, controller = status_now["zookeeper"], status_now["controller"]
    kafkas = {one["id"]: one["address"] for one in status_now["kafka_brokers"]}
    lines = [_controller_line(one) for one in status_now["controllers"]]
    if zookeeper is not None:
        lines.append(
            f"ZooKeeper  {zookeeper['address']}  {_state(zookeeper)}{_process(zookeeper['pid'])}{_end(zookeeper)}"
        )
    for broker in status_now["brokers"]:
        mark = "  controller" if broker["id"] == controller["broker"] else ""
        if broker["id"] in kafkas:
            mark = f"; Apache Kafka has its id, at {kafkas[broker['id']]}{mark}"
        what = f"{_state(broker)}{_process(broker['pid'])}{mark}{_fenced(broker)}{_end(broker)}"
        lines.append(f"Broker {broker['id']}   {broker['address']}  {what}")
    known = {broker["id"] for broker in status_now["brokers"]}
    for broker_id, address in kafkas.items():
        if broker_id not in known:
            mark = "  controller" if broker_id == controller["broker"] else ""
            lines.append(f"Broker {broker_id}   {address}  Apache Kafka, not started by `tidegauge up`{mark}")
    known.update(one["id"] for one in status_now["controllers"])
    if controller["broker"] is None:
        lines.append("There is no active controller")
    elif controller["broker"] not in {*known, *kafkas}:
        lines.append(f"The controller is broker {controller['broker']}, which `tidegauge up` did not start")
    if status_now["kafka_bootstrap_servers"]:
        lines.append(f"Kafka clients use {status_now['kafka_bootstrap_servers']}")
    if status_now["control"]:
        lines.append(f"Control {status_now['control']}")
    lines.append(f"Data {cluster.directory}, logs {cluster.logs}")
    return lines


def _controller_line(controller: dict[str, Any]) -> str:
    """Return the line of a quorum's controller: its process, and its role there."""
    role = ""
    if controller["role"] is not None:
        role = f"  {controller['role']}, epoch {controller['epoch']}, log end {controller['log_end_offset']}"
        if controller["role"] == "leader":
            role += f", high watermark {controller['high_watermark']}"
    what = f"{_state(controller)}{_process(controller['pid'])}{role}{_end(controller)}"
    return f"Controller {controller['id']}   {controller['address']}  {what}"


def _state(process: dict[str, Any]) -> str:
    """Return whether a process runs, and if it does, whether it responds."""
    is_hung = process["state"] == ProcessState.UP.value and not process["responds"]
    return f"{process['state']}, but does not respond" if is_hung else str(process["state"])


def _fenced(broker: dict[str, Any]) -> str:
    """Return whether the controllers have fenced a broker whose process runs."""
    return "  fenced" if broker["fenced"] and broker["state"] != ProcessState.DOWN.value else ""


def _end(process: dict[str, Any]) -> str:
    """Return how a process that is down has ended."""
    return "" if process["end"] is None else f": it {ProcessEnd(**process['end']).sentence}"


def _process(pid: int | None) -> str:
    return "" if pid is None else f" (process {pid})"


def next_commands(cluster: LocalCluster) -> list[str]:
    """Return the next commands to paste: a topic, records, a failover, and its result.

    A cluster of one broker starts it again: no other broker could lead.
    """
    count = len(cluster.file.brokers)
    where = directory_argument(cluster.directory)
    servers = _bootstrap_argument(cluster.bootstrap_servers) or where
    topic = _EXAMPLE_TOPIC
    return [
        f"  tidegauge create-topic {topic} --partitions {count} --replication-factor {min(count, 3)}{servers}",
        f"  tidegauge produce {topic} --count 1000 --partition 0{servers}",
        f"  tidegauge kill --leader-of {topic}-0{where}",
        *([f"  tidegauge start {cluster.file.brokers[0].id}{where}"] if count == 1 else []),
        f"  tidegauge wait --leader {topic}-0{servers}",
        f"  tidegauge describe-topic {topic} --replicas{servers}",
    ]


def where_to_go_on(cluster: LocalCluster) -> list[str]:
    """Return the last lines of the detached ``up``: the page and the verbs."""
    where = directory_argument(cluster.directory)
    return [f"Live in a browser: `tidegauge watch{where}`. Verbs: `tidegauge --help`."]


def _bootstrap_argument(servers: BootstrapServers) -> str:
    """``-b`` where a variable would lead the client's verbs to another cluster than the one in the directory.

    With TLS an address is not enough: the directory also says how its brokers are spoken with.
    """
    elsewhere = os.environ.get(BOOTSTRAP_VARIABLE)
    return f" -b {','.join(servers)}" if elsewhere and not servers.security.is_tls else ""


def held_line(held: dict[str, Any]) -> str:
    """Return the line of ``status`` about a partition whose readers transactions hold."""
    stable, high_watermark = held["last_stable_offset"], held["high_watermark"]
    return (
        f"Partition {held['topic']}-{held['partition']}  readers of committed records are held at the LSO {stable}, "
        f"{high_watermark - stable} below the HW {high_watermark}"
    )


def group_line(group: dict[str, Any]) -> str:
    """Return what ``status`` says of a group; it comes from ``status_now``."""
    members = counted(len(group["members"]), "member")
    at_least = "at least " if group["lagIsPart"] else ""
    lag = "" if group["lag"] is None else f", lag {at_least}{group['lag']}"
    return (
        f"Group {group['group']}  {group['state']}, generation {group['generation']}, {members}{lag}, "
        f"coordinator: broker {group['coordinator']}"
    )
