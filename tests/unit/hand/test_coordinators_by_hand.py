"""Transactions and groups by hand: the brokers' own coordinators, on replicated internal topics of the same cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegauge_proof.hand.actions import KINDS, OF_COORDINATORS, ActionError, read_action
from tidegauge_proof.hand.facts import logs_of
from tidegauge_proof.hand.schedule import read_schedule, write_schedule
from tidegauge_proof.hand.session import Session
from tidegauge_proof.hand.settings import Settings

COMMITTED = "I1.B1.P2-1.C1"


def played(actions: str, settings: str = "g1") -> Session:
    session = Session()
    session.play(read_schedule(f"1~{settings}~{actions}"))
    return session


def texts(session: Session) -> list[str]:
    return [one.text for one in session.cluster.post.kept]


def transaction(session: Session, name: str = "t1") -> dict[str, Any]:
    found: dict[str, Any] = session.view["transactions"][name]
    return found


def group(session: Session) -> dict[str, Any]:
    found: dict[str, Any] = session.view["groups"]["g"]
    return found


def do(session: Session, text: str) -> str:
    return session.do(read_schedule(f"1~g1~{text}").actions[0])


# Transactions


def test_a_committed_transaction_is_read_and_its_marker_is_in_every_log() -> None:
    """KIP-98: what a transaction wrote ends with a control batch, and readers of committed records see it."""
    session = played(COMMITTED)
    logs = logs_of(session.cluster)
    assert {broker: [one["value"] for one in log] for broker, log in logs.items()} == {
        str(broker): ["m1", "m2", "COMMIT"] for broker in range(3)
    }
    assert do(session, "R0") == "A consumer of committed records read m1, m2 from broker 0, up to offset 3."
    assert transaction(session)["state"] == "CompleteCommit"


def test_an_aborted_transaction_is_in_the_log_and_is_not_read() -> None:
    session = played("I1.B1.P2-1.A1")
    assert [one["value"] for one in logs_of(session.cluster)["0"]] == ["m1", "m2", "ABORT"]
    assert "read no records" in do(session, "R0")
    assert do(session, "c0") == "A consumer read m1, m2 from broker 0.", "read_uncommitted reads it"


def test_an_open_transaction_holds_the_last_stable_offset() -> None:
    session = played("p1-2-0.I1.B1.P1-1.p1-2-0")
    leader = session.view["partitions"]["orders-0"]["replicas"]["0"]
    assert (leader["hw"], leader["lso"]) == (3, 1)
    assert do(session, "R0").startswith("A consumer of committed records read m1 from broker 0")


def test_the_batch_is_verified_by_the_coordinator_before_it_is_appended() -> None:
    """KIP-890: a leader asks the coordinator whether the partition is in the transaction."""
    sent = texts(played(COMMITTED))
    verified = sent.index("AddPartitionsToTxn(t1, epoch 0: orders-0, verify only)")
    produced = sent.index("Produce(m1 to m2, t1, epoch 0, transactional)")
    assert produced < verified < sent.index("WriteTxnMarkers(COMMIT of producer 1, epoch 0)")


def test_a_second_process_with_the_same_id_fences_the_first() -> None:
    """The zombie of KIP-98: its epoch is older, and its transaction was aborted."""
    session = played("I1.B1.P1-1.I2.t1000")
    assert "ABORT" in [one["value"] for one in logs_of(session.cluster)["0"]]
    do(session, "C1")
    assert "EndTxn response(INVALID_PRODUCER_EPOCH)" in texts(session) or "EndTxn response(PRODUCER_FENCED)" in texts(
        session
    )
    with pytest.raises(ActionError, match="no transaction open"):
        do(session, "C1")


def test_a_coordinator_that_dies_after_its_decision_has_a_successor_that_writes_the_markers() -> None:
    coordinator = transaction(played("I1.B1.P1-1"))["coordinator"]
    # The marker's link is partitioned, so that the decision has no marker when the coordinator dies.
    session = played(f"I1.B1.P1-1.x{coordinator}-0.C1")
    assert transaction(session)["state"] == "PrepareCommit"
    do(session, f"k{coordinator}")
    do(session, f"e{coordinator}")
    do(session, "t5000")
    assert transaction(session)["coordinator"] != coordinator
    assert transaction(session)["state"] == "CompleteCommit"
    assert "COMMIT" in [one["value"] for one in logs_of(session.cluster)["0"]]


def deliver(session: Session, *, but: str = "never") -> None:
    """Deliver messages and their consequences, for a second; one that begins with ``but`` is lost instead."""
    for _ in range(20):
        while flying := [one for one in session.cluster.post.in_flight() if not session.cluster.obstacle(one)]:
            do(session, f"{'l' if flying[0].text.startswith(but) else 'd'}{flying[0].number}")
            if len(session.cluster.post.kept) > 2_000:
                return
        do(session, "t500")
        if not [one for one in session.cluster.post.in_flight() if not one.text.startswith("Fetch")]:
            return


def test_a_lost_request_to_end_leaves_the_transaction_to_its_timeout() -> None:
    """transaction.timeout.ms, 60 s: the coordinator aborts what its producer does not end."""
    lost = played("", "g1h1")
    for action in ("I1", "B1", "P1-1"):
        do(lost, action)
        deliver(lost)
    do(lost, "C1")
    deliver(lost, but="EndTxn(")
    assert transaction(lost)["state"] == "Ongoing"
    for _ in range(14):
        do(lost, "t5000")
        deliver(lost)
    assert transaction(lost)["state"] == "CompleteAbort"


# Groups


def test_members_share_the_partitions_of_their_topic() -> None:
    session = played("J1.t3000.J2.t5000")
    assert (group(session)["state"], group(session)["generation"]) == ("Stable", 2)
    assert sorted(len(one["partitions"]) for one in group(session)["members"]) == [2, 2]


def test_a_killed_members_partitions_go_to_the_other_after_its_session() -> None:
    session = played("J1.t3000.J2.t5000.K2.t5000")
    assert len(group(session)["members"]) == 2, "its session of 10 s has not ended"
    do(session, "t10000")
    assert [one["partitions"] for one in group(session)["members"]] == [["t-0", "t-1", "t-2", "t-3"]]


def test_a_group_and_its_offsets_go_on_at_another_coordinator() -> None:
    session = played("J1.t3000.t3000.O1")
    coordinator = group(session)["coordinator"]
    for action in (f"k{coordinator}", f"e{coordinator}", "t5000"):
        do(session, action)
    assert group(session)["coordinator"] != coordinator
    assert [one["committed"] for one in group(session)["partitions"] if one["committed"] is not None] == [1]
    assert group(session)["state"] == "Stable"


def test_a_member_that_leaves_says_so_at_once() -> None:
    session = played("J1.t3000.t3000.L1")
    assert group(session)["state"] == "Empty"


# The interface


@pytest.mark.parametrize("kind", sorted(OF_COORDINATORS))
def test_a_cluster_without_coordinators_refuses_in_words(kind: str) -> None:
    session = Session()
    wanted = {"do": kind, "client": 1, "member": 1, "broker": 0, "count": 1, "offset": 0}
    wanted |= {one.name: one.least for one in KINDS[kind].parameters if one.name not in wanted}
    names = ["do", *(one.name for one in KINDS[kind].parameters)]
    action = read_action({name: wanted[name] for name in names}, Settings())
    with pytest.raises(ActionError, match="has no coordinators"):
        session.do(action)


def test_a_schedule_with_transactions_and_groups_is_replayed_to_the_last_message() -> None:
    session = played("I1.B1.P2-1.C1.J1.t3000.k1.t18000.B1.P1-1.t20000")
    text = json.dumps({"op": "open", "schedule": write_schedule(session.schedule)})
    assert session.request(text) == Session().request(text)


def test_a_loss_of_power_may_take_what_coordinators_have_written() -> None:
    """Records of internal partitions have no number of a client; a loss of them is no defect of the page."""
    session = played("c1.x1-2.e1.R1.i8-0.G4.w2.R1.w0", "i2u1g1")
    assert not session.cluster.has_ended
