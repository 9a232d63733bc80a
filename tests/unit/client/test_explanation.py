"""``explain``: facts of a partition against the sentences about it, each time with Kafka's rule."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.cli.explain import WIDTH, facts_of, headline, spoken_lines, wrapped
from tidegauge_client.explanation import explain
from tidegauge_client.explanation_facts import Facts, Led, RefusedRequest, Remote
from tidegauge_client.explanation_modes import KRAFT, ZOOKEEPER
from tidegauge_client.explanation_rules import (
    RULE_ACKS,
    RULE_ALTER,
    RULE_CAUGHT_UP,
    RULE_CONTROLLER,
    RULE_ELECTION,
    RULE_FAILED_DIRECTORY,
    RULE_FETCH,
    RULE_HW,
    RULE_JOIN,
    RULE_LAG,
    RULE_LATE,
    RULE_MIN_ISR,
    RULE_OFFSETS,
    RULE_PENDING,
    RULE_PROCESS,
    RULE_READ,
    RULE_REASSIGNMENT,
    RULE_REFUSED,
    RULE_TOPIC_ID,
    RULE_UNCLEAN,
    RULE_VERDICT,
    RULE_ZOOKEEPER,
)
from tidegauge_client.languages import CHINESE, ENGLISH
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo
from tidegauge_client.sentences import as_lines
from tidegauge_client.topic_ids import TopicIds

ALIVE, DEATH = ZOOKEEPER.rule_alive, ZOOKEEPER.rule_death
LED = Led(
    leo=10, hw=10, isr=(1, 2, 0), maximal_isr=(1, 2, 0), remotes={2: Remote(10, 90), 0: Remote(10, 90)}, epoch_start=4
)
WELL = Facts(
    at=TopicPartition("orders", 0),
    replicas=(1, 2, 0),
    isr=(1, 2, 0),
    leader=1,
    leader_epoch=3,
    live=frozenset({0, 1, 2}),
    led=LED,
    own_hws={2: 10, 0: 10},
    controller=2,
    min_isr=2,
    lag_ms=5_000,
)
BEHIND = replace(LED, leo=12)
SHRUNK = replace(LED, isr=(1, 2), maximal_isr=(1, 2))


def held(remote: Remote, **changes: object) -> Facts:
    """Broker 2 has less than the leader's 12, broker 0 has all."""
    return replace(WELL, led=replace(BEHIND, remotes={2: remote, 0: Remote(12, 5)}), **changes)  # type: ignore[arg-type]  # by name


def outside(remote: Remote, led: Led = SHRUNK, **changes: object) -> Facts:
    """Broker 0 is not in the ISR."""
    led = replace(led, remotes={2: Remote(led.leo, 5), 0: remote})
    return replace(WELL, led=led, isr=(1, 2), **changes)  # type: ignore[arg-type]  # by name


MOVING = replace(WELL, replicas=(1, 3, 2, 0), adding=(3,), removing=(2, 0), live=frozenset({0, 1, 2, 3}))


@pytest.mark.parametrize(
    ("isr", "words"),
    [
        (
            (1, 2, 0),
            "A reassignment to 1,3 runs: 1,3,2,0 are assigned for now, and broker 3 must get into the ISR 1,2,0",
        ),
        ((1, 2, 0, 3), "and all of the target are in sync: it is ending."),
    ],
)
def test_a_reassignment_and_what_it_waits_for(isr: tuple[int, ...], words: str):
    led = replace(LED, isr=isr, maximal_isr=isr, remotes={**LED.remotes, 3: Remote(4, None)})
    reported = [one for one in explain(replace(MOVING, led=led)) if one.about == "reassignment"]
    assert len(reported) == 1
    assert words in reported[0].text
    assert reported[0].rule == RULE_REASSIGNMENT


def test_in_kraft_mode_no_sentence_speaks_of_zookeeper_or_of_the_broker_that_metadata_name() -> None:
    """KIP-631: a broker lives by its heartbeats, and metadata of brokers name any broker as the controller."""
    silent = replace(WELL, words=KRAFT, led=None, silent=frozenset({1, 2}))
    outside = replace(WELL, words=KRAFT, isr=(1, 2), live=frozenset({1, 2}), led=replace(LED, isr=(1, 2)))
    elected = replace(WELL, words=KRAFT, led=None)
    gone = replace(WELL, words=KRAFT, live=frozenset({0, 1}))
    sentences = [one for facts in (silent, outside, elected, gone) for one in explain(facts)]
    texts = " ".join(f"{one.text} {one.rule} {one.change}" for one in sentences)
    assert "ZooKeeper" not in texts
    assert "LeaderAndIsr" not in texts
    assert "is the controller" not in texts
    assert "does not lead yet: it has not applied the metadata log so far" in texts
    assert {KRAFT.rule_alive, KRAFT.rule_death} <= {one.rule for one in sentences}
    assert "it is fenced, or not registered, so it is dead, paused or partitioned" in texts


DEAD = replace(WELL, leader=None, led=None, isr=(1, 2), own_hws={})


@pytest.mark.parametrize(
    ("facts", "words", "rule"),
    [
        (WELL, "Broker 1 leads in epoch 3; it is the first of the assignment 1,2,0", RULE_ELECTION),
        (replace(WELL, replicas=(0, 1, 2)), "it is not the first of the assignment 0,1,2", RULE_ELECTION),
        (replace(WELL, led=None, silent=frozenset({1})), "does not respond: it is paused", ALIVE),
        (
            replace(WELL, led=None),
            "was elected in epoch 3 and does not lead yet",
            "a broker leads once it has applied the controller's LeaderAndIsr",
        ),
        (
            replace(WELL, led=None, offline=frozenset({1})),
            "Broker 1 was the leader in epoch 3 and has its log offline",
            RULE_FAILED_DIRECTORY,
        ),
        (replace(WELL, silent=frozenset({2})), "Broker 2 is the controller and does not respond", RULE_CONTROLLER),
        (
            replace(WELL, settings_problem="no broker could read them"),
            "As long as ZooKeeper does not respond no session ends, no leader is elected",
            RULE_ZOOKEEPER,
        ),
        (replace(WELL, controller=None), "There is no active controller now", RULE_CONTROLLER),
        (
            replace(WELL, settings_problem="no broker could read them"),
            "min.insync.replicas is taken as 2: no broker could read them.",
            ZOOKEEPER.rule_settings,
        ),
        (replace(WELL, held=frozenset({2})), "The fetches of broker 2 are held, so that it copies", RULE_FETCH),
        (replace(WELL, faulty={0: 2}), "2 faults of the lab are in force in broker 0", RULE_FETCH),
        (
            replace(WELL, led=None, silent=frozenset({1}), faulty={1: 1}),
            "1 fault of the lab is in force",
            ALIVE,
        ),
        # There is no leader.
        (
            replace(DEAD, live=frozenset({0})),
            "no member of the ISR 1,2 can lead (broker 1 is not registered; broker 2 is not registered)",
            RULE_ELECTION,
        ),
        (replace(DEAD, live=frozenset({0})), "Broker 0 is alive but not in the ISR", RULE_UNCLEAN),
        (
            replace(DEAD, live=frozenset(), isr=(1,)),
            "Brokers 2 and 0 are not registered either, and not in the ISR: one that returns alone does not lead",
            RULE_UNCLEAN,
        ),
        (
            replace(DEAD, live=frozenset(), unclean=True),
            "Broker 0 is not registered either, and not in the ISR: one that returns alone may lead uncleanly.",
            RULE_UNCLEAN,
        ),
        (
            replace(DEAD, live=frozenset({0, 2}), offline=frozenset({2})),
            "broker 2 has its log offline",
            RULE_ELECTION,
        ),
        (
            replace(DEAD, live=frozenset({0, 2})),
            "though broker 2 of the ISR is registered: an election is due",
            RULE_ELECTION,
        ),
        (replace(DEAD, live=frozenset({0}), unclean=True), "but broker 0 may, uncleanly: due", RULE_UNCLEAN),
        # The high watermark.
        (WELL, "The HW is 10, the end of the leader's log", RULE_HW),
        (held(Remote(10, 90)), "The HW is at 10, 2 below the leader's LEO 12: broker 2 holds it back", RULE_HW),
        (held(Remote(11, 90)), "The HW is 10 and may be 11 by what the leader knows", RULE_HW),
        (
            replace(WELL, led=replace(BEHIND, remotes={2: Remote(10, 90), 0: Remote(10, 90)})),
            "brokers 2 and 0 hold it back",
            RULE_HW,
        ),
        (
            held(Remote(10, 1_000)),
            "Broker 2 has fetched up to 10; it was caught up 1.0 s ago; if it does not catch up it leaves the ISR in "
            "4.0 s to 6.5 s.",
            RULE_LAG,
        ),
        (held(Remote(10, 6_000)), "its removal from the ISR is due within 2.5 s", RULE_LAG),
        (held(Remote(None, 0)), "Broker 2 has not fetched in this epoch", RULE_LAG),
        (
            held(Remote(10, 0), controller=0, silent=frozenset({2})),
            "up to 10, and does not respond (if it has died,",
            RULE_LAG,
        ),
        (
            held(Remote(10, 6_000), settings_problem="no broker could read them"),
            "its removal from the ISR, due after 5.0 s, waits for ZooKeeper, which does not respond",
            RULE_ALTER,
        ),
        (
            held(Remote(10, 1_000), controller=0, silent=frozenset({0})),
            "due after 5.0 s, waits for the controller, which does not respond",
            RULE_ALTER,
        ),
        (held(Remote(10, 16_100)), "16.1 s ago: its removal from the ISR is overdue, and not written yet", RULE_ALTER),
        (held(Remote(10, 0), lag_ms=None), "it leaves the ISR when its time is over", RULE_LAG),
        (
            held(Remote(10, 0), live=frozenset({0, 1})),
            "it is no longer registered, and the controller",
            DEATH,
        ),
        (
            replace(WELL, led=replace(BEHIND, isr=(1, 0), remotes={2: Remote(10, 0), 0: Remote(12, 0)})),
            "it is about to join the ISR and counts already",
            RULE_PENDING,
        ),
        (
            outside(Remote(10, 1_500), replace(SHRUNK, leo=12)),
            "it is not in the ISR but was caught up 1.5 s ago: it counts for 3.5 s more",
            RULE_CAUGHT_UP,
        ),
        (
            replace(WELL, led=replace(BEHIND, isr=(1,), maximal_isr=(1,)), isr=(1,)),
            "the ISR 1 has 1 of the 2 members that min.insync.replicas demands",
            RULE_MIN_ISR,
        ),
        # Out of sync.
        (
            outside(Remote(3, None)),
            "Broker 0 is not in the ISR 1,2: it has 3 of the 10 committed offsets, 7 to go",
            RULE_JOIN,
        ),
        (outside(Remote(None, None)), "it has not fetched from this leader yet", RULE_JOIN),
        (outside(Remote(None, None), silent=frozenset({0})), "from this leader yet and does not respond", RULE_JOIN),
        (outside(Remote(10, 5)), "it has all up to the HW and is proposed with its next fetch", RULE_JOIN),
        (
            outside(Remote(10, 5), replace(SHRUNK, epoch_start=11)),
            "all up to the HW, but not up to 11, where the leader's epoch begins",
            RULE_JOIN,
        ),
        (
            outside(Remote(10, 5), replace(SHRUNK, maximal_isr=(1, 2, 0))),
            "the controller was asked to add it",
            RULE_ALTER,
        ),
        (
            outside(Remote(3, None), live=frozenset({1, 2})),
            "so it is dead, paused or partitioned",
            DEATH,
        ),
        (
            outside(Remote(3, None), offline=frozenset({0})),
            "its replica is offline: the log, or its log directory, has failed",
            RULE_FAILED_DIRECTORY,
        ),
        # Followers and clients.
        (
            replace(WELL, own_hws={2: 8}),
            "Broker 2 still has the HW at 8: the leader's 10 has not arrived",
            RULE_LATE,
        ),
        (
            replace(WELL, led=replace(LED, isr=(1,), maximal_isr=(1,)), isr=(1,)),
            "acks=all are refused: 1 in sync, 2 needed",
            RULE_ACKS,
        ),
        (held(Remote(10, 90)), "Consumers do not see the offsets 10 to 11 yet", RULE_READ),
        (replace(WELL, led=replace(BEHIND, epoch_start=12)), "the HW 10 has not reached 12", RULE_OFFSETS),
    ],
)
def test_what_is_so_is_said_with_the_rule(facts: Facts, words: str, rule: str) -> None:
    fitting = [one for one in explain(facts) if words in one.text]
    assert len(fitting) == 1, [one.text for one in explain(facts)]
    assert fitting[0].rule.startswith(rule)


def test_where_all_is_well_there_are_two_sentences_and_nothing_to_change() -> None:
    assert [(one.about, one.change) for one in explain(WELL)] == [("leader", ""), ("high-watermark", "")]


SILENT = "is registered in ZooKeeper and does not respond"


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        (replace(WELL, led=None, silent=frozenset({1, 2, 0})), [2, 0]),
        (replace(WELL, silent=frozenset({0})), [0]),
        (replace(DEAD, live=frozenset({0, 1, 2}), silent=frozenset({1, 2})), [1, 2]),
        (held(Remote(10, 1_000), silent=frozenset({2})), []),
        (outside(Remote(3, None), silent=frozenset({0})), []),
    ],
)
def test_every_silent_replica_is_named_once(facts: Facts, named: list[int]) -> None:
    """Not the leader alone: of two dead brokers a reader would start one, and wonder."""
    assert [one.subject for one in explain(facts) if SILENT in one.text] == named
    assert all(str(broker) in " ".join(one.text for one in explain(facts)) for broker in facts.silent)


def test_a_silent_member_of_the_isr_is_waited_for() -> None:
    [sentence] = [one for one in explain(replace(WELL, silent=frozenset({0}))) if SILENT in one.text]
    assert sentence.text.endswith(
        "It stays in the ISR 1,2,0 until its session ends, or it has lagged for replica.lag.time.max.ms: acks=all "
        "waits for it."
    )
    outsider = replace(DEAD, live=frozenset({0}), silent=frozenset({0}))
    [sentence] = [one for one in explain(outsider) if SILENT in one.text]
    assert sentence.text.endswith("partitioned or has just died.")


def test_a_replica_that_holds_up_no_request_is_not_blamed() -> None:
    """Outside the ISR and long behind, it does not hold the HW back: nothing is said of it there."""
    facts = outside(Remote(3, 60_000), replace(SHRUNK, leo=10))
    assert [one.subject for one in explain(facts) if one.about == "high-watermark"] == [None]


@pytest.mark.parametrize(
    ("remote", "wait_ms"), [(Remote(10, 1_000), 6_500), (Remote(10, 5_000), 2_500), (Remote(10, None), 2_500)]
)
def test_the_longest_wait_is_what_is_left_and_half_the_lag_time(remote: Remote, wait_ms: int) -> None:
    """The leader looks for laggards every replica.lag.time.max.ms / 2."""
    assert [one.wait_ms for one in explain(held(remote)) if one.subject == 2] == [wait_ms]


def test_min_isr_is_at_most_the_replication_factor() -> None:
    """As in Kafka since 3.7."""
    single = replace(WELL, replicas=(1,), isr=(1,), led=replace(LED, isr=(1,), maximal_isr=(1,), remotes={}), min_isr=3)
    assert not [one for one in explain(single) if one.rule in {RULE_MIN_ISR, RULE_ACKS}]


def test_text_stays_within_80_columns_and_groups_by_title() -> None:
    facts = outside(Remote(3, None), replace(SHRUNK, leo=12), own_hws={2: 8})
    text = list(as_lines(headline(facts), explain(facts), wrapped))
    assert max(map(len, text)) <= WIDTH
    assert text[0] == "orders-0: leader 1, epoch 3, ISR 1,2 of 1,2,0, HW 10, LEO 12"
    titles = [line for line in text[1:] if line and not line.startswith(" ")]
    assert titles == ["Leader", "High watermark", "Out of sync", "Followers", "Consumers"]


def test_facts_come_from_what_the_brokers_said() -> None:
    part = PartitionInfo("orders", 0, 1, 3, (1, 2, 0), (1, 2), offline_replicas=(0,))
    leader = metadata_pb2.ReplicaDescription(
        topic="orders",
        partition=0,
        role="leader",
        leader_epoch=3,
        log_end_offset=12,
        high_watermark=10,
        isr=[1, 2],
        maximal_isr=[1, 2],
        leader_epoch_start_offset=4,
        remote_replicas=[
            metadata_pb2.RemoteReplica(broker_id=2, log_end_offset=10, caught_up_ago_ms=90),
            metadata_pb2.RemoteReplica(broker_id=0),
        ],
    )
    other = metadata_pb2.ReplicaDescription(topic="orders", partition=1, role="leader", log_end_offset=99)
    follower = metadata_pb2.ReplicaDescription(topic="orders", partition=0, role="follower", high_watermark=9)
    cluster = ClusterInfo("c", 2, 1, {one: BrokerInfo(one, "h", one) for one in (1, 2)})
    configs = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    facts = facts_of(cluster, part, {1: [other, leader], 2: [follower]}, configs, 5_000)
    assert facts.led == Led(12, 10, (1, 2), (1, 2), {2: Remote(10, 90), 0: Remote()}, 4)
    assert (facts.own_hws, facts.offline, facts.live, facts.min_isr) == ({2: 9}, {0}, {1, 2}, 2)
    assert facts.unclean
    assert facts_of(cluster, part, {1: None, 2: []}, {}, None).silent == {1}
    leader.leader_epoch = 2
    assert facts_of(cluster, part, {1: [leader]}, configs, 5_000).led is None, "it led in a former epoch"


@pytest.mark.parametrize(
    ("live", "change"),
    [
        ({0}, "start brokers 1 and 2: any one of them is elected as soon as it is registered"),
        (
            {0, 2},
            "start broker 1: it is elected as soon as it is registered; or a healthy log directory, and a restart of "
            "broker 2",
        ),
        ({0, 1, 2}, "a healthy log directory, and a restart of brokers 1 and 2"),
    ],
)
def test_what_brings_a_leader_back_is_not_the_start_of_a_broker_that_runs(live: set[int], change: str) -> None:
    """A member of the ISR that is registered and can't lead has its log offline: a start of it is no help."""
    facts = replace(DEAD, live=frozenset(live), offline=frozenset(live - {0}))
    assert [one.change for one in explain(facts) if "no member of the ISR" in one.text] == [change]


# Refused requests, topic ids, processes that ended

VERDICT = RefusedRequest(1, "AlterPartition", "UNKNOWN_TOPIC_ID", 3, 70_000)
REFUSED = RefusedRequest(1, "LeaderAndIsr", "INCONSISTENT_TOPIC_ID", 4, 2_000, "new", "old")


def said_of(facts: Facts) -> list[tuple[str, str, str]]:
    return [(one.about, one.text, one.rule) for one in explain(facts)]


def test_a_removal_that_the_controller_refused_is_not_overdue() -> None:
    """A leader to which the controller said UNKNOWN_TOPIC_ID waits for a LeaderAndIsr: nothing is written late."""
    facts = held(Remote(10, 90_000))
    assert any("overdue, and not written yet" in text for _, text, _ in said_of(facts)), "while no verdict has come"
    refused = said_of(replace(facts, refusals=(VERDICT,)))
    assert not any("overdue" in text for _, text, _ in refused)
    assert (
        "high-watermark",
        "Broker 2 has fetched up to 10; it was caught up 90.0 s ago: the controller refused a change of the ISR with "
        "UNKNOWN_TOPIC_ID, 70.0 s ago.",
        RULE_VERDICT,
    ) in refused
    assert any(about == "refusal" and "UNKNOWN_TOPIC_ID, 70.0 s ago" in text for about, text, _ in refused)


def test_a_replica_that_the_controller_refused_to_add_is_not_waited_for() -> None:
    joining = replace(SHRUNK, maximal_isr=(1, 2, 0))
    facts = replace(outside(Remote(10, 5), joining), refusals=(VERDICT,))
    assert any("refused to add it with UNKNOWN_TOPIC_ID" in text for _, text, _ in said_of(facts))


def test_a_leader_that_refused_its_election_says_so_with_both_topic_ids() -> None:
    facts = replace(WELL, led=None, leader_epoch=4, refusals=(REFUSED,))
    found = said_of(facts)
    assert not any("has not reached it" in text for _, text, _ in found)
    assert found[0][1].endswith("it refused the controller's LeaderAndIsr with INCONSISTENT_TOPIC_ID.")
    assert found[1] == (
        "refusal",
        "Broker 1 refused the controller's LeaderAndIsr of leader epoch 4 with INCONSISTENT_TOPIC_ID, 2.0 s ago: it "
        "goes on as before. The request has the topic id new, the replica's partition.metadata old.",
        RULE_REFUSED,
    )


@pytest.mark.parametrize(
    ("ids", "listed"),
    [
        (TopicIds("a", "a", {0: "a", 1: "a"}), ""),
        (TopicIds("a", None, {0: "a", 1: ""}), ""),
        (TopicIds("", "", {0: "a"}), ""),  # a cluster without topic ids
        (TopicIds("a", "", {0: "a"}), "a in the brokers' metadata, none in the topic's znode, a in"),
        (TopicIds("b", "b", {0: "a", 2: "a"}), "b in the topic's znode, a in partition.metadata of brokers 0, 2"),
        (
            TopicIds("b", "b", {0: "a", 2: "b"}),
            "a in partition.metadata of broker 0, b in partition.metadata of broker 2",
        ),
    ],
)
def test_the_ids_of_metadata_znode_and_replicas_are_compared(ids: TopicIds, listed: str) -> None:
    texts = [text for _, text, rule in said_of(replace(WELL, topic_ids=ids)) if rule == RULE_TOPIC_ID]
    assert len(texts) == bool(listed)
    assert listed in "".join(texts)


def test_a_process_that_ended_is_named_with_its_end() -> None:
    facts = replace(WELL, ends={2: "Broker 2 was killed by the lab (SIGKILL) at 12:00:00"})
    assert ("process", "Broker 2 was killed by the lab (SIGKILL) at 12:00:00.", RULE_PROCESS) in said_of(facts)


@pytest.mark.parametrize("facts", [WELL, replace(WELL, led=BEHIND), replace(WELL, leader=None, led=None)])
def test_text_is_in_chinese_to_its_last_line(facts: Facts) -> None:
    """Headline, titles, sentences, rules and changes; English stays as it was."""
    sentences = explain(facts)
    lines = [one for one in spoken_lines(headline(facts), sentences, CHINESE) if one]
    assert lines[0].startswith("orders-0\uff1aLeader ")
    assert [one for one in lines if re.search("[a-z]{2} [a-z]{2,} [a-z]{2}", re.sub("`[^`]*`", "", one))] == []
    english = list(spoken_lines(headline(facts), sentences, ENGLISH))
    assert english == list(as_lines(headline(facts), sentences, wrapped))
