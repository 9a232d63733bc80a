"""ShareFetch (78), versions 1-2: a member of a share group acquires records, and acknowledges others (KIP-932).

Rules:
    1. Acknowledgements are taken first, even if the fetch fails; the response comes when both are done. A request
       with renewals of locks (version 2, KIP-1222) fetches nothing.
    2. Sessions: ``tidegauge_broker.share.sessions``. Where the broker has no room for another one, the error is held
       back for as long as the fetch would wait.
    3. A partition whose topic's id this broker does not know makes the whole response an UNKNOWN_SERVER_ERROR, as in
       Kafka 4.3.1: it counts the bytes of each topic in the response by its name.
    4. A request with a long list of partitions takes several turns of the event loop: its session's part is taken in
       one of them, each partition in one of its own, and so is its response.
    5. A client that exceeds a quota gets none of the records; they stay acquired until their locks time out.

Source: ``KafkaApis`` (handleShareFetchRequest, processShareFetchResponse), ``ShareSessionContext``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from tidegauge.partition import TopicPartition
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.service.pending_responses import PendingResponse
from tidegauge_broker.server.share.fetching import Fetched, WantedFetch
from tidegauge_broker.server.wire.kafka.authorization import share
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.handlers.share_parts import (
    FIRST_WITH_RENEWALS,
    NAMES_LEADER,
    Acknowledging,
    Leaders,
    Names,
    Outcomes,
    acknowledge,
    named,
    service_of,
)
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.responses import Held, Response
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN, encoded_bytes
from tidegauge_broker.share.acquiring import Wanted
from tidegauge_broker.share.requests import is_valid_member_id, is_valid_renewal
from tidegauge_broker.share.sessions import (
    News,
    PartitionId,
    SessionKey,
    SessionRefused,
    ShareFetchContext,
    rotated,
)
from tidegauge_broker.share.settings import AcquireMode

LOG = logging.getLogger("tidegauge.kafka")
_LENGTH_BYTES = 4
_NONE = ErrorCode.NONE


def handle(request: ShareFetchRequest, context: Context) -> Response:
    """Take acknowledgements, and fetch; what can be responded to at once is."""
    return begun(_handle(request, context))


async def _handle(request: ShareFetchRequest, context: Context) -> ShareFetchResponse | Held:
    problem = _problem(request, context.version) if context.service.share else ErrorCode.UNSUPPORTED_VERSION
    if problem is not _NONE:
        return _refused(request, context, problem)
    service, names = service_of(context), Names(context)
    key = SessionKey(request.group_id or "", request.member_id or "")
    partitions = await named(request.topics)
    acknowledges = any(one.acknowledgement_batches for one in partitions.values())
    forgotten = [PartitionId(bytes(one.topic_id), it) for one in request.forgotten_topics_data for it in one.partitions]
    connection = context.caller.connection
    try:
        session = service.context(
            key, request.share_session_epoch, list(partitions), forgotten, connection, acknowledges=acknowledges
        )
    except SessionRefused as refusal:
        if refusal.error is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            await asyncio.sleep(max(0, request.max_wait_ms) / 1000)
        return _refused(request, context, refusal.error)
    begun_ones = Acknowledging({}, {})
    if acknowledges:
        begun_ones = await acknowledge(key, partitions, names, context, renews=_renews(request, context.version))
    errors: dict[PartitionId, ErrorCode] = {}
    async for one in with_turns(session.partitions, ITEMS_PER_TURN):
        if (error := names.refusal(one)) is not _NONE:
            errors[one] = error
    allowed = [] if _renews(request, context.version) else [one for one in session.partitions if one not in errors]
    if allowed and request.share_acquire_mode not in tuple(AcquireMode):
        return _refused(request, context, ErrorCode.UNKNOWN_SERVER_ERROR)
    pending = await _room(context)
    try:
        turn = with_turns(rotated(tuple(allowed), session.epoch), ITEMS_PER_TURN)
        wanted = _wanted(request, {one: names.partition(one) async for one in turn}, context)
        fetched = await _fetched(wanted, context, pending)
        if not _renews(request, context.version):
            fetched |= {one: Fetched(error) for one, error in errors.items()}
        outcomes = await begun_ones.settled()
        response = await _response(request, session, names, context, fetched, outcomes)
    except BaseException:
        pending.release()
        raise
    if session.is_final:
        service.release(key)
    return Held(response, pending)


def _problem(request: ShareFetchRequest, version: int) -> ErrorCode:
    """Return why a request is refused before its session is looked at."""
    is_valid = request.group_id is not None and is_valid_member_id(request.member_id)
    if is_valid and _renews(request, version):
        is_valid = is_valid_renewal(
            max_bytes=request.max_bytes,
            min_bytes=request.min_bytes,
            max_records=request.max_records,
            max_wait_ms=request.max_wait_ms,
        )
    return _NONE if is_valid else ErrorCode.INVALID_REQUEST


def _renews(request: ShareFetchRequest, version: int) -> bool:
    return version >= FIRST_WITH_RENEWALS and request.is_renew_ack


def _refused(request: ShareFetchRequest, context: Context, error: ErrorCode) -> ShareFetchResponse:
    """Return the refusal of a whole request; a quota counts its time."""
    response = ShareFetchResponse(error_code=error)
    if context.quotas is not None:
        context.quotas.failed(request, response)
    return response


async def _room(context: Context) -> PendingResponse:
    """Wait until the connection may be given another response."""
    responses, connection = context.service.responses, context.caller.connection
    return responses.room_at_once(connection) or await responses.room(connection)


def _wanted(
    request: ShareFetchRequest, partitions: Mapping[PartitionId, TopicPartition], context: Context
) -> WantedFetch:
    """Return the requested fetch, within the broker's and the quota's limits."""
    max_bytes = min(request.max_bytes, context.service.settings.integer("fetch.max.bytes"))
    if context.quotas is not None:
        max_bytes = context.quotas.most_fetched_bytes(max_bytes)
    return WantedFetch(
        request.group_id or "",
        request.member_id or "",
        request.max_wait_ms,
        min(request.min_bytes, max_bytes),
        max_bytes,
        Wanted(request.max_records, request.batch_size, _mode(request)),
        partitions,
    )


def _mode(request: ShareFetchRequest) -> AcquireMode:
    """Return how strictly a fetch limits its number of records.

    A fetch without records may give any number.
    """
    number = request.share_acquire_mode
    return AcquireMode(number) if number in tuple(AcquireMode) else AcquireMode.BATCH_OPTIMIZED


async def _fetched(wanted: WantedFetch, context: Context, pending: PendingResponse) -> dict[PartitionId, Fetched]:
    """Fetch; what a fetch waits for counts as if it were there (``PendingResponses``)."""
    with context.service.responses.gathering(context.caller.connection, wanted.min_bytes):
        return await service_of(context).fetch(wanted, pending)


async def _response(
    request: ShareFetchRequest,
    session: ShareFetchContext,
    names: Names,
    context: Context,
    fetched: Mapping[PartitionId, Fetched],
    outcomes: Outcomes,
) -> ShareFetchResponse:
    turns = with_turns(fetched.items(), ITEMS_PER_TURN)
    news = {one: News(bool(found.records), found.error is not _NONE) async for one, found in turns}
    leaders = Leaders(names, context)
    ones = with_turns([] if session.is_superseded else session.named(news), ITEMS_PER_TURN)
    topics = {one: _partition(one, fetched[one], leaders) async for one in ones}
    throttle_ms = await _throttle_ms(topics, context)
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=service_of(context).lock_duration_ms(request.group_id or "")
    )
    if session.is_superseded:
        response.error_code, topics = ErrorCode.INVALID_SHARE_SESSION_EPOCH, {}
    if throttle_ms:
        response.throttle_time_ms, topics = throttle_ms, {}
    elif not session.is_superseded:
        session.responded(news)
    if any(names.of(one.topic_id) is None for one in topics):
        return ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    for one, (error, message) in outcomes.items():
        found = topics.setdefault(one, _partition(one, Fetched(), leaders))
        found.acknowledge_error_code, found.acknowledge_error_message = error, message
    response.responses = _by_topic(topics)
    response.node_endpoints = [NodeEndpoint(one, at.host, at.port, at.rack) for one, at in leaders.endpoints.items()]
    return response


def _partition(one: PartitionId, fetched: Fetched, leaders: Leaders) -> PartitionData:
    is_led_elsewhere = fetched.error in NAMES_LEADER
    return PartitionData(
        one.partition,
        fetched.error,
        current_leader=LeaderIdAndEpoch(*leaders.of(one)) if is_led_elsewhere else LeaderIdAndEpoch(),
        records=fetched.records,
        acquired_records=[AcquiredRecords(*acquired) for acquired in fetched.acquired],
    )


def _by_topic(partitions: Mapping[PartitionId, PartitionData]) -> Sequence[ShareFetchableTopicResponse]:
    topics: dict[bytes, list[PartitionData]] = {}
    for one, found in partitions.items():
        topics.setdefault(one.topic_id, []).append(found)
    return [ShareFetchableTopicResponse(topic_id, ones) for topic_id, ones in topics.items()]


async def _throttle_ms(partitions: Mapping[PartitionId, PartitionData], context: Context) -> int:
    """Return the throttle time by the response's size without acknowledgements."""
    if context.quotas is None:
        return 0
    message = ShareFetchResponse(responses=_by_topic(partitions))
    size_bytes = _LENGTH_BYTES + await encoded_bytes(apis.SHARE_FETCH, context.version, message)
    return context.quotas.fetched_ms(size_bytes)


API = ServedApi(apis.SHARE_FETCH, handle, guard=share.group_and_topics, is_small=True)
