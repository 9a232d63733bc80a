"""Where everything of a cluster lies in its directory, and its removal.

The layout is in ``tidegauge_client.cluster_file``. ``down --purge`` deletes what ``up`` made and nothing else: a
directory without ``cluster.json`` is refused, and files of the user that lie beside the cluster stay.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cluster_file import FILE_NAME, ClusterFile
from tidegauge_lab.local.locks import CLUSTER_LOCK
from tidegauge_lab.local.processes import LabProcess

ZOOKEEPER = "zookeeper"
CONTROL = "control"
CONTROLLER_PROPERTIES = "controller.properties"
RULES_FILE = "rules.json"
FAULTS_FILE = "faults.json"
TALLIES = "tallies"
SNAPSHOTS = "snapshots"
RESTORE_FILE = "restore.json"
"""Note of a restore that has begun (``snapshots``)."""
BASELINE_FILE = "baseline.json"
SESSION_FILE = "session.json"
LOGS = "logs"
LAB_NOTE = "lab.json"
"""Which lab a cluster was started for (``tidegauge lab``)."""
_OWNER_ALONE = 0o700
_NODE_DIRECTORY = re.compile(r"(broker|controller)-\d+\Z")


def broker_process(directory: Path, broker_id: int) -> LabProcess:
    """Return a broker's process."""
    return _process(directory, f"broker-{broker_id}")


def broker_data(directory: Path, broker_id: int) -> Path:
    """Return the first of a broker's log directories."""
    return directory / f"broker-{broker_id}" / "data"


def session_file(directory: Path, broker_id: int) -> Path:
    """Return where a broker notes its ZooKeeper session."""
    return directory / f"broker-{broker_id}" / SESSION_FILE


def broker_log_directories(directory: Path, broker_id: int) -> list[Path]:
    """Return a broker's ``log.dirs``: ``data``, and ``data-2``, ``data-3``, ... beside it."""
    return node_log_directories(directory, f"broker-{broker_id}")


def controller_process(directory: Path, controller_id: int) -> LabProcess:
    """Return the process of a controller of a quorum."""
    return _process(directory, f"controller-{controller_id}")


def controller_data(directory: Path, controller_id: int) -> Path:
    """Return the directory of a controller's metadata log."""
    return directory / f"controller-{controller_id}" / "data"


def node_log_directories(directory: Path, process: str) -> list[Path]:
    """Return the log directories of a node: ``data``, and the ones beside it."""
    data = directory / process / "data"
    return [data, *sorted(data.parent.glob(f"{data.name}-*"))]


def zookeeper_process(directory: Path) -> LabProcess:
    """Return the cluster's own ZooKeeper."""
    return _process(directory, ZOOKEEPER)


def control_process(directory: Path) -> LabProcess:
    """Return the control server that ``up --control`` started."""
    return _process(directory, CONTROL)


def _process(directory: Path, name: str) -> LabProcess:
    return LabProcess(name, directory / name, directory / LOGS / f"{name}.log")


def runs(directory: Path) -> bool:
    """Whether any process of the cluster in this directory runs or is paused."""
    return any(_process(directory, path.parent.name).pid is not None for path in directory.glob("*/*.pid"))


def make_directories(directory: Path, file: ClusterFile) -> None:
    """Make the directories of a cluster that are missing."""
    names = [
        LOGS,
        *(f"broker-{broker.id}" for broker in file.brokers),
        *([] if file.quorum is None else [f"controller-{one.id}" for one in file.quorum.separate]),
        *([ZOOKEEPER] if file.zookeeper_managed else []),
    ]
    for name in names:
        (directory / name).mkdir(parents=True, exist_ok=True)
    for name in (ZOOKEEPER, SNAPSHOTS):
        if (directory / name).is_dir():
            make_private(directory / name)


def make_private(path: Path) -> None:
    """Make a directory that its owner alone may enter, or close one that was made open.

    ZooKeeper's data, which snapshots copy, has the keys of SCRAM users, from which passwords can be guessed.
    """
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(_OWNER_ALONE)


def write(directory: Path, file: ClusterFile) -> None:
    """Make the directories of a cluster that are missing, and write its ``cluster.json``.

    Raises:
        TidegaugeError: INVALID_REQUEST, the system refuses to make or write one of them.
    """
    try:
        make_directories(directory, file)
        file.save(directory)
    except OSError as error:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{directory} can't hold a cluster: {error.filename or directory}: {error.strerror}; use another directory "
            "(--dir)",
        ) from None


def require_new(directory: Path) -> None:
    """Refuse a directory in which a new cluster would mix with something that is there.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    if directory.exists() and not directory.is_dir():
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{directory} is a file; a cluster needs a directory")
    there = sorted(path.name for path in own_paths(directory) if path.name not in {CLUSTER_LOCK, FILE_NAME})
    if there:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{directory} holds {', '.join(there)} but no {FILE_NAME}, so `tidegauge up` did not make it; "
            "use another directory (--dir)",
        )


def remove_cluster(directory: Path) -> None:
    """Delete what ``up`` made here, and the directory itself if nothing else is in it. Nothing of it may run."""
    assert (directory / FILE_NAME).exists(), "only a cluster's directory is ever deleted"
    # The cluster file goes last but for the lock: an interrupted deletion can be repeated.
    last = (FILE_NAME, CLUSTER_LOCK)
    for path in sorted(own_paths(directory), key=lambda path: last.index(path.name) if path.name in last else -1):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if not any(directory.iterdir()):
        directory.rmdir()


def own_paths(directory: Path) -> Iterable[Path]:
    """Return the paths in a directory that have names of a cluster's files."""
    if not directory.is_dir():
        return []
    names = {
        ZOOKEEPER,
        CONTROL,
        SNAPSHOTS,
        RESTORE_FILE,
        f".{RESTORE_FILE}.tmp",
        LOGS,
        LAB_NOTE,
        FILE_NAME,
        CLUSTER_LOCK,
    }
    return [path for path in directory.iterdir() if path.name in names or _NODE_DIRECTORY.match(path.name)]
