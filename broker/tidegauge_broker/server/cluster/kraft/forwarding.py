"""Hands requests on to the active controller in an Envelope, in the name of the client (KIP-590).

The controller checks the permissions of the envelope's principal, and charges the client's quota.
The envelope's response may have NOT_CONTROLLER; then it is sent again, to the leader of then (``controller_channel``).
Source: ``ForwardingManagerImpl``, ``DefaultKafkaPrincipalBuilder.serialize``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.compiler import write_uvarint
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame
from tidegauge.kafka.kraft.apis import ENVELOPE, KRAFT_APIS, KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tidegauge.principal import Principal
from tidegauge_broker.server.cluster.kraft.controller_channel import ControllerChannel
from tidegauge_broker.server.service.acting import ACTS_FOR, ACTS_FROM

TIMEOUT_SECONDS = 60.0
"""Time in which a request is sent repeatedly (BrokerServer, ``forwardingChannelManager``)."""
_LENGTH_BYTES = 4
_PRINCIPAL_VERSION = b"\0\0"
_LOOPBACK = ipaddress.ip_address("127.0.0.1").packed


class Forwarding:
    """Forwards requests to the active controller (``ports.Forwarding``).

    Args:
        channel: to the controller.
        client_id: of the requests that are this broker's own.
        versions: returns the lowest and the highest version of each API that the controller serves.
    """

    def __init__(
        self, channel: ControllerChannel, client_id: str, versions: Callable[[], Mapping[int, tuple[int, int]]]
    ) -> None:
        self._channel = channel
        self._client_id = client_id
        self._versions = versions

    async def forward(self, request: bytes, principal: Principal, host: str) -> bytes:
        """Have a whole request, its header included, responded to by the controller.

        Args:
            request: as the client sent it, without its length.
            principal: of the client's user.
            host: the client's address.

        Returns:
            The whole response, its header included.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, no controller has responded in time. UNSUPPORTED_VERSION, the controller
                does not know the request. Another one: the request could not be read there.
        """
        message = EnvelopeRequest(request, serialized(principal), _address(host))
        response: EnvelopeResponse = await self._channel.request(ENVELOPE, message, TIMEOUT_SECONDS)
        error = ErrorCode.of(response.error_code)
        if error is not ErrorCode.NONE:
            raise TidegaugeError(error, f"The controller refuses a forwarded request with {error.name}")
        return bytes(response.response_data or b"")

    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Return the controller's version range of each API; empty if unknown."""
        return self._versions()

    async def ask(self, key: int, message: Any) -> Any:
        """Have a request responded to by the controller, in the name of the client for which the task acts.

        Args:
            key: of an API in ``KRAFT_APIS``.
            message: of its request class.

        Returns:
            The response's message.

        Raises:
            TidegaugeError: as ``forward``.
        """
        version = min(KRAFT_APIS[key].last, self.versions().get(key, (0, KRAFT_APIS[key].last))[1])
        frame = joined(request_frame(key, version, 0, self._client_id, message, protocol=KRAFT_PROTOCOL))
        request = frame[_LENGTH_BYTES:]
        response = memoryview(await self.forward(request, ACTS_FOR.get(), ACTS_FROM.get()))
        _, body_at = read_response_header(key, version, response, KRAFT_PROTOCOL)
        found, _ = decode(key, version, response, body_at, response=True, protocol=KRAFT_PROTOCOL)
        return found

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def serialized(principal: Principal) -> bytes:
    """Return a principal's bytes in an envelope.

    They are a version, type and name, whether a token authenticated it, and no tags.
    """
    texts = [one.encode() for one in (principal.kind, principal.name)]
    parts = [write_uvarint(len(one) + 1) + one for one in texts]
    return b"".join([_PRINCIPAL_VERSION, *parts, b"\0", b"\0"])


def _address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return _LOOPBACK
