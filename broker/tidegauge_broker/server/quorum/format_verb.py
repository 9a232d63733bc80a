"""``tidegauge format``: prepare the log directories of a node in KRaft mode, as ``kafka-storage format`` does.

Reports are on stdout, in Kafka's sentences; with ``-o json`` one document. Nothing is written before all is
checked, and ``meta.properties``, by which a directory counts as formatted, is written last.
Source: ``kafka.tools.StorageTool``; KIP-631, KIP-853, KIP-900, KIP-1022.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

import click

from tidegauge.cli import EXIT_FAILED, fail, offline_verb_options, print_json, reports_errors
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import LATEST, LEVELS, METADATA_VERSION, read_feature
from tidegauge_broker.metadata_log.formatting import Formatting, bootstrap_sentence
from tidegauge_broker.metadata_log.initial_voters import parse_initial_voters
from tidegauge_broker.metadata_log.scram_arguments import parse_scram
from tidegauge_broker.server.quorum.format_directories import format_directories
from tidegauge_broker.server.quorum.given_settings import given_settings, settings_options
from tidegauge_broker.server.quorum.node_properties import random_uuid
from tidegauge_broker.server.quorum.node_settings import NodeSettings, read_node_settings
from tidegauge_controller.raft.values import Endpoint, ReplicaKey, Voter, VoterSet

_SALT_BYTES = 25


@click.command("format")
@settings_options("The node's")
@click.option("-t", "--cluster-id", required=True, metavar="ID", help="The id of the cluster.")
@click.option("-s", "--standalone", is_flag=True, help="Make this controller the only voter of a dynamic quorum.")
@click.option(
    "-N", "--no-initial-controllers", is_flag=True, help="Name no voters: for brokers, and controllers to be added."
)
@click.option(
    "-I",
    "--initial-controllers",
    metavar="ID@HOST:PORT:DIRECTORY,...",
    help="The voters of a dynamic quorum; the same list for all of them.",
)
@click.option("-r", "--release-version", metavar="VERSION", help=f"Defaults of the features; default {LEVELS[LATEST]}.")
@click.option(
    "-f",
    "--feature",
    "features",
    multiple=True,
    metavar="NAME=LEVEL",
    help="The level of one feature; may be repeated.",
)
@click.option("-g", "--ignore-formatted", is_flag=True, help="Skip directories that are formatted already.")
@click.option(
    "-S",
    "--add-scram",
    "credentials",
    multiple=True,
    metavar="CREDENTIAL",
    help="A credential, such as SCRAM-SHA-256=[name=alice,password=alice-secret]; may be repeated.",
)
@offline_verb_options
@reports_errors
def format_storage(
    config: Path | None,
    cluster_id: str,
    standalone: bool,
    no_initial_controllers: bool,
    initial_controllers: str | None,
    release_version: str | None,
    features: tuple[str, ...],
    ignore_formatted: bool,
    credentials: tuple[str, ...],
    output: str,
    directory: Path,
    bootstrap_server: str | None,
    *,
    environment: bool,
) -> None:
    """Format the log directories of a node in KRaft mode.

    A controller without controller.quorum.voters needs one of --standalone, --initial-controllers and
    --no-initial-controllers.
    """
    del directory, bootstrap_server  # every verb takes them; the directories come from the node's file
    if sum((standalone, no_initial_controllers, initial_controllers is not None)) > 1:
        raise click.UsageError("--standalone, --no-initial-controllers and --initial-controllers exclude each other")
    try:
        node = read_node_settings(given_settings(config, environment=environment), socket.gethostname())
        asked = Formatting(
            cluster_id=cluster_id,
            node_id=node.node_id,
            metadata_directory=node.metadata_directory,
            is_controller=node.is_controller,
            has_static_voters=bool(node.static_voters.voters),
            initial_voters=_initial_voters(node, initial_controllers, standalone=standalone),
            no_initial_voters=no_initial_controllers,
            release=release_version,
            features=dict(read_feature(text) for text in features),
            credentials=[parse_scram(text, lambda: secrets.token_bytes(_SALT_BYTES)) for text in credentials],
        )
        _run(asked, node.directories, output, ignore_formatted=ignore_formatted)
    except TidegaugeError as problem:
        fail(problem.message, output, code=problem.code, exit_code=EXIT_FAILED)


def _initial_voters(node: NodeSettings, listed: str | None, *, standalone: bool) -> VoterSet | None:
    if listed is not None:
        return parse_initial_voters(listed, node.listener_name)
    if not standalone:
        return None
    if not node.is_controller:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, "You can only use --standalone on a controller.")
    bound = node.bound[0]
    endpoint = Endpoint(node.listener_name, bound.host or "localhost", bound.port)
    return VoterSet.of([Voter(ReplicaKey(node.node_id, random_uuid()), (endpoint,))])


def _run(asked: Formatting, directories: Sequence[str], output: str, *, ignore_formatted: bool) -> None:
    """Check everything, format the directories that are not formatted yet, and report.

    Raises:
        TidegaugeError: the request is refused, and nothing was changed.
        OSError: the disk refused.
    """
    asked.check_voters()
    levels = asked.levels()
    written = format_directories(asked, directories, levels, ignore_formatted=ignore_formatted)
    if output == "json":
        print_json({"formatted": [one._asdict() for one in written], "features": levels})
        return
    if not written:
        click.echo("All of the log directories are already formatted.")
        return
    name = LEVELS[levels[METADATA_VERSION]]
    lines = [f"Formatting {one.kind} {one.directory} with {METADATA_VERSION} {name}." for one in written]
    click.echo("\n".join([bootstrap_sentence(levels, asked.credentials), *lines]))
