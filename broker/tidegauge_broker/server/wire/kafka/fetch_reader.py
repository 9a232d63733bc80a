"""The sender of a Fetch: a consumer, or the follower that its fields name.

Up to version 14 they are ``ReplicaId``, from version 15 on ``ReplicaState`` with the follower's broker epoch (KIP-903).
Source: ``FetchRequest.replicaId``.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.kafka.messages.fetch import FetchRequest
from tidegauge_broker.replica.messages import CONSUMER

_FIRST_WITH_REPLICA_STATE = 15


class Reader(NamedTuple):
    """The sender of a fetch: a consumer, or the follower with this id and broker epoch."""

    replica_id: int = CONSUMER
    replica_epoch: int = -1

    @property
    def is_follower(self) -> bool:
        """Whether it is a replica."""
        return self.replica_id != CONSUMER


def reader_of(request: FetchRequest, version: int) -> Reader:
    """Return the sender; a negative id counts as a consumer's.

    It may be kafka-replica-verification's, which is served as a consumer.
    """
    if version < _FIRST_WITH_REPLICA_STATE:
        found = Reader(request.replica_id)
    elif request.replica_state is None:
        return Reader()
    else:
        found = Reader(request.replica_state.replica_id, request.replica_state.replica_epoch)
    return found if found.replica_id >= 0 else Reader()


def is_followers(request: FetchRequest, version: int) -> bool:
    """Whether a follower sends this request."""
    return reader_of(request, version).is_follower
