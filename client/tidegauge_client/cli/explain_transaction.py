"""``explain transaction:ID``: whether a transaction is open, until when, and what its end waits for.

The facts come from the metadata, from the id's coordinator, and from the leaders of the transaction's partitions.
Nothing is created: __transaction_state comes with the first transactional producer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_client.admin import Admin
from tidegauge_client.admin_transactions import TransactionDescription
from tidegauge_client.cli.explain_group import internal_partition, refusal
from tidegauge_client.cli.open_transactions import abort_intervals_ms
from tidegauge_client.kafka_brokers import named
from tidegauge_client.metadata import newest_of, newest_view
from tidegauge_client.transaction_explanation import Place, TransactionFacts
from tidegauge_client.transaction_views import spoken_version

_ATTEMPT_MS = 2_000


async def gather_transaction(admin: Admin, transactional_id: str) -> TransactionFacts:
    """Gather what the cluster knows of a transactional id.

    Raises:
        TidegaugeError: no broker responds.
    """
    views = await admin.metadata_of_all([TRANSACTION_TOPIC])
    live = newest_view(views).live
    held = await internal_partition(admin, views, TRANSACTION_TOPIC, transactional_id)
    if held is None:
        return TransactionFacts(transactional_id, None, live)
    try:
        found = await admin.describe_transaction(transactional_id, timeout_ms=_ATTEMPT_MS)
    except TidegaugeError as problem:
        return TransactionFacts(transactional_id, held, live, problem=refusal(held, problem))
    intervals = await abort_intervals_ms(admin, {found.coordinator})
    places = await _places(admin, found)
    version: int | None = None
    with contextlib.suppress(TidegaugeError):
        version = await admin.transaction_version(found.coordinator, timeout_ms=_ATTEMPT_MS)
    spoken: int | None = None
    coordinator = newest_view(views).brokers.get(found.coordinator)
    if version is not None and coordinator is not None:
        spoken = await spoken_version(coordinator.address, admin.security, transactional_id)
    now_ms = int(time.time() * 1000)
    interval_ms = intervals[found.coordinator]
    return TransactionFacts(
        *(transactional_id, held, live, found),
        places=places,
        now_ms=now_ms,
        interval_ms=interval_ms,
        transaction_version=version,
        spoken_version=spoken,
    )


async def _places(admin: Admin, found: TransactionDescription) -> list[Place]:
    """Return the partitions of the transaction, each as its leader sees it."""
    if not found.partitions:
        return []
    views = await admin.metadata_of_all(sorted({at.topic for at in found.partitions}))
    kafkas = newest_view(views).kafka_brokers
    leaders = {part.topic_partition: part.leader_id for part in newest_of(views)}

    async def place(at: TopicPartition) -> Place:
        leader = leaders.get(at)
        if leader is None:
            return Place(at, None)
        if leader in kafkas:
            return Place(at, leader, problem=named(kafkas[leader]))
        try:
            producers = await admin.describe_producers(at, timeout_ms=_ATTEMPT_MS)
        except TidegaugeError as problem:
            return Place(at, leader, problem=str(problem))
        mine = (one.transaction_start_offset for one in producers if one.producer_id == found.producer_id)
        return Place(at, leader, next(mine, None))

    return list(await asyncio.gather(*map(place, sorted(found.partitions))))


def transaction_headline(facts: TransactionFacts) -> str:
    """Return the first line: the transactional id in short."""
    held, found = facts.partition, facts.transaction
    where = "no coordinator" if held is None or held.leader is None else f"coordinator {held.leader}"
    if found is None:
        why = "" if facts.problem is ErrorCode.NONE else f": {facts.problem.name}"
        return f"Transactional id {facts.transactional_id}: state unknown, {where}{why}"
    return (
        f"Transactional id {facts.transactional_id}: {found.state}, producer {found.producer_id}, epoch "
        f"{found.producer_epoch}, {where}"
    )


def transaction_view(facts: TransactionFacts) -> dict[str, Any]:
    """Return the facts about a transactional id, for JSON."""
    held, found = facts.partition, facts.transaction
    return {
        "transactional_id": facts.transactional_id,
        "state": None if found is None else found.state,
        "producer_id": None if found is None else found.producer_id,
        "producer_epoch": None if found is None else found.producer_epoch,
        "coordinator": -1 if held is None or held.leader is None else held.leader,
        "transactions_version": facts.spoken_version,
        "state_partition": None if held is None else held.at.partition,
        "error": None if facts.problem is ErrorCode.NONE else facts.problem.name,
    }
