"""``tidegauge format``: prepare the log directories of a node in KRaft mode, as ``kafka-storage format`` does.

What it reports is on stdout, in Kafka's sentences; with ``-o json`` one document. Nothing is written before all is
checked, and ``meta.properties``, by which a directory counts as formatted, is written last.
Source: ``kafka.tools.StorageTool``; KIP-631, KIP-853, KIP-900, KIP-1022.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from tidegauge.cli import EXIT_FAILED, fail, offline_verb_options, print_json, reports_errors
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import LATEST, LEVELS, METADATA_VERSION
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge.settings import read_properties
from tidegauge_broker.log.files import DISK
from tidegauge_broker.metadata_log.formatting import (
    META_PROPERTIES,
    Formatting,
    bootstrap_sentence,
    check_owner,
)
from tidegauge_broker.metadata_log.initial_voters import parse_initial_voters
from tidegauge_broker.metadata_log.meta_properties import CorruptMetaProperties, decode_meta_properties
from tidegauge_broker.metadata_log.scram_arguments import parse_scram
from tidegauge_broker.server.quorum.node_settings import NodeSettings, read_node_settings
from tidegauge_controller.raft.values import Endpoint, ReplicaKey, Voter, VoterSet

_SALT_BYTES = 25
_RESERVED_IDS = 100
_SNAPSHOT_MODE = 0o400
"""Snapshots are read-only once they are complete (FileRawSnapshotWriter.freeze)."""


@click.command("format")
@click.option(
    "-c",
    "--config",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The node's properties file.",
)
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
    config: Path,
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
) -> None:
    """Format the log directories of a node in KRaft mode.

    A controller without controller.quorum.voters needs one of --standalone, --initial-controllers and
    --no-initial-controllers.
    """
    del directory, bootstrap_server  # every verb takes them; the directories are those of the node's file
    if sum((standalone, no_initial_controllers, initial_controllers is not None)) > 1:
        raise click.UsageError("--standalone, --no-initial-controllers and --initial-controllers exclude each other")
    try:
        node = read_node_settings(read_properties(config.read_text(encoding="utf-8")), socket.gethostname())
        asked = Formatting(
            cluster_id=cluster_id,
            node_id=node.node_id,
            metadata_directory=node.metadata_directory,
            is_controller=node.is_controller,
            has_static_voters=bool(node.static_voters.voters),
            initial_voters=_initial_voters(node, initial_controllers, standalone=standalone),
            no_initial_voters=no_initial_controllers,
            release=release_version,
            features=dict(_feature_level(text) for text in features),
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
    return VoterSet.of([Voter(ReplicaKey(node.node_id, random_directory_id()), (endpoint,))])


def _feature_level(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    unread = f"Can't parse feature=level string {text}"
    if not equals:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"{unread}: equals sign not found.")
    try:
        return name.strip(), int(level)
    except ValueError:
        text = f"{unread}: unable to parse {level.strip()} as a short."
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, text) from None


def _run(asked: Formatting, directories: Sequence[str], output: str, *, ignore_formatted: bool) -> None:
    """Check everything, then format the directories that are not formatted yet.

    Raises:
        TidegaugeError: the request is refused, and nothing was changed.
        OSError: the disk refused.
    """
    asked.check_voters()
    levels = asked.levels()
    missing = [one for one in directories if not _is_formatted(one, asked)]
    formatted = [one for one in directories if one not in missing]
    if formatted and not ignore_formatted:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore this directory and "
            "format the others.",
        )
    lines = ["All of the log directories are already formatted."]
    if missing:
        lines = [bootstrap_sentence(levels, asked.credentials)]
    written: list[dict[str, str]] = []
    for one in missing:
        directory_id = asked.directory_id_of(one) or random_directory_id()
        name = LEVELS[levels[METADATA_VERSION]]
        lines.append(f"Formatting {asked.kind_of(one)} {one} with {METADATA_VERSION} {name}.")
        _write(Path(one), asked.files_of(one, directory_id, levels, time.time_ns() // 1_000_000))
        written.append({"directory": one, "kind": asked.kind_of(one), "directory_id": uuid_text(directory_id)})
    if output == "json":
        print_json({"formatted": written, "features": levels})
    else:
        click.echo("\n".join(lines))


def _is_formatted(directory: str, asked: Formatting) -> bool:
    """Return whether a directory has its meta.properties; refuse one that another node or cluster owns."""
    path = Path(directory) / META_PROPERTIES
    try:
        properties = decode_meta_properties(path.read_bytes())
    except FileNotFoundError:
        return False
    except CorruptMetaProperties as problem:
        text = f"{path} can't be used: {problem}; name another directory in log.dirs, or remove the directory's content"
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, text) from None
    check_owner(properties, str(path), asked.cluster_id, asked.node_id)
    return True


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        DISK.replace(path, data)
        if path.parent != directory:
            os.chmod(path, _SNAPSHOT_MODE)  # noqa: PTH101 - as the other calls of this function by the path
            DISK.sync_directory(directory)


def random_directory_id() -> bytes:
    """Return a random UUID that is not reserved and whose text begins with no hyphen (Uuid.randomUuid)."""
    while True:
        found = bytearray(secrets.token_bytes(16))
        found[6], found[8] = found[6] & 0x0F | 0x40, found[8] & 0x3F | 0x80
        if int.from_bytes(found) >= _RESERVED_IDS and not uuid_text(bytes(found)).startswith("-"):
            return bytes(found)
