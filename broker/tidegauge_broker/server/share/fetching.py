"""ShareFetches: they wait until records can be acquired, and acquire them.

Rules (DelayedShareFetch):
    1. A fetch is served when, over the share partitions that may give records, the log has ``min_bytes`` from the
       offset on at which each reads next, or one of them has an error; whether these records can be acquired is not
       looked at. When its time is over it is served with what there is.
    2. It looks again when the log grows by so much, when records are released or acknowledged, when locks time out,
       and when a state is loaded. All that wait look again then, those that have waited longest first.
    3. Each partition is read once, up to its high watermark, or its last stable offset if the group reads committed
       records, and of a limit of its own. The maximum number of records is over all partitions, in their turn.
    4. A state that cannot be loaded is an error of its partition, given when the fetch is served: it is not served
       earlier because of it, so that clients do not try again at once. If no partition is left without an error before
       the first state is loaded, the fetch is served at once.
    5. A read below the log start moves the share partition's start, and gives no error and no records.

Where Kafka locks a share partition for one fetch, and has the others try again when that is over, a fetch is served
here in one step of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import Buffer
from tidegauge.share_groups import SharePartitionKey
from tidegauge.with_turns import with_turns
from tidegauge_broker.replica.effect_executor import FetchResults
from tidegauge_broker.replica.messages import CONSUMER, FetchPartition, FetchRequest, FetchResult
from tidegauge_broker.server.replication.request_token import ResponseRoom
from tidegauge_broker.server.share.hosted import HostedSharePartition
from tidegauge_broker.server.share.partitions import SharePartitions
from tidegauge_broker.server.share.reads import headers_of, limits_of, log_batches, slice_of
from tidegauge_broker.share.acquiring import AbortedTransaction, Acquired, Read, Wanted
from tidegauge_broker.share.effects import Effect
from tidegauge_broker.share.partition import SharePartition
from tidegauge_broker.share.sessions import PartitionId

LOG = logging.getLogger("tidegauge.share")
_NONE = ErrorCode.NONE
_ACQUIRED_PER_TURN = 200
"""Partitions of which records are acquired in one turn of the event loop."""
_OPENED_PER_TURN = 100


class LogReads(Protocol):
    """Reads of the partitions that this broker leads."""

    def begin_fetch(self, request: FetchRequest, room: ResponseRoom | None = None) -> asyncio.Future[FetchResults]:
        """Read now, or as soon as there is enough to read."""
        ...

    def topic_id(self, at: TopicPartition) -> str:
        """Return the topic id of a local replica; empty without one."""
        ...

    def readable_end(self, at: TopicPartition, *, reads_committed: bool) -> int:
        """Return a local replica's high watermark, or last stable offset; -1: none."""
        ...

    def log_start(self, at: TopicPartition) -> int:
        """Return the log start of a local replica; 0 without one."""
        ...


@dataclass(frozen=True, slots=True)
class WantedFetch:
    """The content of a ShareFetch.

    Attributes:
        max_wait_ms: how long it may wait.
        min_bytes: see rule 1.
        max_bytes: of all records; a first batch is given even if it is larger.
        wanted: records; over all partitions.
        partitions: in their turn, each with its name.
    """

    group_id: str
    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    wanted: Wanted
    partitions: Mapping[PartitionId, TopicPartition]


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a fetch for one partition.

    Attributes:
        records: batches, of which the member may process acquired records alone.
    """

    error: ErrorCode = ErrorCode.NONE
    records: Buffer = b""
    acquired: Sequence[Acquired] = ()


class _Acquirable(NamedTuple):
    """A share partition that may give records, and the offset at which it reads."""

    hosted: HostedSharePartition
    offset: int


class ShareFetches:
    """The ShareFetches in progress.

    Args:
        partitions: the share partitions of this broker.
        reads: of their logs.
        now_ms: a clock that never goes back.
        draw: returns a random number below another one.
    """

    def __init__(
        self,
        partitions: SharePartitions,
        reads: LogReads,
        now_ms: Callable[[], int],
        draw: Callable[[int], int] = random.randrange,
    ) -> None:
        self._partitions = partitions
        self._reads = reads
        self._now_ms = now_ms
        self._draw = draw

    async def fetch(self, wanted: WantedFetch, room: ResponseRoom | None = None) -> dict[PartitionId, Fetched]:
        """Return what the partitions give that were read, or have an error."""
        if not wanted.partitions or wanted.wanted.max_records == 0 or wanted.max_bytes == 0:
            return {}
        if wanted.max_bytes < 0:
            return dict.fromkeys(wanted.partitions, Fetched(ErrorCode.UNKNOWN_SERVER_ERROR))
        self._partitions.refresh_settings(wanted.group_id)
        hosted, errors = await self._open(wanted)
        deadline_ms = self._now_ms() + wanted.max_wait_ms
        while hosted:
            left_ms = deadline_ms - self._now_ms()
            acquirable = self._acquirable(hosted)
            request = self._request(wanted, acquirable) if acquirable else None
            enough = None if request is None or left_ms <= 0 else self._enough(request, left_ms)
            if left_ms <= 0 or (enough is not None and enough.done()):
                errors |= _failures(hosted)
                return await self._serve(wanted, acquirable, request, room) | errors
            await _news(hosted.values(), enough, left_ms)
        return errors

    async def _open(
        self, wanted: WantedFetch
    ) -> tuple[dict[PartitionId, HostedSharePartition], dict[PartitionId, Fetched]]:
        """Return the share partitions, and the others' errors."""
        hosted: dict[PartitionId, HostedSharePartition] = {}
        errors: dict[PartitionId, Fetched] = {}
        async for one, at in with_turns(wanted.partitions.items(), _OPENED_PER_TURN):
            try:
                hosted[one] = self._partitions.opened(SharePartitionKey(wanted.group_id, *one), at)
            except TidegaugeError as problem:
                errors[one] = Fetched(problem.code)
        return hosted, errors

    def _acquirable(self, hosted: Mapping[PartitionId, HostedSharePartition]) -> dict[PartitionId, _Acquirable]:
        """Return the share partitions that may give records now."""
        found: dict[PartitionId, _Acquirable] = {}
        for one, partition in hosted.items():
            try:
                if partition.core.can_acquire():
                    found[one] = _Acquirable(partition, partition.core.next_fetch_offset())
            except Exception as defect:  # noqa: BLE001 - it concerns this partition alone
                self._partitions.broken(partition, defect)
        return found

    def _request(self, wanted: WantedFetch, acquirable: Mapping[PartitionId, _Acquirable]) -> FetchRequest:
        """Return the fetch of the log, which does not wait."""
        limits = limits_of(wanted.max_bytes, len(acquirable), self._draw)
        partitions = [
            FetchPartition(hosted.at, offset, limit)
            for (hosted, offset), limit in zip(acquirable.values(), limits, strict=True)
        ]
        reads_committed = next(iter(acquirable.values())).hosted.core.settings.reads_committed
        return FetchRequest(
            CONSUMER, 0, wanted.min_bytes, wanted.max_bytes, partitions, reads_committed=reads_committed
        )

    def _enough(self, request: FetchRequest, wait_ms: int) -> asyncio.Future[Any]:
        """Return a future for enough data, or after a time; rule 1.

        A next offset beyond what can be read is enough, as in Kafka.
        """
        for one in request.partitions:
            end = self._reads.readable_end(one.topic_partition, reads_committed=request.reads_committed)
            if one.fetch_offset > end:
                found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                found.set_result(None)
                return found
        return self._reads.begin_fetch(replace(request, max_wait_ms=wait_ms, only_waits=True))

    async def _serve(
        self,
        wanted: WantedFetch,
        acquirable: Mapping[PartitionId, _Acquirable],
        request: FetchRequest | None,
        room: ResponseRoom | None,
    ) -> dict[PartitionId, Fetched]:
        """Read records and acquire them for the member.

        Many partitions take several turns; the core heeds changes by other requests meanwhile, as Kafka's does, whose
        reads end later than they were begun.
        """
        if request is None:
            return {}
        token = self._reads.begin_fetch(request, room)
        assert token.done(), "a fetch without a wait is responded to at once"
        served: dict[PartitionId, Fetched] = {}
        left = wanted.wanted.max_records
        read = zip(acquirable.items(), token.result(), strict=True)
        async for (one, (hosted, offset)), (result, records) in with_turns(read, _ACQUIRED_PER_TURN):
            found = self._acquired(wanted, one, hosted, offset, result, records, left)
            left -= sum(part.size for part in found.acquired)
            served[one] = found
        return served

    def _acquired(
        self,
        wanted: WantedFetch,
        one: PartitionId,
        hosted: HostedSharePartition,
        offset: int,
        result: FetchResult,
        records: Buffer,
        left: int,
    ) -> Fetched:
        """Acquire the records read of one partition."""
        own = self._reads.topic_id(hosted.at)
        if own and own != topic_id_text(one.topic_id):
            return Fetched(ErrorCode.INCONSISTENT_TOPIC_ID)
        if result.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._move_start(hosted)
            return Fetched()
        if result.error is not _NONE:
            return Fetched(result.error)
        try:
            headers = headers_of(records)
            aborted = [AbortedTransaction(*found) for found in _aborted(result)]
            read = Read(offset, log_batches(records, headers), aborted)
        except TidegaugeError as problem:
            LOG.error("Records of %s cannot be read for group %s: %s", hosted.at, wanted.group_id, problem.message)  # noqa: TRY400 - the sentence says it all
            return Fetched(problem.code)
        acquired: list[Acquired] = []
        asked = replace(wanted.wanted, max_records=left)

        def acquire(core: SharePartition, now_ms: int) -> Sequence[Effect]:
            acquired.extend(core.acquire(wanted.member_id, read, asked, now_ms))
            return ()

        self._partitions.step(hosted, "ShareFetch", acquire)
        return Fetched(records=slice_of(records, headers, acquired), acquired=acquired) if acquired else Fetched()

    def _move_start(self, hosted: HostedSharePartition) -> None:
        """Move a share partition's start to the log's; rule 5."""
        log_start = self._reads.log_start(hosted.at)

        def move(core: SharePartition, _: int) -> Sequence[Effect]:
            core.log_start_moved(log_start)
            return ()

        self._partitions.step(hosted, "ShareFetch", move)


async def _news(hosted: Iterable[HostedSharePartition], enough: asyncio.Future[Any] | None, wait_ms: int) -> None:
    """Wait until a fetch may be due; rule 2.

    Args:
        hosted: what it fetches.
        enough: done when the log has enough; None: of none of them records can be acquired.
        wait_ms: limit of the wait.
    """
    loop = asyncio.get_running_loop()
    news: asyncio.Future[None] = loop.create_future()

    def come(_: object = None) -> None:
        if not news.done():
            news.set_result(None)

    timer = loop.call_later(wait_ms / 1000, come)
    for one in hosted:
        one.waiting[news] = None
    try:
        if enough is not None:
            enough.add_done_callback(come)
        await news
    finally:
        timer.cancel()
        if enough is not None:
            enough.remove_done_callback(come)
            enough.cancel()
        for one in hosted:
            one.waiting.pop(news, None)


def _failures(hosted: Mapping[PartitionId, HostedSharePartition]) -> dict[PartitionId, Fetched]:
    return {one: Fetched(found.failure) for one, found in hosted.items() if found.failure is not _NONE}


def _aborted(result: FetchResult) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in result.aborted_transactions or ()]
