"""The work of ``up``, ``down`` and ``status``; their options are in ``cluster``."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegauge.cli import EXIT_USAGE, fail, print_json, print_text, say
from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import read_features
from tidegauge.settings import read_assignments
from tidegauge_client.cluster_file import FILE_NAME, KRAFT_MODE
from tidegauge_lab.cli.cluster_lines import group_line, held_line, next_commands, summary, where_to_go_on
from tidegauge_lab.local import control_server
from tidegauge_lab.local.as_kafka import as_kafka as passing_for
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.foreign import brokers_of_others
from tidegauge_lab.local.guard import guarding
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.waiting import holds_within
from tidegauge_lab.local.wanted import WantedQuorum

_FOREVER_SECONDS = float("inf")
_LOOK_AGAIN_SECONDS = 0.5


def create(
    directory: Path,
    output: str,
    *,
    settings: Sequence[str],
    features: Sequence[str],
    controllers: int | None,
    is_combined: bool,
    release_version: str | None,
    controller_port: int | None,
    is_kraft: bool,
    as_kafka: Sequence[str],
    **wanted: Any,
) -> LocalCluster:
    """Write what the options say into a directory, as ``LocalCluster.create`` does; a wrong option is a usage error.

    Args:
        directory: the cluster's.
        output: how the verb prints.
        settings: assignments of ``--set``.
        features: assignments of ``--feature``.
        controllers: how many; None: as it is, or 3.
        is_combined: whether brokers are the controllers.
        release_version: the release whose features the cluster has.
        controller_port: the first controller's.
        is_kraft: whether KRaft mode is asked for; else the directory says, or TIDEGAUGE_MODE.
        as_kafka: releases that brokers pass for; a new cluster has the features of the lowest one.
        wanted: the rest of what ``LocalCluster.create`` takes.

    Raises:
        TidegaugeError: the cluster can't be made so; nothing is written.
    """
    try:
        passing = passing_for(as_kafka)
        given = passing.settings | read_assignments(settings, "--set")
        levels = read_features(features)
        is_kraft = is_kraft or passing.is_kraft
        if passing.is_kraft and not (directory / FILE_NAME).exists():
            release_version = release_version or passing.lowest
        quorum = WantedQuorum(controllers, is_combined, release_version, levels, controller_port)
        mode = KRAFT_MODE if is_kraft else None
        return LocalCluster.create(directory, settings=given, mode=mode, quorum=quorum, **wanted)
    except TidegaugeError as problem:
        if problem.code is ErrorCode.INVALID_CONFIG:  # a wrong option: nothing was contacted, nothing is changed
            fail(problem.message, output, code=problem.code, exit_code=EXIT_USAGE)
        raise


def start(
    cluster: LocalCluster,
    output: str,
    control: str | None,
    control_names: tuple[str, ...],
    *,
    detach: bool,
    has_new_settings: bool,
) -> None:
    """Start the processes that are down, print them, and stay in front unless detached.

    Args:
        cluster: the cluster to start.
        output: how the verb prints.
        control: where the control interface listens; None: it is not started.
        control_names: host names under which it is reached.
        detach: whether to return once the cluster is ready.
        has_new_settings: whether settings were given.

    Raises:
        TidegaugeError: it can't be started.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the cluster was taken down.
    """
    for note in cluster.notes:
        say(note)
    _end_on_signals()
    if detach:
        _start(cluster, output, control, control_names, has_new_settings=has_new_settings)
        if output == "text":
            print_text("\n".join(["", "Next, for example:", *next_commands(cluster), "", *where_to_go_on(cluster)]))
        return
    with guarding(cluster.directory) as guard:
        try:
            _start(cluster, output, control, control_names, has_new_settings=has_new_settings)
            _stay_in_front(cluster)
        except (KeyboardInterrupt, BrokenPipeError):
            _end_interrupted(cluster)
            guard.release()
            raise


def _start(
    cluster: LocalCluster, output: str, control: str | None, names: tuple[str, ...], *, has_new_settings: bool
) -> None:
    """Start the processes that are down, and print the cluster."""
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


def _end_interrupted(cluster: LocalCluster) -> None:
    """Take the cluster down after Ctrl-C, or if no reader of `up` is left; Ctrl-C again does it at once."""
    try:
        say("Taking the cluster down; Ctrl-C again kills it at once")
        cluster.down()
    except KeyboardInterrupt:
        cluster.down(grace_seconds=0)


def take_down(directory: Path, output: str, *, purge: bool) -> None:
    """Stop everything in a directory, or say that there is no cluster.

    Raises:
        TidegaugeError: data are to be deleted if there is no cluster; nothing was done.
    """
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


def show(directory: Path, output: str) -> None:
    """Print the cluster's processes, its controller, its groups, and where transactions hold readers."""
    from tidegauge_lab.watch.observed_facts import status_now  # noqa: PLC0415 - other verbs need none of it
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
