"""A controller's term over the simulator's ZooKeeper of dictionaries, for tests of decisions: no network, no clock.

``Term`` drives decisions, each to its end, checks ``/controller_epoch`` with every write, and keeps what they send, in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegauge.control import Endpoint
from tidegauge_controller.zookeeper.decisions.context import ControllerContext, ControllerSettings
from tidegauge_controller.zookeeper.decisions.failover import fail_over
from tidegauge_controller.zookeeper.decisions.steps import (
    AddBroker,
    ControllerMoved,
    CreateNode,
    DeleteNode,
    MoveBroker,
    Note,
    RandomBytes,
    Read,
    ReadChildren,
    RemoveBroker,
    Request,
    Send,
    SetNode,
    Steps,
    Turn,
    UnwatchData,
    WatchData,
    Write,
    WriteResult,
    run,
)
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change
from tidegauge_proof.simulator.controllers.zookeeper.memory_zookeeper import MemoryZooKeeper

__all__ = ["MemoryZooKeeper", "Term"]


class Term:
    """One controller's term: elected at once, not failed over yet (``start`` does that).

    Attributes:
        sent: every control request, with its receiver, in the order in which it was sent.
        before_write: called once before the next write, to play whoever comes between.
        queues: brokers that have a queue.
        moved: the other addresses that queues were sent to.
    """

    def __init__(
        self, zookeeper: MemoryZooKeeper, controller_id: int = 1, settings: ControllerSettings | None = None
    ) -> None:
        self.zookeeper = zookeeper
        epoch, version = zookeeper.next_controller_epoch()
        self.context = ControllerContext(controller_id, epoch, version, settings or ControllerSettings())
        self.sent: list[tuple[int, Any]] = []
        self.notes: list[Note] = []
        self.writes: list[CreateNode | SetNode | DeleteNode] = []
        self.before_write: Callable[[], object] | None = None
        self.queues: set[int] = set()
        self.moved: list[Endpoint] = []

    def start(self) -> Term:
        self.run(fail_over(self.context))
        return self

    def run(self, steps: Steps[Any]) -> Any:
        return run(steps, self.respond)

    def take_sent(self) -> list[tuple[int, Any]]:
        """Return the requests sent since the last call."""
        sent, self.sent = self.sent, []
        return sent

    def respond(self, request: Request) -> Any:
        match request:
            case Read():
                return [self.zookeeper.read(path) for path in request.paths]
            case ReadChildren():
                return self.zookeeper.children(request.path)
            case Write():
                return self._write(request)
            case Send():
                self.sent += request.messages
            case Note():
                self.notes.append(request)
            case AddBroker(Endpoint(broker_id=broker_id)):
                assert broker_id not in self.queues
                self.queues.add(broker_id)
            case MoveBroker(endpoint):
                assert endpoint.broker_id in self.queues
                self.moved.append(endpoint)
            case RemoveBroker(broker_id=broker_id):
                self.queues.remove(broker_id)
            case RandomBytes():
                return bytes(range(request.count))
            case WatchData() | UnwatchData() | Turn():
                pass
        return None

    def _write(self, request: Write) -> list[WriteResult]:
        intruder, self.before_write = self.before_write, None
        if intruder is not None:
            intruder()
        if self.zookeeper.controller_epoch_version != self.context.epoch_version:
            raise ControllerMoved("Another controller has been elected")
        self.writes += request.operations
        return [self.zookeeper.write(operation) for operation in request.operations]


def term_of_topic(
    topic: str,
    assignment: Mapping[int, Sequence[int]] | None = None,
    *,
    brokers: Sequence[int] = (1, 2, 3),
    config: Mapping[str, str] | None = None,
    settings: ControllerSettings | None = None,
) -> Term:
    """A controller (broker 9's number, which is no broker here) that has just created a topic."""
    zookeeper = MemoryZooKeeper()
    for broker_id in brokers:
        zookeeper.register_broker(broker_id)
    term = Term(zookeeper, 9, settings).start()
    zookeeper.add_topic(topic, assignment or {0: (1, 2, 3)}, config)
    term.run(process_topic_change(term.context))
    return term
