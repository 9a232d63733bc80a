"""The size of every request and event of a coordinator is known before it is decided about."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from tidegauge.groups import GroupRequest
from tidegauge.share_groups import (
    ShareGroupHeartbeat,
    SharePartitionKey,
    ShareStateRequest,
    StateBatch,
    WriteShareState,
)
from tidegauge.transactions import TransactionRequest
from tidegauge_broker.coordinator.events import Event, ShareEvent, TransactionEvent
from tidegauge_broker.coordinator.sizes import items_in

UNIONS: tuple[Any, ...] = (GroupRequest, ShareStateRequest, TransactionRequest, Event, ShareEvent, TransactionEvent)
KINDS = sorted({kind for union in UNIONS for kind in typing.get_args(union)}, key=lambda kind: kind.__qualname__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__qualname__)
def test_every_request_and_event_names_its_fields(kind: Any) -> None:
    assert isinstance(kind.__match_args__, tuple), "which a compiled class has, too; it has no slots"


def test_collections_count_and_values_do_not() -> None:
    batches = tuple(StateBatch(one, one, 0, 1) for one in range(7))
    assert items_in(WriteShareState(SharePartitionKey("g", bytes(16), 0), 0, 0, 0, 0, batches)) == 7
    assert items_in(ShareGroupHeartbeat("g", "member", 0, None, ("a", "b"))) == 2
    assert items_in(ShareGroupHeartbeat("g", "member", 0)) == 0
