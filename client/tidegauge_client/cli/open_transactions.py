"""Gathers the open transactions of a partition, and what coordinators have of them, for ``explain``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_client.admin import Admin
from tidegauge_client.admin_transactions import TransactionDescription
from tidegauge_client.cli.explain_group import internal_partition
from tidegauge_client.hanging_transactions import OpenTransaction, coordinated, open_transactions_at
from tidegauge_client.open_transaction_explanation import OpenAtPartition, PartitionTransactions
from tidegauge_client.transaction_words import ABORT_INTERVAL, DEFAULT_ABORT_INTERVAL_MS


async def gather_open_transactions(admin: Admin, at: TopicPartition) -> PartitionTransactions:
    """Ask the leader, then the coordinators, then the leader again: one open both times was open meanwhile."""
    try:
        before = await open_transactions_at(admin, [at])
        known, problem = await _coordinated(admin, before)
        after = set(await open_transactions_at(admin, [at])) if before else set()
    except TidegaugeError as error:
        return PartitionTransactions(_now_ms(), problem=str(error))
    intervals = await abort_intervals_ms(admin, {one.coordinator for one in known.values()})
    obstacles = await _obstacles(admin, known)
    still = {(one.producer.producer_id, one.start_offset) for one in after}
    found = []
    for one in before:
        if (one.producer.producer_id, one.start_offset) not in still:
            continue
        transaction = known.get(one.producer.producer_id)
        interval_ms = DEFAULT_ABORT_INTERVAL_MS if transaction is None else intervals[transaction.coordinator]
        obstacle = obstacles.get(one.producer.producer_id, "")
        found.append(OpenAtPartition(one.producer, transaction, problem, interval_ms, obstacle))
    return PartitionTransactions(_now_ms(), found)


async def _coordinated(
    admin: Admin, found: Collection[OpenTransaction]
) -> tuple[dict[int, TransactionDescription], str]:
    try:
        return await coordinated(admin, {one.producer.producer_id for one in found}, missing_ms=0), ""
    except TidegaugeError as error:
        return {}, str(error)


async def abort_intervals_ms(admin: Admin, coordinators: Collection[int]) -> dict[int, int]:
    """Return coordinators' intervals of looking for timed-out transactions, in ms."""

    async def interval_ms(broker_id: int) -> int:
        try:
            entries = await admin.describe_broker_settings(broker_id)
        except TidegaugeError:
            return DEFAULT_ABORT_INTERVAL_MS
        found = (int(entry.value) for entry in entries if entry.name == ABORT_INTERVAL and entry.value)
        return next(found, DEFAULT_ABORT_INTERVAL_MS)

    return {broker_id: await interval_ms(broker_id) for broker_id in coordinators}


async def _obstacles(admin: Admin, known: Mapping[int, TransactionDescription]) -> dict[int, str]:
    """Return why coordinators can write no abort now, by producer id."""
    ongoing = {producer_id: one.transactional_id for producer_id, one in known.items() if one.state == "Ongoing"}
    if not ongoing:
        return {}
    found = {}
    with contextlib.suppress(TidegaugeError):  # an obstacle that is not known is not named
        views = await admin.metadata_of_all([TRANSACTION_TOPIC])
        for producer_id, transactional_id in ongoing.items():
            held = await internal_partition(admin, views, TRANSACTION_TOPIC, transactional_id)
            if held is not None and held.shortage:
                found[producer_id] = held.shortage
    return found


def _now_ms() -> int:
    return int(time.time() * 1000)
