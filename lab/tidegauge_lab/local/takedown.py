"""End processes for good: gently first, by force when that takes too long.

Order for one group: a paused process is resumed (it could not even see SIGTERM), SIGTERM goes to all, those that are
left after the grace are killed. Afterwards none of them runs. Their pid files are removed where the cluster is taken
down on purpose: that tells a foreground ``up`` to end.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from tidegauge_lab.local.processes import LabProcess
from tidegauge_lab.local.waiting import holds_within

GRACE_SECONDS = 10.0


def end(processes: Sequence[LabProcess], *, grace_seconds: float = GRACE_SECONDS, forget: bool = True) -> None:
    """End these processes; they have all ended when this returns.

    Args:
        processes: which ones.
        grace_seconds: how long they may take to stop by themselves.
        forget: whether the cluster is taken down; False: it is about to be started again.
    """
    for process in processes:
        process.send(signal.SIGTERM)
        process.send(signal.SIGCONT)
    holds_within(lambda: all(process.pid is None for process in processes), grace_seconds)
    for process in processes:
        process.kill()
        if forget:
            process.forget()
