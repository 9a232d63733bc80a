"""``describe-quorum`` and ``remove-controller``: a KRaft quorum of controllers (kafka-metadata-quorum.sh).

Lines and columns follow ``MetadataQuorumCommand``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import click

from tidegauge.cli import command_config, controller_verb_options, print_json, print_text, reports_errors
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge.kafka.kraft.uuids import uuid_of
from tidegauge.security import PLAIN
from tidegauge_client.bootstrap import read_command_config
from tidegauge_client.cli.common import INDEX, JSON, run
from tidegauge_client.cluster_file import BootstrapServers, load_cluster_file
from tidegauge_client.quorum_admin import QuorumAdmin, QuorumReplica, QuorumView

bootstrap_controller = click.option(
    "--bootstrap-controller",
    metavar="HOST:PORT[,HOST:PORT]",
    help="Controllers to ask.  [default: the controllers of the cluster in --dir]",
)


def controllers(given: str | None, directory: Path) -> BootstrapServers:
    """Return the addresses of controllers, with security; raise a usage error if invalid.

    Args:
        given: what ``--bootstrap-controller`` gave; None: the controllers of the cluster in the directory.
        directory: of a local cluster.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE, there is no cluster; INVALID_REQUEST, it is in ZooKeeper mode;
            INVALID_CONFIG, the file of ``--command-config`` can't be used.
    """
    config = command_config()
    security = None if config is None else read_command_config(config, os.environ)
    if given is None:
        file = load_cluster_file(directory, "name controllers with --bootstrap-controller")
        if file.quorum is None:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"the cluster in {directory} is in ZooKeeper mode, and its controller is a broker: there is no quorum; "
                "name the controllers of one with --bootstrap-controller",
            )
        return file.controllers() if security is None else BootstrapServers(file.quorum.addresses, security)
    found = [part.strip() for part in given.split(",") if part.strip()]
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise click.UsageError(f"--bootstrap-controller {address!r} is not HOST:PORT")
    if not found:
        raise click.UsageError("--bootstrap-controller names no controller")
    return BootstrapServers(found, PLAIN if security is None else security)


@click.command("describe-quorum")
@click.option("--status", "what", flag_value="status", default="status", help="Leader, epoch, voters (the default).")
@click.option("--replication", "what", flag_value="replication", help="How far the log of each replica is.")
@bootstrap_controller
@controller_verb_options
@reports_errors
def describe_quorum(
    what: str, bootstrap_controller: str | None, output: str, directory: Path, bootstrap_server: str | None
) -> None:
    """Describe the quorum of controllers of a cluster in KRaft mode, as its leader sees it."""
    del bootstrap_server  # every verb takes it; controllers are asked
    asked = controllers(bootstrap_controller, directory)

    async def work() -> QuorumView:
        async with QuorumAdmin(asked) as admin:
            return await admin.describe()

    view = run(work())
    if output == JSON:
        print_json(as_json(view))
    else:
        print_text("\n".join(status_lines(view) if what == "status" else replication_lines(view)))


@click.command("remove-controller")
@click.option("-i", "--controller-id", type=INDEX, required=True, help="The id of the controller.")
@click.option("-d", "--controller-directory-id", required=True, metavar="ID", help="The id of its directory.")
@bootstrap_controller
@controller_verb_options
@reports_errors
def remove_controller(
    controller_id: int,
    controller_directory_id: str,
    bootstrap_controller: str | None,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
) -> None:
    """Remove a controller from the voters of the quorum; its process goes on, as an observer."""
    del bootstrap_server  # every verb takes it; controllers are asked
    asked = controllers(bootstrap_controller, directory)
    try:
        directory_id = uuid_of(controller_directory_id)
    except ValueError as problem:
        raise click.UsageError(f"--controller-directory-id {controller_directory_id}: {problem}") from None

    async def work() -> None:
        async with QuorumAdmin(asked) as admin:
            await admin.remove_voter(controller_id, directory_id)

    run(work())
    if output == JSON:
        print_json({"controller": controller_id, "directory_id": controller_directory_id})
    else:
        print_text(f"Removed  KRaft controller {controller_id} with directory id {controller_directory_id}")


def status_lines(view: QuorumView) -> list[str]:
    """Return the lines of ``describe --status`` (MetadataQuorumCommand.handleDescribeStatus)."""
    leader = next(one for one in view.voters + view.observers if one.id == view.leader_id)
    followers = [one for one in view.voters if one.id != view.leader_id]
    slowest = min(followers, key=lambda one: one.log_end_offset, default=leader)
    lag = leader.log_end_offset - slowest.log_end_offset
    times = [one.last_caught_up_ms for one in followers]
    behind_ms = -1 if min(times, default=-1) < 0 else leader.last_caught_up_ms - min(times)
    rows = {
        "ClusterId": view.cluster_id,
        "LeaderId": view.leader_id,
        "LeaderEpoch": view.epoch,
        "HighWatermark": view.high_watermark,
        "MaxFollowerLag": lag,
        "MaxFollowerLagTimeMs": 0 if lag == 0 else behind_ms,
        "CurrentVoters": json.dumps([_named(view, one) for one in view.voters]),
        "CurrentObservers": json.dumps([_named(view, one) for one in view.observers]),
    }
    return [f"{name + ':':<24}{value}" for name, value in rows.items()]


def _named(view: QuorumView, replica: QuorumReplica) -> dict[str, object]:
    found: dict[str, object] = {"id": replica.id, "directoryId": uuid_text(replica.directory_id)}
    if view.endpoints.get(replica.id):
        found["endpoints"] = list(view.endpoints[replica.id])
    return found


def replication_lines(view: QuorumView) -> list[str]:
    """Return the table of ``describe --replication`` (MetadataQuorumCommand.handleDescribeReplication)."""
    leader_end = next(one.log_end_offset for one in view.voters + view.observers if one.id == view.leader_id)
    header = ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]
    rows = [
        [
            str(one.id),
            uuid_text(one.directory_id),
            str(one.log_end_offset),
            str(leader_end - one.log_end_offset),
            str(one.last_fetch_ms),
            str(one.last_caught_up_ms),
            role,
        ]
        for one, role in replicas(view)
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return ["".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]]


def replicas(view: QuorumView) -> Sequence[tuple[QuorumReplica, str]]:
    """Return each replica with its role: leader, other voters, observers."""
    found = [(one, "Leader" if one.id == view.leader_id else "Follower") for one in view.voters]
    found.sort(key=lambda row: row[1] != "Leader")
    return [*found, *((one, "Leader" if one.id == view.leader_id else "Observer") for one in view.observers)]


def as_json(view: QuorumView) -> dict[str, object]:
    """Return a quorum as a JSON document."""
    leader_end = next(one.log_end_offset for one in view.voters + view.observers if one.id == view.leader_id)
    rows = [
        {
            "id": one.id,
            "directory_id": uuid_text(one.directory_id),
            "log_end_offset": one.log_end_offset,
            "lag": leader_end - one.log_end_offset,
            "role": role.lower(),
        }
        for one, role in replicas(view)
    ]
    return {
        "cluster_id": view.cluster_id,
        "leader": view.leader_id,
        "epoch": view.epoch,
        "high_watermark": view.high_watermark,
        "voters": rows[: len(view.voters)],
        "observers": rows[len(view.voters) :],
    }
