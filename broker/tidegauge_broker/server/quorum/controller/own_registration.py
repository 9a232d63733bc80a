"""Registers this controller at the active one, whenever the metadata have no registration of its process (KIP-919).

The active controller must know which controllers exist, their addresses and features before it raises the
level of a feature. Source: ``ControllerRegistrationManager``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge.kafka.kraft.apis import CONTROLLER_REGISTRATION
from tidegauge.kafka.kraft.messages import controller_registration
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.listeners import SECURITY_PROTOCOL_IDS
from tidegauge_broker.server.quorum.controller.features import FEATURE_RANGES
from tidegauge_broker.server.quorum.controller.quorum_controller import QuorumController
from tidegauge_controller.metadata.decisions.registration import needs_registration
from tidegauge_controller.raft.values import Endpoint

LOG = logging.getLogger("tidegauge.controller")
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 0.1, 2.0
_TIMEOUT_SECONDS = 5.0

FindLeader = Callable[[], Endpoint | None]
"""Returns where the active controller is, if that is known."""


class OwnRegistration:
    """Registers this controller at the active one.

    Args:
        controller: this controller.
        incarnation_id: of this process.
        endpoints: its listeners.
        protocols: their security protocols, by name.
        find_leader: says where to register.
        open_channel: makes the channel to an address.
    """

    def __init__(
        self,
        controller: QuorumController,
        incarnation_id: str,
        endpoints: tuple[Endpoint, ...],
        protocols: Mapping[str, str],
        find_leader: FindLeader,
        open_channel: Callable[[str], KafkaChannel],
    ) -> None:
        self._controller = controller
        self._incarnation_id = incarnation_id
        self._endpoints = endpoints
        self._protocols = protocols
        self._find_leader = find_leader
        self._open_channel = open_channel
        self._task: asyncio.Task[None] | None = None

    @property
    def _is_needed(self) -> bool:
        image = self._controller.image
        known = image.controllers.get(self._controller.settings.node_id)
        return not image.is_empty and needs_registration(known, self._incarnation_id)

    def consider(self) -> None:
        """Begin to register if that is needed, and has not begun."""
        if self._task is None and self._is_needed:
            self._task = asyncio.get_running_loop().create_task(self._register())

    async def _register(self) -> None:
        """Try until the metadata have the registration."""
        wait_seconds = _FIRST_BACKOFF_SECONDS
        while self._is_needed:
            leader = self._find_leader()
            if leader is not None:
                try:
                    await self._send(address_of(leader.host, leader.port))
                except TidegaugeError as problem:
                    LOG.debug("This controller can't register at %s: %s", leader, problem.message)
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _LAST_BACKOFF_SECONDS)
        self._task = None

    async def _send(self, address: str) -> None:
        channel = self._open_channel(address)
        try:
            response = await channel.request(CONTROLLER_REGISTRATION, self._request(), _TIMEOUT_SECONDS)
        finally:
            channel.close()
        if response.error_code != ErrorCode.NONE:
            raise TidegaugeError(ErrorCode.of(response.error_code), response.error_message or "")

    def _request(self) -> controller_registration.ControllerRegistrationRequest:
        return controller_registration.ControllerRegistrationRequest(
            controller_id=self._controller.settings.node_id,
            incarnation_id=topic_id_bytes(self._incarnation_id),
            listeners=[
                controller_registration.Listener(
                    one.listener, one.host, one.port, SECURITY_PROTOCOL_IDS[self._protocols[one.listener]]
                )
                for one in self._endpoints
            ],
            features=[
                controller_registration.Feature(name, levels.first, levels.last)
                for name, levels in FEATURE_RANGES.items()
            ],
        )

    def close(self) -> None:
        """Stop trying."""
        if self._task is not None:
            self._task.cancel()
