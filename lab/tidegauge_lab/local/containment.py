"""A cluster's directory as input of a stranger: a repository or an archive that one unpacks may carry it.

Rules:
    1. Every file of a cluster lies in its directory. A symbolic link in it that leads elsewhere is refused before
       anything is written, moved or deleted: brokers, ZooKeeper and the lab would do that at its target.
    2. Brokers and controllers listen on the host that ``up`` gives them; their Lab service has no password.
    3. A note (``restore.json``) can delete or move only a data directory of this cluster (``snapshots``).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cluster_file import FILE_NAME, ClusterFile
from tidegauge_lab.local import layout, ports

_WHAT_TO_DO = "remove it if you did not make it, or use another directory (--dir); nothing was done"


def require_own(directory: Path, file: ClusterFile, *, with_data: bool = False) -> None:
    """Refuse a cluster whose files lead out of its directory, or whose brokers or controllers listen elsewhere.

    Args:
        directory: the cluster's.
        file: its ``cluster.json``.
        with_data: whether to look at what lies below the processes' directories too: data, and snapshots.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    hosts = [(f"broker {one.id}", one.host) for one in file.brokers]
    if file.quorum is not None:
        hosts += [(f"controller {one.id}", one.host) for one in file.quorum.controllers]
    for node, host in hosts:
        if host != ports.HOST:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"{node} of {directory / FILE_NAME} would listen at {host}; the brokers and controllers of a local "
                f"cluster listen at {ports.HOST} (--kafka-host moves Kafka's protocol alone); nothing was done",
            )
    require_contained(directory, layout.own_paths(directory), depth=None if with_data else 1)


def require_contained(directory: Path, paths: Iterable[Path], *, depth: int | None = None) -> None:
    """Refuse a file below these paths that is no file, no directory and no link that stays in the directory.

    Args:
        directory: the cluster's.
        paths: of it, files or directories; what does not exist is no problem.
        depth: levels below each path to look at; None: all.

    Raises:
        TidegaugeError: INVALID_REQUEST, with the path and its target.
    """
    root = os.path.realpath(directory)
    for path, mode in _entries(paths, depth):
        if stat.S_ISLNK(mode):
            target = os.path.realpath(path)
            if not Path(target).is_relative_to(root):
                raise TidegaugeError(
                    ErrorCode.INVALID_REQUEST,
                    f"{path} is a symbolic link that leads out of the cluster's directory, to {target}: {_WHAT_TO_DO}",
                )
        elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, f"{path} is neither a file nor a directory of a cluster: {_WHAT_TO_DO}"
            )


def _entries(paths: Iterable[Path], depth: int | None) -> Iterator[tuple[str, int]]:
    """Yield what lies at and below these paths, with its mode, without following a link."""
    left = [(str(path), depth) for path in paths]
    while left:
        path, levels = left.pop()
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:  # a broker that runs deletes its own files
            continue
        yield path, mode
        if stat.S_ISDIR(mode) and levels != 0:
            left.extend(_listed(path, None if levels is None else levels - 1))


def _listed(path: str, levels: int | None) -> Iterator[tuple[str, int | None]]:
    """Yield what in a directory has to be looked at: no regular file, which costs no further call of the system."""
    try:
        with os.scandir(path) as entries:
            yield from ((entry.path, levels) for entry in entries if not entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return
