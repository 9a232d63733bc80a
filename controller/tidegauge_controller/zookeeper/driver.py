"""Executes the requests of decisions: reads and fenced writes in ZooKeeper, requests to brokers, lines for the log.

Every write is part of a transaction with a check of ``/controller_epoch``'s version. A failed check means that another
controller was elected: ControllerMoved. A closed driver raises it, too, so that nothing of an ended term continues.
Many writes of one step share transactions of some hundred operations; if one of them fails, none of that transaction
took effect, and each is written by itself. (Kafka sends a transaction for each write; the znodes are the same, but here
several may share a zxid.) Source: KafkaZkClient.retryRequestsUntilConnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, assert_never

from tidegauge.control import Endpoint
from tidegauge.znodes import CONTROLLER_EPOCH, broker_path
from tidegauge_controller.zookeeper.client import (
    BadVersion,
    MultiFailed,
    NodeExists,
    NoNode,
    Watch,
    ZooKeeper,
    ZooKeeperError,
)
from tidegauge_controller.zookeeper.decisions.broker_events import BROKER_DATA
from tidegauge_controller.zookeeper.decisions.steps import (
    AddBroker,
    CheckVersion,
    ControllerMoved,
    ControlRequest,
    CreateNode,
    DeleteNode,
    MoveBroker,
    Note,
    Outcome,
    RandomBytes,
    Read,
    ReadChildren,
    ReadResult,
    RemoveBroker,
    Request,
    Result,
    Send,
    SetNode,
    Steps,
    Turn,
    UnwatchData,
    WatchData,
    Write,
    WriteResult,
    ZnodeStat,
)
from tidegauge_controller.zookeeper.stop_at import StepNames, StopAt, what_was_done

Mutation: TypeAlias = CreateNode | SetNode | DeleteNode
_OUTCOMES: dict[type[ZooKeeperError], Outcome] = {
    NoNode: Outcome.NO_NODE,
    NodeExists: Outcome.NODE_EXISTS,
    BadVersion: Outcome.BAD_VERSION,
}
_CHECK = 0
_LARGEST_TRANSACTION = 128
_LARGEST_TRANSACTION_BYTES = 262_144
"""A quarter of the largest request that ZooKeeper accepts (jute.maxbuffer)."""
_BYTES_BESIDES_DATA = 128
_REQUESTS_PER_TURN = 50
_READS_AT_A_TIME = 200
_TRANSACTIONS_AT_A_TIME = 8
"""Number of requests to ZooKeeper begun together: all of a large step's at once would be one turn of the loop."""


class Driver:
    """One term of one controller, from its election to its resignation.

    Args:
        zookeeper: the session of the election.
        epoch_version: zkVersion of ``/controller_epoch`` since then.
        send: puts a request into a broker's queue.
        add_broker, move_broker, remove_broker: begin a broker's queue, send it to another address, end it.
        changed: called with name and subject when a watched znode changes.
        note: writes to the event log.
        random_bytes: source of topic ids.
        stop_at: called with each step of a decision when it is done.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        epoch_version: int,
        *,
        send: Callable[[int, ControlRequest], None],
        add_broker: Callable[[Endpoint], None],
        move_broker: Callable[[Endpoint], None],
        remove_broker: Callable[[int], None],
        changed: Callable[[str, str], None],
        note: Callable[[str, str, dict[str, Any]], None],
        random_bytes: Callable[[int], bytes],
        stop_at: StopAt,
    ) -> None:
        self._zookeeper = zookeeper
        self._epoch_version = epoch_version
        self._send = send
        self._add_broker = add_broker
        self._move_broker = move_broker
        self._remove_broker = remove_broker
        self._changed = changed
        self._note = note
        self._random_bytes = random_bytes
        self._stop_at = stop_at
        self._watches: dict[str, Watch] = {}
        self._closed = False

    def close(self) -> None:
        """End the term: watches end, a running decision stops at its next step."""
        self._closed = True
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()

    async def watch_children(self, names: Mapping[str, str]) -> None:
        """Watch these paths' children (path -> event name); return once ZooKeeper has all the watches."""
        for path, name in names.items():
            self._watches[path] = self._zookeeper.watch_children(path, partial(self._changed, name, ""))
        await asyncio.gather(*(self._watches[path].armed for path in names))

    async def run(self, event: str, steps: Steps[Result]) -> Result:
        """Drive a decision to its end.

        Args:
            event: the name of the event that causes the decision.
            steps: the decision.

        Raises:
            ControllerMoved: another controller was elected, or this term has ended.
            ZooKeeperError: the session expired in the course of it.
        """
        names = StepNames(event)
        try:
            request = next(steps)
            number = 0
            while True:
                number += 1
                response = await self._execute(request)
                if not number % _REQUESTS_PER_TURN:
                    await asyncio.sleep(0)
                for what in what_was_done(request):
                    self._stop_at(names.of(what))
                if self._closed:
                    raise ControllerMoved("This controller has resigned")
                request = steps.send(response)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            steps.close()

    async def _execute(self, request: Request) -> Any:
        match request:
            case Read():
                return await self._read_all(request.paths)
            case ReadChildren():
                return await self._children(request.path)
            case Write():
                return await self._write_all(request)
            case Send():
                for broker_id, message in request.messages:
                    self._send(broker_id, message)
            case AddBroker():
                self._add_broker(request.endpoint)
                await self._watch_data(_registration(request.endpoint.broker_id))
            case MoveBroker():
                self._move_broker(request.endpoint)
            case RemoveBroker():
                self._remove_broker(request.broker_id)
                self._unwatch(broker_path(request.broker_id))
            case WatchData():
                await self._watch_data(request)
            case UnwatchData():
                self._unwatch(request.path)
            case Note():
                self._note(request.kind, request.cause, dict(request.fields))
            case RandomBytes():
                return self._random_bytes(request.count)
            case Turn():
                await asyncio.sleep(0)
            case _:
                assert_never(request)
        return None

    async def _read_all(self, paths: Sequence[str]) -> list[ReadResult]:
        results: list[ReadResult] = []
        for first in range(0, len(paths), _READS_AT_A_TIME):
            results += await asyncio.gather(*map(self._read, paths[first : first + _READS_AT_A_TIME]))
        return results

    async def _read(self, path: str) -> ReadResult:
        try:
            data, stat = await self._zookeeper.get(path)
        except NoNode:
            return ReadResult(Outcome.NO_NODE)
        return ReadResult(Outcome.OK, data, stat)

    async def _children(self, path: str) -> list[str] | None:
        try:
            return await self._zookeeper.children(path)
        except NoNode:
            return None

    async def _watch_data(self, request: WatchData) -> None:
        if request.path not in self._watches:
            watch = self._zookeeper.watch_data(request.path, partial(self._changed, request.name, request.subject))
            self._watches[request.path] = watch
            await watch.armed

    def _unwatch(self, path: str) -> None:
        watch = self._watches.pop(path, None)
        if watch is not None:
            watch.cancel()

    async def _write_all(self, request: Write) -> list[WriteResult]:
        return await self._write_each(list(_transactions(request.operations)))

    async def _write_each(self, transactions: Sequence[Sequence[Mutation]]) -> list[WriteResult]:
        done: list[WriteResult] = []
        for first in range(0, len(transactions), _TRANSACTIONS_AT_A_TIME):
            some = transactions[first : first + _TRANSACTIONS_AT_A_TIME]
            for result in await asyncio.gather(*map(self._write_together, some), return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result  # after all have ended, so that none is in flight when the controller resigns
                done += result
        return done

    async def _write_together(self, operations: Sequence[Mutation]) -> list[WriteResult]:
        try:
            responses = await self._zookeeper.multi([CheckVersion(CONTROLLER_EPOCH, self._epoch_version), *operations])
        except MultiFailed as failure:
            if failure.index == _CHECK:
                raise ControllerMoved("Another controller has been elected") from failure
            if len(operations) == 1:
                return [WriteResult(_OUTCOMES.get(type(failure.error), Outcome.FAILED))]
            return await self._write_each([[operation] for operation in operations])
        return [
            WriteResult(Outcome.OK, response.version if isinstance(response, ZnodeStat) else 0)
            for response in responses[1:]
        ]


def _registration(broker_id: int) -> WatchData:
    """Return the watch of a broker's znode.

    It calls back once when it is set, so that no earlier change is missed.
    """
    return WatchData(broker_path(broker_id), BROKER_DATA, str(broker_id))


def _transactions(operations: Sequence[Mutation]) -> Iterator[list[Mutation]]:
    """Yield the operations in order, in pieces that one transaction may hold."""
    part: list[Mutation] = []
    size_bytes = 0
    for operation in operations:
        data = None if isinstance(operation, DeleteNode) else operation.data
        needed_bytes = _BYTES_BESIDES_DATA + len(operation.path) + len(data or b"")
        if part and (len(part) == _LARGEST_TRANSACTION or size_bytes + needed_bytes > _LARGEST_TRANSACTION_BYTES):
            yield part
            part, size_bytes = [], 0
        part.append(operation)
        size_bytes += needed_bytes
    if part:
        yield part
