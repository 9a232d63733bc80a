"""Ask brokers what they are and know: health and metadata, with deadlines, many at a time, synchronously.

The lab speaks gRPC here directly, since it asks each broker for *its own* view; a client would take any broker's.
A dead or frozen broker costs the deadline once, not once per broker. The brokers asked are those that are starting: a
channel is opened when its port takes connections, since one that was refused would pause before it tries again.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import grpc
from grpc_health.v1 import health_pb2

from tidegauge.channel_options import RECONNECT_OPTIONS
from tidegauge.secure_channels import open_blocking_channel
from tidegauge.security import PLAIN, Security
from tidegauge.v1 import broker_service_pb2_grpc, metadata_pb2

READY_SERVICE = "tidegauge.ready"
DEADLINE_SECONDS = 1.0
_OPTIONS = (
    *RECONNECT_OPTIONS,
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
)


@dataclass(frozen=True, slots=True)
class View:
    """What one broker says.

    Attributes:
        ready: health says SERVING for ``tidegauge.ready``: registered, metadata received, replicas in their roles.
        metadata: its metadata cache; None when it did not answer.
    """

    ready: bool
    metadata: metadata_pb2.MetadataResponse | None

    @property
    def broker_ids(self) -> set[int]:
        """Brokers that live in its view."""
        return set() if self.metadata is None else {broker.broker_id for broker in self.metadata.brokers}

    @property
    def controller_id(self) -> int | None:
        """The active controller in its view."""
        if self.metadata is None or not self.metadata.HasField("controller_id"):
            return None
        return self.metadata.controller_id

    @property
    def controller_epoch(self) -> int:
        """The controller epoch of its last control request; -1 when it did not answer."""
        return -1 if self.metadata is None else self.metadata.controller_epoch


class Brokers:
    """Open channels to some brokers; close it, or use it in a ``with``."""

    def __init__(self, addresses: Mapping[int, str], security: Security = PLAIN) -> None:
        self._addresses = dict(addresses)
        self._security = security
        self._channels: dict[int, grpc.Channel] = {}

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def views(self, topics: Iterable[str] = ()) -> dict[int, View]:
        """Every broker's view of the cluster and of these topics; asked all at once."""
        health = health_pb2.HealthCheckRequest(service=READY_SERVICE)
        request = metadata_pb2.MetadataRequest(topics=list(topics), allow_auto_topic_creation=False)
        asked = {}
        self._open_channels()
        for broker_id, channel in self._channels.items():
            asked[broker_id] = (
                # The generated stub of the health service has no types.
                channel.unary_unary(
                    "/grpc.health.v1.Health/Check",
                    request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                    response_deserializer=health_pb2.HealthCheckResponse.FromString,
                ).future(health, timeout=DEADLINE_SECONDS),
                broker_service_pb2_grpc.BrokerServiceStub(channel).Metadata.future(request, timeout=DEADLINE_SECONDS),
            )
        found = dict.fromkeys(self._addresses, View(ready=False, metadata=None))
        for broker_id, (health_call, metadata_call) in asked.items():
            ready, metadata = False, None
            with contextlib.suppress(grpc.RpcError):
                ready = health_call.result().status == health_pb2.HealthCheckResponse.SERVING
            with contextlib.suppress(grpc.RpcError):
                metadata = metadata_call.result()
            found[broker_id] = View(ready, metadata)
        return found

    def _open_channels(self) -> None:
        for broker_id, address in self._addresses.items():
            # A look that ends at once would count as a failed handshake there.
            if broker_id not in self._channels and (self._security.is_tls or _is_open(address)):
                self._channels[broker_id] = open_blocking_channel(address, _OPTIONS, self._security)


def _is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), DEADLINE_SECONDS).close()
    except OSError:
        return False
    return True
