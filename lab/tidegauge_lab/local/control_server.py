"""The control server as a process of the cluster: started by ``up --control``, ended by ``down``.

It is a process of its own, so that it serves a detached cluster, and a defect of it leaves the brokers alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tidegauge.files import replace_text
from tidegauge_lab.local import layout
from tidegauge_lab.local.launcher import environment_of_brokers
from tidegauge_lab.local.processes import ProcessState, ended
from tidegauge_lab.local.waiting import TimeLimitError, holds_within

MODULE = "tidegauge_lab.cli.control"
URL_FILE = "url"
_LIMIT_SECONDS = 60.0


def start(directory: Path, address: str, names: Sequence[str] = ()) -> str:
    """Start the control server of a cluster that is up, unless it runs; return its URL once it serves.

    Args:
        directory: the cluster's directory.
        address: ``host:port``.
        names: host names besides localhost under which it is reached.

    Raises:
        TidegaugeError: it ended, for example since its port is taken.
        TimeLimitError: it does not serve in time.
    """
    process = layout.control_process(directory)
    if process.pid is None:
        process.make_directories()
        (process.directory / URL_FILE).unlink(missing_ok=True)
        since = process.log_size()
        command = [sys.executable, "-P", "-m", MODULE, "--dir", str(directory), "--listen", address]
        command += [word for name in names for word in ("--control-name", name)]
        process.spawn(command, environment_of_brokers())

        def serves() -> bool:
            if process.pid is None:
                raise ended(process, since)
            return url_of(directory) is not None

        if not holds_within(serves, _LIMIT_SECONDS):
            raise TimeLimitError(f"the control server does not serve after {_LIMIT_SECONDS:g} s ({process.log_file})")
    url = url_of(directory)
    assert url is not None, "it serves"
    return url


def note_url(directory: Path, url: str) -> None:
    """Note the address of this cluster's control server; only the process that ``up`` started does."""
    path = layout.control_process(directory).directory / URL_FILE
    replace_text(path, url)


def url_of(directory: Path) -> str | None:
    """Return the address of ``up``'s control server; None while it is down."""
    process = layout.control_process(directory)
    if process.state is ProcessState.DOWN:
        return None
    try:
        return (process.directory / URL_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
