"""Where the transaction of a transactional id is open, as the partitions' leaders say."""

from __future__ import annotations

import asyncio

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.admin_transactions import TransactionDescription

_LEADER_TIMEOUT_MS = 2_000


async def start_offsets(admin: Admin, transaction: TransactionDescription) -> dict[TopicPartition, int | None]:
    """Return the first offset of the open transaction at each partition.

    None: no record has arrived there yet, its marker is written, or its leader does not respond.
    """

    async def start_offset(at: TopicPartition) -> int | None:
        try:
            producers = await admin.describe_producers(at, timeout_ms=_LEADER_TIMEOUT_MS)
        except TidegaugeError:
            return None
        mine = (one for one in producers if one.producer_id == transaction.producer_id)
        return next((one.transaction_start_offset for one in mine), None)

    found = await asyncio.gather(*map(start_offset, transaction.partitions))
    return dict(zip(transaction.partitions, found, strict=True))
