"""The interface of a fetcher to its leader, for either protocol among brokers.

``grpc_links`` has the links over gRPC, ``kafka_links`` those over Kafka's protocol: ``inter.broker.listener.name``
decides.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.messages import EpochEndResult, EpochRound, FetchedPartition, FetchRound


class RoundFailed(Exception):
    """The round has no response that counts; the text says why.

    Attributes:
        error: the error code that the round ends with.
    """

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


@dataclass(slots=True)
class FetcherIdentity:
    """The sender's fields of each request."""

    broker_id: int
    cluster_id: str
    broker_epoch: Callable[[], int]


class LeaderLink(Protocol):
    """One leader; rounds are carried one at a time. After a failure the next round begins with a new connection."""

    async def fetch(self, chosen: FetchRound) -> Sequence[FetchedPartition]:
        """Carry a fetch to the leader; return what the response says of the partitions that it names.

        Raises:
            RoundFailed: there is no response, or one with an error of the whole.
        """
        ...

    async def ask_epochs(self, chosen: EpochRound) -> Sequence[EpochEndResult]:
        """Ask the leader where epochs end.

        Raises:
            RoundFailed: there is no response.
        """
        ...

    def drop(self) -> None:
        """Close the connection; the leader is to keep nothing in mind."""


class Links(Protocol):
    """Makes links."""

    def open(self, leader: int) -> LeaderLink:
        """Return a link to this broker; nothing is sent yet."""
        ...


@contextlib.asynccontextmanager
async def within_round(timeout_seconds: float) -> AsyncIterator[None]:
    """Limit the time of its block.

    Raises:
        RoundFailed: REQUEST_TIMED_OUT.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            yield
    except TimeoutError:
        raise RoundFailed(ErrorCode.REQUEST_TIMED_OUT, f"no response within {timeout_seconds:g} s") from None
