"""Share sessions (KIP-932, "Share sessions"), with the responses that a broker of Kafka 4.3.1 gave."""

import pytest

from tidegauge.errors import ErrorCode
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.requests import are_valid, is_valid_member_id, is_valid_renewal
from tidegauge_broker.share.sessions import News, PartitionId, SessionKey, SessionRefused, ShareSessions, rotated

A, B = SessionKey("g", "a"), SessionKey("g", "b")
P = [PartitionId(b"t" * 16, number) for number in range(4)]


def fetch(sessions, epoch, added=(), forgotten=(), key=A, connection=1, *, acknowledges=False):
    return sessions.fetch(key, epoch, added, forgotten, connection, acknowledges=acknowledges)


def refusal(*args, **kwargs):
    with pytest.raises(SessionRefused) as refused:
        fetch(*args, **kwargs)
    return refused.value.error


def test_epoch_0_opens_a_session_and_the_next_request_has_epoch_1():
    sessions = ShareSessions(10)
    assert refusal(sessions, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    context = fetch(sessions, 0, P[:2])
    assert (context.epoch, context.partitions) == (0, tuple(P[:2]))
    assert refusal(sessions, 5) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert set(fetch(sessions, 1).partitions) == set(P[:2])
    assert refusal(sessions, 1) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_a_request_that_opens_a_session_acknowledges_nothing():
    sessions = ShareSessions(10)
    assert refusal(sessions, 0, P, acknowledges=True) is ErrorCode.INVALID_REQUEST
    assert len(sessions) == 0


def test_a_request_names_only_changes_of_the_sessions_partitions():
    sessions = ShareSessions(10)
    fetch(sessions, 0, P[:2])
    assert set(fetch(sessions, 1, P[2:]).partitions) == set(P)
    assert set(fetch(sessions, 2, (), P[:3]).partitions) == {P[3]}


def test_both_apis_count_one_epoch_and_an_acknowledgement_opens_nothing():
    sessions = ShareSessions(10)
    fetch(sessions, 0, P)
    assert sessions.acknowledge(A, 1) is False
    fetch(sessions, 2)
    for epoch, error in ((0, ErrorCode.INVALID_SHARE_SESSION_EPOCH), (99, ErrorCode.INVALID_SHARE_SESSION_EPOCH)):
        with pytest.raises(SessionRefused) as refused:
            sessions.acknowledge(A, epoch)
        assert refused.value.error is error
    assert sessions.acknowledge(A, -1) is True


def test_the_last_request_fetches_nothing_and_needs_a_session():
    sessions = ShareSessions(10)
    assert refusal(sessions, -1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    fetch(sessions, 0, P)
    context = fetch(sessions, -1)
    assert (context.partitions, context.is_final) == ((), True)
    assert sessions.end(A) is not None
    assert refusal(sessions, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_epoch_1_follows_the_highest():
    sessions = ShareSessions(10)
    fetch(sessions, 0, P)
    session = sessions.end(A)
    session.epoch = 2**31 - 1
    session.count()
    assert session.epoch == 1


def test_another_session_of_a_member_takes_the_place_of_the_first():
    sessions = ShareSessions(1)
    fetch(sessions, 0, P)
    assert fetch(sessions, 0, P[:1]).partitions == (P[0],)
    assert (len(sessions), sessions.partitions) == (1, 1)


def test_a_broker_has_so_many_sessions_and_no_more():
    sessions = ShareSessions(1)
    fetch(sessions, 0, P)
    assert refusal(sessions, 0, P, key=B) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.end(A)
    assert fetch(sessions, 0, P, key=B).partitions == tuple(P)


def test_a_session_ends_with_its_connection():
    sessions = ShareSessions(10)
    fetch(sessions, 0, P, connection=1)
    fetch(sessions, 0, P, key=B, connection=2)
    assert [session.key for session in sessions.connection_closed(1)] == [A]
    assert sessions.has_group("g")
    sessions.connection_closed(2)
    assert not sessions.has_group("g")


def test_each_partition_comes_first_in_its_turn():
    """PartitionRotateStrategy: not in the first and the last request of a session."""
    assert [rotated(tuple(P), epoch)[0].partition for epoch in range(-1, 6)] == [0, 0, 1, 2, 3, 0, 1]
    assert rotated((), 3) == ()


def test_only_a_first_response_has_partitions_without_news():
    """CachedSharePartition.maybeUpdateResponseData: those with records, with an error, and after one, are named."""
    sessions = ShareSessions(10)
    nothing = dict.fromkeys(P[:2], News())
    assert fetch(sessions, 0, P[:2]).named(nothing) == P[:2]
    context = fetch(sessions, 1)
    assert context.named(nothing) == []
    records, failed = {P[0]: News(has_records=True), P[1]: News()}, {P[0]: News(), P[1]: News(has_error=True)}
    assert (context.named(records), context.named(failed)) == ([P[0]], [P[1]])
    context.responded(failed)
    after = fetch(sessions, 2)
    assert after.named(nothing) == [P[1]]
    after.responded(nothing)
    assert after.named(nothing) == []


def test_a_partition_that_is_added_later_is_named_once_and_one_with_records_is_last_from_then_on():
    """ShareSession.update, ShareSessionContext.PartitionIterator."""
    sessions = ShareSessions(10)
    fetch(sessions, 0, P[:2])
    context = fetch(sessions, 1, P[2:3])
    news = dict.fromkeys(P[:3], News()) | {P[0]: News(has_records=True)}
    assert context.named(news) == [P[0], P[2]]
    context.responded(news)
    following = fetch(sessions, 2)
    assert following.partitions == (P[1], P[2], P[0])
    assert following.named(dict.fromkeys(P[:3], News())) == []


def test_a_response_is_void_where_another_request_of_its_session_has_come_meanwhile():
    """ShareSessionContext.updateAndGenerateResponseData: INVALID_SHARE_SESSION_EPOCH."""
    sessions = ShareSessions(10)
    first = fetch(sessions, 0, P)
    context = fetch(sessions, 1)
    assert not context.is_superseded
    sessions.acknowledge(A, 2)
    assert (first.is_superseded, context.is_superseded) == (False, True)


@pytest.mark.parametrize(
    ("batches", "renews", "valid"),
    [
        ([(0, 9, (1,)), (10, 11, (2, 3))], False, True),
        ([(5, 4, (1,))], False, False),
        ([(-2, 4, (1,))], False, False),
        ([(0, 9, (1,)), (8, 9, (1,))], False, False),
        ([(0, 9, ())], False, False),
        ([(0, 9, (1, 1))], False, False),
        ([(0, 0, (9,))], True, False),
        ([(0, 0, (4,))], False, False),
        ([(0, 0, (4,))], True, True),
    ],
)
def test_acknowledgements_are_ascending_and_have_one_type_or_one_for_each_offset(batches, renews, valid):
    assert are_valid([Acknowledgement(*one) for one in batches], renews=renews) is valid


def test_a_member_id_has_1_to_36_characters():
    assert [is_valid_member_id(one) for one in (None, "", "a", "a" * 36, "a" * 37)] == [False, False, True, True, False]


def test_a_renewal_fetches_nothing():
    assert is_valid_renewal(max_bytes=0, min_bytes=0, max_records=0, max_wait_ms=0)
    assert not is_valid_renewal(max_bytes=0, min_bytes=1, max_records=0, max_wait_ms=0)
