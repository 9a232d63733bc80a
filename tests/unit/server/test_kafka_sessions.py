"""Fetch sessions of Kafka clients (KIP-227): epochs, what a response names, and the cache's slots."""

from __future__ import annotations

import itertools

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import EpochEnd, FetchResult
from tidegauge_broker.server.wire.kafka.sessions import (
    EVICTION_MS,
    MAX_EPOCH,
    FetchSession,
    FetchSessionCache,
    Opened,
    Place,
    WantedPartition,
)

A, B = Place("t", 0), Place("t", 1)


def asked(*places: Place, offset: int = 0, epoch: int = 3) -> dict[Place, WantedPartition]:
    return {place: WantedPartition(offset, 1_000, epoch, -1, -1) for place in places}


def cache(slots: int = 2) -> FetchSessionCache:
    ids = itertools.count(1)
    return FetchSessionCache(slots, lambda: next(ids))


def opened(found: Opened | ErrorCode) -> Opened:
    assert isinstance(found, Opened), found
    return found


def session_of(sessions: FetchSessionCache, *places: Place, now_ms: int = 0, uses_ids: bool = False) -> FetchSession:
    found = opened(sessions.open(0, 0, asked(*places), (), uses_ids=uses_ids, now_ms=now_ms)).session
    assert found is not None
    return found


def result(place: Place, high_watermark: int = 5, log_start: int = 0, **more: object) -> FetchResult:
    at = TopicPartition(str(place.topic), place.partition)
    return FetchResult(at, high_watermark=high_watermark, log_start_offset=log_start, **more)  # type: ignore[arg-type] - by name


def test_a_full_fetch_with_epoch_0_opens_a_session_and_one_with_epoch_minus_1_does_not() -> None:
    sessions = cache()
    first = opened(sessions.open(0, 0, asked(A, B), (), uses_ids=False, now_ms=0))
    assert first.session is not None
    assert (first.session.id, first.is_new, list(first.partitions)) == (1, True, [A, B])
    assert opened(sessions.open(0, -1, asked(A), (), uses_ids=False, now_ms=0)).session is None
    assert len(sessions) == 1


def test_an_incremental_fetch_names_what_changed_and_remembers_the_rest() -> None:
    sessions = cache()
    session = session_of(sessions, A, B)
    found = opened(sessions.open(session.id, 1, asked(B, offset=7), (), uses_ids=False, now_ms=0))
    assert {place: wanted.fetch_offset for place, wanted in found.partitions.items()} == {A: 0, B: 7}
    found = opened(sessions.open(session.id, 2, {}, [A], uses_ids=False, now_ms=0))
    assert list(found.partitions) == [B]
    assert session.epoch == 3


def test_errors_of_a_whole_request() -> None:
    sessions = cache()
    session = session_of(sessions, A)
    wrong = [
        sessions.open(99, 1, {}, (), uses_ids=False, now_ms=0),
        sessions.open(session.id, 2, {}, (), uses_ids=False, now_ms=0),
        sessions.open(session.id, 1, {}, (), uses_ids=True, now_ms=0),
    ]
    assert wrong == [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ]
    assert session.epoch == 1, "a rejected request takes no epoch"


def test_the_final_epoch_closes_the_session_and_so_does_a_new_one_in_its_place() -> None:
    sessions = cache()
    session = session_of(sessions, A)
    assert opened(sessions.open(session.id, -1, asked(A), (), uses_ids=False, now_ms=0)).session is None
    assert len(sessions) == 0
    session = session_of(sessions, A)
    again = opened(sessions.open(session.id, 0, asked(A), (), uses_ids=False, now_ms=0)).session
    assert again is not None
    assert again.id != session.id
    assert len(sessions) == 1


def test_a_session_without_partitions_is_closed() -> None:
    sessions = cache()
    session = session_of(sessions, A)
    assert opened(sessions.open(session.id, 1, {}, [A], uses_ids=False, now_ms=0)).session is None
    assert len(sessions) == 0
    empty = opened(sessions.open(0, 0, {}, (), uses_ids=False, now_ms=0))
    assert empty.session is not None, "a full fetch of nothing opens one (FullFetchContext)"
    assert opened(sessions.open(empty.session.id, 1, {}, (), uses_ids=False, now_ms=0)).session is None
    session = session_of(sessions, A)
    wanted = asked(B)
    both = opened(sessions.open(session.id, 1, wanted, [A, B], uses_ids=False, now_ms=0))
    assert (both.session, both.partitions) == (None, wanted), "what is named is responded to all the same"


def test_the_epoch_after_the_largest_is_1() -> None:
    sessions = cache()
    session = session_of(sessions, A)
    session.epoch = MAX_EPOCH
    opened(sessions.open(session.id, MAX_EPOCH, {}, (), uses_ids=False, now_ms=0))
    assert session.epoch == 1


def test_a_response_names_records_errors_divergence_and_changed_offsets_only() -> None:
    session = session_of(cache(), A)
    assert session.has_news(A, result(A), b"")
    assert not session.has_news(A, result(A), b"")
    assert session.has_news(A, result(A), b"records")
    assert session.has_news(A, result(A, high_watermark=6), b"")
    assert session.has_news(A, result(A, high_watermark=6, log_start=1), b"")
    assert not session.has_news(A, result(A, high_watermark=6, log_start=1), b"")
    assert session.has_news(A, result(A, diverging=EpochEnd(1, 2)), b"")
    assert session.has_news(A, result(A, high_watermark=6, log_start=1), b""), "what came before no longer counts"
    failed = FetchResult(TopicPartition("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert session.has_news(A, failed, b"")
    assert session.has_news(A, failed, b""), "an error is repeated"


def test_a_partition_with_another_leader_epoch_is_sent_again() -> None:
    sessions = cache()
    session = session_of(sessions, A)
    session.has_news(A, result(A), b"")
    sessions.open(session.id, 1, asked(A, epoch=4), (), uses_ids=False, now_ms=0)
    assert session.has_news(A, result(A), b"")


def test_a_partition_that_gave_records_goes_to_the_end() -> None:
    session = session_of(cache(), A, B)
    session.has_news(A, result(A), b"records")
    session.has_news(B, result(B), b"")
    assert list(session.partitions) == [B, A]


def test_a_full_cache_gives_no_session_before_another_is_old_enough() -> None:
    sessions = cache(slots=1)
    session_of(sessions, A, now_ms=0)
    refused = opened(sessions.open(0, 0, asked(A, B), (), uses_ids=False, now_ms=EVICTION_MS))
    assert (refused.session, list(refused.partitions)) == (None, [A, B]), "a full response without a session is legal"
    assert session_of(sessions, A, B, now_ms=EVICTION_MS + 1).id
    assert len(sessions) == 1


def test_a_smaller_old_session_makes_room_for_a_larger_one_and_a_larger_does_not() -> None:
    sessions = cache(slots=1)
    small = session_of(sessions, A, now_ms=0)
    sessions.open(small.id, 1, {}, (), uses_ids=False, now_ms=EVICTION_MS)  # in use
    same = opened(sessions.open(0, 0, asked(B), (), uses_ids=False, now_ms=EVICTION_MS + 1))
    assert same.session is None
    larger = opened(sessions.open(0, 0, asked(A, B), (), uses_ids=False, now_ms=EVICTION_MS + 1))
    assert larger.session is not None


def test_without_slots_there_are_no_sessions() -> None:
    assert opened(cache(slots=0).open(0, 0, asked(A), (), uses_ids=False, now_ms=10**9)).session is None


def test_what_a_session_fetches_can_be_looked_up_without_a_request() -> None:
    """Faults that mean a topic meet its incremental fetches, which do not name it."""
    sessions = cache()
    session = session_of(sessions, A, B)
    assert list(sessions.standing(session.id)) == [A, B]
    assert list(sessions.standing(session.id + 1)) == []


def test_a_partition_that_was_forgotten_while_a_fetch_waited_is_in_its_response_all_the_same() -> None:
    """A second connection may go on with a session whose fetch waits at the first one; Kafka has a lock for each."""
    sessions = cache()
    session = session_of(sessions, A, B)
    opened(sessions.open(session.id, 1, {}, (), uses_ids=False, now_ms=0))  # waits
    opened(sessions.open(session.id, 2, {}, [A], uses_ids=False, now_ms=0))
    assert session.has_news(A, result(A), b"records")
    assert list(session.partitions) == [B]
