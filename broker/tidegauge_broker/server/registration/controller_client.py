"""The requests of this broker to the active controller, which it finds and retries until it responds.

Kafka sends such requests to the broker in ``/controller`` and, when that broker is dead, silent, or no longer the
controller, looks again and retries. One thing is quicker here: a request to a frozen controller is given up when
another one is known, not only after its timeout (docs/not-emulated.md). Source: NodeToControllerChannelManager,
AlterPartitionManager, RPCProducerIdManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tidegauge.control import AlterPartitionRequest, AlterPartitionResponse, Endpoint, IsrProposal, IsrVerdict
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.waits import given_up
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.registration.to_controller import NoResponse, ToController
from tidegauge_controller.admin import NewTopic

if TYPE_CHECKING:  # the ports name what knows this module
    from tidegauge_broker.server.cluster.ports import ControllerRequests

LOG = logging.getLogger("tidegauge.controller-client")
RETRY_SECONDS = 0.05
LOOK_AGAIN_SECONDS = 0.1
_RETRIED = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})


Response = TypeVar("Response")


class ControllerClient:
    """Requests to the active controller.

    Args:
        broker_id: this broker.
        broker_epoch: its registration.
        controller_id: returns the controller's id; None while there is none.
        metadata: where brokers are reached.
        to_controller: the wire.
        settings: broker settings.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller_id: Callable[[], int | None],
        metadata: MetadataCache,
        to_controller: ToController,
        settings: Values,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller_id = controller_id
        self._metadata = metadata
        self._to_controller = to_controller
        self._shutdown_retries = settings.integer("controlled.shutdown.max.retries")
        self._shutdown_backoff_seconds = settings.integer("controlled.shutdown.retry.backoff.ms") / 1000

    async def _ask(self, send: Callable[[Endpoint], Coroutine[Any, Any, Response]]) -> Response:
        """Send a request to the active controller; give up when another broker becomes the controller.

        Raises:
            NoResponse: there is no controller, or it does not respond.
        """
        controller_id = self._controller_id()
        endpoint = None if controller_id is None else self._metadata.endpoint(controller_id)
        if endpoint is None:
            raise NoResponse("there is no controller right now")
        call = asyncio.ensure_future(send(endpoint))
        try:
            while not call.done():
                await asyncio.wait({call}, timeout=LOOK_AGAIN_SECONDS)
                if not call.done() and self._controller_id() not in {None, controller_id}:
                    raise NoResponse(f"broker {controller_id} is no longer the controller")
            return call.result()
        finally:
            given_up(call)

    async def alter_partition(self, proposals: list[IsrProposal]) -> dict[TopicPartition, IsrVerdict]:
        """Return the controller's verdicts; retry until a controller responds."""
        logged = ""
        while True:
            try:
                response = await self._alter_partition_once(proposals)
            except NoResponse as problem:
                if str(problem) != logged:
                    logged = str(problem)
                    LOG.info("AlterPartition: %s", logged)
            else:
                if response.error is ErrorCode.NONE:
                    return {verdict.topic_partition: verdict for verdict in response.partitions}
                if response.error not in _RETRIED:
                    return {p.topic_partition: IsrVerdict(p.topic_partition, response.error) for p in proposals}
            await asyncio.sleep(RETRY_SECONDS)

    async def _alter_partition_once(self, proposals: list[IsrProposal]) -> AlterPartitionResponse:
        def send(to: Endpoint) -> Coroutine[Any, Any, AlterPartitionResponse]:
            request = AlterPartitionRequest(self._broker_id, self._broker_epoch(), proposals)
            return self._to_controller.alter_partition(to, request)

        return await self._ask(send)

    async def allocate_producer_ids(self) -> tuple[ErrorCode, int, int]:
        """Ask once for a block of producer ids; return error, first id and count."""
        try:
            return await self._ask(
                lambda to: self._to_controller.allocate_producer_ids(to, self._broker_id, self._broker_epoch())
            )
        except NoResponse as problem:
            LOG.info("AllocateProducerIds: %s", problem)
            return ErrorCode.NOT_CONTROLLER, 0, 0

    async def create_topic(self, topic: NewTopic) -> tuple[ErrorCode, str]:
        """Ask once for a topic; return an error with its message."""
        try:
            return await self._ask(lambda to: self._to_controller.create_topic(to, topic))
        except NoResponse as problem:
            return ErrorCode.NOT_CONTROLLER, str(problem)

    async def controlled_shutdown(self) -> bool:
        """Have this broker's leaders moved away. False when that did not succeed in the configured attempts."""
        for attempt in range(self._shutdown_retries):
            if attempt > 0:
                await asyncio.sleep(self._shutdown_backoff_seconds)
            try:
                error, remaining = await self._ask(
                    lambda to: self._to_controller.controlled_shutdown(to, self._broker_id, self._broker_epoch())
                )
            except NoResponse as problem:
                LOG.warning("Controlled shutdown: %s", problem)
                continue
            if error is ErrorCode.NONE and not remaining:
                return True
            LOG.warning(
                "Controlled shutdown: %s, still leader of %s", error.name, ", ".join(map(str, remaining)) or "nothing"
            )
        return False


class AlterPartitionManager:
    """Sends proposals to the controller: all pending ones in one request, one request in flight."""

    def __init__(self, client: ControllerRequests, apply_verdict: Callable[[IsrProposal, IsrVerdict], None]) -> None:
        self._client = client
        self._apply_verdict = apply_verdict
        self._waiting: list[IsrProposal] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def propose(self, proposal: IsrProposal) -> None:
        """Take a proposal."""
        self._waiting.append(proposal)
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="alter-partition")

    async def _run(self) -> None:
        try:
            while self._waiting:
                # The newest of a partition counts; an older one belongs to a role that has ended.
                newest = {proposal.topic_partition: proposal for proposal in self._waiting}
                self._waiting.clear()
                proposals = list(newest.values())
                verdicts = await self._verdicts(proposals)
                if any(verdict.error is not ErrorCode.NONE for verdict in verdicts.values()):
                    await asyncio.sleep(RETRY_SECONDS)  # the core may propose the same again
                for proposal in proposals:
                    unknown = IsrVerdict(proposal.topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
                    self._apply_verdict(proposal, verdicts.get(proposal.topic_partition, unknown))
        finally:
            self._task = None

    async def _verdicts(self, proposals: list[IsrProposal]) -> dict[TopicPartition, IsrVerdict]:
        """Return the verdicts; none after a defect.

        A proposal without a verdict would bar its partition's ISR forever.
        """
        try:
            return await self._client.alter_partition(proposals)
        except Exception:
            LOG.exception("A proposal of in-sync replicas failed, which is a defect; it is decided again")
            await asyncio.sleep(RETRY_SECONDS)
            return {}

    async def close(self) -> None:
        """Cancel the request in flight."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


class ProducerIds:
    """Ids for idempotent producers, from blocks of the controller's (``/latest_producer_id_block``).

    While no id is at hand the client gets COORDINATOR_LOAD_IN_PROGRESS and retries. The next block is asked for
    when nine tenths of the current one are used.
    """

    def __init__(self, client: ControllerRequests) -> None:
        self._client = client
        self._next_id = 0
        self._block_end = 0
        self._refill_at = 0
        self._coming: tuple[int, int] | None = None
        self._task: asyncio.Task[None] | None = None

    def next(self) -> int | None:
        """Return an unused id; None while no block is at hand."""
        if self._next_id >= self._block_end and self._coming is not None:
            first, count = self._coming
            self._coming = None
            self._next_id, self._block_end = first, first + count
            self._refill_at = first + count * 9 // 10
        if self._next_id >= self._refill_at and self._coming is None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._refill(), name="producer-ids")
        if self._next_id >= self._block_end:
            return None
        self._next_id += 1
        return self._next_id - 1

    async def _refill(self) -> None:
        try:
            error, first, count = await self._client.allocate_producer_ids()
            if error is ErrorCode.NONE:
                self._coming = (first, count)
            else:
                LOG.info("No block of producer ids yet: %s", error.name)
        finally:
            self._task = None

    async def close(self) -> None:
        """Cancel the request in flight."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
