"""ShareFetch and ShareAcknowledge: order of checks, errors and forms of the responses (KIP-932).

Each test names the part of ``KafkaApis`` whose rule it holds; behaviour marked as seen was seen at a broker of 4.3.1.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_cluster import TOPIC
from share_partitions import ACCEPT, KEY, LOCK_MS, PARTITION, RENEW, TOPIC_ID_BYTES, ShareBroker

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import SHARE_ACKNOWLEDGE, SHARE_FETCH
from tidegauge.kafka.frames import RequestHeader, decode, encode, joined
from tidegauge.kafka.header_tags import NO_TAGS
from tidegauge.kafka.messages import share_acknowledge, share_fetch
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge_broker.quotas.client_quota import QuotaManagers
from tidegauge_broker.quotas.limits import QuotaEntity
from tidegauge_broker.quotas.stats import Window
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.share import fetching
from tidegauge_broker.server.share.partitions import SharePartitions
from tidegauge_broker.server.share.service import ShareService
from tidegauge_broker.server.wire.kafka.handlers import share_fetch as share_fetch_handler
from tidegauge_broker.server.wire.kafka.handlers import share_parts
from tidegauge_broker.server.wire.kafka.handlers.share_parts import Names
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.responses import Held
from tidegauge_broker.server.wire.kafka.served import SERVED
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache
from tidegauge_broker.server.wire.kafka.throttling import RequestQuotas
from tidegauge_broker.share.sessions import SessionKey

UNKNOWN_ID = b"no such topic..."


class Asked:
    """A broker, and a member that asks it."""

    def __init__(self, broker: ShareBroker) -> None:
        self.broker = broker
        self.service = broker.broker.service()
        self.service.share = broker.service
        self.may_read: Callable[[str], bool] | None = None
        self.quotas: QuotaManagers | None = None
        self.muted: list[int] = []

    async def ask(self, key: int, request: Any, version: int = 2, connection: str = "c") -> Any:
        request, _ = decode(key, version, memoryview(joined(encode(key, version, request))))
        header = RequestHeader(key, version, 1, "test", 0, NO_TAGS)
        sessions = FetchSessionCache(10, lambda: 1)
        context = Context(self.service, Caller(connection, "PLAINTEXT"), sessions, lambda: self.broker.now_ms, header)
        context.may_read = self.may_read
        if self.quotas is not None:
            context.quotas = RequestQuotas(
                self.quotas,
                "u",
                header,
                lambda: self.broker.now_ms,
                lambda _, ms: self.muted.append(ms),
                is_exempt=False,
            )
        response = SERVED[key].handle(request, context)
        if inspect.isawaitable(response):
            response = await response
        if isinstance(response, Held):
            response.pending.release()
            response = response.message
        return decode(key, version, memoryview(joined(encode(key, version, response))), response=True)[0]

    async def fetch(self, epoch: int, *partitions: Any, version: int = 2, connection: str = "c", **fields: Any) -> Any:
        """Send a ShareFetch of the member ``a``; the partitions are numbers, or messages with acknowledgements."""
        ones = [share_fetch.FetchPartition(one) if isinstance(one, int) else one for one in partitions]
        given = {"group_id": "g", "member_id": "a", "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
        given |= {"max_records": 1000, "batch_size": 1000}
        topics = [share_fetch.FetchTopic(fields.pop("topic_id", TOPIC_ID_BYTES), ones)] if ones else []
        request = share_fetch.ShareFetchRequest(**{**given, **fields}, share_session_epoch=epoch, topics=topics)
        return await self.ask(SHARE_FETCH, request, version, connection)

    async def acknowledge(self, epoch: int, *batches: Any, version: int = 2, **fields: Any) -> Any:
        """Send a ShareAcknowledge of the member ``a`` about partition 0."""
        ones = [share_acknowledge.AcknowledgePartition(0, [acknowledgement(*one) for one in batches])]
        topics = [share_acknowledge.AcknowledgeTopic(fields.pop("topic_id", TOPIC_ID_BYTES), ones)]
        given = {"group_id": "g", "member_id": "a", **fields}
        request = share_acknowledge.ShareAcknowledgeRequest(**given, share_session_epoch=epoch, topics=topics)
        return await self.ask(SHARE_ACKNOWLEDGE, request, version)


def acknowledgement(first: int, last: int, *types: int) -> share_acknowledge.AcknowledgementBatch:
    return share_acknowledge.AcknowledgementBatch(first, last, types)


def acknowledging(number: int, *batches: tuple[int, ...]) -> share_fetch.FetchPartition:
    ones = [share_fetch.AcknowledgementBatch(first, last, types) for first, last, *types in batches]
    return share_fetch.FetchPartition(number, 0, ones)


def seen(response: Any) -> dict[int, tuple[int, int, list[tuple[int, int, int]]]]:
    """Error, error of the acknowledgements and acquired records of each partition in a response of a ShareFetch."""
    return {
        one.partition_index: (
            one.error_code,
            one.acknowledge_error_code,
            [(it.first_offset, it.last_offset, it.delivery_count) for it in one.acquired_records],
        )
        for topic in response.responses
        for one in topic.partitions
    }


def error_of(response: Any) -> tuple[int, str | None]:
    """The only partition's error and message in a response of a ShareAcknowledge."""
    ((one,),) = ([*topic.partitions] for topic in response.responses)
    return one.error_code, one.error_message


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    broker = ShareBroker(tmp_path, 2)
    await broker.start()
    await broker.open()
    yield Asked(broker)
    await broker.close()


@pytest.mark.parametrize("version", [1, 2])
async def test_a_session_fetches_acknowledges_and_ends(asked: Asked, version: int) -> None:
    """handleShareFetchRequest: librdkafka speaks version 1, Java version 2."""
    asked.broker.produce(2, 2)
    first = await asked.fetch(0, 0, version=version, max_records=2, batch_size=2)
    assert (first.error_code, first.acquisition_lock_timeout_ms) == (0, LOCK_MS)
    assert seen(first) == {0: (0, 0, [(0, 1, 1)])}
    (topic,) = first.responses
    assert [one.base_offset for one in iterate_headers(topic.partitions[0].records)] == [0]
    assert topic.partitions[0].current_leader == share_fetch.LeaderIdAndEpoch(0, 0)
    second = await asked.fetch(1, acknowledging(0, (0, 1, ACCEPT)), version=version)
    assert seen(second) == {0: (0, 0, [(2, 3, 1)])}
    assert asked.broker.written == [(0, [(0, 1, 2, 1)])]
    third = await asked.acknowledge(2, (2, 2, ACCEPT), version=version)
    assert error_of(third) == (0, None)
    assert third.acquisition_lock_timeout_ms == (LOCK_MS if version > 1 else 0)
    last = await asked.acknowledge(-1, (3, 3, ACCEPT), version=version)
    assert error_of(last) == (0, None)
    assert (await asked.fetch(3, version=version)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_requests_that_are_refused_as_a_whole_have_an_error_and_nothing_else(asked: Asked) -> None:
    """The order: group, member, renewal, session; ShareFetchRequest.getErrorResponse has no message."""
    for fields in ({"group_id": None}, {"member_id": None}, {"member_id": ""}, {"member_id": "a" * 37}):
        refused = await asked.fetch(7, 0, **fields)
        assert (refused.error_code, refused.responses, refused.acquisition_lock_timeout_ms) == (42, [], 0)
        assert (await asked.acknowledge(7, (0, 0, 1), **fields)).error_code == 42
    assert (await asked.fetch(7, 0, is_renew_ack=True)).error_code == 42
    assert (await asked.fetch(7, 0)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await asked.fetch(0, acknowledging(0, (0, 0, 1)))).error_code == 42
    await asked.fetch(0, 0)
    assert (await asked.fetch(7, 0)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await asked.acknowledge(0, (0, 0, 1))).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await asked.acknowledge(7, (0, 0, 1))).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


async def test_a_session_too_many_is_refused_after_the_wait(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """IdleShareFetchTimerTask: the client does not try again at once."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    for member in "bc":
        await asked.fetch(0, 0, member_id=member)
    monkeypatch.setattr("tidegauge_broker.server.wire.kafka.handlers.share_fetch.asyncio.sleep", wait)
    refused = await asked.fetch(0, 0, max_wait_ms=300)
    assert (refused.error_code, waited[-1]) == (ErrorCode.SHARE_SESSION_LIMIT_REACHED, 0.3)


async def test_a_broker_without_share_groups_serves_neither(asked: Asked) -> None:
    asked.service.share = None
    assert (await asked.fetch(0, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await asked.acknowledge(1, (0, 0, 1))).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_acknowledgements_are_checked_before_topics_and_before_what_was_acquired(asked: Asked) -> None:
    """validateAcknowledgementBatches, handleAcknowledgements."""
    asked.broker.produce(3)
    await asked.fetch(0, 0)
    asked.may_read = lambda _: False
    assert error_of(await asked.acknowledge(1, (1, 0, 1)))[0] == 42
    assert error_of(await asked.acknowledge(2, (0, 0, 1)))[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    asked.may_read = None
    assert error_of(await asked.acknowledge(3, (0, 0, 1), topic_id=UNKNOWN_ID))[0] == ErrorCode.UNKNOWN_TOPIC_ID
    assert error_of(await asked.acknowledge(4, (0, 0, 9)))[0] == 42
    late = error_of(await asked.acknowledge(5, (5, 9, 1)))
    assert late[0] == 42
    await asked.acknowledge(6, (0, 0, ACCEPT))
    assert error_of(await asked.acknowledge(7, (0, 0, ACCEPT)))[0] in {0, ErrorCode.INVALID_RECORD_STATE}
    asked.broker.partitions.drop(next(iter(asked.broker.partitions)).key, "Test")
    assert error_of(await asked.acknowledge(8, (1, 1, ACCEPT)))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_partitions_without_acknowledgements_have_a_result_beside_others_alone(asked: Asked) -> None:
    """handleAcknowledgements: emptyAcknowledgements are dropped if nothing else is of interest."""
    asked.broker.produce(1)
    await asked.fetch(0, 0, 1)
    assert (await asked.acknowledge(1)).responses == []
    response = await asked.fetch(2, acknowledging(0, (0, 0, ACCEPT)), acknowledging(1))
    assert seen(response) == {0: (0, 0, []), 1: (0, 0, [])}


async def test_a_renewal_fetches_nothing_and_version_1_has_none(asked: Asked) -> None:
    """KIP-1222."""
    asked.broker.produce(1, 1)
    await asked.fetch(0, 0, max_records=1, batch_size=1)
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    response = await asked.fetch(1, acknowledging(0, (0, 0, RENEW)), is_renew_ack=True, **nothing)
    assert seen(response) == {0: (0, 0, [])}
    assert seen(await asked.fetch(2, acknowledging(0, (0, 0, RENEW)), version=1))[0][1] == 42
    assert error_of(await asked.acknowledge(3, (0, 0, RENEW), is_renew_ack=True)) == (0, None)
    assert error_of(await asked.acknowledge(4, (0, 0, RENEW)))[0] == 42


async def test_only_news_is_named_after_the_first_response(asked: Asked) -> None:
    """ShareSessionContext: a partition that is added later is named once."""
    assert seen(await asked.fetch(0, 0)) == {0: (0, 0, [])}
    assert seen(await asked.fetch(1)) == {}
    await asked.broker.service.fetch(asked.broker.wanted("z", partitions=(1,), wait_ms=0))
    await asked.broker.turns()
    assert seen(await asked.fetch(2, 1)) == {1: (0, 0, [])}
    assert seen(await asked.fetch(3)) == {}
    forgotten = [share_fetch.ForgottenTopic(TOPIC_ID_BYTES, [1])]
    asked.broker.produce(1, partition=1)
    assert seen(await asked.fetch(4, forgotten_topics_data=forgotten)) == {}


async def test_errors_of_partitions_have_no_message_and_end_the_wait_of_no_other(asked: Asked) -> None:
    """handleFetchFromShareFetchRequest, getResponsePartitionData."""
    asked.broker.produce(1)
    asked.may_read = lambda _: False
    response = await asked.fetch(0, 0)
    assert seen(response) == {0: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0, [])}
    assert response.responses[0].partitions[0].error_message is None
    asked.may_read = None
    response = await asked.fetch(1, 9)
    assert seen(response) == {9: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, []), 0: (0, 0, [(0, 0, 1)])}


async def test_an_unknown_topic_id_fails_the_whole_response(asked: Asked) -> None:
    """Seen: BrokerTopicStats has no topic without a name; the session is there all the same."""
    response = await asked.fetch(0, 0, topic_id=UNKNOWN_ID)
    assert (response.error_code, response.responses, response.acquisition_lock_timeout_ms) == (-1, [], 0)
    assert asked.broker.service.session_partitions(SessionKey("g", "a")) == ((UNKNOWN_ID, 0),)


async def test_an_unknown_mode_of_acquisition_fails_the_request(asked: Asked) -> None:
    """ShareAcquireMode.forId throws."""
    assert (await asked.fetch(0, 0, share_acquire_mode=7)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await asked.fetch(1, share_acquire_mode=1)).error_code == 0


async def test_a_partition_that_another_broker_leads_names_its_leader(asked: Asked) -> None:
    """processShareFetchResponse, getCurrentLeader: with its address on the listener of the request."""
    hosted = asked.broker.broker.replicas.core.partition(next(iter(asked.broker.partitions)).at)
    assert hosted is not None
    await asked.fetch(0, 0)
    hosted.leader_role, hosted.role, hosted.leader = None, type(hosted.role).FOLLOWER, 0
    asked.broker.service.leadership_changed(hosted.topic_partition, leads=False)
    response = await asked.fetch(1)
    assert seen(response) == {0: (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, [])}
    assert response.responses[0].partitions[0].current_leader == share_fetch.LeaderIdAndEpoch(0, 1)
    assert [(one.node_id, one.port) for one in response.node_endpoints] == [(0, 9092)]


async def test_a_response_is_void_where_another_request_has_come_meanwhile(asked: Asked) -> None:
    """updateAndGenerateResponseData: INVALID_SHARE_SESSION_EPOCH."""
    await asked.fetch(0, 0)
    waiting = asyncio.create_task(asked.fetch(1, max_wait_ms=60_000))
    await asked.broker.turns()
    await asked.acknowledge(2)
    asked.broker.produce(1)
    response = await waiting
    assert (response.error_code, response.responses) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, [])


async def test_the_last_request_of_a_session_fetches_nothing_and_releases_the_rest(asked: Asked) -> None:
    """Seen: the acknowledgement is written, then the release."""
    asked.broker.produce(1, 1)
    await asked.fetch(0, 0, max_records=2, batch_size=1)
    response = await asked.fetch(-1, acknowledging(0, (1, 1, ACCEPT)))
    assert seen(response) == {0: (0, 0, [])}
    await asked.broker.until(lambda: len(asked.broker.written) == 2)
    assert [batches for _, batches in asked.broker.written] == [[(1, 1, 2, 1)], [(0, 0, 0, 1)]]
    assert asked.broker.service.session_partitions(SessionKey("g", "a")) == ()


async def test_a_client_beyond_its_quota_gets_no_records_and_is_muted(asked: Asked) -> None:
    """processShareFetchResponse: the records stay acquired; acknowledgements are taken all the same (KIP-219)."""
    asked.broker.produce(2)
    await asked.fetch(0)
    asked.quotas = _quotas(10.0)
    response = await asked.fetch(1, acknowledging(0))
    assert response.throttle_time_ms > 0
    assert (response.responses, len(asked.muted)) == ([], 1)
    assert await asked.broker.fetch("b") == []
    assert PARTITION in asked.broker.service.session_partitions(SessionKey("g", "a"))


def _quotas(bytes_per_second: float) -> QuotaManagers:
    managers = QuotaManagers.of(Window(), Window())
    managers.fetch.set(QuotaEntity(None, "test"), bytes_per_second)
    return managers


class Turns:
    """Counts the turns of the event loop while something is done, and notes the turn of each call of a method."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.count = 0
        self.of_calls: list[int] = []
        method = getattr(owner, name)

        def noting(*arguments: Any, **named: Any) -> Any:
            self.of_calls.append(self.count)
            return method(*arguments, **named)

        monkeypatch.setattr(owner, name, noting)

    async def during(self, work: Any) -> Any:
        """Return what the work returns."""
        task = asyncio.ensure_future(work)
        while not task.done():
            self.count += 1
            await asyncio.sleep(0)
        return task.result()

    @property
    def most(self) -> int:
        """The largest number of calls in one turn."""
        return max(self.of_calls.count(one) for one in self.of_calls)


async def test_a_long_list_of_partitions_leaves_the_event_loop_to_others(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ShareFetch may name any number of partitions; most of these do not exist, and are errors of their own."""
    monkeypatch.setattr(share_parts, "ITEMS_PER_TURN", 10)
    monkeypatch.setattr(share_fetch_handler, "ITEMS_PER_TURN", 10)
    turns = Turns(monkeypatch, Names, "refusal")
    response = await turns.during(asked.fetch(0, *range(101)))
    unknown = [one for one, found in seen(response).items() if found[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert sorted(unknown) == list(range(2, 101))
    assert turns.most <= 10
    assert len(set(turns.of_calls)) >= 10


async def test_share_partitions_are_made_in_several_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads its state from a share coordinator."""
    monkeypatch.setattr(fetching, "_OPENED_PER_TURN", 3)
    broker = ShareBroker(tmp_path, 10)
    await broker.start()
    turns = Turns(monkeypatch, SharePartitions, "opened")
    asking = Asked(broker)
    response = await turns.during(asking.fetch(0, *range(10)))
    assert response.error_code == 0
    assert turns.most <= 2 * 3, "the first wait is over before the response is awaited (eager.py)"
    assert len(turns.of_calls) == 10
    await broker.close()


async def test_acknowledgements_of_many_records_are_taken_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A type for each record: what one turn takes is limited by records, too."""
    monkeypatch.setattr(share_parts, "ITEMS_PER_TURN", 4)
    broker = ShareBroker(tmp_path, 4)
    await broker.start()
    for one in range(4):
        broker.produce(5, partition=one)
    asked = Asked(broker)
    first = seen(await asked.fetch(0, *range(4)))
    await broker.turns()
    assert len({**first, **seen(await asked.fetch(1))}) == 4
    turns = Turns(monkeypatch, ShareService, "acknowledge")
    all_of_them = [acknowledging(one, (0, 4, *[ACCEPT] * 5)) for one in range(4)]
    response = await turns.during(asked.fetch(2, *all_of_them))
    assert [one[1] for one in seen(response).values()] == [0] * 4
    assert len(turns.of_calls) == 4
    assert turns.most <= 2, "the first wait is over before the response is awaited (eager.py)"
    await broker.close()


async def test_records_of_many_partitions_are_acquired_and_responded_to_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member may fetch any number of share partitions: what one turn acquires and puts into a response is limited."""
    monkeypatch.setattr(fetching, "_ACQUIRED_PER_TURN", 3)
    monkeypatch.setattr(share_fetch_handler, "ITEMS_PER_TURN", 3)
    broker = ShareBroker(tmp_path, 10)
    await broker.start()
    for one in range(10):
        broker.produce(2, partition=one)
    asked = Asked(broker)
    await asked.fetch(0, *range(10))
    await broker.turns()
    acquiring, naming = (
        Turns(monkeypatch, *of) for of in ((fetching.ShareFetches, "_acquired"), (share_fetch_handler, "_partition"))
    )
    response = await acquiring.during(naming.during(asked.fetch(1)))
    assert {one: found[2] for one, found in seen(response).items()} == {one: [(0, 1, 1)] for one in range(10)}
    for turns in (acquiring, naming):
        assert (len(turns.of_calls), turns.most) == (10, 3)
    await broker.close()


async def test_a_share_partition_that_is_lost_between_two_turns_gives_none_and_the_others_their_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are acquired of a share partition that is still there (SharePartition.acquire, stateNotActive)."""
    monkeypatch.setattr(fetching, "_ACQUIRED_PER_TURN", 1)
    broker = ShareBroker(tmp_path, 2)
    await broker.start()
    for one in range(2):
        broker.produce(2, partition=one)
    asked = Asked(broker)
    await asked.fetch(0, 0, 1)
    await broker.turns()
    acquired = fetching.ShareFetches._acquired

    def lose_the_other(self: Any, *given: Any) -> Any:
        broker.partitions.leadership_lost(TopicPartition(TOPIC, 1))
        return acquired(self, *given)

    monkeypatch.setattr(fetching.ShareFetches, "_acquired", lose_the_other)
    found = seen(await asked.fetch(1))
    assert found[0][2] == [(0, 1, 1)]
    assert found.get(1, (0, 0, []))[2] == []
    assert KEY in [one.key for one in broker.partitions]
    await broker.close()
