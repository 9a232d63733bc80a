"""Has the active controller fence a broker of a local cluster, whether its process is up, paused or down.

The lab sends the broker's own heartbeat, one that asks to be fenced: its registration is named by the broker epoch in
the last event of its lifecycle. A broker that lives asks to be unfenced with its next heartbeat;
of one that does not, a new process may register at once, as its session has ended with the fencing.
Source: ``BrokerHeartbeatRequest``, ``ReplicationControlManager.processBrokerHeartbeat``; KIP-631.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.actions import Target
from tidegauge_client.loop_thread import LoopThread
from tidegauge_client.quorum_admin import QuorumAdmin
from tidegauge_lab.local import layout
from tidegauge_lab.local.fault_log import note_fault

_LIMIT_SECONDS = 10.0
_CAUSE = "BrokerHeartbeat"
_LIFECYCLE = b'"kind":"broker"'


def require_registered(directory: Path, targets: Collection[Target]) -> None:
    """Refuse to fence targets of which one is no broker, or has never registered.

    Raises:
        TidegaugeError: INVALID_REQUEST; nothing was done.
    """
    for target in targets:
        broker_epoch(directory, target)


def broker_epoch(directory: Path, target: Target) -> int:
    """Return the broker epoch of a broker's last registration, by its event log.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is none.
    """
    path = directory / layout.LOGS / f"broker-{target}.events.jsonl"
    epoch = -1
    try:
        with path.open("rb") as lines:
            for line in lines:
                if _LIFECYCLE in line:
                    epoch = _epoch_in(line, epoch)
    except OSError:
        epoch = -1
    if epoch < 0:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{target} is no broker that has registered with the controllers, as far as its event log says, and only a "
            f"registered broker can be fenced; see {command_for(directory, 'status')}; nothing was done",
        )
    return epoch


def _epoch_in(line: bytes, before: int) -> int:
    """Return the broker epoch of an event line; ``before`` if it has none."""
    try:
        event = json.loads(line)
        found = event["broker_epoch"] if event["kind"] == "broker" else before
    except (ValueError, KeyError, TypeError, RecursionError):
        return before
    return found if isinstance(found, int) and found >= 0 else before


def fence(directory: Path, controllers: Sequence[str], broker_id: int) -> int:
    """Have a broker fenced; return its broker epoch. The fencing is committed when this returns.

    Args:
        directory: the cluster's.
        controllers: addresses of those that are up.
        broker_id: the broker.

    Raises:
        TidegaugeError: it has never registered, the controller knows another registration, or there is none in time.
    """
    epoch = broker_epoch(directory, broker_id)
    note_fault(directory / layout.LOGS, "expire-session", f"broker-{broker_id}", broker_id, _CAUSE)
    loop = LoopThread("tidegauge-fence")
    try:
        loop.run(_fenced(controllers, broker_id, epoch))
    finally:
        loop.close()
    return epoch


async def _fenced(controllers: Sequence[str], broker_id: int, epoch: int) -> None:
    async with QuorumAdmin(controllers, _LIMIT_SECONDS) as admin:
        await admin.fence_broker(broker_id, epoch)
