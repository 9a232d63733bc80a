"""The broker that sends a request of Kafka's protocol, by its client id. Pure.

A broker of Kafka's calls itself ``broker-ID-fetcher-N`` as a follower, ``broker-ID-txn-marker-sender`` as a transaction
coordinator, and its bare id as a controller; Tidegauge's all begin with ``broker-ID-``. That counts only on the
listener that brokers use among themselves, the bare id only where controllers use it, and only for the lab and for the
versions that a broker shows which passes for a release (``is_of_broker``): a client may call itself so too.
Source: ``ReplicaFetcherManager``, ``TransactionMarkerChannelManager``, ``ControllerChannelManager``.
"""

from __future__ import annotations

import re

from tidegauge.kafka.frames import RequestHeader

_BROKER = re.compile(r"broker-([0-9]{1,10})-.+")
_CONTROLLER = re.compile(r"(?:broker-)?([0-9]{1,10})")


def calling_broker(client_id: str, *, serves_controller: bool) -> int | None:
    """Return the broker that a client id names; None: a client.

    Args:
        client_id: of its first request.
        serves_controller: whether controllers use this listener.
    """
    found = _BROKER.fullmatch(client_id) or (_CONTROLLER.fullmatch(client_id) if serves_controller else None)
    return None if found is None else int(found[1])


def is_of_broker(header: RequestHeader) -> bool:
    """Whether the sender of a request calls itself as brokers and controllers do."""
    return calling_broker(header.client_id, serves_controller=True) is not None
