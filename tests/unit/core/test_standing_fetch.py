"""The leader's account of a follower's session: the partitions looked at, and the covered ones (``standing_fetch.py``).

``test_news.py`` compares it with looking at everything; this file has the rules one by one.
"""

from __future__ import annotations

from lone_broker import BIG, ME, OTHER, A, B, LoneBroker, broker_of, produce, role
from memory_broker import result_of

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import FetchedPartition, FetchPartition, FetchRequest
from tidegauge_broker.replica.standing_fetch import StandingFetch

WAIT_MS = 500


def leader() -> tuple[LoneBroker, StandingFetch]:
    """Return a leader of two partitions, and a caught-up follower's session."""
    broker = broker_of(A, B)
    role(broker, ME, 0)
    session = StandingFetch()
    for at in (A, B):
        session.want(FetchPartition(at, 0, BIG, current_leader_epoch=0, log_start_offset=0))
    return broker, session


def fetch(broker: LoneBroker, session: StandingFetch, *, epoch: int = 1) -> tuple[list[TopicPartition], object]:
    """Let the follower fetch; return the partitions looked at, and the token of the fetch, which may wait."""
    token = object()
    partitions = session.asked_by(OTHER, epoch)
    request = FetchRequest(OTHER, WAIT_MS, 1, BIG, partitions, epoch, standing=session)
    broker.execute(broker.core.fetch(request, token, broker.now_ms))
    return [one.topic_partition for one in partitions], token


def respond(broker: LoneBroker, session: StandingFetch, token: object) -> list[FetchedPartition]:
    """Let time pass until a fetch has its response, and note what the follower is sent."""
    broker.now_ms += WAIT_MS
    broker.execute(broker.core.tick(broker.now_ms))
    for one in broker.fetched[token]:
        session.sent(result_of(one), one.records)
    return broker.fetched[token]


def quiet() -> tuple[LoneBroker, StandingFetch]:
    """Return a leader and a session that is up to date."""
    broker, session = leader()
    respond(broker, session, fetch(broker, session)[1])
    return broker, session


def test_a_partition_is_looked_at_until_the_follower_has_been_sent_its_offsets() -> None:
    broker, session = leader()
    looked_at, token = fetch(broker, session)
    assert looked_at == [A, B]
    assert [one.topic_partition for one in respond(broker, session, token)] == [A, B]
    assert fetch(broker, session)[0] == []


def test_what_is_appended_completes_a_parked_fetch_that_looks_at_nothing_else() -> None:
    broker, session = quiet()
    looked_at, token = fetch(broker, session)
    assert looked_at == []
    assert token not in broker.fetched
    produce(broker, B)
    assert [(one.topic_partition, bool(one.records)) for one in broker.fetched[token]] == [(B, True)]


def test_each_fetch_of_the_session_counts_for_what_it_does_not_look_at() -> None:
    """Replica.updateFetchState: the follower was caught up when the session fetched last, not when it was looked at."""
    broker, session = quiet()
    broker.now_ms += 7_000
    fetch(broker, session)
    broker.now_ms += 3_000
    produce(broker, A)
    assert [one.remote_replicas[0].caught_up_ago_ms for one in broker.core.describe(broker.now_ms)] == [3_000, 3_000]


def test_a_follower_outside_the_isr_is_looked_at_in_each_fetch() -> None:
    """Partition.maybeExpandIsr: each of its fetches may propose that it joins."""
    broker, session = leader()
    role(broker, ME, 1, isr=(ME,), of=[B])
    session.want(FetchPartition(B, 0, BIG, current_leader_epoch=1, log_start_offset=0))
    respond(broker, session, fetch(broker, session)[1])
    assert fetch(broker, session)[0] == [B]


def test_a_fetch_of_another_incarnation_looks_at_everything() -> None:
    broker, session = quiet()
    assert fetch(broker, session, epoch=2)[0] == [A, B]
    partition = broker.core.partition(A)
    assert partition is not None
    assert partition.leader_role is not None
    assert partition.leader_role.remotes[OTHER].broker_epoch == 2


def test_a_partition_that_a_defect_took_out_of_service_is_looked_at() -> None:
    broker, session = quiet()
    broker.survives_defects = True
    partition = broker.core.partition(A)
    assert partition is not None
    partition.rules = None  # type: ignore[assignment]  # so that nothing can be appended
    produce(broker, A)
    looked_at, token = fetch(broker, session)
    assert looked_at == [A]
    assert broker.fetched[token][0].error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_partition_that_is_forgotten_is_looked_at_no_more_and_no_fetch_counts_for_it() -> None:
    broker, session = quiet()
    session.forget(A)
    broker.now_ms += 7_000
    assert fetch(broker, session)[0] == []
    ago = {one.topic_partition: one.remote_replicas[0].caught_up_ago_ms for one in broker.core.describe(broker.now_ms)}
    assert ago == {A: 7_500, B: 0}
    produce(broker, A)
    assert fetch(broker, session)[0] == []


def test_the_time_of_a_followers_latest_fetch_is_that_of_its_session() -> None:
    """It proves a leadership without ZooKeeper (``leadership_proof``), also for partitions that are not looked at."""
    broker, session = quiet()
    broker.now_ms += 7_000
    fetch(broker, session)
    assert broker.core.fetched_ms(A) == {OTHER: broker.now_ms}
    session.forget(A)
    broker.now_ms += 1
    fetch(broker, session)
    assert (broker.core.fetched_ms(A), broker.core.fetched_ms(B)) == (
        {OTHER: broker.now_ms - 1},
        {OTHER: broker.now_ms},
    )
    assert (broker.core.led_epoch(A), broker.core.fetched_ms(TopicPartition("unknown", 0))) == (0, {})


def test_only_those_that_may_be_elected_are_asked_for_their_fetches() -> None:
    """A replica outside the ISR can't become the leader, but uncleanly."""
    broker, _ = quiet()
    role(broker, ME, 1, isr=(ME,), of=[B])
    assert (broker.core.led_epoch(B), broker.core.fetched_ms(B)) == (1, {})
