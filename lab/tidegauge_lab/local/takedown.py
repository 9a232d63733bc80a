"""End processes for good: gently first, by force when that takes too long.

Order for one group: a paused process is resumed (it could not even see SIGTERM), SIGTERM goes to all, those that are
left after the grace are killed. Afterwards none of them runs, and their pid files are removed: that tells a foreground
``up`` that the cluster was taken down on purpose.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from tidegauge_lab.local.processes import LabProcess
from tidegauge_lab.local.waiting import holds_within

GRACE_SECONDS = 10.0


def end(processes: Sequence[LabProcess], *, grace_seconds: float = GRACE_SECONDS) -> None:
    """End these processes; they have all ended when this returns."""
    for process in processes:
        process.send(signal.SIGTERM)
        process.send(signal.SIGCONT)
    holds_within(lambda: all(process.pid is None for process in processes), grace_seconds)
    for process in processes:
        process.kill()
        process.forget()
