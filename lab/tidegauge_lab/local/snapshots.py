"""Copies of a whole cluster's data: the brokers' log directories and ZooKeeper's, under a name in ``snapshots/``.

Rules:
    1. A snapshot is taken of processes that have stopped in order, so that a restored cluster starts without recovery
       and its znodes hold no session.
    2. A snapshot is complete or not there: it gets its name when everything is copied. One of the same name is
       replaced.
    3. A restore copies the data beside those that are there, and replaces these when all of it is copied: a disk that
       is full leaves the cluster as it was.
    4. What is restored belongs to the cluster of this directory, with the same brokers and its own ZooKeeper.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_lab.local import layout

SNAPSHOTS = layout.SNAPSHOTS
_ABOUT = "snapshot.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def directory_of(directory: Path, name: str) -> Path:
    """Return the directory of a snapshot.

    Raises:
        TidegaugeError: INVALID_REQUEST, it is no name.
    """
    if not _NAME.fullmatch(name):
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"{name!r} is no name of a snapshot: use letters, digits, '.', '_' and '-'"
        )
    return directory / SNAPSHOTS / name


def require_own_zookeeper(file: ClusterFile) -> None:
    """Refuse a cluster whose ZooKeeper is another's: its znodes can't be copied.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    if not file.zookeeper_managed:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"ZooKeeper at {file.zookeeper_address} was not started by `tidegauge up`, so its data can't be copied",
        )


def names(directory: Path) -> list[str]:
    """Return the names of a cluster's snapshots."""
    return sorted(path.parent.name for path in (directory / SNAPSHOTS).glob(f"*/{_ABOUT}"))


def take(directory: Path, file: ClusterFile, name: str) -> None:
    """Copy the data of a cluster that is down."""
    target = directory_of(directory, name)
    temporary = target.with_name(f".{name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for source in _data_of(directory, file):
        shutil.copytree(source, temporary / source.relative_to(directory), symlinks=True)
    about = {"brokers": [broker.id for broker in file.brokers]}
    (temporary / _ABOUT).write_text(json.dumps(about), encoding="utf-8")
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)


def require(directory: Path, file: ClusterFile, name: str) -> None:
    """Refuse a snapshot that is not there, or that is of other brokers.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    path = directory_of(directory, name) / _ABOUT
    if not path.exists():
        known = ", ".join(names(directory))
        there = (
            f"; there is {known}" if known else ": none was taken of this cluster; `tidegauge snapshot NAME` takes one"
        )
        raise TidegaugeError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no snapshot {name}{there}")
    brokers = json.loads(path.read_text(encoding="utf-8"))["brokers"]
    if brokers != [broker.id for broker in file.brokers]:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"snapshot {name} is of brokers {', '.join(map(str, brokers))}; the cluster has others",
        )


def put_back(directory: Path, file: ClusterFile, name: str) -> None:
    """Replace the data of a cluster that is down by those of a snapshot.

    Raises:
        OSError: they can't be copied; what is there is as it was.
    """
    source = directory_of(directory, name)
    copies = {path: directory / path.relative_to(source) for path in _data_of(source, file)}
    try:
        for path, target in copies.items():
            shutil.rmtree(_beside(target), ignore_errors=True)
            shutil.copytree(path, _beside(target), symlinks=True)
    except OSError:
        for target in copies.values():
            shutil.rmtree(_beside(target), ignore_errors=True)
        raise
    for path in _data_of(directory, file):
        shutil.rmtree(path)
    for target in copies.values():
        _beside(target).rename(target)


def _beside(target: Path) -> Path:
    """Return where a copy grows; the name is not that of a log directory."""
    return target.with_name(f".{target.name}.tmp")


def _data_of(directory: Path, file: ClusterFile) -> list[Path]:
    """Return the directories with data: each broker's log directories, and ZooKeeper's."""
    found = [path for broker in file.brokers for path in layout.broker_log_directories(directory, broker.id)]
    return [path for path in [*found, directory / layout.ZOOKEEPER / "data"] if path.is_dir()]
