"""Copies of a whole cluster's data: the log directories of all nodes and ZooKeeper's, under a name in ``snapshots/``.

Rules:
    1. A snapshot is taken of processes that have stopped in order, so that a restored cluster starts without recovery
       and its znodes hold no session.
    2. A snapshot is complete or not there: it gets its name when everything is copied. One of the same name is
       replaced. A copy that is complete and was interrupted before it got its name gets it later (``settle_names``).
    3. A restore copies the data beside those that are there, and replaces these when all of it is copied: a disk that
       is full leaves the cluster as it was.
    4. A restore notes in ``restore.json`` that it has begun, and that everything is copied. One that was interrupted,
       by SIGKILL for example, is undone before the second note and finished after it (``settle``), before anything of
       the cluster starts. Each step of that may be interrupted again. (A power loss of the machine is another matter:
       nothing is flushed.)
    5. A restore is an event of the lab, with the time of its snapshot: it is noted once the data are in place.
    6. Restored data belong to the cluster of this directory, with the same brokers and its own ZooKeeper or
       controllers.
    7. Names and notes are input of a stranger: a directory is replaced or deleted only if its name belongs to data of a
       node or ZooKeeper, and a note that names another is refused before anything changes. That no link leads out of
       the directory, ``containment`` sees to.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.files import read_json
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_lab.local import layout
from tidegauge_lab.local.fault_log import note_event
from tidegauge_lab.local.notes import fields_of, list_of, number_of, read_note, text_of

SNAPSHOTS = layout.SNAPSHOTS
_ABOUT = "snapshot.json"
_COPY = ".tmp"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DATA = re.compile(r"(broker|controller)-(0|[1-9][0-9]{0,9})/data(-[^/\x00]{1,200})?|zookeeper/data")
"""Names of directories with data, relative to the cluster's (``_data_of``)."""


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


def names(directory: Path) -> list[str]:
    """Return the names of a cluster's snapshots."""
    found = (path.parent.name for path in (directory / SNAPSHOTS).glob(f"*/{_ABOUT}"))
    return sorted(name for name in found if _NAME.fullmatch(name))


def take(directory: Path, file: ClusterFile, name: str) -> None:
    """Copy the data of a cluster that is down.

    Raises:
        OSError: they can't be copied; an older snapshot of the name is as it was.
    """
    target = directory_of(directory, name)
    temporary = target.with_name(f".{name}{_COPY}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        layout.make_private(temporary.parent)
        layout.make_private(temporary)
        taken_ms = time.time_ns() // 1_000_000
        for source in _data_of(directory, file):
            shutil.copytree(source, temporary / source.relative_to(directory), symlinks=True)
        _write(temporary / _ABOUT, {"brokers": [broker.id for broker in file.brokers], "taken_ms": taken_ms})
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _publish(temporary, target)


def settle_names(directory: Path) -> None:
    """Give complete copies their names, and remove what else interrupted snapshots have left (rule 2).

    Raises:
        OSError: one can't be renamed.
    """
    for temporary in sorted((directory / SNAPSHOTS).glob(f".*{_COPY}")):
        name = temporary.name[1:].removesuffix(_COPY)
        if not _NAME.fullmatch(name):  # such as "..": none that ``take`` has left
            continue
        if (temporary / _ABOUT).exists():
            _publish(temporary, temporary.with_name(name))
        else:
            shutil.rmtree(temporary, ignore_errors=True)


def _publish(temporary: Path, target: Path) -> None:
    """Give a complete copy its name, in place of an older snapshot that has it."""
    _remove(target)
    temporary.rename(target)


def require(directory: Path, file: ClusterFile, name: str) -> None:
    """Refuse a snapshot that is not there, or that is of other brokers.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    path = directory_of(directory, name) / _ABOUT
    if not path.exists():
        known = ", ".join(names(directory))
        take = command_for(directory, "snapshot NAME")
        there = f"; there is {known}" if known else f": none was taken of this cluster; {take} takes one"
        raise TidegaugeError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no snapshot {name}{there}")
    about = read_note(path, _about_of, f"delete the snapshot's directory, {path.parent}")
    brokers = [] if about is None else about.brokers
    if brokers != [broker.id for broker in file.brokers]:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"snapshot {name} is of brokers {', '.join(map(str, brokers))}; the cluster has others",
        )


class _About(NamedTuple):
    """The note of a snapshot: its brokers, and when it was taken; None in one that does not say."""

    brokers: list[int]
    taken_ms: int | None


def _about_of(value: Any) -> _About:
    has_time = isinstance(value, dict) and "taken_ms" in value
    brokers, *times = fields_of(value, "brokers", *(["taken_ms"] if has_time else []))
    return _About(list_of(brokers, number_of), number_of(times[0]) if times else None)


class _Restore(NamedTuple):
    """The note in ``restore.json`` of a restore that has begun.

    Attributes:
        snapshot: its name.
        copied: the directories that it puts back, relative to the cluster's.
        removed: those that the snapshot does not have.
        is_decided: whether everything is copied, so that the old data are being replaced.
    """

    snapshot: str
    copied: Sequence[str]
    removed: Sequence[str]
    is_decided: bool


def put_back(directory: Path, file: ClusterFile, name: str) -> None:
    """Replace the data of a cluster that is down by a snapshot's.

    Raises:
        OSError: they can't be copied; the data are unchanged.
        TidegaugeError: KAFKA_STORAGE_ERROR, they are copied, and the old ones can't be replaced; ``settle`` does it
            later.
    """
    source = directory_of(directory, name)
    copied = [str(path.relative_to(source)) for path in _data_of(source, file)]
    old = [str(path.relative_to(directory)) for path in _data_of(directory, file)]
    begun = _Restore(name, copied, [path for path in old if path not in copied], is_decided=False)
    try:
        _note(directory, begun)
        for path in copied:
            shutil.rmtree(_beside(directory / path), ignore_errors=True)
            shutil.copytree(source / path, _beside(directory / path), symlinks=True)
        _note(directory, begun._replace(is_decided=True))
    except OSError:
        _undo(directory, begun)
        raise
    settle(directory)


def interrupted(directory: Path) -> str | None:
    """Return the snapshot whose restore was interrupted; None: there was none."""
    found = _noted(directory)
    return None if found is None else found.snapshot


def require_settled(directory: Path) -> None:
    """Refuse to start a process of a cluster whose data a restore may have replaced in part.

    Raises:
        TidegaugeError: KAFKA_STORAGE_ERROR.
    """
    name = interrupted(directory)
    if name is not None:
        raise TidegaugeError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"a restore of snapshot {name} was interrupted, so that the data may be of two moments; "
            f"{command_for(directory, 'up')} finishes or undoes it and starts everything; nothing was done",
        )


def settle(directory: Path) -> str:
    """Undo or finish the restore that was interrupted, of a cluster that is down; return a sentence about it.

    Returns:
        The sentence; empty if no restore was interrupted.

    Raises:
        TidegaugeError: KAFKA_STORAGE_ERROR, the data can't be replaced; another attempt goes on from there.
    """
    found = _noted(directory)
    if found is None:
        return ""
    if not found.is_decided:
        _undo(directory, found)
        return (
            f"A restore of snapshot {found.snapshot} was interrupted before it replaced anything: the data are as they "
            f"were; {command_for(directory, f'restore {found.snapshot}')} restores it"
        )
    try:
        _replace_data(directory, found)
    except OSError as problem:
        raise TidegaugeError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the restore of snapshot {found.snapshot} has copied its data and can't put them in place: "
            f"{problem.filename or directory}: {problem.strerror or problem}; the cluster stays down, and once that is "
            f"mended {command_for(directory, 'up')} finishes the restore",
        ) from None
    return f"A restore of snapshot {found.snapshot} was interrupted while it replaced the data; it has been finished"


def _undo(directory: Path, begun: _Restore) -> None:
    """Remove the copies of a restore that has replaced nothing."""
    for path in begun.copied:
        shutil.rmtree(_beside(directory / path), ignore_errors=True)
    note = _note_path(directory)
    _beside(note).unlink(missing_ok=True)
    note.unlink(missing_ok=True)


def _replace_data(directory: Path, decided: _Restore) -> None:
    """Put the copies that still lie beside the data in their place; a copy that does not has been put there."""
    for path in decided.removed:
        _remove(directory / path)
    for path in decided.copied:
        target = directory / path
        if _beside(target).exists():
            _remove(target)
            _beside(target).rename(target)
    _note_restore(directory, decided.snapshot)
    # The baseline of a reset was noted of the old data.
    (layout.control_process(directory).directory / layout.BASELINE_FILE).unlink(missing_ok=True)
    _note_path(directory).unlink()


def _note_restore(directory: Path, name: str) -> None:
    """Note the restore among the events: what lies before it is not judged with what comes after (rule 5)."""
    path = directory_of(directory, name) / _ABOUT
    try:
        taken_ms = _about_of(read_json(path)).taken_ms
        # A snapshot whose note has no time: its last file was written when it was complete.
        taken_ms = round(path.stat().st_mtime * 1000) if taken_ms is None else taken_ms
    except (OSError, ValueError):  # the snapshot was removed, or damaged, after its restore was interrupted
        taken_ms = None
    known = {} if taken_ms is None else {"taken_ms": taken_ms}
    note_event(directory / layout.LOGS, "restore", "Lab", {"snapshot": name, **known})


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)


def _note_path(directory: Path) -> Path:
    return directory / layout.RESTORE_FILE


def _note(directory: Path, restore: _Restore) -> None:
    _write(_note_path(directory), restore._asdict())


def _noted(directory: Path) -> _Restore | None:
    """Return the restore that was begun; None if there was none.

    Raises:
        TidegaugeError: INVALID_REQUEST, the note is none of ``put_back`` (rule 6).
    """
    path = _note_path(directory)
    return read_note(path, _restore_of, f"remove {path} if no restore was interrupted")


def _restore_of(value: Any) -> _Restore:
    """Return what a note says.

    Raises:
        ValueError: it is none that ``put_back`` has written.
    """
    snapshot, copied, removed, is_decided = fields_of(value, *_Restore._fields)
    if not _NAME.fullmatch(text_of(snapshot)):
        raise ValueError(f"{snapshot[:100]!r} is no name of a snapshot")
    if not isinstance(is_decided, bool):
        raise ValueError("is_decided is neither true nor false")  # noqa: TRY004 - one kind of error for the reader
    return _Restore(snapshot, list_of(copied, _data_name), list_of(removed, _data_name), is_decided)


def _data_name(value: Any) -> str:
    name = text_of(value)
    if not _DATA.fullmatch(name):
        raise ValueError(f"{name[:100]!r} is no directory with data of a node or ZooKeeper")
    return name


def _write(path: Path, value: dict[str, Any]) -> None:
    """Write JSON to a file that is complete or not there."""
    _beside(path).write_text(json.dumps(value), encoding="utf-8")
    _beside(path).replace(path)


def _beside(target: Path) -> Path:
    """Return the path of an unfinished copy; no log directory has such a name."""
    return target.with_name(f".{target.name}{_COPY}")


def _data_of(directory: Path, file: ClusterFile) -> list[Path]:
    """Return the directories with data: each node's log directories, and ZooKeeper's."""
    found = [path for broker_id in file.broker_ids for path in layout.broker_log_directories(directory, broker_id)]
    if file.quorum is not None:
        found += [layout.controller_data(directory, controller.id) for controller in file.quorum.separate]
    return [path for path in [*found, directory / layout.ZOOKEEPER / "data"] if path.is_dir()]
