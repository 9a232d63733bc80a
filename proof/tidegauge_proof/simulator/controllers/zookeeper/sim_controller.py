"""One controller's term in the simulation: the controller's real decisions, one request to ZooKeeper at a time.

A decision is a generator of requests (tidegauge_controller.zookeeper.decisions.steps); ``advance`` takes it as many
requests further on request, so that the controller can die, lose its session or be outrun by another between any two.
Every write checks ``/controller_epoch``; without a session a term reads and writes nothing. With a new session of the
same process it reads nothing either (a controller resigns before its broker registers again, so no read of its term is
ever completed in the next session), and it is that check alone that keeps it from writing. Sent requests stay sent.

Events wait in one queue, as in the controller: each is a function that begins a decision, and a function of its
result. A change of the brokers' znodes is a flag, as the watch it stands for: many changes, one look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, assert_never

from tidegauge.control import AlterPartitionRequest, Endpoint, PartitionsResponse
from tidegauge_controller.zookeeper.decisions.alter_partition import process_alter_partition
from tidegauge_controller.zookeeper.decisions.broker_events import process_broker_change, process_log_dir_notifications
from tidegauge_controller.zookeeper.decisions.context import ControllerContext, ControllerSettings
from tidegauge_controller.zookeeper.decisions.failover import fail_over
from tidegauge_controller.zookeeper.decisions.leaders import (
    partitions_to_rebalance,
    process_controlled_shutdown,
    rebalance_leaders,
)
from tidegauge_controller.zookeeper.decisions.responses import process_response
from tidegauge_controller.zookeeper.decisions.steps import (
    AddBroker,
    ControllerMoved,
    ControlRequest,
    MoveBroker,
    Note,
    RandomBytes,
    Read,
    ReadChildren,
    RemoveBroker,
    Request,
    Send,
    Steps,
    Turn,
    UnwatchData,
    WatchData,
    Write,
)
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change
from tidegauge_proof.simulator.controllers.ports import Done
from tidegauge_proof.simulator.controllers.zookeeper.memory_zookeeper import MemoryZooKeeper

Begin = Callable[[ControllerContext], Steps[Any]]

SETTINGS = ControllerSettings(leader_imbalance_percentage=0)


def _nothing(_: Any) -> None:
    """Discard the result: no caller waits for it."""


class SimController:
    """A term. ``queues`` holds, for each broker, the control requests that it has not got yet."""

    def __init__(self, zookeeper: MemoryZooKeeper, broker_id: int, session: int) -> None:
        self.zookeeper = zookeeper
        self.broker_id = broker_id
        self.session = session
        epoch, version = zookeeper.next_controller_epoch()
        self.context = ControllerContext(broker_id, epoch, version, SETTINGS)
        self.queues: dict[int, deque[Any]] = {}
        self.brokers_changed = False
        self.strays: list[tuple[int, Any]] = []
        self.events: list[dict[str, Any]] | None = None
        self._events: deque[tuple[Begin, Done]] = deque([(fail_over, _nothing)])
        self._steps: Steps[Any] | None = None
        self._done: Done = _nothing
        self._reply: Any = None

    @property
    def epoch(self) -> int:
        """Its controller epoch."""
        return self.context.epoch

    @property
    def is_busy(self) -> bool:
        """Whether there is anything to decide."""
        return self._steps is not None or bool(self._events) or self.brokers_changed

    def add(self, begin: Begin, done: Done = _nothing) -> None:
        """Add an event at the end of the queue."""
        self._events.append((begin, done))

    def topics_changed(self) -> None:
        """Look for new topics."""
        self.add(process_topic_change)

    def directories_failed(self) -> None:
        """Look for replicas that are offline."""
        self.add(process_log_dir_notifications)

    def rebalance(self) -> None:
        """Run the automatic preferred election."""
        self.add(rebalance_leaders)

    def has_to_rebalance(self) -> bool:
        """Whether that would change anything."""
        return bool(partitions_to_rebalance(self.context))

    def responded(self, broker_id: int, request: ControlRequest, response: PartitionsResponse) -> None:
        """Handle a broker's response to a request."""
        self.add(lambda context: process_response(context, broker_id, request, response))

    def alter_partition(self, request: AlterPartitionRequest, done: Done) -> None:
        """Handle a leader's proposals."""
        self.add(lambda context: process_alter_partition(context, request), done)

    def controlled_shutdown(self, broker_id: int, broker_epoch: int, done: Done) -> None:
        """Move leaders away from a broker that stops."""
        self.add(lambda context: process_controlled_shutdown(context, broker_id, broker_epoch), done)

    def advance(self, requests: int, *, has_session: bool, reads: bool = True) -> bool:
        """Continue the current decision, or begin the next one.

        Args:
            requests: how many requests to ask at most.
            has_session: whether the broker has a session with ZooKeeper, be it another than the election's.
            reads: whether it is the election's session.

        Returns:
            Whether the term goes on; False once it was found out that it is over.
        """
        if self._steps is None:
            self._begin()
        steps = self._steps
        try:
            for _ in range(requests):
                if steps is None:
                    break
                request = steps.send(self._reply)
                self._reply = None
                self._reply = self._respond(request, has_session=has_session, reads=reads)
        except StopIteration as end:
            done, self._done = self._done, _nothing
            self._steps, self._reply = None, None
            done(end.value)
        except ControllerMoved:
            return False
        return True

    def _begin(self) -> None:
        if self._events:
            begin, self._done = self._events.popleft()
        elif self.brokers_changed:
            self.brokers_changed = False
            begin, self._done = process_broker_change, _nothing
        else:
            return
        self._steps = begin(self.context)

    def end(self) -> None:
        """End the term: callers that wait get no result; the first requests of queues may still be in flight.

        Those are in ``strays`` from now on.
        """
        if self._steps is not None:
            self._steps.close()
            self._done(None)
        for _, done in self._events:
            done(None)
        self._steps, self._events, self.brokers_changed = None, deque(), False
        self.strays += [(broker_id, queue[0]) for broker_id, queue in self.queues.items() if queue]
        self.queues = {}

    def _is_elected(self) -> bool:
        return self.zookeeper.controller_epoch_version == self.context.epoch_version

    def _respond(self, request: Request, *, has_session: bool, reads: bool) -> Any:
        kind = type(request)
        if kind is Send:
            for broker_id, message in request.messages:  # type: ignore[union-attr]  # narrowed by ``kind``, for speed
                queue = self.queues.get(broker_id)
                if queue is not None:
                    queue.append(message)
            return None
        if kind is Note and self.events is None:
            return None
        if (kind is Read or kind is ReadChildren) and not (reads and has_session):
            raise ControllerMoved("the session has ended")
        if kind is Write and not has_session:
            raise ControllerMoved("the session has ended")
        if kind is Read or kind is ReadChildren or kind is Write:
            self.zookeeper.requests += 1
        match request:
            case Read():
                return [self.zookeeper.read(path) for path in request.paths]
            case ReadChildren():
                return self.zookeeper.children(request.path)
            case Write():
                if not self._is_elected():
                    raise ControllerMoved("another controller has been elected")
                return [self.zookeeper.write(operation) for operation in request.operations]
            case AddBroker(Endpoint(broker_id=broker_id)):
                self.queues[broker_id] = deque()
            case RemoveBroker(broker_id=broker_id):
                queue = self.queues.pop(broker_id, None)
                if queue:
                    self.strays.append((broker_id, queue[0]))
            case RandomBytes():
                return bytes(request.count)
            case Note() if self.events is not None:
                source = {"source": f"broker-{self.broker_id}"}
                self.events.append({**source, "kind": request.kind, "cause": request.cause, **request.fields})
            case Note() | Send() | WatchData() | UnwatchData() | MoveBroker() | Turn():
                pass  # messages were queued above; the simulator has no watches, and its brokers have no addresses
            case _:
                assert_never(request)
        return None
