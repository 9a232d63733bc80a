"""The reconnection of gRPC channels, the same for clients and brokers.

By default gRPC tries a dead peer again only after up to two minutes, and shares one connection among all channels to an
address: a restarted broker would stay unreachable all that time.

The second option is not what its name says. The back-off lies between the first and the third; the second is how long
one attempt to connect may take, the peer's first frame included (docs/adr/0006-a-second-to-connect.md).
"""

from __future__ import annotations

from contextvars import ContextVar

_SLOW = "connection attempt timed out"
"""In gRPC's details of a call whose peer accepted a connection, and sent no frame within the time for an attempt."""
RECONNECT_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)

LAB_AGENT = "tidegauge-lab"
"""The first word of the user agent of the lab's own calls: a broker's rules for requests mean clients, not these."""
OF_THE_LAB: ContextVar[bool] = ContextVar("the lab's own calls", default=False)
"""Whether channels that are opened in this context are for the lab's own calls."""


def agent_options(*, of_the_lab: bool | None = None) -> tuple[tuple[str, str], ...]:
    """Return the channel options by which a broker recognises the lab's own calls.

    Args:
        of_the_lab: whether the calls are the lab's; None: by the context.
    """
    is_labs = OF_THE_LAB.get() if of_the_lab is None else of_the_lab
    return (("grpc.primary_user_agent", LAB_AGENT),) if is_labs else ()


def was_slow_to_connect(details: str) -> bool:
    """Whether a call was never sent because connecting took too long; it was not refused.

    The channel refuses further calls while it reconnects: a call that must wait for the connection needs a new channel.

    Args:
        details: gRPC's, of the failed call.
    """
    return _SLOW in details
