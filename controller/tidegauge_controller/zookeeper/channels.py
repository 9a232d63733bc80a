"""Control requests to brokers: for each broker a queue, a task and one link, with one request in flight.

A request that does not arrive is sent again every 100 ms until it does or the broker is removed; everything that is
still queued is dropped with the broker. So a broker gets the requests of one controller in the order in which they were
decided. Nothing else ends a queue: a defect in a link is an attempt that failed, one in a function called with a
response concerns that response alone (``ShutdownableThread`` continues likewise). A broker that advertises another
address gets the next request, or the next attempt, there.
Source: ControllerChannelManager, RequestSendThread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from tidegauge.control import Endpoint, PartitionsResponse
from tidegauge.errors import ErrorCode
from tidegauge_controller.zookeeper.control_links import ControlLink, OpenLink, Undelivered
from tidegauge_controller.zookeeper.decisions.steps import ControlRequest

LOG = logging.getLogger(__name__)
RETRY_BACKOFF_SECONDS = 0.1

Responded = Callable[[int, ControlRequest, PartitionsResponse], None]


class _Sender:
    """One broker's queue and task."""

    def __init__(self, endpoint: Endpoint, responded: Responded, open_link: OpenLink) -> None:
        self._endpoint = endpoint
        self._open_link = open_link
        self._link: ControlLink | None = None
        self._linked_to = endpoint
        self._responded = responded
        self._queue: asyncio.Queue[ControlRequest] = asyncio.Queue()
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"control-to-{endpoint.broker_id}")

    def put(self, request: ControlRequest) -> None:
        """Append a request."""
        self._queue.put_nowait(request)

    def move(self, endpoint: Endpoint) -> None:
        """Send from now on to another address of the broker."""
        self._endpoint = endpoint

    async def _run(self) -> None:
        try:
            while True:
                request = await self._queue.get()
                response = await self._deliver(request)
                self._take(request, response)
        finally:
            await self._close_link()

    def _take(self, request: ControlRequest, response: PartitionsResponse) -> None:
        broker_id, name = self._endpoint.broker_id, type(request).__name__
        if response.error is not ErrorCode.NONE:
            LOG.warning("Broker %d rejected %s: %s", broker_id, name, response.error.name)
        try:
            self._responded(broker_id, request, response)
        except Exception:
            LOG.exception("The response of broker %d to %s could not be taken, which is a defect", broker_id, name)

    async def _current_link(self) -> ControlLink:
        if self._linked_to != self._endpoint:
            await self._close_link()
        if self._link is None:
            self._link, self._linked_to = self._open_link(self._endpoint), self._endpoint
        return self._link

    async def _close_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _deliver(self, request: ControlRequest) -> PartitionsResponse:
        is_logged = False
        while True:
            try:
                return await (await self._current_link()).send(request)
            except Undelivered as problem:
                if not is_logged:
                    LOG.info(
                        "Broker %d at %s has not accepted %s yet: %s",
                        self._endpoint.broker_id,
                        self._endpoint.address,
                        type(request).__name__,
                        problem,
                    )
                    is_logged = True
            except Exception:
                if not is_logged:
                    LOG.exception(
                        "Sending %s to broker %d failed, which is a defect; it is tried again",
                        type(request).__name__,
                        self._endpoint.broker_id,
                    )
                    is_logged = True
                with contextlib.suppress(Exception):
                    await self._close_link()
            await asyncio.sleep(RETRY_BACKOFF_SECONDS)


class Channels:
    """The queues to all live brokers.

    Args:
        responded: called on the loop with each response.
        open_link: makes the link to a broker.
    """

    def __init__(self, responded: Responded, open_link: OpenLink) -> None:
        self._open_link = open_link
        self._responded = responded
        self._senders: dict[int, _Sender] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def add(self, endpoint: Endpoint) -> None:
        """Begin a broker's queue; an older one of the same broker is dropped."""
        self.remove(endpoint.broker_id)
        self._senders[endpoint.broker_id] = _Sender(endpoint, self._responded, self._open_link)

    def move(self, endpoint: Endpoint) -> None:
        """Send a broker's queue to another address from now on."""
        sender = self._senders.get(endpoint.broker_id)
        if sender is not None:
            sender.move(endpoint)

    def remove(self, broker_id: int) -> None:
        """Drop a broker's queue and everything in it."""
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.task.cancel()
            self._ending.add(sender.task)
            sender.task.add_done_callback(self._ending.discard)

    def send(self, broker_id: int, request: ControlRequest) -> None:
        """Append to a broker's queue; a broker without one is not registered, and the request is dropped."""
        sender = self._senders.get(broker_id)
        if sender is not None:
            sender.put(request)

    def clear(self) -> None:
        """Drop all queues."""
        for broker_id in list(self._senders):
            self.remove(broker_id)

    async def close(self) -> None:
        """Drop all queues and wait until the connections are closed."""
        self.clear()
        if self._ending:
            await asyncio.wait(set(self._ending))
