"""Why a group is as it is: each sentence from its facts (GroupCoordinator, GroupMetadataManager of Kafka 3.9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin_groups import GroupDescription, MemberDescription, OffsetAndMetadata
from tidegauge_client.cli.explain_group import group_headline, refusal
from tidegauge_client.group_explanation import GroupFacts, OffsetsPartition, explain_group
from tidegauge_client.group_tables import offset_rows
from tidegauge_client.sentences import Sentence

HELD = OffsetsPartition(TopicPartition("__consumer_offsets", 3), 1, 7, (1, 2, 0), (1, 2, 0))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def member(
    name: str, *assigned: TopicPartition, parked: str = "", session_left_ms: int | None = 4_000
) -> MemberDescription:
    return MemberDescription(name, None, "c", "/127.0.0.1", assigned, parked, session_left_ms)


def group(state: str, *members: MemberDescription, **more: object) -> GroupDescription:
    parked = tuple(one.member_id for one in members if one.parked)
    described = GroupDescription("g", state, "consumer", "range", members, 1, 5, "why", parked, state_age_ms=2_000)
    return replace(described, **more)  # type: ignore[arg-type]


def facts(described: GroupDescription | None = None, **more: object) -> GroupFacts:
    return replace(GroupFacts("g", HELD, frozenset({0, 1, 2}), described), **more)  # type: ignore[arg-type]


def said(found: GroupFacts, about: str) -> list[Sentence]:
    return [sentence for sentence in explain_group(found) if sentence.about == about]


def test_without_the_offsets_topic_no_broker_coordinates() -> None:
    [sentence] = explain_group(GroupFacts("g", None))
    assert "no __consumer_offsets yet" in sentence.text
    assert group_headline(GroupFacts("g", None)) == "Group g: state unknown, no coordinator"


def test_a_partition_without_leader_stops_the_group() -> None:
    """GROUP requests get COORDINATOR_NOT_AVAILABLE (KafkaApis.getCoordinator)."""
    found = facts(
        partition=replace(HELD, leader=None), live=frozenset({0}), problem=ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    [sentence] = explain_group(found)
    assert "has no leader: of its replicas on brokers 1,2,0 only 0 is registered. Members" in sentence.text
    assert "`tidegauge explain __consumer_offsets-3`" in sentence.change


def test_without_a_leader_the_error_is_that_which_members_get_however_the_attempts_ended() -> None:
    late = TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "no coordinator was found in time")
    assert refusal(replace(HELD, leader=None), late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert refusal(HELD, late) is ErrorCode.REQUEST_TIMED_OUT
    assert refusal(None, late) is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("replicas", "live", "words"),
    [
        ((1,), {0}, "its only replica is on broker 1, which is not registered"),
        ((1,), {1}, "its only replica is on broker 1, which is registered"),
        ((1, 2), {0}, "of its replicas on brokers 1,2 none is registered"),
        ((1, 2, 0), {0, 1}, "of its replicas on brokers 1,2,0 only 1,0 are registered"),
    ],
)
def test_which_replicas_of_a_partition_are_on_registered_brokers(
    replicas: tuple[int, ...], live: set[int], words: str
) -> None:
    assert replace(HELD, replicas=replicas).living(live) == words


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "still loads the groups"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "does not coordinate it at the moment: COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_a_coordinator_that_loads_or_is_silent(problem: ErrorCode, words: str) -> None:
    [sentence] = explain_group(facts(problem=problem))
    assert words in sentence.text
    assert group_headline(facts(problem=problem)) == f"Group g: state unknown, coordinator 1: {problem.name}"


def test_a_former_coordinator_that_is_partitioned_is_not_called_the_coordinator() -> None:
    """The broker asked first forwards to whom its own metadata names: to itself."""
    [sentence] = said(facts(group("Stable", coordinator=0)), "coordinator")
    assert sentence.text.endswith("from broker 0, which takes itself for the coordinator, and may be old.")
    assert sentence.change == "a response of broker 1"
    assert said(facts(group("Stable")), "coordinator")[0].text.endswith("in epoch 7: it is the coordinator.")


def test_below_min_isr_nothing_is_committed() -> None:
    below = replace(HELD, isr=(1,), min_isr=2)
    [sentence] = said(facts(group("Stable"), partition=below), "offsets-topic")
    assert "fewer than min.insync.replicas=2" in sentence.text
    assert said(facts(group("Stable"), partition=replace(HELD, isr=(1, 2), min_isr=2)), "offsets-topic") == []


def test_the_join_phase_names_whom_it_waits_for_and_until_when() -> None:
    """DelayedJoin; a session that ends first ends the wait for its member (GroupCoordinator.onExpireHeartbeat)."""
    joined, missing = member("a", parked="JoinGroup", session_left_ms=None), member("b")
    found = facts(group("PreparingRebalance", joined, missing, phase_left_ms=60_000, pending_members=("p-1",)))
    [whole] = said(found, "group")
    assert "rebalances for 2.0 s, because: why. 1 of 2 members have joined; generation 6 begins" in whole.text
    assert whole.wait_ms == 60_000
    awaited, pending = said(found, "member")
    assert (awaited.subject, awaited.wait_ms) == ("b", 4_000)
    assert "has not sent JoinGroup for 2.0 s, its session lasts another 4.0 s" in awaited.text
    assert pending.subject == "p-1"


def test_the_initial_delay_awaits_no_member() -> None:
    found = facts(
        group("PreparingRebalance", member("a", parked="JoinGroup"), phase_left_ms=900, in_initial_delay=True)
    )
    [whole] = said(found, "group")
    assert "waits for more members, for another 0.9 s at most; 1 have joined" in whole.text
    assert said(found, "member") == []


def test_the_sync_phase_waits_for_the_leader_and_then_for_its_record() -> None:
    """GroupCoordinator.doSyncGroup: the assignment is stored before anything is sent."""
    waiting = group(
        "CompletingRebalance", member("a"), member("b", parked="SyncGroup"), leader="a", phase_left_ms=9_000
    )
    [whole] = said(facts(waiting), "group")
    assert "waits for the assignment from its leader a, for another 9.0 s at most; 1 of 2" in whole.text
    assert [one.subject for one in said(facts(waiting), "member")] == ["a"]
    written = group("CompletingRebalance", member("a", parked="SyncGroup"), leader="a")
    [whole] = said(facts(written), "group")
    assert "written to __consumer_offsets-3 and not committed yet" in whole.text
    assert said(facts(written), "member") == []


def test_stable_empty_and_unknown_groups() -> None:
    stable = facts(group("Stable", member("a", T0), member("b")))
    [whole] = said(stable, "group")
    assert (
        "Stable for 2.0 s in generation 5 with 2 members, by range. The last rebalance began because: why."
        in whole.text
    )
    [idle] = said(stable, "member")
    assert (idle.subject, "reads no partition" in idle.text) == ("b", True)
    # A consumer that assigns its partitions itself may read, and commit, without being a member.
    assert said(facts(group("Empty")), "group")[0].text.endswith("no consumer reads as one of them.")
    assert "does not know group g" in said(facts(group("Dead")), "group")[0].text
    assert group_headline(facts(group("Dead"))) == "Group g: Dead, not known to its coordinator 1"
    [coordinator] = said(facts(group("Dead")), "coordinator")
    assert coordinator.text == (
        "Broker 1 leads __consumer_offsets-3, to which the id of group g hashes, in epoch 7: it is the coordinator."
    ), "no partition holds a group that nothing was written of"


def lag_of(
    committed: dict[TopicPartition, int], ends: dict[TopicPartition, int], *members: MemberDescription, **more: object
) -> list[str]:
    described = group("Stable", *members)
    rows = offset_rows(described, {at: OffsetAndMetadata(offset) for at, offset in committed.items()}, ends)
    return [sentence.text for sentence in said(facts(described, rows=rows, **more), "lag")]


def test_a_lag_that_nothing_reads() -> None:
    """A member may still commit what it has read: without a leader the lag is not known, and may shrink nonetheless."""
    assert lag_of({T0: 1, T1: 2}, {T1: 9}, member("a", T0), leaderless=frozenset({T0})) == [
        "t-0 has no leader: nothing can be read there, and the lag is not known.",
        "No member reads t-1; committed is t-1 at 2 of 9.",
        "The lag is 7 offsets over 1 partition.",
    ]


def test_a_committed_offset_beyond_the_end_makes_up_for_no_other_partitions_lag() -> None:
    """After an unclean election: 7 and -7 were called a lag of 0, and the partition one with records to read."""
    assert lag_of({T0: 10, T1: 2}, {T0: 3, T1: 9}, member("a", T1)) == [
        "The committed offset 10 of t-0 is 7 beyond its end 3: there is nothing to read from there.",
        "The lag is 7 offsets over 2 partitions, the largest in t-1 (7).",
    ]


def test_records_that_were_deleted_before_they_were_read_are_in_no_reach_of_the_group() -> None:
    """Retention and DeleteRecords do not look at groups; the lag of Kafka's tools counts on."""
    found = lag_of({T0: 2, T1: 4}, {T0: 9, T1: 9}, member("a", T0, T1), starts={T0: 5, T1: 4})
    assert found == [
        "t-0 begins at 5, so that 3 of the 7 offsets from the committed one, 2, to its end 9 can't be read any more.",
        "The lag is 12 offsets over 2 partitions, the largest in t-0 (7).",
    ]
    emptied = lag_of({T0: 2}, {T0: 9}, member("a", T0), starts={T0: 9})
    assert "so that 7 of the 7 offsets" in emptied[0]


def test_a_deleted_partition_is_not_one_without_a_leader() -> None:
    gone = frozenset({T0, T1})
    assert lag_of({}, {}, member("a", T0, T1), deleted=gone) == [
        "t-0, t-1 do not exist, though the group has them assigned or committed."
    ]
    assert lag_of({}, {}, member("a", T0), deleted=frozenset({T0})) == [
        "t-0 does not exist, though the group has it assigned or committed."
    ]


def test_offsets_that_have_expired_are_named_also_of_a_group_that_is_gone() -> None:
    """KIP-211: a consumer begins there where its auto.offset.reset says."""
    expired = {"expired_age_ms": 4_000, "expired_partitions": ("t-0", "t-1")}
    for state in ("Empty", "Dead"):
        sentence = said(facts(group(state, **expired)), "group")[-1]
        assert sentence.text.startswith(
            "2 committed offsets of the group expired 4.0 s ago: t-0, t-1. A consumer begins"
        )
        assert "offsets.retention.minutes" in sentence.rule
    assert not any("expired" in sentence.text for sentence in explain_group(facts(group("Empty"))))


def test_a_group_that_is_out_of_service_is_explained_by_its_cause() -> None:
    found = facts(
        problem=ErrorCode.UNKNOWN_SERVER_ERROR, refusal="the group is out of service: its record makes no sense"
    )
    [sentence] = said(found, "coordinator")
    assert "it is the coordinator, and the group is out of service: its record makes no sense. Every" in sentence.text
    assert "`tidegauge delete-group g` deletes the group" in sentence.change
