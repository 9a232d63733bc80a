"""Record deletion: leaders are asked to raise their log start offsets (KIP-107; KafkaAdminClient.deleteRecords).

Rules:
    1. Each partition's leader is asked; while there is none, or leadership has moved, the request is retried until the
       timeout. Raising a log start offset is idempotent, so a lost response is retried, too.
    2. The response comes when all live replicas have raised their log start offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import offsets_pb2
from tidegauge_client.admin_base import RESPONSE_MARGIN_MS, AdminBase
from tidegauge_client.channels import call
from tidegauge_client.cluster import now_ms
from tidegauge_client.kafka_brokers import no_leader

HIGH_WATERMARK = -1

Outcomes = dict[TopicPartition, int | TidegaugeError]
"""The low watermark of each partition, or why there is none."""


class RecordAdmin(AdminBase):
    """Requests about records."""

    async def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> Outcomes:
        """Delete the records below offsets, for good; -1 means the high watermark.

        Args:
            before_offsets: the first offset to keep, by partition.
            timeout_ms: how long to wait for all live replicas.

        Returns:
            For each partition its low watermark (the smallest log start offset of the live replicas), or the error:
            OFFSET_OUT_OF_RANGE, POLICY_VIOLATION, UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT, ...

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no broker responds.
        """
        deadline_ms = now_ms() + (self._request_timeout_ms if timeout_ms is None else timeout_ms)
        for topic in {tp.topic for tp in before_offsets}:
            try:
                await self._cluster.ensure_topics({topic}, timeout_ms=1_000.0)
            except TidegaugeError as problem:
                if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                # Reported for each partition below, so that the others proceed.
        outcomes: Outcomes = {}
        for tp in before_offsets:
            if self._cluster.info.partition(tp) is None:
                outcomes[tp] = TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp}")
        while True:
            missing = {tp: offset for tp, offset in before_offsets.items() if tp not in outcomes}
            problems = await self._delete_once(missing, outcomes, deadline_ms)
            if now_ms() >= deadline_ms:
                outcomes.update(problems)
            if len(outcomes) == len(before_offsets):
                return {tp: outcomes[tp] for tp in before_offsets}
            await asyncio.sleep(self._retry_backoff_ms / 1000)
            self._cluster.request_refresh()

    async def _delete_once(
        self, wanted: Mapping[TopicPartition, int], outcomes: Outcomes, deadline_ms: float
    ) -> dict[TopicPartition, TidegaugeError]:
        """Ask each leader once; put final outcomes into ``outcomes`` and return the rest."""
        by_address: dict[str, list[TopicPartition]] = {}
        problems: dict[TopicPartition, TidegaugeError] = {}
        for tp in wanted:
            leader = self._cluster.leader(tp)
            if leader is None:
                error = no_leader(self._cluster.info, tp)
                (problems if error.retriable else outcomes)[tp] = error
            else:
                by_address.setdefault(leader.address, []).append(tp)

        async def one(address: str, partitions: list[TopicPartition]) -> None:
            entries = [
                offsets_pb2.DeleteRecordsPartition(
                    topic=tp.topic,
                    partition=tp.partition,
                    before_offset=None if wanted[tp] == HIGH_WATERMARK else wanted[tp],
                )
                for tp in partitions
            ]
            left_ms = max(1.0, deadline_ms - now_ms())
            request = offsets_pb2.DeleteRecordsRequest(timeout_ms=int(left_ms), partitions=entries)
            stub = self._cluster.channels.broker(address)
            try:
                response = await call(
                    stub.DeleteRecords, request, timeout_ms=left_ms + RESPONSE_MARGIN_MS, address=address
                )
            except TidegaugeError as problem:
                problems.update(dict.fromkeys(partitions, problem))
                return
            for result in response.partitions:
                tp = TopicPartition(result.topic, result.partition)
                code = ErrorCode.of(result.error)
                if code is ErrorCode.NONE:
                    outcomes[tp] = result.low_watermark
                    continue
                error = TidegaugeError(code, result.error_message)
                if error.retriable and code is not ErrorCode.REQUEST_TIMED_OUT:
                    problems[tp] = error
                else:
                    outcomes[tp] = error

        await asyncio.gather(*(one(*item) for item in by_address.items()))
        return problems
