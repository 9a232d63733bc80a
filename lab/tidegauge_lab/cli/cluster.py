"""``tidegauge up``, ``down``, ``status``: the cluster in ``--dir`` as a whole.

Contract: ``up -d`` returns once the cluster is ready and prints addresses and the next commands to paste. Without
``-d`` it stays in front, and Ctrl-C (or SIGTERM) takes the cluster down, exit 130; where the command is killed, a guard
ends the processes at once, and data and logs stay. A foreground ``up`` also ends, with 0, when another command took the
cluster down.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import (
    BOOTSTRAP_VARIABLE,
    EXIT_USAGE,
    directory_option,
    fail,
    output_option,
    print_json,
    print_text,
    say,
)
from tidegauge.cluster_directory import command_for, directory_argument
from tidegauge.counted import counted
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import read_feature
from tidegauge.settings import read_assignments
from tidegauge_client.cluster_file import FILE_NAME, KRAFT_MODE, BootstrapServers
from tidegauge_client.process_end import ProcessEnd
from tidegauge_lab.cli.common import ZOOKEEPER_ADDRESS, lab_verb
from tidegauge_lab.cli.control import DEFAULT_CONTROL, LISTEN_ADDRESS, control_options
from tidegauge_lab.local import control_server
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.foreign import brokers_of_others
from tidegauge_lab.local.guard import guarding
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.waiting import holds_within
from tidegauge_lab.local.wanted import WantedQuorum

_FOREVER_SECONDS = float("inf")
_LOOK_AGAIN_SECONDS = 0.5
_EXAMPLE_TOPIC = "orders"


@click.command()
@click.option("--brokers", type=click.IntRange(min=1), metavar="N", help="Brokers 0..N-1.  [default: 3]")
@click.option("--profile", type=click.Choice(["fast", "kafka"]), help="Short waits, or Kafka's.  [default: fast]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    help="A broker setting; N:K=V sets it for broker N alone; may be repeated.",
)
@click.option(
    "--zookeeper", type=ZOOKEEPER_ADDRESS, metavar="H:P", help="Use this ZooKeeper instead of one of its own."
)
@click.option(
    "--zookeeper-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="The cluster's own ZooKeeper listens there.  [default: 12181, or the next free one]",
)
@click.option("--kraft", is_flag=True, help="Use a quorum of controllers instead of ZooKeeper, as Kafka 4 does.")
@click.option("--controllers", type=int, metavar="N", help="With --kraft: 1, 3 or 5 of them.  [default: 3]")
@click.option(
    "--controller-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="With --kraft: the first controller listens there.  [default: 9392, or the next free ones]",
)
@click.option("--combined", is_flag=True, help="With --kraft: brokers are the controllers.")
@click.option("--release-version", metavar="VERSION", help="With --kraft: the release whose features the cluster has.")
@click.option(
    "--feature",
    "features",
    multiple=True,
    metavar="NAME=LEVEL",
    help="With --kraft: the level of one feature; may be repeated.",
)
@click.option(
    "--kafka-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Broker ID serves Kafka clients on N+ID.  [default: 9092, or the next free ones]",
)
@click.option(
    "--kafka-host",
    metavar="HOST",
    help="Brokers listen there for Kafka clients, and advertise it; 0.0.0.0, in a container, advertises 127.0.0.1.",
)
@click.option(
    "--base-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Broker ID serves gRPC on N+ID.  [default: 19092, or the next free ones]",
)
@click.option(
    "--control",
    type=LISTEN_ADDRESS,
    is_flag=False,
    flag_value=DEFAULT_CONTROL,
    metavar="[HOST:PORT]",
    help=f"Serve the control interface over HTTP there (docs/steering.md).  [without a value: {DEFAULT_CONTROL}]",
)
@control_options
@click.option("-d", "--detach", is_flag=True, help="Return when the cluster is ready, and leave it running.")
@directory_option
@output_option
@lab_verb
def up(
    brokers: int | None,
    profile: str | None,
    settings: tuple[str, ...],
    zookeeper: str | None,
    zookeeper_port: int | None,
    kraft: bool,
    controllers: int | None,
    controller_port: int | None,
    combined: bool,
    release_version: str | None,
    features: tuple[str, ...],
    kafka_port: int | None,
    kafka_host: str | None,
    base_port: int | None,
    control: str | None,
    control_name: tuple[str, ...],
    detach: bool,
    directory: Path,
    output: str,
) -> None:
    """Start ZooKeeper and brokers on 127.0.0.1; a second `up` restarts them on the old data.

    Broker 0 is started first, so that it is the controller. With --kraft a quorum of controllers takes ZooKeeper's
    place, which needs no Java.
    """
    if kraft and (zookeeper is not None or zookeeper_port is not None):
        raise click.UsageError(
            "Option --kraft is for a cluster without ZooKeeper; it can't be used with --zookeeper or --zookeeper-port"
        )
    if zookeeper is not None and zookeeper_port is not None:
        raise click.UsageError(
            "Option --zookeeper-port is for the cluster's own ZooKeeper; it can't be used with --zookeeper"
        )
    try:
        given = read_assignments(settings, "--set")
        levels = dict(map(read_feature, features))
        quorum = WantedQuorum(controllers, combined, release_version, levels, controller_port)
        cluster = LocalCluster.create(
            directory,
            brokers,
            profile,
            given,
            zookeeper,
            base_port,
            zookeeper_port,
            kafka_port,
            kafka_host,
            KRAFT_MODE if kraft else None,
            quorum,
        )
    except TidegaugeError as problem:
        if problem.code is ErrorCode.INVALID_CONFIG:  # a wrong option: nothing was contacted, nothing is changed
            fail(problem.message, output, code=problem.code, exit_code=EXIT_USAGE)
        raise
    for note in cluster.notes:
        say(note)
    _end_on_signals()
    if detach:
        _start(cluster, output, control, control_name, has_new_settings=bool(given or profile))
        if output == "text":
            print_text("\n".join(["", "Next, for example:", *next_commands(cluster), "", *where_to_go_on(cluster)]))
        return
    with guarding(cluster.directory) as guard:
        try:
            _start(cluster, output, control, control_name, has_new_settings=bool(given or profile))
            _stay_in_front(cluster)
        except (KeyboardInterrupt, BrokenPipeError):
            _take_down(cluster)
            guard.release()
            raise


def _start(
    cluster: LocalCluster, output: str, control: str | None, names: tuple[str, ...], *, has_new_settings: bool
) -> None:
    """Start what is down, and tell what there is."""
    shown = len(cluster.notes)
    started = cluster.up(controller=min(broker.id for broker in cluster.file.brokers))
    if control is not None:
        control_server.start(cluster.directory, control, names)
    status_now = cluster.status()
    for note in [*cluster.notes[shown:], *_what_stays(cluster, status_now, started, has_new_settings)]:
        say(note)
    if output == "json":
        print_json(status_now)
    else:
        print_text("\n".join(summary(cluster, status_now)))


def _what_stays(
    cluster: LocalCluster, status_now: dict[str, Any], started: list[str], has_new_settings: bool
) -> list[str]:
    """Return what a second ``up`` did not touch."""
    brokers = status_now["brokers"]
    paused = [broker["id"] for broker in brokers if broker["state"] == "paused"]
    notes = [
        f"Broker {one} is paused; {command_for(cluster.directory, f'resume {one}')} lets it run on" for one in paused
    ]
    old = [str(broker["id"]) for broker in brokers if f"broker-{broker['id']}" not in started]
    if old and has_new_settings:
        notes.append(f"Running already, so that new settings come with the next start: broker {', '.join(old)}")
    if not started:
        notes.append(f"The cluster in {cluster.directory} was up already")
    return notes


def summary(cluster: LocalCluster, status_now: dict[str, Any]) -> list[str]:
    """Return what ``up`` and ``status`` show: a line per process, and where things lie."""
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
        what = f"{_state(broker)}{_process(broker['pid'])}{mark}{_end(broker)}"
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
    """Return the line of a controller of a quorum: its process, and what it is in the quorum."""
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


def _end(process: dict[str, Any]) -> str:
    """Return how a process that is down has ended."""
    return "" if process["end"] is None else f": it {ProcessEnd(**process['end']).sentence}"


def _process(pid: int | None) -> str:
    return "" if pid is None else f" (process {pid})"


def next_commands(cluster: LocalCluster) -> list[str]:
    """Return the next commands to paste: a topic, records, a failover, the wait for it, and what it did.

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
    """Return what the detached ``up`` says last: the page, and the list of verbs."""
    where = directory_argument(cluster.directory)
    return [f"Live in a browser: `tidegauge watch{where}`. All verbs: `tidegauge --help`."]


def _bootstrap_argument(servers: BootstrapServers) -> str:
    """``-b`` where a variable would lead the client's verbs to another cluster than the one in the directory.

    With TLS an address is not enough: the directory also says how its brokers are spoken with.
    """
    elsewhere = os.environ.get(BOOTSTRAP_VARIABLE)
    return f" -b {','.join(servers)}" if elsewhere and not servers.security.is_tls else ""


def _end_on_signals() -> None:
    """SIGTERM to ``up``, or the end of its terminal, means the same as Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def _stay_in_front(cluster: LocalCluster) -> None:
    """Wait for Ctrl-C, or for another command to take the cluster down (the pid files are removed then)."""
    say("Ctrl-C takes the cluster down; `tidegauge logs -f` in another terminal shows what it says")
    files = [process.pid_file for process in cluster.processes().values()]
    holds_within(lambda: not any(file.exists() for file in files), _FOREVER_SECONDS, pause_seconds=_LOOK_AGAIN_SECONDS)
    say("The cluster was taken down")


def _take_down(cluster: LocalCluster) -> None:
    """Take the cluster down after Ctrl-C, or where nothing reads what `up` prints; Ctrl-C again does it at once."""
    try:
        say("Taking the cluster down; Ctrl-C again kills it at once")
        cluster.down()
    except KeyboardInterrupt:
        cluster.down(grace_seconds=0)


@click.command()
@click.option("--purge", is_flag=True, help="Delete the data and logs of the cluster too.")
@directory_option
@output_option
@lab_verb
def down(purge: bool, directory: Path, output: str) -> None:
    """Stop everything; returns when all processes have ended. Where there is no cluster, nothing is to be done."""
    if not (directory / FILE_NAME).exists():
        if purge and directory.exists():
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"there is no cluster in {directory.absolute()}, so nothing was deleted: --purge deletes only what "
                "`tidegauge up` has made; name its directory with --dir",
            )
        say(f"There is no cluster in {directory.absolute()}: nothing is to be taken down")
        if output == "json":
            print_json({"directory": str(directory.absolute()), "purged": False})
        return
    cluster = LocalCluster(directory)
    cluster.down(purge=purge)
    if others := brokers_of_others(cluster.directory, cluster.file):
        say(f"A broker that `tidegauge up` did not start runs on the data of broker {', '.join(map(str, others))}")
    if purge and cluster.file.zookeeper_address and not cluster.file.zookeeper_managed:
        say(f"ZooKeeper at {cluster.file.zookeeper_address} is not ours: what the cluster wrote there stays")
    if output == "json":
        print_json({"directory": str(cluster.directory), "purged": purge})
    else:
        print_text(
            f"The cluster in {cluster.directory} is down" + (" and its data deleted." if purge else "; its data stays.")
        )


@click.command()
@directory_option
@output_option
@lab_verb
def status(directory: Path, output: str) -> None:
    """Show every process of the cluster, who is the controller, the groups, and where transactions hold readers."""
    from tidegauge_lab.watch.sources import status_now  # noqa: PLC0415 - other verbs need none of it
    from tidegauge_lab.watch.view import status_view  # noqa: PLC0415 - the same

    cluster = LocalCluster(directory)
    processes = cluster.status()
    up = [broker["id"] for broker in processes["brokers"] if broker["state"] == ProcessState.UP.value]
    said = asyncio.run(status_now(cluster.file, up)) if up else status_view([])
    if output == "json":
        print_json(processes | said)
    else:
        lines = [*map(group_line, said["groups"]), *map(held_line, said["held_readers"])]
        print_text("\n".join([*summary(cluster, processes), *lines]))


def held_line(held: dict[str, Any]) -> str:
    """Return what ``status`` says of a partition where transactions hold readers; it comes from ``status_now``."""
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
