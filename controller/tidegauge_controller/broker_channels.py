"""gRPC channels to brokers, from the controller and from other brokers."""

from __future__ import annotations

from collections.abc import Callable

import grpc.aio

from tidegauge.channel_options import RECONNECT_OPTIONS
from tidegauge.secure_channels import open_channel as open_secured_channel
from tidegauge.security import PLAIN, Security

CHANNEL_OPTIONS = (
    *RECONNECT_OPTIONS,
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)
"""gRPC options among brokers; the size of a request is not limited (gRPC's default is 4 MiB)."""
OpenChannel = Callable[[str], grpc.aio.Channel]
"""Opens a channel to an address; the lab replaces it by its own."""


def open_channel(address: str, security: Security = PLAIN) -> grpc.aio.Channel:
    """Open a channel with these options."""
    return open_secured_channel(address, CHANNEL_OPTIONS, security)
