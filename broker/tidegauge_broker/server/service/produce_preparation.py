"""The preparation of a Produce's batches between its arrival and their append, on every wire.

Rules:
    1. First transactional batches are verified (``ProduceVerification``), then heavy ones are prepared beside the event
       loop (``preparation``, ``RecordsPool``), one after the other.
    2. A request that needs neither is ready at once, without a turn of the event loop.
    3. While a request is made ready its connection appends no other: a wire awaits it before the next.
    4. A defect in the preparation of a batch refuses that batch, with UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.transactions import SupportedOperation
from tidegauge_broker.replica.messages import Prepared, ProduceRequest
from tidegauge_broker.replica.preparation import Preparation, is_surely_light
from tidegauge_broker.replica.record_errors import NamedRecords, RecordsRefused
from tidegauge_broker.server.service.produce_verification import ProduceVerification, Verified
from tidegauge_broker.server.service.records_pool import RecordsPool

LOG = logging.getLogger("tidegauge.service")


class ProducePreparation:
    """Prepares the batches of a Produce for their append.

    Args:
        verification: rule 1.
        preparations: returns what must be prepared of a request (``BrokerCore.preparations``).
        pool: prepares it.
    """

    def __init__(
        self,
        verification: ProduceVerification,
        preparations: Callable[[ProduceRequest], Sequence[Preparation]],
        pool: RecordsPool,
    ) -> None:
        self._verification = verification
        self._preparations = preparations
        self._pool = pool

    def of(
        self, request: ProduceRequest, transactional_id: str | None, operation: SupportedOperation
    ) -> Verified | Coroutine[Any, Any, Verified]:
        """Return the part of a request to append; maybe as a coroutine.

        Args:
            request: what to append.
            transactional_id: of the producer; None: nothing is transactional.
            operation: what the version of the client's request supports.
        """
        verified = self._verification.of(request, transactional_id, operation)
        if not isinstance(verified, Verified):
            return self._prepared_later(verified)
        if is_surely_light(verified.request):
            return verified
        heavy = self._preparations(verified.request)
        return self._prepared(verified, heavy) if heavy else verified

    async def _prepared_later(self, verification: Coroutine[Any, Any, Verified]) -> Verified:
        verified = await verification
        return await self._prepared(verified, self._preparations(verified.request))

    async def _prepared(self, verified: Verified, heavy: Sequence[Preparation]) -> Verified:
        named = NamedRecords()
        for preparation in heavy:
            try:
                prepared = preparation.item.prepared = await self._pool.run(preparation.run)
                if isinstance(prepared.refusal, RecordsRefused):
                    prepared.refusal.record_errors = named.within_limit(prepared.refusal.record_errors)
            except Exception as problem:  # a defect, which concerns this batch alone
                LOG.exception("The batch for %s could not be prepared", preparation.item.topic_partition)
                refusal = TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The batch could not be checked: {problem}")
                preparation.item.prepared = Prepared(refusal=refusal)
        return verified
