"""A channel to the active controller: the leader that the broker's own node of the quorum knows.

Contract: ``request`` sends a request, again when the leader changes, until there is a response that is not
NOT_CONTROLLER, or its time is over. One request is sent at a time, in the order of the calls.
Source: ``NodeToControllerChannelManagerImpl``, ``NodeToControllerRequestThread``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.waits import given_up

LOG = logging.getLogger("tidegauge.controller-client")
RETRY_SECONDS = 0.05
"""The wait before the leader is looked up again."""
LOOK_SECONDS = 0.25
"""How often the leader is looked up while a request waits for its response: a paused controller sends none."""

LeaderAddress = Callable[[], str | None]
"""Returns the address of the quorum's leader; None while none is known."""
OpenChannel = Callable[[str, str], KafkaChannel]
"""Makes a channel to an address, for a client id."""


class ControllerChannel:
    """A channel to the active controller.

    Args:
        purpose: the channel's name in the log.
        client_id: goes with each request.
        leader: returns the controller's address.
        open_channel: makes the channel to it.
        attempt_seconds: limit of one attempt; the request is sent again after it, to whoever leads then. One that is
            shorter than the controller needs for a large request would send it again for nothing.
    """

    def __init__(
        self, purpose: str, client_id: str, leader: LeaderAddress, open_channel: OpenChannel, attempt_seconds: float
    ) -> None:
        self._purpose = purpose
        self._client_id = client_id
        self._leader = leader
        self._open = open_channel
        self._attempt_seconds = attempt_seconds
        self._channel: KafkaChannel | None = None
        self._turn = asyncio.Lock()
        self._logged = ""

    async def request(self, key: int, message: Any, timeout_seconds: float, *, at_least: int = 0) -> Any:
        """Send a request and return its response's message.

        Args:
            key: the API's.
            message: of the API's request class.
            timeout_seconds: for everything, the search for the controller included.
            at_least: lowest version that can say what the message says.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, no controller has responded in time; UNSUPPORTED_VERSION, it does not
                serve the API.
        """
        try:
            async with asyncio.timeout(timeout_seconds), self._turn:
                return await self._until_response(key, message, at_least)
        except TimeoutError:
            why = self._logged or "the controller did not respond"
            raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, f"{self._purpose}: {why}") from None

    async def _until_response(self, key: int, message: Any, at_least: int) -> Any:
        while True:
            try:
                response = await self._attempt(key, message, at_least)
            except TidegaugeError as problem:
                if problem.code is ErrorCode.UNSUPPORTED_VERSION:
                    raise
                self._log(problem.message)
            else:
                if response.error_code != ErrorCode.NOT_CONTROLLER:
                    self._logged = ""
                    return response
                self._log("the node that was asked is not the active controller")
            await asyncio.sleep(RETRY_SECONDS)

    async def _attempt(self, key: int, message: Any, at_least: int) -> Any:
        address = self._leader()
        if address is None:
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "no controller is known to lead the quorum right now")
        if self._channel is not None and self._channel.address != address:
            self.close()
        if self._channel is None:
            self._channel = self._open(address, self._client_id)
        request = self._channel.request(key, message, self._attempt_seconds, at_least=at_least)
        return await self._while_it_leads(address, asyncio.ensure_future(request))

    async def _while_it_leads(self, address: str, response: asyncio.Future[Any]) -> Any:
        """Return the response of a node, unless another one comes to lead first.

        A request whose time ends before its response closes the connection, as in Kafka (``NetworkClient``,
        ``handleTimedOutRequests``): a node that has dropped the request serves none that comes behind it there.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, another one leads.
        """
        try:
            while not (await asyncio.wait({response}, timeout=LOOK_SECONDS))[0]:
                if self._leader() not in {None, address}:
                    self.close()
                    raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "the controller changed before it responded")
            return response.result()
        finally:
            is_late = not response.done()
            given_up(response)
            if is_late:
                self.close()

    def _log(self, why: str) -> None:
        if why != self._logged:
            self._logged = why
            LOG.info("%s: %s", self._purpose, why)

    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Return the controller's version range of each API; empty if unknown."""
        return {} if self._channel is None else self._channel.versions

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
