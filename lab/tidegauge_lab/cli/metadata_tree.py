"""``tidegauge metadata-tree``: the metadata of a cluster in KRaft mode as a tree, the counterpart of ``zk-tree``.

It has kafka-metadata-shell's names below ``/image``. Each line is a node: its name indented by its depth, and behind a
leaf's name its text. A path shows the nodes below it, and a leaf its text alone, as ``ls`` and ``cat`` do there.
JSON: ``{"source","offset","nodes":[{"path","value"}]}``; the value of a directory is null.

The files are read as they are, also those of a running node: by default the active controller's, up to
its high watermark. Without one, the log of the node that has most, and a remark: its end need not be committed.
Source: ``org.apache.kafka.shell.MetadataShell`` and its commands ``ls``, ``cat``, ``find``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from tidegauge.cli import directory_option, output_option, print_json, print_line, say
from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.files import naming
from tidegauge.settings.parsing import broker_setting
from tidegauge_broker.metadata_log.offline_image import OfflineImage, OfflineLoader, newest
from tidegauge_broker.metadata_log.snapshot_names import SNAPSHOT_SUFFIX, parse_snapshot_name
from tidegauge_client.cluster_file import ClusterFile, load_cluster_file
from tidegauge_controller.metadata.tree import Tree, below, leaves, tree_of
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.local import layout
from tidegauge_lab.local.topology import topology_of

ROOT = "/image"
METADATA_LOG = "__cluster_metadata-0"
_NAMED = 12
"""How many names an error lists."""


class Found(NamedTuple):
    """Metadata, and the place they were read from.

    Attributes:
        source: the directory or file.
        read: its image.
    """

    source: Path
    read: OfflineImage


def read_directory(directory: Path, until: int | None = None) -> Found:
    """Read a node's metadata log.

    Args:
        directory: a log directory, or the directory of the metadata log in it.
        until: the high watermark, if it is known.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is no metadata log; CORRUPT_MESSAGE, it can't be read.
    """
    log = directory if directory.name == METADATA_LOG else directory / METADATA_LOG
    if not log.is_dir():
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{directory} has no metadata log: give a log directory of a node in KRaft mode, which has {METADATA_LOG}",
        )
    loader = OfflineLoader()
    snapshots = {name: path for path in log.iterdir() if (name := parse_snapshot_name(path.name)) is not None}
    snapshot = newest(name for name in snapshots if name.suffix == SNAPSHOT_SUFFIX)
    if snapshot is not None:
        with _reading(snapshots[snapshot]) as data:
            loader.take_snapshot(data, snapshot)
    segments = sorted(log.glob("*.log"))
    for path in segments:
        with _reading(path) as data:
            loader.take_segment(data, is_last=path == segments[-1], until=until)
    return Found(log, loader.result)


def read_snapshot_file(path: Path) -> Found:
    """Read a snapshot file.

    Raises:
        TidegaugeError: INVALID_REQUEST, its name is no snapshot's; CORRUPT_MESSAGE, it can't be read.
    """
    name = parse_snapshot_name(path.name)
    if name is None:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"{path} is no snapshot: its name is <end offset>-<epoch>{SNAPSHOT_SUFFIX}"
        )
    loader = OfflineLoader()
    with _reading(path) as data:
        loader.take_snapshot(data, name)
    return Found(path, loader.result)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[bytes]:
    """Read a file; an error inside the block names it."""
    with naming(path):
        data = path.read_bytes()
    try:
        yield data
    except TidegaugeError as problem:
        raise TidegaugeError(problem.code, f"{path}: {problem.message}") from None


def read_cluster(directory: Path) -> Found:
    """Read the metadata of a local cluster: of the active controller or, without one, of the node that has most.

    Raises:
        TidegaugeError: INVALID_REQUEST, the cluster is in ZooKeeper mode, or no node has a metadata log yet.
    """
    file = load_cluster_file(directory)
    if file.quorum is None:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"the cluster in {directory} is in ZooKeeper mode, and has no metadata log: its metadata are znodes; see "
            f"{command_for(directory, 'zk-tree')}",
        )
    places = _places(directory, file)
    view = topology_of(directory, file).quorum()
    if view is not None and view.leader_id in places:
        return read_directory(places[view.leader_id], view.high_watermark)
    found = [read_directory(path) for path in places.values() if (path / METADATA_LOG).is_dir()]
    if not found:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"no node of the cluster in {directory} has a metadata log yet: {command_for(directory, 'up')} first",
        )
    longest = max(found, key=lambda one: (one.read.image.provenance.epoch, one.read.image.provenance.offset))
    longest.read.remarks.append("no controller leads the quorum: the last records of this log need not be committed")
    return longest


def _places(directory: Path, file: ClusterFile) -> dict[int, Path]:
    """Return the directory of each node's metadata log, by id; controllers first."""
    assert file.quorum is not None
    found = {one.id: layout.controller_data(directory, one.id) for one in file.quorum.separate}
    return found | {one: layout.broker_data(directory, one) for one in file.broker_ids}


def _is_secret(name: str) -> bool:
    setting = broker_setting(name)
    return setting is not None and setting.is_sensitive


def _at(tree: Tree, path: str) -> Tree | str:
    """Return the node at a path.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is nothing; the sentence says how far the path goes.
    """
    names = [name for name in path.split("/") if name]
    for end, name in enumerate(names):
        before = below(tree, "/".join(names[:end]))
        if not isinstance(before, str) and before is not None and name in before:
            continue
        above = f"{ROOT}/{'/'.join(names[:end])}".rstrip("/")
        has = "is a leaf" if isinstance(before, str) or not before else f"has {', '.join(list(before)[:_NAMED])}"
        more = "" if isinstance(before, str) or not before or len(before) <= _NAMED else ", ..."
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there is no {above}/{name}: {above} {has}{more}")
    found = below(tree, path)
    assert found is not None
    return found


def line_of(path: str, text: str | None) -> str:
    """Return a node as text, indented by its depth."""
    name = "  " * (path.count("/") - 1) + path.rpartition("/")[2]
    return name if text is None else f"{name}  {text}"


@click.command("metadata-tree")
@click.argument("path", default=ROOT)
@click.option(
    "--log-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Read this log directory of a node, or the directory of the metadata log in it.",
)
@click.option(
    "--snapshot",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Read this snapshot of a metadata log.",
)
@directory_option
@output_option
@lab_verb
def metadata_tree(path: str, log_dir: Path | None, snapshot: Path | None, directory: Path, output: str) -> None:
    """Show the metadata of a cluster in KRaft mode as a tree, or the part of it at PATH."""
    if log_dir is not None and snapshot is not None:
        raise click.UsageError("Options --log-dir and --snapshot each say what to read; give one of them")
    if snapshot is not None:
        source, read = read_snapshot_file(snapshot)
    else:
        source, read = read_cluster(directory) if log_dir is None else read_directory(log_dir)
    wanted = path.removeprefix(ROOT) if path == ROOT or path.startswith(f"{ROOT}/") else path
    found = _at(tree_of(read.image, _is_secret), wanted)
    for remark in read.remarks:
        say(f"{source}: {remark}")
    if output == "json":
        base = f"{ROOT}/{wanted.strip('/')}".rstrip("/")
        nodes = [{"path": base + at, "value": text} for at, text in leaves(found)]
        print_json({"source": str(source), "offset": read.image.provenance.offset, "nodes": nodes})
    elif isinstance(found, str):
        print_line(found)
    else:
        for at, text in leaves(found):
            print_line(line_of(at, text))
