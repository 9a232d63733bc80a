"""How gRPC channels reconnect, the same for clients and brokers.

By default gRPC tries a dead peer again only after up to two minutes, and shares one connection among all channels to an
address: a restarted broker would stay unreachable all that time.

The second option is not what its name says. The back-off lies between the first and the third; the second is how long
one attempt to connect may take, the peer's first frame included (docs/adr/0006-a-second-to-connect.md).
"""

from __future__ import annotations

RECONNECT_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)
