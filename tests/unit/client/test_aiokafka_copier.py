"""Tests of how the copier of aiokafka reads what a group has committed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, NodeNotReadyError
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from tests import waiting
from tests.clients import aiokafka_copier

ORDERS = TopicPartition("orders", 0)


class Admin:
    """An admin client with given results, one for each request; an exception is raised."""

    def __init__(self, *results: Any) -> None:
        self._results = iter(results)

    async def list_consumer_group_offsets(self, group_id: str, *, partitions: list[TopicPartition]) -> Any:
        """Return the next result."""
        assert (group_id, partitions) == ("copiers", [ORDERS])
        result = next(self._results)
        if isinstance(result, Exception):
            raise result
        return result


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 0)


def committed(*results: Any) -> int | None:
    """Return the position that the copier takes for committed after these results."""
    return asyncio.run(aiokafka_copier.committed(Admin(*results), "copiers", ORDERS))


def at(offset: int) -> dict[TopicPartition, OffsetAndMetadata]:
    """A response with the position of the partition."""
    return {ORDERS: OffsetAndMetadata(offset, "")}


@pytest.mark.parametrize("missed", [{}, NodeNotReadyError()], ids=["an error of the whole response", "no connection"])
def test_what_was_not_looked_at_is_asked_again(missed: Any) -> None:
    """NOT_COORDINATOR comes without partitions (KIP-88), and is not taken for a group without positions."""
    assert committed(missed, missed, at(50)) == 50


def test_a_partition_without_a_position_has_none() -> None:
    """Kafka's response then has offset -1 at the partition."""
    assert committed(at(-1)) is None


def test_what_no_retry_mends_is_raised() -> None:
    """As a missing permission."""
    with pytest.raises(GroupAuthorizationFailedError):
        committed(GroupAuthorizationFailedError())
