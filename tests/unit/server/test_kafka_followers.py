"""A leader's side of replication over Kafka's protocol: what a follower's Fetch becomes, and its fetch sessions."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_service import FakeService, ask, versions

from tidegauge.errors import ErrorCode
from tidegauge.kafka.header_tags import NO_TAGS, Tags
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica import messages as core
from tidegauge_broker.server.wire.kafka.sessions import EVICTION_MS, FetchSessionCache, Opened, Place, WantedPartition

TOPIC_ID = bytes(range(16))
AT = TopicPartition("t", 0)
OLD_MS = EVICTION_MS + 1


def service(replica_topic_id: str | None = None, topic_name: str | None = "t") -> FakeService:
    async def fetch(caller: Any, request: core.FetchRequest) -> Any:
        del caller
        results = [(core.FetchResult(one.topic_partition, high_watermark=5), b"") for one in request.partitions]
        return SimpleNamespace(partitions=results, pending=SimpleNamespace(release=lambda: None))

    async def as_it_is(_: Any, records: bytes, *__: Any, **___: Any) -> Any:
        return SimpleNamespace(error=ErrorCode.NONE, converted_count=0, records=records)

    return FakeService(
        fetch=fetch,
        topic_name=lambda _: topic_name,
        replica_topic_id=lambda _: replica_topic_id,
        for_old_client=as_it_is,
    )


def fetch(version: int, replica_id: int, replica_epoch: int = -1) -> FetchRequest:
    wanted = FetchPartition(0, 7, fetch_offset=9, last_fetched_epoch=6, log_start_offset=3, partition_max_bytes=100)
    state = ReplicaState(replica_id, replica_epoch)
    return FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        replica_state=state,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic("t", TOPIC_ID, [wanted])],
    )


def asked_of(made: FakeService) -> core.FetchRequest:
    return next(arguments[1] for name, arguments, _ in made.calls if name == "fetch")


@pytest.mark.parametrize("version", versions("Fetch"))
async def test_a_fetch_with_a_replica_id_is_a_followers(version: int) -> None:
    """FetchParams.isFromFollower: the id is in the request up to version 14, then in a tagged field (KIP-903)."""
    made = service()
    await ask(made, "Fetch", version, fetch(version, 2, 77))
    asked = asked_of(made)
    assert (asked.replica_id, asked.replica_epoch) == (2, 77 if version >= 15 else -1)
    assert asked.client_rack in {None, ""}
    (wanted,) = asked.partitions
    assert wanted == core.FetchPartition(
        AT,
        9,
        100,
        7 if version >= 9 else None,
        6 if version >= 12 else None,
        3 if version >= 5 else -1,
    )


@pytest.mark.parametrize("version", versions("Fetch"))
@pytest.mark.parametrize("replica_id", [-1, -2, -3])
async def test_negative_ids_are_consumers(version: int, replica_id: int) -> None:
    """FetchRequest.isValidBrokerId: only ids from 0 on are replicas."""
    made = service()
    await ask(made, "Fetch", version, fetch(version, replica_id, 77))
    assert (asked_of(made).replica_id, asked_of(made).replica_epoch) == (core.CONSUMER, -1)


async def test_a_follower_that_says_its_rule_must_be_of_this_cluster_and_rule() -> None:
    """As over gRPC: by two rules, two replicas would not agree on where their logs diverge."""
    made = service()
    made.admit_follower = made._method("admit_follower", lambda *_: (ErrorCode.INVALID_REQUEST, "another rule"))
    request = fetch(17, 2)
    request.cluster_id = "c"
    response = await ask(made, "Fetch", 17, request, tags=Tags(0, "kip-101"))
    assert (response.error_code, list(response.responses)) == (ErrorCode.INVALID_REQUEST, [])
    assert [(name, given) for name, given, _ in made.calls] == [("admit_follower", ("c", "kip-101"))]
    made.admit_follower = lambda *_: (ErrorCode.NONE, "")
    assert (await ask(made, "Fetch", 17, request, tags=Tags(0, "kip-320"))).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("replica_id", "tags"), [(2, NO_TAGS), (-1, Tags(0, "kip-101"))])
async def test_apache_kafkas_followers_and_consumers_are_not_asked_for_it(replica_id: int, tags: Tags) -> None:
    made = service()
    made.admit_follower = made._method("admit_follower", lambda *_: (ErrorCode.INVALID_REQUEST, "another rule"))
    response = await ask(made, "Fetch", 17, fetch(17, replica_id), tags=tags)
    assert response.error_code == ErrorCode.NONE
    assert asked_of(made).replica_id == replica_id


async def test_a_follower_reads_what_is_not_committed() -> None:
    """Fetches of followers read up to the log end, whatever isolation level they name (FetchIsolation.of)."""
    made = service()
    request = fetch(17, 2)
    request.isolation_level = 1
    await ask(made, "Fetch", 17, request)
    assert not asked_of(made).reads_committed


@pytest.mark.parametrize("replica_id", [-1, 2])
@pytest.mark.parametrize(
    ("known", "own", "error"),
    [
        ("t", None, ErrorCode.NONE),
        ("t", topic_id_text(TOPIC_ID), ErrorCode.NONE),
        ("t", "", ErrorCode.NONE),
        ("t", topic_id_text(b"another topic id"), ErrorCode.INCONSISTENT_TOPIC_ID),
        (None, None, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
async def test_ids_that_do_not_fit(replica_id: int, known: str | None, own: str | None, error: ErrorCode) -> None:
    """ReplicaManager.readFromLog: a replica whose partition.metadata names another topic gives nothing."""
    made = service(own, known)
    response = await ask(made, "Fetch", 17, fetch(17, replica_id))
    assert response.responses[0].partitions[0].error_code == error
    assert len(asked_of(made).partitions) == (error is ErrorCode.NONE)
    assert asked_of(made).max_wait_ms == (500 if error is ErrorCode.NONE else 0)


# Sessions


def cache(slots: int) -> FetchSessionCache:
    ids = itertools.count(1)
    return FetchSessionCache(slots, lambda: next(ids))


def open_one(sessions: FetchSessionCache, size: int, *, follower: bool, now_ms: int = 0) -> int | None:
    """Return a new session's id; None: the cache gave none."""
    asked = {Place("t", number): WantedPartition(0, 1, -1, -1, -1) for number in range(size)}
    found = sessions.open(0, 0, asked, (), uses_ids=False, now_ms=now_ms, is_privileged=follower)
    assert isinstance(found, Opened)
    return None if found.session is None else found.session.id


def is_open(sessions: FetchSessionCache, session_id: int) -> bool:
    return bool(sessions.standing(session_id))


def test_a_followers_session_takes_the_place_of_any_consumers() -> None:
    """FetchSessionCacheShard.tryEvict: for a follower all unprivileged sessions may go, the smallest first."""
    sessions = cache(2)
    large, small = open_one(sessions, 9, follower=False), open_one(sessions, 3, follower=False)
    assert (large, small) == (1, 2)
    assert open_one(sessions, 1, follower=True) == 3
    assert (is_open(sessions, 1), is_open(sessions, 2)) == (True, False)


def test_a_consumers_session_never_takes_the_place_of_a_followers() -> None:
    """Even after two minutes: privileged sessions come after all others in the order of eviction."""
    sessions = cache(1)
    assert open_one(sessions, 1, follower=True) == 1
    sessions.open(1, 1, {}, (), uses_ids=False, now_ms=EVICTION_MS)
    assert open_one(sessions, 50, follower=False, now_ms=EVICTION_MS + 1) is None
    assert is_open(sessions, 1)


@pytest.mark.parametrize(("size", "age_ms", "given"), [(5, OLD_MS, 2), (4, OLD_MS, None), (5, 9, None)])
def test_a_followers_session_yields_to_a_larger_one_in_time(size: int, age_ms: int, given: int | None) -> None:
    """Between followers the rule is that between consumers."""
    sessions = cache(1)
    open_one(sessions, 4, follower=True)
    sessions.open(1, 1, {}, (), uses_ids=False, now_ms=age_ms)
    assert open_one(sessions, size, follower=True, now_ms=age_ms) == given
