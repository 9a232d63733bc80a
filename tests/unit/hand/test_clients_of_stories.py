"""Clients of stories on a cluster that is driven by hand: producers, consumers, and holds on their requests."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.groups import JoinedMember
from tidegauge_proof.hand import facts
from tidegauge_proof.hand.actions import ActionError
from tidegauge_proof.hand.client_process import ClientProcess
from tidegauge_proof.hand.consumer_process import ranged
from tidegauge_proof.hand.scenario_file import as_scenario
from tidegauge_proof.hand.schedule import ScheduleError, read_schedule, write_schedule
from tidegauge_proof.hand.session import Session
from tidegauge_proof.hand.story import Story

APART = "g1p23t1s1"
"""orders-0 on brokers 1 and 2; both coordinators on broker 0."""
TWO_COORDINATORS = "g1p1t23m2"
"""orders-0 on broker 0; ``__transaction_state`` on brokers 1 and 2, which both have to be in sync."""


def played(actions: str, settings: str = APART) -> Session:
    session = Session()
    session.play(read_schedule(f"1~{settings}~{actions}"))
    return session


def log(session: Session, partition: str = "orders-0") -> dict[str, list[str]]:
    replicas = session.view["partitions"][partition]["replicas"]
    return {broker: [value for value, _ in replica["records"]] for broker, replica in replicas.items()}


def producer(session: Session, number: int = 1) -> Any:
    return session.cluster.processes.producers[number]


# Where partitions are


def test_each_partition_is_where_its_setting_says() -> None:
    session = played("", "g1p1q4n3t231s32")
    assigned = {name: one["assigned"] for name, one in session.view["partitions"].items()}
    assert assigned == {
        "orders-0": [0],
        "orders-1": [3],
        "orders-2": [3],
        "__transaction_state-0": [1, 2, 0],
        "__consumer_offsets-0": [2, 1],
    }
    assert session.view["controller"] == 0


@pytest.mark.parametrize("placed", ["p11", "p61", "p10"])
def test_digits_that_are_no_assignment_are_refused(placed: str) -> None:
    with pytest.raises(ScheduleError, match="is no assignment"):
        read_schedule(f"1~g1{placed}~")


def test_min_insync_of_the_transactions_topic_is_its_own() -> None:
    """With one of two replicas of ``__transaction_state`` dead nothing is decided; a write with acks=all goes on."""
    session = played("k2.t18000.ba1-1-0-0.p1-2-0.t3000", TWO_COORDINATORS)
    assert producer(session).outcome == ""
    assert log(session)["0"] == ["m1"]


# Holds


def test_a_hold_ends_with_its_brokers_process_and_what_it_has_is_lost() -> None:
    session = played("ba1-1-0-0.bo1-2-0-0.bb1.bc1-1-0.be1-1", TWO_COORDINATORS.replace("m2", ""))
    holds = session.cluster.coordination.holds
    assert [one.text for one in holds.held_at(1)] == ["EndTxn(t1, epoch 0: COMMIT)"]
    session.play(read_schedule(write_schedule(session.schedule) + ".k1.t18000.t3000"))
    assert not session.cluster.coordination.holds.has(1)
    assert (producer(session).outcome, log(session)["0"]) == ("ok", ["m1", "COMMIT"])


def test_a_response_that_is_held_leaves_its_effect() -> None:
    session = played("ba1-1-0-0.bo0-2-1-0.bb1.bc1-1-0.be1-1")
    assert session.view["transactions"]["t1"]["state"] == "CompleteCommit"
    assert producer(session).outcome == ""
    session.play(read_schedule(write_schedule(session.schedule) + ".bp0"))
    assert producer(session).outcome == "ok"


def test_a_response_that_breaks_is_asked_for_again_and_nothing_happens_twice() -> None:
    session = played("ba1-1-0-0.bb1.bc1-1-0.bq0-2.be1-1.t3000")
    asked = [one.text for one in session.cluster.post.kept if one.text.startswith("EndTxn(")]
    assert asked == ["EndTxn(t1, epoch 0: COMMIT)"] * 2
    assert log(session)["1"] == ["m1", "COMMIT"]


def test_a_hold_takes_the_first_request_alone_if_it_is_for_once() -> None:
    """The first EndTxn waits, the second one that the client sends after its time-out arrives."""
    session = played("ba1-1-0-2000.bb1.bc1-1-0.bo0-2-0-1.be1-1.t3000.t500")
    assert producer(session).outcome == "ok"
    assert len(session.cluster.coordination.holds.held_at(0)) == 1


# Producers


def test_a_batch_is_sent_again_with_its_sequence_and_is_there_once() -> None:
    session = played("ba1-1-0-0.bb1.h2.bc1-1-0.k1.t18000.t3000.be1-1.t3000")
    assert log(session)["2"] == ["m1", "COMMIT"]
    assert producer(session).outcome == "ok"


def test_a_paused_producer_sends_when_it_continues_and_is_fenced() -> None:
    session = played("ba1-1-0-0.bb1.bc1-1-0.bg1.bc1-1-0.ba2-1-0-0.t3000")
    assert producer(session, 2).outcome == "ok"
    assert log(session)["1"] == ["m1", "ABORT"]
    session.play(read_schedule(write_schedule(session.schedule) + ".bh1.t3000"))
    assert producer(session).outcome == "INVALID_PRODUCER_EPOCH"
    assert log(session)["1"] == ["m1", "ABORT"]


def test_a_producer_that_was_refused_asks_for_its_epoch_before_it_aborts() -> None:
    """KIP-360: with its old epoch, so that it learns whether another one has taken its place."""
    session = played("ba1-1-0-0.bb1.bc1-1-0.bg1.bc1-1-0.ba2-1-0-0.t3000.bh1.t3000.be1-0.t500")
    asked = [one.text for one in session.cluster.post.kept if one.target == 0]
    assert asked.count("InitProducerId(t1)") == 4  # the second process was asked to come again once
    assert producer(session).outcome == "PRODUCER_FENCED"


def test_offsets_of_a_transaction_count_with_its_marker() -> None:
    """KAFKA-17507: they count when the marker is committed, before its response."""
    session = played("p3-2-1.ba1-1-0-0.bb1.bd1-1-0-2.t500")
    before = session.view["groups"].get("g1", {"partitions": []})["partitions"]
    assert [one["committed"] for one in before if one["committed"] is not None] == []
    session.play(read_schedule(write_schedule(session.schedule) + ".be1-1.t500"))
    assert [one["committed"] for one in session.view["groups"]["g1"]["partitions"]] == [2]
    assert log(session, "__consumer_offsets-0")["0"] == ["offset 2", "COMMIT"]


def test_with_transactions_v2_each_end_brings_the_next_epoch() -> None:
    """KIP-890, part 2: the leader adds the partition, and no AddPartitionsToTxn comes from the client."""
    session = played("ba1-1-0-0.bb1.bc1-1-0.be1-1.t500.bb1.bc1-1-0.be1-0.t500", APART + "v1")
    assert session.view["transactions"]["t1"]["producerEpoch"] == 2
    assert log(session)["1"] == ["m1", "COMMIT", "m2", "ABORT"]
    asked = [one for one in session.cluster.post.kept if one.text.startswith("AddPartitionsToTxn(")]
    assert {one.source for one in asked} == {1}


def test_a_hanging_transaction_is_aborted_by_hand() -> None:
    session = played("ba1-1-0-0.bb1.bc1-1-0")
    assert [one[0] for one in session.cluster.processes.open_transactions(0)] == [0]
    session.play(read_schedule(write_schedule(session.schedule) + ".bs0-0.t500"))
    assert session.cluster.processes.open_transactions(0) == []
    with pytest.raises(ActionError, match="no open transaction from offset 0 on"):
        session.do(read_schedule(f"1~{APART}~bs0-0").actions[0])


# Consumers


def test_a_consumer_begins_where_its_group_has_committed() -> None:
    session = played("p3-2-1.bi1-1-0-0-0-0-0.t4000.bj2-1-0.t500.bk1.bm1.bi2-1-0-0-0-0-0.t60000.bj1-2-0.t500")
    assert session.cluster.processes.taken == {1: [[1, 2]], 2: [[3]]}


def test_a_busy_consumer_leaves_after_max_poll_interval_and_its_commit_is_refused() -> None:
    session = played("p3-2-1.bi1-1-0-8000-0-0-0.t4000.bj1-1-1.t9000")
    assert session.view["groups"]["g1"]["members"] == []
    session.play(read_schedule(write_schedule(session.schedule) + ".bi2-1-0-0-0-0-0.t4000.bk1.t500"))
    assert session.cluster.processes.consumers[1].outcome == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize(("auto_commit", "committed"), [(0, []), (1, []), (2, [1])])
def test_auto_commit_of_a_busy_consumer_is_its_librarys(auto_commit: int, committed: list[int]) -> None:
    """At a poll the Java client commits, in the background librdkafka does."""
    session = played(f"p3-2-1.bi1-1-0-0-0-{auto_commit}-0.t4000.bj1-1-1.t2000")
    rows = session.view["groups"]["g1"]["partitions"]
    assert [one["committed"] for one in rows if one["committed"] is not None] == committed


def test_a_static_member_that_restarts_keeps_its_generation() -> None:
    session = played("bi1-1-0-0-1-0-0.t4000.bm1.bi1-1-0-0-1-0-0.t4000")
    group = session.view["groups"]["g1"]
    assert (group["state"], group["generation"], len(group["members"])) == ("Stable", 1, 1)


def test_the_range_assignor_gives_the_first_members_one_more() -> None:
    members = tuple(JoinedMember(one, None, b"") for one in ("b", "a", "c"))
    assert dict(ranged(members, 5)) == {"a": bytes([0, 1]), "b": bytes([2, 3]), "c": bytes([4])}


def test_a_reader_of_committed_data_stops_at_an_open_transaction() -> None:
    session = played("ba1-1-0-0.bb1.bc1-1-0.p1-2-1.br0-1")
    assert session.cluster.processes.read == []
    session.play(read_schedule(write_schedule(session.schedule) + ".br0-0"))
    assert session.cluster.processes.read == [1, 2]


# Names


STORY = {
    "cluster": {"brokers": 3, "controller": 0},
    "topics": [
        {"name": "story", "assignment": [1, 2]},
        {"name": "__transaction_state", "assignment": [0]},
    ],
    "steps": [
        {"start_producer": {"producer": "copier", "transactional_id": "mine"}},
        {"begin_transaction": "copier"},
        {"send": {"producer": "copier", "values": ["a1", "a2"]}},
        {"commit_transaction": "copier"},
    ],
}


def played_story() -> Session:
    session = Session()
    story = Story(session, STORY)
    while not story.is_over:
        assert story.next()["wrong"] == []
    return session


def test_records_clients_and_ids_have_the_names_of_the_story_also_after_going_back() -> None:
    session = played_story()
    assert log(session)["2"] == ["a1", "a2", "COMMIT"]
    assert "Producer copier sends a1, a2 to orders-0 in its transaction." in session.sentences
    assert list(session.view["transactions"]) == ["mine"]
    session.play(session.schedule.first(3))
    assert log(session)["2"] == ["a1", "a2"]


def test_an_address_has_numbers_in_place_of_names_and_the_same_history() -> None:
    session = played_story()
    again = Session()
    again.play(read_schedule(write_schedule(session.schedule)))
    assert log(again)["2"] == ["m1", "m2", "COMMIT"]
    assert [one.number for one in again.cluster.post.kept] == [one.number for one in session.cluster.post.kept]


def test_what_clients_did_is_a_scenario_with_their_names() -> None:
    text = as_scenario(played_story())
    assert "  - start_producer: {producer: copier, transactional_id: mine}" in text
    assert "  - send: {producer: copier, values: [a1, a2], partition: story-0}" in text
    assert "  - {name: __transaction_state, assignment: [0], config: {cleanup.policy: compact}}" in text


def test_a_broken_invariant_after_an_unclean_election_is_laid_to_that() -> None:
    """The settings allow it, so the page warns of it and does not call it a defect."""
    session = played("ba1-1-0-0.bb1.bc1-1-0.k2.e2.be1-1.t500.k1.e1.s2.t500", APART + "u1")
    (broken,) = [one for one in session.view["verdict"] if one["kind"] == "broken"]
    assert (broken["by"], "(COMMIT)" in broken["text"]) == ("unclean", True)


def test_a_dead_client_takes_no_response() -> None:
    session = played("ba1-1-0-0.bb1.bc1-1-0.bo0-2-1-0.be1-1.bf1.bp0.t500")
    process: ClientProcess = producer(session)
    assert (process.is_dead, process.outcome) == (True, "")
    assert facts.books_of(session.cluster)[0]["outcome"] == "ok"
