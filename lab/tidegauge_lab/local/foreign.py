"""Brokers that the lab did not start and that run on its directories: Apache Kafka's, with the id of one that is down.

A broker of either kind holds a lock on ``.lock`` in each log directory while it runs. It is a lock of POSIX, as Java's
``FileChannel.tryLock`` takes it, so that it is seen across kinds, and from here.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_lab.local import layout
from tidegauge_lab.local.processes import ProcessState

_LOCK_FILE = ".lock"


def brokers_of_others(directory: Path, file: ClusterFile) -> list[int]:
    """Return the brokers that are down here and whose log directories are in use."""
    down = [one.id for one in file.brokers if layout.broker_process(directory, one.id).state is ProcessState.DOWN]
    return [one for one in down if any(map(_is_locked, layout.broker_log_directories(directory, one)))]


def require_none(directory: Path, file: ClusterFile) -> None:
    """Refuse to touch data on which a broker runs that the lab did not start.

    Raises:
        TidegaugeError: KAFKA_STORAGE_ERROR.
    """
    others = brokers_of_others(directory, file)
    if others:
        ids = ", ".join(map(str, others))
        raise TidegaugeError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"on the directory of broker {ids} runs a broker that `tidegauge up` did not start, such as one of Apache "
            "Kafka; stop it first; nothing was done",
        )


def _is_locked(directory: Path) -> bool:
    try:
        with (directory / _LOCK_FILE).open("r+b") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
