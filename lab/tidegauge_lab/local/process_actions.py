"""Declared actions on processes of a local cluster, which need no connection to a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge.faults.actions import ActionKind, Target
from tidegauge_lab.local.cluster import LocalCluster, Outcome


def on_processes(cluster: LocalCluster, kind: ActionKind, *targets: Target, **values: Any) -> list[Outcome]:
    """Do an action on processes, which is the cluster's method of its name; ``values`` are its parameters.

    Raises:
        TidegaugeError: it can't be done.
        TimeLimitError: its effect is not true in time.
    """
    method: Callable[..., list[Outcome]] = getattr(cluster, kind.name)
    return method(*targets, **values)
