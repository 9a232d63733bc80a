"""Features that only Linux has are used in few places, each of which says what happens elsewhere.

A new place goes into the table with what it does on macOS, or asks a place that is there.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("proto", "broker", "controller", "client", "lab", "proof", "spark_jobs")
LINUX = re.compile(
    r"[\"'(/]proc/|prctl|posix_fadvise|posix_fallocate|pidfd|sched_(?:get|set)affinity|select\.epoll|inotify"
    r"|os\.fdatasync|os\.pipe2|memfd_create|eventfd|signalfd|copy_file_range|os\.splice|TCP_USER_TIMEOUT|TCP_KEEPIDLE"
    r"|TCP_QUICKACK|SO_BINDTODEVICE|SOCK_CLOEXEC|SOCK_NONBLOCK|O_DIRECT\b|O_TMPFILE|ctypes\.CDLL"
)
ELSEWHERE = {
    "broker/tidegauge_broker/server/allocator.py": "the C library keeps its own rules",
    "broker/tidegauge_broker/server/launcher.py": "there is no launcher: nodes are started one by one",
    "broker/tidegauge_broker/server/metrics/process_families.py": "metrics have the CPU time of the process alone",
    "lab/tidegauge_lab/demo/patience.py": "the clock of a wait runs at full speed",
    "lab/tidegauge_lab/local/guard.py": "command lines come from ps",
    "lab/tidegauge_lab/local/ports.py": "lsof says what has a port; there are no network namespaces",
    "lab/tidegauge_lab/local/processes.py": "states and start times come from ps",
    "proof/tidegauge_proof/cli/simulate.py": "all cores of the machine count, not those of the process",
    "spark_jobs/tidegauge_spark/job_session.py": "progress is shown by whether stderr is a terminal",
}


def test_what_only_linux_has_stands_where_the_table_says() -> None:
    found = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if LINUX.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(ELSEWHERE)
