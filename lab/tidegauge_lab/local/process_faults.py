"""Faults of processes of a running cluster: kill, stop, pause, resume, start.

Rules:
- All targets are looked at first; if one of them can't be treated so, nothing is done to any.
- Repeating a fault changes nothing and is not an error.
- A fault is noted in ``logs/lab.events.jsonl`` at the moment of its signal, before its effect.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.actions import ZOOKEEPER, Target
from tidegauge.partition import TopicPartition
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_lab.ended_membership import EndedMembership
from tidegauge_lab.local import layout, startup
from tidegauge_lab.local.fault_log import note_fault
from tidegauge_lab.local.launcher import Launcher
from tidegauge_lab.local.layout import LOGS
from tidegauge_lab.local.processes import LabProcess, ProcessState
from tidegauge_lab.local.topology import Topology, topology_of
from tidegauge_lab.local.waiting import TimeLimitError, holds_within

Processes = Mapping[Target, LabProcess]

START_LIMIT_SECONDS = 60.0
STOP_LIMIT_SECONDS = 30.0
_CAUSE = "Lab"


class Outcome(NamedTuple):
    """The effect of a fault on one process.

    Attributes:
        process: ``broker-1``, ``controller-3000`` or ``zookeeper``.
        target: its node's id, or ``zookeeper``.
        changed: False when it was so already.
        pid: the process it was done to, the new one after a start, None when there was none.
        state: its state now.
        lost_bytes: unflushed bytes, lost in a power loss.
        ended: the membership that was ended with it; None if none was.
    """

    process: str
    target: Target
    changed: bool
    pid: int | None
    state: ProcessState
    lost_bytes: int = 0
    ended: EndedMembership | None = None

    @property
    def name(self) -> str:
        """The process's name for people: ``broker 1``, ``controller 3000``, ``ZooKeeper``."""
        return _called(self.process)

    @property
    def is_broker(self) -> bool:
        """Whether it is a broker's process."""
        return self.process.startswith("broker-")


class StartWith(NamedTuple):
    """Options for starting one broker.

    Attributes:
        held: partitions whose follower on it is held from the start.
        after_power_cut: its disk has only flushed data.
    """

    held: Sequence[TopicPartition] = ()
    after_power_cut: bool = False


def kill(processes: Processes, logs: Path) -> list[Outcome]:
    """SIGKILL to all, then wait until all have ended."""
    pids = {target: process.pid for target, process in processes.items()}
    for target, process in processes.items():
        if pids[target] is not None:
            _note(logs, "kill", target, process)
            process.send(signal.SIGKILL)
    for process in processes.values():
        process.kill()
    return [
        Outcome(process.name, target, pids[target] is not None, pids[target], ProcessState.DOWN)
        for target, process in processes.items()
    ]


def expired(topology: Topology, outcomes: Iterable[Outcome]) -> list[Outcome]:
    """End the memberships of the brokers to which a fault was done; return the outcomes with them.

    Raises:
        TidegaugeError: what keeps the memberships does not respond.
    """
    brokers = [(one, int(one.target)) for one in outcomes if one.is_broker]
    return [one._replace(ended=topology.end_membership(broker_id)) for one, broker_id in brokers]


def stop(directory: Path, processes: Processes, limit_seconds: float) -> list[Outcome]:
    """SIGTERM to all, then wait until all have ended; brokers move their leaders away first.

    Raises:
        TimeLimitError: one does not end in time.
    """
    pids = {target: process.pid for target, process in processes.items()}
    for target, process in processes.items():
        if pids[target] is not None:
            _note(directory / LOGS, "stop", target, process)
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)  # a paused process takes SIGTERM only when it runs again
    left: list[Target] = []

    def all_gone() -> bool:
        left[:] = [target for target, process in processes.items() if process.pid is not None]
        return not left

    if not holds_within(all_gone, limit_seconds):
        names = ", ".join(processes[target].name for target in left)
        logs = command_for(directory, "logs")
        kill_them = command_for(directory, " ".join(["kill", *map(_argument, left)]))
        raise TimeLimitError(
            f"{names} did not end within {limit_seconds:g} s after SIGTERM; {logs} shows what it waits for, "
            f"{kill_them} ends it"
        )
    return [
        Outcome(process.name, target, pids[target] is not None, pids[target], ProcessState.DOWN)
        for target, process in processes.items()
    ]


def pause(processes: Processes, logs: Path) -> list[Outcome]:
    """Send SIGSTOP, and wait until every thread has stopped.

    Raises:
        TidegaugeError: one is down, or does not stand still.
    """
    return _switch(processes, logs, "pause", signal.SIGSTOP, ProcessState.PAUSED)


def resume(processes: Processes, logs: Path) -> list[Outcome]:
    """SIGCONT, and wait until they run.

    Raises:
        TidegaugeError: one is down.
    """
    return _switch(processes, logs, "resume", signal.SIGCONT, ProcessState.UP)


def _switch(
    processes: Processes, logs: Path, action: str, number: signal.Signals, wanted: ProcessState
) -> list[Outcome]:
    before = {target: (process.state, process.pid) for target, process in processes.items()}
    for target, (state, _) in before.items():
        if state is ProcessState.DOWN:
            raise TidegaugeError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"{_called(processes[target].name)} is down, there is nothing to {action}; nothing was done",
            )
    for target, process in processes.items():
        if before[target][0] is not wanted:
            _note(logs, action, target, process)
            process.send(number)
    outcomes = []
    for target, process in processes.items():
        if not process.wait_state(wanted):
            raise TidegaugeError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"{_called(process.name)} is {process.state.value} after {number.name}, not {wanted.value}",
            )
        outcomes.append(Outcome(process.name, target, before[target][0] is not wanted, before[target][1], wanted))
    return outcomes


def start(
    directory: Path, file: ClusterFile, processes: Processes, limit_seconds: float, start_with: StartWith | None = None
) -> list[Outcome]:
    """Start those that are down, ZooKeeper or controllers first, and wait until each is ready by itself.

    Raises:
        TidegaugeError: one is paused, a port is busy, what brokers register with is missing, or one ended; or one is up
            that was to start held or after a power loss.
        TimeLimitError: one is not ready in time.
    """
    start_with = start_with or StartWith()
    states = {target: process.state for target, process in processes.items()}
    for target, state in states.items():
        if state is ProcessState.PAUSED:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"{_called(processes[target].name)} is paused, not down: use "
                f"{command_for(directory, f'resume {_argument(target)}')}; nothing was done",
            )
        if state is ProcessState.UP and isinstance(target, int):
            _refuse_for_running(directory, processes[target].name, target, start_with)
    down = [target for target, state in states.items() if state is ProcessState.DOWN]
    broker_ids = [broker_id for broker_id in file.broker_ids if broker_id in down]
    topology = topology_of(directory, file)
    topology.require_ports(down)
    startup.require_ports(file, broker_ids)
    beside = [target for target in topology.targets if target in down]
    lost: dict[Target, int] = {}
    if start_with.after_power_cut:
        lost = {target: cut_power(directory, processes[target]) for target in beside}
    for target in beside:
        _note(directory / LOGS, "start", target, processes[target])
    topology.start(beside)
    if broker_ids:
        topology.require_ready(broker_ids)
    if start_with.after_power_cut:
        lost |= {broker_id: cut_power(directory, processes[broker_id]) for broker_id in broker_ids}
    places = {broker_id: processes[broker_id].log_size() for broker_id in broker_ids}
    with Launcher(directory, wanted=len(broker_ids) > 1) as launcher:
        for broker_id in broker_ids:
            _note(directory / LOGS, "start", broker_id, processes[broker_id])
            startup.start_broker(directory, file, file.broker(broker_id), held=start_with.held, launcher=launcher)
    # Those that were up already are waited for too: a `start` that follows another means the same readiness.
    wanted = [broker_id for broker_id in file.broker_ids if broker_id in processes]
    startup.wait_brokers(
        directory,
        [file.broker(target) for target in wanted],
        startup.each_ready(wanted, names_controller=topology.names_controller),
        limit_seconds,
        places,
    )
    return [
        Outcome(process.name, target, target in down, process.pid, process.state, lost.get(target, 0))
        for target, process in processes.items()
    ]


def cut_power(directory: Path, process: LabProcess) -> int:
    """Remove unflushed data from the disk of a node that is down; return the number of bytes.

    Raises:
        TidegaugeError: KAFKA_STORAGE_ERROR, it runs, or has no record of flushed lengths (lab.enable=false).
    """
    from tidegauge_broker.log.synced_disk import restore_synced  # noqa: PLC0415 - only this fault pays for it

    lost_bytes = 0
    for data in layout.node_log_directories(directory, process.name):
        cut = restore_synced(data) if data.exists() else {}
        lost_bytes += sum(before - after for before, after in cut.values())
    broker_id = int(process.name.rpartition("-")[2]) if process.name.startswith("broker-") else None
    note_fault(directory / LOGS, "power-cut", process.name, broker_id, _CAUSE)
    return lost_bytes


def _refuse_for_running(directory: Path, process: str, broker_id: int, start_with: StartWith) -> None:
    if start_with.after_power_cut:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{_called(process)} is up, and a power loss ends its process first: "
            f"{command_for(directory, f'kill {broker_id}')}; nothing was done",
        )
    if start_with.held:
        hold = command_for(directory, f"hold-fetch {start_with.held[0]} --broker {broker_id}")
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"{_called(process)} is up already: {hold} holds it; nothing was done"
        )


def _note(logs: Path, action: str, target: Target, process: LabProcess) -> None:
    note_fault(logs, action, process.name, int(target) if process.name.startswith("broker-") else None, _CAUSE)


def _called(process: str) -> str:
    return "ZooKeeper" if process == ZOOKEEPER else process.replace("-", " ")


def _argument(target: Target) -> str:
    return str(target) if isinstance(target, int) else "--zookeeper"
