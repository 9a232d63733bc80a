"""Fetch (1), versions 0-17: read record batches, at once or when there are enough or the time is over.

Sessions: ``sessions.py`` (version 7 on). Versions 0 and 1 get message format 0, 2 and 3 format 1, unless the topic's
``message.downconversion.enable`` is false; a first batch beyond the partition's limit is not given before version 3.
Topics are named by id from version 13 on; an unknown id has UNKNOWN_TOPIC_ID.
A request or a session of many partitions is looked at in portions, with turns of the event loop between; in one step
are read those that this broker hosts.
From version 11 on a follower serves consumers, too, and a leader may name one (``replica.selector.class``, KIP-392).
A reader of committed records gets records up to the last stable offset, aborted transactions' too, and
the list by which it leaves them out; for all others the list is null.
A Fetch with a replica id is a follower's (version 15 on: with its broker epoch, too): it reads up to the log end, its
offset acknowledges what lies below, and neither ``fetch.max.bytes`` nor unread responses hold it back. It may come
through any listener, as in Kafka; with an authorizer it needs ClusterAction. Ids below 0 are consumers'. One that says
its truncation rule (``tidegauge.kafka.header_tags``) is refused if that, or its cluster, is another one.
Source: ``KafkaApis.handleFetchRequest``, ``FetchSession.scala``, ``ReplicaManager.fetchMessages``, ``FetchParams``.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.apis import FETCH
from tidegauge.kafka.fields import Versions
from tidegauge.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.partition import TopicPartition
from tidegauge.with_turns import with_turns
from tidegauge_broker.replica import messages as core
from tidegauge_broker.replica.effect_executor import FetchResults
from tidegauge_broker.server.service.pending_responses import PendingResponse
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part, same
from tidegauge_broker.server.wire.kafka.fetch_reader import Reader, reader_of
from tidegauge_broker.server.wire.kafka.fetch_responses import FetchResponseInParts, Read, response_of
from tidegauge_broker.server.wire.kafka.handlers.common import READ_COMMITTED, known_epoch
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.responses import Held, Pending, Response, settled
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.sessions import (
    FetchSession,
    Opened,
    Place,
    StandingPlaces,
    Topic,
    WantedPartition,
)
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN, encoded_bytes

LOG = logging.getLogger("tidegauge.kafka")
_FIRST_WITH_FIRST_BATCH = 3
_FIRST_WITH_STORAGE_ERROR = 6
_FIRST_WITH_ZSTD = 10
_FIRST_WITH_RACKS = 11
_FIRST_WITH_IDS = 13
_ISOLATION_LEVELS = {0, READ_COMMITTED}
Item = TypeVar("Item")
_NO_ERROR = ErrorCode.NONE  # a member of an enumeration takes long to look up
_OLD_FORMATS = {0: 0, 1: 0, 2: 1, 3: 1}
"""The message format that a client of this version of Fetch knows."""


def handle(request: FetchRequest, context: Context) -> Response:
    """Read for a consumer or a follower; what can be read at once is responded to at once."""
    version = context.version
    reader = reader_of(request, version)
    if request.isolation_level not in _ISOLATION_LEVELS:
        return _failed(request, version)
    rule = context.header.tags.truncation_rule
    if rule and reader.is_follower:
        error, problem = context.service.admit_follower(request.cluster_id or "", rule)
        if error is not _NO_ERROR:
            LOG.warning("Refused a fetch of follower %d: %s", reader.replica_id, problem)
            return FetchResponse(error_code=error)
    if sum(len(topic.partitions) for topic in request.topics) > ITEMS_PER_TURN:
        return begun(_of_many(request, reader, context))
    return _opened(request, reader, dict(_places(request, context)), context)


async def _of_many(request: FetchRequest, reader: Reader, context: Context) -> Held | FetchResponse:
    """Read many partitions: other connections have turns while their places are looked up."""
    asked = {place: item async for place, item in with_turns(_places(request, context), ITEMS_PER_TURN)}
    found: Held | FetchResponse = await settled(_opened(request, reader, asked, context))
    return found


def _places(request: FetchRequest, context: Context) -> Iterator[tuple[Place, WantedPartition]]:
    uses_ids = context.version >= _FIRST_WITH_IDS
    for topic in request.topics:
        named = topic.topic_id if uses_ids else topic.topic
        for item in topic.partitions:
            yield Place(named, item.partition), _asked(item)


def _opened(request: FetchRequest, reader: Reader, asked: dict[Place, WantedPartition], context: Context) -> Response:
    """Read within the request's session."""
    uses_ids = context.version >= _FIRST_WITH_IDS
    forgotten = [
        Place(topic.topic_id if uses_ids else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
    opened = context.sessions.open(
        request.session_id,
        request.session_epoch,
        asked,
        forgotten,
        uses_ids=uses_ids,
        now_ms=context.now_ms(),
        is_privileged=reader.is_follower,
    )
    if isinstance(opened, ErrorCode):
        return FetchResponse(error_code=opened)
    standing = _standing(opened, asked, forgotten, context) if reader.is_follower else None
    response = None if standing is None else _of_standing(request, reader, standing, opened, context)
    if response is not None:
        return response
    if opened.session is not None:
        opened.session.standing = None
    return begun(_of_all(request, reader, opened, context))


async def _of_all(request: FetchRequest, reader: Reader, opened: Opened, context: Context) -> FetchResponse | Held:
    """Read of every partition."""
    reads, pending = await _read(request, reader, opened, context)
    if isinstance(reads, FetchResponse):
        return reads
    if len(reads) <= ITEMS_PER_TURN:
        return _held(reads, opened, pending, context)
    session, response = opened.session, FetchResponseInParts(context)
    try:
        for portion in _portions(reads):
            response.add(portion if session is None else _with_news(session, portion, everything=opened.is_new))
            await asyncio.sleep(0)
    except BaseException:
        pending.release()
        raise
    return Held(response.message(0 if session is None else session.id), pending)


def _held(reads: list[Read], opened: Opened, pending: PendingResponse, context: Context) -> Held:
    """Return the response that names the session's news."""
    session = opened.session
    try:
        if session is None:
            return Held(response_of(reads, context, 0), pending)
        return Held(response_of(_with_news(session, reads, everything=opened.is_new), context, session.id), pending)
    except BaseException:
        pending.release()
        raise


def _failed(request: FetchRequest, version: int) -> FetchResponse:
    """Return the response to a request that makes Kafka fail (``FetchRequest.getErrorResponse``)."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    topics = [
        FetchableTopicResponse(
            topic.topic,
            partitions=[PartitionData(item.partition, error, -1, records=None) for item in topic.partitions],
        )
        for topic in request.topics
        if version < _FIRST_WITH_IDS
    ]
    return FetchResponse(error_code=error, session_id=request.session_id, responses=topics)


def _asked(item: FetchPartition) -> WantedPartition:
    return WantedPartition(
        item.fetch_offset,
        item.partition_max_bytes,
        item.current_leader_epoch,
        item.last_fetched_epoch,
        item.log_start_offset,
    )


def _with_news(session: FetchSession, reads: Iterable[Read], *, everything: bool) -> list[Read]:
    """Return the reads that the response names: all at first, then news."""
    standing = session.standing
    named: list[Read] = []
    for read in reads:
        if session.has_news(read.place, read.result, read.records) or everything:
            named.append(read)
        if standing is not None:
            standing.fetch.sent(read.result, read.records)
    return named


def _standing(
    opened: Opened, asked: Mapping[Place, WantedPartition], forgotten: Iterable[Place], context: Context
) -> StandingPlaces | None:
    """Return a follower's standing fetch, brought up to date, or None.

    None: each partition has to be looked at.

    That is so without a session, for a follower that may not fetch, and if the id of a topic is unknown here, is not
    this broker's replica's, or is one of two that the session has for the same name.
    """
    session = opened.session
    if session is None or context.may_read is not None or context.version < _FIRST_WITH_ZSTD:
        return None
    standing = session.standing
    if standing is None:
        standing, asked, forgotten = StandingPlaces(), opened.partitions, ()
    session.standing = standing if _bring_up_to_date(session, standing, asked, forgotten, context) else None
    return session.standing


def _bring_up_to_date(
    session: FetchSession,
    standing: StandingPlaces,
    asked: Mapping[Place, WantedPartition],
    forgotten: Iterable[Place],
    context: Context,
) -> bool:
    """Take what a request names into a session's account; return whether each partition has a name of its own."""
    if forgotten:
        dropped = set(forgotten)
        for at in [at for at, place in standing.places.items() if place in dropped]:
            del standing.places[at]
            standing.fetch.forget(at)
    for place, item in asked.items():
        if place not in session.partitions:
            continue  # the request both names and forgets it
        current, topic_id = _named(place.topic, context)
        name = session.name_of(place, current) if topic_id else current
        if name is None:
            return False
        at = TopicPartition(name, place.partition)
        if standing.places.setdefault(at, place) != place:
            return False
        standing.topic_ids[place.topic] = topic_id
        standing.fetch.want(_wanted(at, item))
    return True


def _is_of_others(standing: StandingPlaces, partitions: Iterable[core.FetchPartition], context: Context) -> bool:
    """Whether this broker's replica of a partition is one of another topic with the same name."""
    for item in partitions:
        topic_id = standing.topic_ids[standing.places[item.topic_partition].topic]
        own = context.service.replica_topic_id(item.topic_partition) if topic_id else ""
        if own and own != topic_id:
            return True
    return False


def _of_standing(
    request: FetchRequest, reader: Reader, standing: StandingPlaces, opened: Opened, context: Context
) -> Held | Pending | None:
    """Read of those partitions that may have news, in the order of the session; None: look at each."""
    partitions = standing.fetch.asked_by(*reader)
    if _is_of_others(standing, partitions, context):
        return None
    service, caller = context.service, context.caller
    pending = service.responses.for_follower(caller.connection)
    asked = core.FetchRequest(
        reader.replica_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        partitions,
        reader.replica_epoch,
        client_rack=request.rack_id,
        standing=standing.fetch,
    )

    def respond(results: FetchResults) -> Held:
        places = standing.places
        reads = [
            Read(places[result.topic_partition], result, records)
            for result, records in results
            if result.topic_partition in places
        ]
        return _held(reads, opened, pending, context)

    future = service.begin_follower_fetch(caller, asked, pending)
    return respond(future.result()) if future.done() else Pending(future, respond)


async def _read(
    request: FetchRequest, reader: Reader, opened: Opened, context: Context
) -> tuple[list[Read] | FetchResponse, PendingResponse]:
    """Return every partition's read in order, and the response's pending count.

    If the client exceeds a quota, return the response that it gets instead (``throttling``).
    A session may have thousands of partitions, most without news: per-partition work is done once for its
    topic if that is possible, and requests to the core are kept until the client changes its own.
    """
    partitions, service = dict(opened.partitions), context.service
    sorting = _Sorting(opened, context)
    for number, portion in enumerate(_portions(partitions.items())):
        if number:
            await asyncio.sleep(0)
        sorting.add(portion)
    refused, places, asked = sorting.refused, sorting.places, sorting.asked
    if len(asked) > ITEMS_PER_TURN:
        places, asked = await _without_strange(request, reader, sorting, context)
    quotas = None if reader.is_follower else context.quotas
    max_bytes = request.max_bytes if quotas is None else quotas.most_fetched_bytes(request.max_bytes)
    response = await service.fetch(
        context.caller,
        core.FetchRequest(
            reader.replica_id,
            0 if refused else request.max_wait_ms,
            request.min_bytes if quotas is None else min(request.min_bytes, max_bytes),
            max_bytes,
            asked,
            reader.replica_epoch,
            client_rack=request.rack_id if context.version >= _FIRST_WITH_RACKS else None,
            reads_committed=request.isolation_level == READ_COMMITTED and not reader.is_follower,
        ),
    )
    try:
        reads = [
            Read(place, result, records)
            for place, (result, records) in zip(places, response.partitions, strict=True)  # in the order of the request
        ]
        if quotas is not None:
            throttle_ms = quotas.fetched_ms(await _size_bytes([*reads, *refused.values()], opened, context))
            if throttle_ms:
                service.withhold(response)
                return _throttled(opened, throttle_ms, context), response.pending
        if context.version < _FIRST_WITH_ZSTD:
            reads = [await _for_old_client(read, partitions[read.place], context) for read in reads]
    except BaseException:
        response.pending.release()
        raise
    if refused:
        found = {read.place: read for read in reads}
        reads = [found.get(place) or refused[place] for place in partitions]
    return reads, response.pending


class _Sorting:
    """Sorts a session's partitions: requests to the core, and refusals before it.

    Args:
        opened: the session, or what a request without one asks for.
        context: of the request.

    Attributes:
        refused: the results of partitions about which the core is not asked.
        places: the places of the others.
        asked: what it is asked, in the same order.
    """

    def __init__(self, opened: Opened, context: Context) -> None:
        self._session = opened.session
        self._known = {} if opened.session is None else opened.session.known
        self._context = context
        self._topics: dict[Topic, tuple[str | None, str]] = {}
        self.refused: dict[Place, Read] = {}
        self.places: list[Place] = []
        self.asked: list[core.FetchPartition] = []

    def add(self, items: Iterable[tuple[Place, WantedPartition]]) -> None:
        """Sort some partitions."""
        service, may_read = self._context.service, self._context.may_read
        session, known, topics = self._session, self._known, self._topics
        for place, item in items:
            topic = place.topic
            if topic not in topics:
                topics[topic] = _named(topic, self._context)
            name, topic_id = topics[topic]
            if topic_id and session is not None:
                name = session.name_of(place, name)
            before = known.get(place)
            if before is not None and before[0] is item and before[1].topic_partition.topic == name:
                wanted = before[1]
            else:
                wanted = _wanted(TopicPartition(name or "", place.partition), item)
                known[place] = item, wanted
            at = wanted.topic_partition
            if name is None:
                self._refuse(place, at, ErrorCode.UNKNOWN_TOPIC_ID)
            elif may_read is not None and not may_read(name):
                self._refuse(place, at, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif topic_id and (own := service.replica_topic_id(at)) and own != topic_id:
                self._refuse(place, at, ErrorCode.INCONSISTENT_TOPIC_ID)
            else:
                self.places.append(place)
                self.asked.append(wanted)

    def _refuse(self, place: Place, at: TopicPartition, error: ErrorCode) -> None:
        self.refused[place] = Read(place, core.FetchResult(at, error), b"")


async def _without_strange(
    request: FetchRequest, reader: Reader, sorting: _Sorting, context: Context
) -> tuple[list[Place], list[core.FetchPartition]]:
    """Ask the core, in portions, about partitions that this broker does not host; return the others.

    Their results are in the sorting afterwards: errors, with which a Fetch does not wait
    (``ReplicaManager.fetchMessages``). So a request holds the event loop for its hosted partitions at most.
    """
    service = context.service
    hosted: tuple[list[Place], list[core.FetchPartition]] = [], []
    strange: tuple[list[Place], list[core.FetchPartition]] = [], []
    for portion in _portions(list(zip(sorting.places, sorting.asked, strict=True))):
        for place, wanted in portion:
            places, asked = hosted if service.replica_topic_id(wanted.topic_partition) else strange
            places.append(place)
            asked.append(wanted)
        await asyncio.sleep(0)
    for some, wanted_there in zip(_portions(strange[0]), _portions(strange[1]), strict=True):
        part = core.FetchRequest(
            reader.replica_id, 0, request.min_bytes, request.max_bytes, list(wanted_there), reader.replica_epoch
        )
        response = await service.fetch(context.caller, part)
        response.pending.release()
        for place, (result, records) in zip(some, response.partitions, strict=True):
            sorting.refused[place] = Read(place, result, records)
        await asyncio.sleep(0)
    return hosted


def _portions(items: Collection[Item]) -> Iterator[Collection[Item]]:
    """Yield all items at once, or portions of many."""
    if len(items) <= ITEMS_PER_TURN:
        yield items
        return
    rest = iter(items)
    while portion := list(itertools.islice(rest, ITEMS_PER_TURN)):
        yield portion


async def _size_bytes(reads: list[Read], opened: Opened, context: Context) -> int:
    """Return the response's size with its length, before conversions (``FetchResponse.sizeOf``)."""
    session = opened.session
    if session is not None and not opened.is_new:
        reads = [read for read in reads if session.would_have_news(read.place, read.result, read.records)]
    response = FetchResponseInParts(context)
    for portion in _portions(reads):
        response.add(portion)
        if len(reads) > ITEMS_PER_TURN:
            await asyncio.sleep(0)
    message = response.message(0)
    message.node_endpoints = []
    return 4 + await encoded_bytes(FETCH, context.version, message)


def _throttled(opened: Opened, throttle_ms: int, context: Context) -> FetchResponse:
    """Return an empty response (``FetchContext.getThrottledResponse``); a session that was to begin does not."""
    session = opened.session
    if session is not None and opened.is_new:
        context.sessions.forget(session.id)
        session = None
    return FetchResponse(throttle_time_ms=throttle_ms, session_id=0 if session is None else session.id)


def _named(topic: Topic, context: Context) -> tuple[str | None, str]:
    """Return a topic's name (None if unknown), and its id if named so."""
    if isinstance(topic, str):
        return topic, ""
    topic_id = topic_id_text(topic)
    return context.service.topic_name(topic_id), topic_id


def _wanted(at: TopicPartition, item: WantedPartition) -> core.FetchPartition:
    return core.FetchPartition(
        at,
        item.fetch_offset,
        item.max_bytes,
        known_epoch(item.current_leader_epoch),
        known_epoch(item.last_fetched_epoch),
        item.log_start_offset,
    )


async def _for_old_client(read: Read, asked: WantedPartition, context: Context) -> Read:
    """Return a partition's read for a client without batches or zstd.

    Other connections have a turn after each partition that was converted here.
    """
    at, version, records = read.result.topic_partition, context.version, read.records
    if read.result.error is ErrorCode.KAFKA_STORAGE_ERROR and version < _FIRST_WITH_STORAGE_ERROR:
        return read._replace(result=core.FetchResult(at, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    if version < _FIRST_WITH_FIRST_BATCH and len(records) > asked.max_bytes:
        records = b""
    found = await context.service.for_old_client(
        at, records, _OLD_FORMATS.get(version), asked.fetch_offset, reads_zstd=version >= _FIRST_WITH_ZSTD
    )
    if found.error is not _NO_ERROR:
        return Read(read.place, core.FetchResult(at, found.error), b"")
    if found.converted_count:
        await asyncio.sleep(0)
    return read._replace(records=found.records)


API = ServedApi(
    apis.FETCH,
    handle,
    guard=whole.fetch,
    form=Form(
        (
            Part(
                "responses",
                "topics",
                same("topic"),
                Part("partitions", "partitions", {"partition_index": "partition"}, values={"high_watermark": -1}),
                Versions.of("0-12"),
            ),
        ),
        names=same("session_id"),
    ),
    only_reads=True,
    is_small=True,
    is_measured_by_service=True,
)
