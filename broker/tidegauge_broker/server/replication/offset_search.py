"""A search for an offset by time (ListOffsets), which leaves the event loop to others.

Rules:
    1. After some thousands of headers others have a turn; lengthy work on records is done beside the loop.
    2. A search in files that are truncated, deleted or replaced meanwhile, or whose log start has risen, counts no
       longer: it begins again, and keeps its results in large batches.
Source: ``UnifiedLog.fetchOffsetByTimestamp``, which a request handler thread of Kafka carries out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.log.records import BatchSearch, KnownResults, is_light, search_here
from tidegauge_broker.log.searching import Found, Search
from tidegauge_broker.replica.messages import OffsetResult

BYTES_PER_TURN = 256 * 1024
SearchElsewhere = Callable[[BatchSearch], Awaitable[object]]
"""Looks into a batch beside the event loop."""


class OffsetSearch:
    """Searches offsets by time.

    Args:
        log: that is searched.
        steps: the search, which has not begun.
        finish: makes the response from the result.
    """

    def __init__(self, log: PartitionLog, steps: Search, finish: Callable[[Found], tuple[OffsetResult, int]]) -> None:
        self._log = log
        self._steps = steps
        self._finish = finish
        self._began_at = self._state()
        self._bytes_here = 0

    def _state(self) -> tuple[int, int, bool]:
        return self._log.layout_version, self._log.log_start_offset, self._log.is_closed

    async def carry_out(
        self, known: KnownResults, search_elsewhere: SearchElsewhere
    ) -> tuple[OffsetResult, int] | None:
        """Return the result; None: the search counts no longer (rule 2).

        Args:
            known: known results in large batches.
            search_elsewhere: looks into the others.

        Raises:
            TidegaugeError: KAFKA_STORAGE_ERROR or CORRUPT_MESSAGE.
        """
        found: object = None
        while True:
            try:
                search = self._steps.send(found)
            except StopIteration as end:
                return self._finish(end.value)
            found = await self._search(search, known, search_elsewhere)
            if self._state() != self._began_at:
                return None

    async def _search(self, search: BatchSearch | None, known: KnownResults, elsewhere: SearchElsewhere) -> object:
        if search is None:
            await asyncio.sleep(0)
            return None
        if is_light(search):
            self._bytes_here += len(search[1])
            if self._bytes_here > BYTES_PER_TURN:  # headers may claim times that no record has
                self._bytes_here = 0
                await asyncio.sleep(0)
            return search_here(*search)
        if not known.has(search):
            known.note(search, await elsewhere(search))
        return known.result(search)
