"""The decisions of each truncation rule (KIP-101, KIP-279, KIP-320), and the look-up before the first fetch.

The tables are the differences between the steps of Kafka's history; test_stories.py shows what they are worth.
"""

from __future__ import annotations

import pytest
from core_harness import AT, Cluster, Exchange

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import (
    UNDEFINED_EPOCH_END,
    CoreSettings,
    EpochEnd,
    EpochEndResult,
    EpochEntry,
    EpochLookup,
    EpochRound,
    FetchRound,
    TopicRules,
)
from tidegauge_broker.replica.rules import RULES, rule_named

NAMES = ("high-watermark", "kip-101", "kip-279", "kip-320")
OWN = [(1, 0), (3, 5), (5, 7)]


def cache(*entries: tuple[int, int]) -> EpochCache:
    return EpochCache(EpochEntry(*entry) for entry in (entries or OWN))


def test_each_has_its_name():
    assert tuple(rule.name for rule in RULES) == NAMES
    with pytest.raises(KeyError):
        rule_named("kip-1")


@pytest.mark.parametrize(
    ("name", "same_leader", "initial", "initial_without_epochs", "looked_up", "fetch_epochs"),
    [
        ("high-watermark", False, 4, 4, None, (None, None)),
        ("kip-101", False, None, 4, 5, (None, None)),
        ("kip-279", False, None, 4, 5, (None, None)),
        ("kip-320", True, None, 4, None, (9, 5)),
    ],
)
def test_what_a_follower_does_first(name, same_leader, initial, initial_without_epochs, looked_up, fetch_epochs):
    rule = rule_named(name)
    assert rule.restarts_following(1, 2)
    assert rule.restarts_following(1, 1) is same_leader
    assert rule.initial_truncation_offset(cache(), 4) == initial
    assert rule.initial_truncation_offset(EpochCache(), 4) == initial_without_epochs
    assert rule.epoch_to_look_up(cache()) == looked_up
    assert rule.epoch_to_look_up(EpochCache()) is None
    assert rule.fetch_epochs(9, cache()) == fetch_epochs


@pytest.mark.parametrize(
    ("asked", "kip_101", "kip_279", "kip_320"),
    [
        (0, (-1, -1), (-1, -1), (0, 0)),  # older than the first: echoed only since 2.1
        (1, (-1, 5), (1, 5), (1, 5)),
        (2, (-1, 5), (1, 5), (1, 5)),  # in between: the next lower one by name, or an offset alone
        (4, (-1, 7), (3, 7), (3, 7)),
        (5, (-1, 9), (5, 9), (5, 9)),  # the latest: the log's end
        (6, (-1, -1), (-1, -1), (-1, -1)),  # newer than all
    ],
)
def test_what_a_leader_responds(
    asked: int, kip_101: tuple[int, int], kip_279: tuple[int, int], kip_320: tuple[int, int]
):
    assert rule_named("high-watermark").end_of_epoch(cache(), asked, 9) == UNDEFINED_EPOCH_END
    assert rule_named("kip-101").end_of_epoch(cache(), asked, 9) == kip_101
    assert rule_named("kip-279").end_of_epoch(cache(), asked, 9) == kip_279
    assert rule_named("kip-320").end_of_epoch(cache(), asked, 9) == kip_320


@pytest.mark.parametrize(
    ("response", "kip_101", "kip_279"),
    [
        ((-1, -1), (4, True), (4, True)),  # undefined: the high watermark
        ((-1, 6), (6, True), (6, True)),  # an offset alone
        ((4, 6), (6, True), (7, False)),  # an epoch never seen: its largest own one below ends at 7; ask again
        ((3, 6), (6, True), (6, True)),
        ((3, 12), (9, True), (7, True)),  # the own end of that epoch comes first
    ],
)
def test_where_a_follower_truncates(response: tuple[int, int], kip_101: tuple[int, bool], kip_279: tuple[int, bool]):
    assert rule_named("high-watermark").truncation_offset(EpochEnd(*response), cache(), 9, 4) == (4, True)
    assert rule_named("kip-101").truncation_offset(EpochEnd(*response), cache(), 9, 4) == kip_101
    assert rule_named("kip-279").truncation_offset(EpochEnd(*response), cache(), 9, 4) == kip_279
    assert rule_named("kip-320").truncation_offset(EpochEnd(*response), cache(), 9, 4) == kip_279


def test_who_may_join_the_isr():
    """Only since 2.1 the start of the leader's epoch counts (KAFKA-7128)."""
    assert [rule.may_join(5, 5, 6) for rule in RULES] == [True, True, True, False]
    assert [rule.may_join(6, 5, 6) for rule in RULES] == [True] * 4
    assert [rule.may_join(4, 5, 0) for rule in RULES] == [False] * 4


def test_what_is_noted():
    """A leader's epoch without a record only since 2.1 (KAFKA-7415); from 0.11 to 2.0 no entry was ever replaced."""
    for rule in RULES:
        entries = cache()
        assert rule.note_election(entries, 7, 9) is (rule.name == "kip-320")
        assert entries.latest_epoch == (7 if rule.name == "kip-320" else 5)
    assert [rule.note_batch(cache(), 6, 7) for rule in RULES] == [True, False, False, True]
    assert [rule.note_batch(cache(), 4, 9) for rule in RULES] == [True, False, False, True]
    assert [rule.note_batch(cache(), 6, 9) for rule in RULES] == [True] * 4


# The round that asks where epochs end (KIP-101, KIP-279)


def a_follower_that_must_ask(rule: str = "kip-279") -> tuple[Cluster, Exchange]:
    """1 and 2 have a and b of epoch 0; 1 dies, comes back as a follower of 2, and asks."""
    cluster = Cluster((1, 2), assignment=(1, 2), settings=CoreSettings(truncation_rule=rule))
    cluster.produce(1, "a")
    cluster.produce(1, "b")
    cluster.settle()
    cluster.kill(1)
    cluster.expire_session(1)
    cluster.settle()
    cluster.start(1)
    cluster.deliver()
    exchange = cluster.ask(1)
    assert exchange is not None
    return cluster, exchange


def test_the_question_comes_before_the_first_fetch_in_a_round_of_its_own():
    cluster, exchange = a_follower_that_must_ask()
    assert isinstance(exchange.round, EpochRound)
    assert exchange.round.partitions == [EpochLookup(AT, 0)]
    assert cluster.ask(1) is None  # one round at a time
    cluster.deliver_response(cluster.arrive(exchange))
    assert cluster.ends(1) == [(2, 0)]
    then = cluster.ask(1)
    assert then is not None
    assert isinstance(then.round, FetchRound)
    assert set(then.round.first_fetches) == {AT}
    assert [(item.fetch_offset, item.current_leader_epoch) for item in then.round.partitions] == [(2, None)]


def test_a_replica_without_epochs_has_nothing_to_ask():
    cluster = Cluster((1, 2), assignment=(1, 2), settings=CoreSettings(truncation_rule="kip-101"))
    exchange = cluster.ask(2)
    assert exchange is not None
    assert isinstance(exchange.round, FetchRound)


def test_an_error_a_lost_round_and_a_missing_response_ask_again_after_the_backoff():
    cluster, exchange = a_follower_that_must_ask()
    cluster.lose(exchange)
    for responses in ([EpochEndResult(AT, ErrorCode.NOT_LEADER_OR_FOLLOWER)], []):
        assert cluster.ask(1) is None
        cluster.advance(1000)
        again = cluster.ask(1)
        assert again is not None
        assert isinstance(again.round, EpochRound)
        again.box[again] = responses
        cluster.deliver_response(again)
        assert cluster.ends(1) == [(2, 0)]


def test_a_late_or_repeated_response_about_epochs_changes_nothing():
    """A response counts for the one round that waits for it; a new LeaderAndIsr forgets the round."""
    cluster, exchange = a_follower_that_must_ask()
    cluster.impose(2, (2,))
    cluster.deliver()
    # By these rules the same leader in a new epoch is nothing new: the round still waits. Another leader ends it.
    exchange.box[exchange] = [EpochEndResult(AT, ErrorCode.NONE, EpochEnd(0, 1))]
    cluster.deliver_response(exchange)
    assert cluster.ends(1) == [(1, 0)]
    exchange.box[exchange] = [EpochEndResult(AT, ErrorCode.NONE, EpochEnd(0, 0))]
    cluster.deliver_response(exchange)
    assert cluster.ends(1) == [(1, 0)]


def test_a_response_about_epochs_to_a_replica_that_leads_by_now_changes_nothing():
    cluster, exchange = a_follower_that_must_ask()
    cluster.impose(1, (1, 2))
    cluster.deliver()
    exchange.box[exchange] = [EpochEndResult(AT, ErrorCode.NONE, EpochEnd(0, 1))]
    cluster.deliver_response(exchange)
    assert cluster.ends(1) == [(2, 0)]


@pytest.mark.parametrize("rule", ["high-watermark", "kip-101", "kip-279"])
@pytest.mark.parametrize("unclean", [False, True])
def test_beyond_the_leaders_end_the_older_rules_truncate_only_where_elections_may_be_unclean(rule: str, unclean: bool):
    """Kafka 0.10.2 exits there (handleOffsetOutOfRange); here the replica is marked failed and says so."""
    cluster = Cluster(
        (1, 2),
        assignment=(1, 2),
        settings=CoreSettings(truncation_rule=rule),
        rules=TopicRules(unclean_leader_election=unclean),
    )
    cluster.kill(1, 2)
    for broker_id, records in ((1, [(0, "a")]), (2, [(0, "a"), (0, "b")])):
        cluster.brokers[broker_id].fill(AT, *records)
    cluster.start(1, 2)
    cluster.deliver()
    cluster.impose(1, (1, 2))
    cluster.deliver()
    exchange = cluster.ask(2)
    assert exchange is not None
    if isinstance(exchange.round, EpochRound):
        # The leader would say so; a response from before it lost its record does not.
        exchange.box[exchange] = [EpochEndResult(AT, ErrorCode.NONE, EpochEnd(0, 2))]
        cluster.deliver_response(exchange)
        exchange = cluster.ask(2)
        assert exchange is not None
    cluster.deliver_response(cluster.arrive(exchange))
    assert exchange.response.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.ends(2)[0][0] == (1 if unclean else 2)
    follower = cluster.partition(2).follower_role
    assert follower is not None
    assert follower.failed is not unclean
    assert any("Log truncation is not allowed" in line for line in cluster.brokers[2].lines) is not unclean
