"""Give up a wait when nothing moves any more, not when a machine is slow.

Rules:
- The limit counts from the last progress that can be seen, such as another committed batch.
- It counts in seconds in which the processes that are waited for could work: while they wait in the run queues of a
  busy machine for nine tenths of their time, its clock runs at a tenth of its speed. A process that sleeps waits for no
  processor, so with one that hangs the clock runs at full speed.

The share comes from Linux's scheduler (``/proc/PID/task/TID/schedstat``: time on a processor, time in a run queue, in
ns). Without it the clock runs at full speed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

Usage = Mapping[int, tuple[int, int]]
"""Time on a processor and time in a run queue, in ns, by thread."""
_BUSY_NS = 10_000_000
"""Less than this on a processor and in the queues together says nothing about the machine."""


class Patience:
    """One wait's clock.

    Args:
        limit_seconds: how long nothing may be seen to move.
        usage_of: reads the threads of the processes that are waited for.
        clock: monotonic, in seconds.
    """

    def __init__(
        self, limit_seconds: float, usage_of: Callable[[], Usage], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_seconds = limit_seconds
        self._usage_of = usage_of
        self._clock = clock
        self._seen: object = None
        self._waited_seconds = 0.0
        self._usage = usage_of()
        self._looked_at = clock()

    def is_over(self, seen: object) -> bool:
        """Whether the limit is over; to be asked again and again.

        Args:
            seen: what progress can be seen by; any change of it starts the limit again.
        """
        usage, now = self._usage_of(), self._clock()
        if seen != self._seen:
            self._seen, self._waited_seconds = seen, 0.0
        else:
            self._waited_seconds += (now - self._looked_at) * share(self._usage, usage)
        self._usage, self._looked_at = usage, now
        return self._waited_seconds >= self._limit_seconds


def share(before: Usage, after: Usage) -> float:
    """Return the share of wanted processor time that threads had; 1 if they wanted none."""
    running = waiting = 0
    for thread, (ran, waited) in after.items():
        ran_before, waited_before = before.get(thread, (0, 0))
        running += max(0, ran - ran_before)
        waiting += max(0, waited - waited_before)
    return 1.0 if running + waiting < _BUSY_NS else running / (running + waiting)


def usage_of_session(session: int, proc: Path = Path("/proc")) -> Usage:
    """Read the threads of all processes of a session; nothing if the system does not tell.

    Args:
        session: the pid of the process that was started as its leader.
        proc: where the system tells it.
    """
    found: dict[int, tuple[int, int]] = {}
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            # After the name, which may hold anything: state, parent, process group, session (proc(5)).
            if int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[3]) == session:
                found |= _threads(process / "task")
    return found


def _threads(tasks: Path) -> Usage:
    found: dict[int, tuple[int, int]] = {}
    for thread in tasks.iterdir():
        with contextlib.suppress(OSError, ValueError):  # it has ended, or there is no schedstat
            ran, waited, _ = (thread / "schedstat").read_text().split()
            found[int(thread.name)] = (int(ran), int(waited))
    return found
