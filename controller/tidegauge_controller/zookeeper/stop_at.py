"""A controller that dies at a named step, so that a test can see how the next one continues.

The setting ``lab.controller.stop.file`` names a file. When it holds the name of the step that the controller has just
done, the process deletes the file and kills itself, as ``kill -9`` would: one death, whichever broker is the
controller. With a process id in its second line the file has that process killed in the controller's place. Without the
setting, or without ``lab.enable``, the file is never read.

A step is ``EVENT/action``, with the current event:
- ``TopicChange/create state``: these znodes have been written, nothing after them;
- ``TopicChange/send``: requests are in the brokers' queues, none is in flight yet;
- ``Response/LeaderAndIsr``: a broker, the first one, has executed its request.
The second of a kind in one event ends in ``#2``, and so on. ``STEPS`` lists the steps of topics and elections.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from tidegauge.control import LeaderAndIsrRequest, StopReplicaRequest
from tidegauge.settings import Values
from tidegauge.znodes import BROKER_TOPICS, CONFIG, CONTROLLER, CONTROLLER_EPOCH, DELETE_TOPICS
from tidegauge_controller.zookeeper.decisions.steps import (
    CheckVersion,
    ControlRequest,
    CreateNode,
    DeleteNode,
    Operation,
    Request,
    Send,
    SetNode,
    Write,
)

SETTING = "lab.controller.stop.file"

STEPS: dict[str, tuple[str, ...]] = {
    "creation": (
        "CreateTopics/create config",
        "CreateTopics/create topic",
        "TopicChange/create partitions",
        "TopicChange/create partition",
        "TopicChange/create state",
        "TopicChange/send",
        "Response/LeaderAndIsr",
        "Response/UpdateMetadata",
    ),
    "deletion": (
        "DeleteTopics/create marker",
        "TopicDeletion/send",
        "TopicDeletion/set state",
        "TopicDeletion/set state#2",
        "TopicDeletion/send#2",
        "TopicDeletion/send#3",
        "Response/UpdateMetadata",
        "Response/StopReplica",
        "Response/StopReplica delete",
        "StopReplicaResponse/delete state",
        "StopReplicaResponse/delete partition",
        "StopReplicaResponse/delete partitions",
        "StopReplicaResponse/delete topic",
        "StopReplicaResponse/delete config",
        "StopReplicaResponse/delete marker",
    ),
    "election": (
        "BrokerChange/set state",
        "BrokerChange/send",
        "BrokerChange/set state#2",
        "BrokerChange/send#2",
        "ElectLeaders/set state",
        "ElectLeaders/send",
        "Response/LeaderAndIsr",
        "Response/UpdateMetadata",
    ),
    "reassignment": (
        "ApiPartitionReassignment/set topic",
        "ApiPartitionReassignment/set state",
        "ApiPartitionReassignment/send",
        "ApiPartitionReassignment/send#2",
        "Response/LeaderAndIsr",
        "Response/UpdateMetadata",
        "PartitionReassignmentIsrChange/set state",
        "PartitionReassignmentIsrChange/send",
        "PartitionReassignmentIsrChange/set state#2",
        "PartitionReassignmentIsrChange/send#2",
        "PartitionReassignmentIsrChange/send#3",
        "Response/StopReplica",
        "Response/StopReplica delete",
        "StopReplicaResponse/set topic",
        "StopReplicaResponse/send",
    ),
}
"""Every step of these four, in its order, for partitions with two replicas; one of them is reassigned."""

StopAt = Callable[[str], None]
"""Called with each step when it is done."""


def never(step: str) -> None:
    """Do nothing: no step stops the controller."""


def switch_of(settings: Values) -> StopAt:
    """Return the switch that the settings ask for."""
    file = settings[SETTING]
    return FileSwitch(Path(str(file)), _kill) if file and settings.flag("lab.enable") else never


def _kill(process_id: int) -> None:
    os.kill(process_id, signal.SIGKILL)


class FileSwitch:
    """Kills at the step whose name the file holds: this process, or the one that the file names.

    Args:
        file: the switch; it need not exist.
        kill: ends a process, by its id.
    """

    def __init__(self, file: Path, kill: Callable[[int], None]) -> None:
        self._file = file
        self._kill = kill

    def __call__(self, step: str) -> None:
        """Kill the process if the file names this step, which is done."""
        with contextlib.suppress(FileNotFoundError):
            at, _, process_id = self._file.read_text().strip().partition("\n")
            if at == step:
                self._file.unlink()
                self._kill(int(process_id) if process_id else os.getpid())


class StepNames:
    """Counts the actions of one event, so that each step has a name of its own."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._seen: Counter[str] = Counter()

    def of(self, what: str) -> str:
        """Return the name of the step of this action."""
        self._seen[what] += 1
        count = self._seen[what]
        return f"{self._event}/{what}" + (f"#{count}" if count > 1 else "")


def what_was_done(request: Request) -> list[str]:
    """Return a request's actions, in order; none if it only reads."""
    match request:
        case Write():
            return list(dict.fromkeys(what_was_written(operation) for operation in request.operations))
        case Send() if request.messages:
            return ["send"]
        case _:
            return []


def what_was_written(operation: Operation) -> str:
    """Return a write's action, by its kind and its znode's."""
    match operation:
        case CreateNode():
            return f"create {_kind(operation.path)}"
        case SetNode():
            return f"set {_kind(operation.path)}"
        case DeleteNode():
            return f"delete {_kind(operation.path)}"
        case CheckVersion():
            return f"check {_kind(operation.path)}"
        case _:
            assert_never(operation)


def response_step(request: ControlRequest) -> str:
    """Return the step's name for a broker's response to this request."""
    if isinstance(request, StopReplicaRequest):
        deletes = any(entry.delete for entry in request.partitions)
        return "Response/StopReplica delete" if deletes else "Response/StopReplica"
    return "Response/LeaderAndIsr" if isinstance(request, LeaderAndIsrRequest) else "Response/UpdateMetadata"


def _kind(path: str) -> str:
    if path.startswith(f"{BROKER_TOPICS}/"):
        parts = path.removeprefix(f"{BROKER_TOPICS}/").split("/")
        return ("topic", "partitions", "partition", "state")[len(parts) - 1]
    if path.startswith(f"{CONFIG}/"):
        return "config"
    if path.startswith(f"{DELETE_TOPICS}/"):
        return "marker"
    return {CONTROLLER: "controller", CONTROLLER_EPOCH: "controller epoch"}.get(path, path)
