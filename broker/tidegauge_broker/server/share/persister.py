"""Keeps the states of share partitions at their share coordinators, for this broker's group coordinator and leaders.

Rules:
    1. The share coordinator of a share partition is the leader of the partition of __share_group_state to which its key
       hashes, by this broker's metadata. While there is none the request waits, and the first one creates the topic.
    2. Errors that pass (COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR,
       UNKNOWN_TOPIC_OR_PARTITION, no response) are retried, five attempts in all, after 2, 4, 8 and 16 seconds with a
       jitter of a fifth; then the last error is the result. Each attempt looks the coordinator up again.
    3. This broker asks itself without the network, but through the same gate as others' requests.
    4. To another broker one request of a kind about a group is in flight at a time; those that come meanwhile go
       together in the next one, in their order.

A method always returns: a failure is a result with an error, and a message that says in what it failed.
Source: ``DefaultStatePersister``, ``PersisterStateManager``.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import APIS
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import (
    DeleteShareState,
    InitializeShareState,
    ReadShareState,
    ReadShareSummary,
    SharePartitionKey,
    ShareStateRequest,
    ShareStateResult,
    WriteShareState,
)
from tidegauge_broker.server.replication.kafka_peers import KafkaPeers
from tidegauge_broker.server.service.admission import through
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, Gate, GatedRequest, InjectedError
from tidegauge_broker.server.share.persister_messages import FORMS, request_message, results_in
from tidegauge_broker.share.retries import FIRST_BACKOFF_SECONDS, MAX_ATTEMPTS, PASSING

LOG = logging.getLogger("tidegauge.share")
LAST_BACKOFF_SECONDS = 30.0
_JITTER = 0.2
REQUEST_SECONDS = 30.0
"""Limit of a request to another broker: Kafka's ``socket.connection.setup.timeout.max.ms``."""


class Around(Protocol):
    """The parts of this broker that the persister needs."""

    def coordinator_of(self, key: SharePartitionKey) -> int | None:
        """Return the broker that coordinates a share partition (rule 1), or None."""
        ...

    def address_of(self, broker_id: int) -> str | None:
        """Return a broker's address for requests over Kafka's protocol; None: it has none."""
        ...

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id."""
        ...

    def ask(self, request: ShareStateRequest) -> Awaitable[ShareStateResult]:
        """Ask this broker's own share coordinator."""
        ...


def _jitter() -> float:
    return random.uniform(1 - _JITTER, 1 + _JITTER)


class Persister:
    """A client of the share coordinators.

    Args:
        broker_id: this broker.
        around: the rest of it.
        peers: channels to the others.
        gate: before requests to this broker itself; None: there is none.
        sleep: waits some seconds.
        jitter: returns the factor of a back-off.
    """

    def __init__(
        self,
        broker_id: int,
        around: Around,
        peers: KafkaPeers,
        gate: Gate | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = _jitter,
    ) -> None:
        self._broker_id = broker_id
        self._around = around
        self._peers = peers
        self._gate = gate
        self._sleep = sleep
        self._jitter = jitter
        self._lines: dict[tuple[int, type, str], _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def initialize_state(self, request: InitializeShareState) -> ShareStateResult:
        """See ``persister_port``."""
        return await self._ask(request)

    async def read_state(self, request: ReadShareState) -> ShareStateResult:
        """See ``persister_port``."""
        return await self._ask(request)

    async def write_state(self, request: WriteShareState) -> ShareStateResult:
        """See ``persister_port``."""
        return await self._ask(request)

    async def delete_state(self, request: DeleteShareState) -> ShareStateResult:
        """See ``persister_port``."""
        return await self._ask(request)

    async def read_summary(self, request: ReadShareSummary) -> ShareStateResult:
        """See ``persister_port``."""
        return await self._ask(request)

    async def close(self) -> None:
        """End the requests in flight; their callers get no response."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _ask(self, request: ShareStateRequest) -> ShareStateResult:
        """Ask the coordinator until it has responded, or the attempts are used up; rules 1 and 2."""
        name, lookups, attempts = FORMS[type(request)].name, 0, 0
        while True:
            coordinator = self._around.coordinator_of(request.key)
            if coordinator is None:
                lookups += 1
                if lookups >= MAX_ATTEMPTS:
                    return _failed(
                        ErrorCode.COORDINATOR_NOT_AVAILABLE,
                        "find coordinator",
                        "Exhausted max retries to find coordinator without success.",
                    )
                await self._back_off(lookups)
                continue
            lookups = 0
            result = await self._sent(coordinator, request)
            if result.error is ErrorCode.NONE:
                return result
            attempts += 1
            if result.error not in PASSING:
                return _failed(result.error, name, result.message or result.error.name)
            if attempts >= MAX_ATTEMPTS:
                return _failed(result.error, name, f"Exhausted max retries to complete {name} without success.")
            LOG.debug("Retrying the %s for %s: %s", name, request.key, result.error.name)
            await self._back_off(attempts)

    async def _back_off(self, attempts: int) -> None:
        seconds = FIRST_BACKOFF_SECONDS * 2**attempts * self._jitter()
        await self._sleep(min(seconds, LAST_BACKOFF_SECONDS))

    async def _sent(self, coordinator: int, request: ShareStateRequest) -> ShareStateResult:
        if coordinator == self._broker_id:
            return await self._own(request)
        to = coordinator, type(request), request.key.group_id
        if to not in self._lines:
            self._lines[to] = _Line(self, *to)
        return await self._lines[to].ask(request)

    # This broker; rule 3

    async def _own(self, request: ShareStateRequest) -> ShareStateResult:
        gate = self._gate
        if gate is None or gate.is_open:
            return await self._around.ask(request)
        topic = self._around.topic_name(request.key.topic_id)
        asked = GatedRequest(
            APIS[FORMS[type(request)].key].name,
            Caller("", "", self._broker_id),
            () if topic is None else (TopicPartition(topic, request.key.partition),),
            request.key.group_id,
        )
        try:
            found: ShareStateResult = await through(gate, asked, _OwnForm(), lambda: self._around.ask(request))
        except CallRefused as problem:
            LOG.info("%s to this broker: %s", asked.api, problem)
            return ShareStateResult(ErrorCode.NETWORK_EXCEPTION)
        return found

    # Other brokers; rule 4

    def start(self, line: _Line) -> None:
        """Run a line until it has nothing left to send."""
        task = asyncio.get_running_loop().create_task(line.run(), name="share-state-persister")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, broker_id: int, kind: type, group_id: str) -> None:
        """Forget a line that has nothing left to send."""
        self._lines.pop((broker_id, kind, group_id), None)

    async def send(self, broker_id: int, key: int, message: Any) -> Any:
        """Send one message to a broker, and return its response.

        Raises:
            TidegaugeError: there is no response.
        """
        address = self._around.address_of(broker_id)
        if address is None:
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id} has no listener for this one")
        return await self._peers.channel(address, "share-state-persister").request(key, message, REQUEST_SECONDS)


class _Line:
    """The requests of one kind about one group to one broker: one message in flight at a time."""

    def __init__(self, persister: Persister, broker_id: int, kind: type, group_id: str) -> None:
        self._persister = persister
        self._to = broker_id, kind, group_id
        self._waiting: list[tuple[ShareStateRequest, asyncio.Future[ShareStateResult]]] = []
        self._is_running = False

    async def ask(self, request: ShareStateRequest) -> ShareStateResult:
        """Send a request when its turn comes, and return its result."""
        future: asyncio.Future[ShareStateResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if not self._is_running:
            self._is_running = True
            self._persister.start(self)
        return await future

    async def run(self) -> None:
        """Send what waits, until nothing does."""
        taken: list[tuple[ShareStateRequest, asyncio.Future[ShareStateResult]]] = []
        try:
            while self._waiting:
                taken = self._take()
                if not taken:
                    continue
                results = await self._results([request for request, _ in taken])
                for request, future in taken:
                    if not future.done():
                        future.set_result(results(request))
        finally:
            self._persister.forget(*self._to)
            for _, future in (*taken, *self._waiting):
                if not future.done():  # the broker stops
                    future.set_result(ShareStateResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _take(self) -> list[tuple[ShareStateRequest, asyncio.Future[ShareStateResult]]]:
        """Return the next message's requests, one for each share partition."""
        found: dict[SharePartitionKey, tuple[ShareStateRequest, asyncio.Future[ShareStateResult]]] = {}
        left: list[tuple[ShareStateRequest, asyncio.Future[ShareStateResult]]] = []
        for one in self._waiting:
            if one[1].done():
                continue
            if one[0].key in found:
                left.append(one)
            else:
                found[one[0].key] = one
        self._waiting = left
        return list(found.values())

    async def _results(self, requests: list[ShareStateRequest]) -> Callable[[ShareStateRequest], ShareStateResult]:
        broker_id, kind, group_id = self._to
        form = FORMS[kind]
        try:
            response = await self._persister.send(broker_id, form.key, request_message(form, group_id, requests))
        except TidegaugeError as problem:
            failed = ShareStateResult(problem.code, problem.message)
            LOG.info("%s to broker %d: %s", APIS[form.key].name, broker_id, problem.message)
            return lambda _: failed
        except Exception as defect:
            LOG.exception("%s to broker %d failed, which is a defect", APIS[form.key].name, broker_id)
            broken = ShareStateResult(ErrorCode.UNKNOWN_SERVER_ERROR, repr(defect))
            return lambda _: broken
        found = results_in(response)

        def result(request: ShareStateRequest) -> ShareStateResult:
            key = request.key
            missing = ShareStateResult(ErrorCode.UNKNOWN_SERVER_ERROR, f"The response has no result for {key}")
            return found.get((key.topic_id, key.partition), missing)

        return result


class _OwnForm:
    """The form of a response of this broker to itself."""

    def refusal(self, injected: InjectedError) -> ShareStateResult:
        """Return the response that refuses the request."""
        return ShareStateResult(ErrorCode.of(injected.error))

    def with_error(self, response: ShareStateResult, injected: InjectedError) -> ShareStateResult:
        """Return the response with the error, in place of the real one."""
        return ShareStateResult(ErrorCode.of(injected.error)) if injected.error else response

    def discard(self, response: ShareStateResult) -> None:
        """Release nothing: such a response is plain values."""


def _failed(error: ErrorCode, during: str, why: str) -> ShareStateResult:
    return ShareStateResult(error, f"Error in {during}. {why}")
