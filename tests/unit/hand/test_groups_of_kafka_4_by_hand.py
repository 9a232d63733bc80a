"""Groups of the consumer protocol (KIP-848) and share groups (KIP-932) by hand, on the brokers' own coordinators."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge_proof.hand.actions import KINDS, OF_COORDINATORS, ActionError
from tidegauge_proof.hand.schedule import read_schedule, write_schedule
from tidegauge_proof.hand.session import Session

BOTH_JOINED = "S1.S2.t10000"


def played(actions: str, settings: str = "g2") -> Session:
    session = Session()
    session.play(read_schedule(f"1~{settings}~{actions}"))
    return session


def do(session: Session, text: str) -> str:
    return session.do(read_schedule(f"1~g2~{text}").actions[0])


def texts(session: Session) -> list[str]:
    return [one.text for one in session.cluster.post.kept]


def consumers(session: Session) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in session.view["groups"]["g848"]["members"]}


def records(session: Session) -> dict[int, tuple[str, int, str | None]]:
    """State, delivery count and member of each record in flight."""
    share = session.view["shares"]["share/orders-0"]
    return {
        offset: (one["state"], one["count"], one["member"])
        for one in share["records"]
        for offset in range(one["first"], one["last"] + 1)
    }


# KIP-848


def test_the_first_heartbeat_brings_the_partitions() -> None:
    """KIP-848: the coordinator assigns; there is no JoinGroup, no SyncGroup and no leader."""
    session = played("G1")
    assert consumers(session)["k1-1"]["partitions"] == ["t-0", "t-1", "t-2", "t-3"]
    assert not [one for one in texts(session) if one.startswith(("JoinGroup", "SyncGroup"))]


def test_a_partition_is_given_when_its_owner_has_given_it_up() -> None:
    """Until then the new owner waits for it, by name, and the owner reads on."""
    session = played("G1.t2000.Q1.G2.t6000")
    assert session.view["groups"]["g848"]["state"] == "Reconciling"
    assert consumers(session)["k1-1"]["revoking"] == ["t-2", "t-3"]
    assert consumers(session)["k2-1"]["awaits"] == [{"partition": f"t-{one}", "member": "k1-1"} for one in (2, 3)]
    assert "gave up t-2, t-3" in do(session, "V1")
    do(session, "t6000")
    assert consumers(session)["k2-1"]["partitions"] == ["t-2", "t-3"]
    assert session.view["groups"]["g848"]["state"] == "Stable"


def test_a_member_that_never_gives_up_is_fenced_after_its_rebalance_timeout() -> None:
    session = played("G1.t2000.Q1.G2.t6000.t60000")
    assert "ConsumerGroupHeartbeat response(UNKNOWN_MEMBER_ID)" in texts(session)
    do(session, "D1")
    do(session, "t60000")
    assert list(consumers(session)) == ["k2-1"]
    assert len(consumers(session)["k2-1"]["partitions"]) == 4


def test_a_heartbeat_that_is_lost_is_sent_again_and_is_whole() -> None:
    """ConsumerHeartbeatRequestManager: after a request without a response the next heartbeat says everything."""
    session = played("G1.t5000", "g1h1")
    lost = next(one for one in session.cluster.post.in_flight() if one.text.startswith("ConsumerGroupHeartbeat"))
    do(session, f"l{lost.number}")
    do(session, "H1")
    assert [one.text for one in session.cluster.post.in_flight() if one.text.startswith("Consumer")] == [lost.text]


def test_a_group_goes_on_at_another_coordinator_with_its_epochs() -> None:
    session = played("G1.G2.t12000.M1")
    before = session.view["groups"]["g848"]
    for action in (f"k{before['coordinator']}", f"e{before['coordinator']}", "t10000"):
        do(session, action)
    after = session.view["groups"]["g848"]
    assert after["coordinator"] != before["coordinator"]
    assert (after["generation"], after["state"]) == (before["generation"], "Stable")
    assert [one["committed"] for one in after["partitions"] if one["committed"] is not None] == [1]


def test_a_request_whose_coordinator_dies_before_its_response_is_sent_again() -> None:
    """The connection breaks with the process, and the consumer does not wait for ever."""
    session = played("G1.t2000")
    coordinator = session.view["groups"]["g848"]["coordinator"]
    others = [one for one in range(3) if one != coordinator]
    for other in others:  # the record of k2 can't be committed
        do(session, f"h{other}")
    do(session, "G2")
    do(session, f"k{coordinator}")
    do(session, f"e{coordinator}")
    for other in others:
        do(session, f"u{other}")
    do(session, "t20000")
    assert sorted(consumers(session)) == ["k1-1", "k2-1"]


def test_a_consumer_that_leaves_says_so_and_a_killed_one_is_missed_after_its_session() -> None:
    session = played("G1.G2.t12000.E1")
    assert list(consumers(session)) == ["k2-1"]
    do(session, "D2")
    assert list(consumers(session)) == ["k2-1"]
    do(session, "t46000")
    assert consumers(session) == {}


# KIP-932


def test_each_record_is_locked_for_one_member() -> None:
    session = played(f"p4-2-0.{BOTH_JOINED}.F2-1.F2-2")
    assert records(session) == {
        0: ("acquired", 1, "s1-1"), 1: ("acquired", 1, "s1-1"), 2: ("acquired", 1, "s2-1"), 3: ("acquired", 1, "s2-1")
    }  # fmt: skip


def test_what_a_member_says_decides_what_becomes_of_a_record() -> None:
    session = played(f"p4-2-0.{BOTH_JOINED}.F4-1.N1-1.U1-2.X1-3")
    assert records(session) == {
        0: ("acquired", 1, "s1-1"), 1: ("acknowledged", 1, None), 2: ("available", 1, None), 3: ("archived", 1, None)
    }  # fmt: skip


def test_an_acknowledgement_counts_when_the_share_coordinator_has_written_it() -> None:
    session = played(f"p1-2-0.{BOTH_JOINED}.F1-1.N1-0")
    sent = texts(session)
    written = sent.index("WriteShareGroupState(share, leader epoch 0, start offset 0: 0 acknowledged)")
    assert written < sent.index("WriteShareGroupState response(NONE)") < sent.index("ShareAcknowledge response(NONE)")
    assert session.view["shares"]["share/orders-0"]["start"] == 1


def test_a_lock_times_out_and_its_holder_is_refused_afterwards() -> None:
    """share.record.lock.duration.ms, 30 s."""
    session = played(f"p1-2-0.{BOTH_JOINED}.F1-1.t29000")
    assert records(session)[0][0] == "acquired"
    do(session, "t1500")
    assert records(session)[0] == ("available", 1, None)
    do(session, "N1-0")
    assert "ShareAcknowledge response(INVALID_RECORD_STATE)" in texts(session)


def test_a_renewal_keeps_the_lock() -> None:
    session = played(f"p1-2-0.{BOTH_JOINED}.F1-1.t29000.Y1-0.t20000")
    assert records(session)[0] == ("acquired", 1, "s1-1")


def test_a_record_is_archived_after_five_deliveries() -> None:
    session = played(f"p1-2-0.{BOTH_JOINED}" + ".F1-1.U1-0" * 5)
    assert records(session) == {}
    assert session.view["shares"]["share/orders-0"]["start"] == 1
    assert "offset 0, delivery 5" in " ".join(texts(session))


def test_a_new_leader_has_the_acknowledgements_and_no_locks() -> None:
    session = played(f"p3-2-0.{BOTH_JOINED}.F3-1.N1-0.N1-2.k0.e0.F3-2")
    assert records(session) == {1: ("acquired", 1, "s2-1"), 2: ("acknowledged", 1, None)}


def test_the_writes_of_a_leader_that_was_paused_are_fenced() -> None:
    """The share coordinator refuses what an older leader epoch writes."""
    session = played(f"p2-2-0.{BOTH_JOINED}.F1-1", "g2")
    for action in ("z0", "t18500", "F2-2", "r0", "N1-0"):
        do(session, action)
    assert records(session)[0][2] == "s2-1"
    said = [one for one in texts(session) if one.startswith("ShareAcknowledge response")]
    assert said == ["ShareAcknowledge response(UNKNOWN_TOPIC_OR_PARTITION)"]


def test_a_killed_members_records_are_released_with_its_connection() -> None:
    session = played(f"p2-2-0.{BOTH_JOINED}.F2-1.Z1")
    assert records(session) == {0: ("available", 1, None), 1: ("available", 1, None)}


def test_a_member_that_closes_releases_what_it_has() -> None:
    session = played(f"p2-2-0.{BOTH_JOINED}.F2-1.W1")
    assert {one[0] for one in records(session).values()} == {"available"}
    assert [one["id"] for one in session.view["groups"]["share"]["members"]] == ["s2-1"]


def test_a_fetch_waits_for_records_and_no_longer_than_half_a_second() -> None:
    session = played(f"{BOTH_JOINED}.F1-1")
    assert not [one for one in texts(session) if one.startswith("ShareFetch response")]
    do(session, "p1-2-0")
    assert "ShareFetch response(offset 0, delivery 1; locked for 30 s)" in texts(session)
    do(session, "F1-2")
    do(session, "t600")
    assert "ShareFetch response(no records)" in texts(session)


def test_a_lost_write_of_a_state_is_sent_again() -> None:
    """DefaultStatePersister tries again after 2 s; four brokers: another one than the leader coordinates."""
    session = played(f"p1-2-0.{BOTH_JOINED}.F1-1.x0-3.N1-0", "b4g2")
    (waiting,) = [one for one in session.cluster.post.in_flight() if one.text.startswith("WriteShareGroupState")]
    assert waiting.target == 3
    do(session, f"l{waiting.number}")
    do(session, "m")
    assert session.view["shares"]["share/orders-0"]["start"] == 0
    do(session, "t2500")
    assert session.view["shares"]["share/orders-0"]["start"] == 1
    assert "ShareAcknowledge response(NONE)" in texts(session)


def test_what_is_not_held_cannot_be_acknowledged() -> None:
    session = played(f"p1-2-0.{BOTH_JOINED}.F1-1")
    with pytest.raises(ActionError, match="was not given offset 7: it has 0"):
        do(session, "N1-7")
    with pytest.raises(ActionError, match="not in the share group"):
        do(session, "F1-3")


# Both


def test_a_schedule_with_new_groups_is_replayed_to_the_last_message() -> None:
    session = played(f"G1.G2.p4-2-0.{BOTH_JOINED}.F2-1.F2-2.N1-0.Q1.k1.t18000.G3.t9000.U2-2.Z1.t20000")
    text = json.dumps({"op": "open", "schedule": write_schedule(session.schedule)})
    assert session.request(text) == Session().request(text)


ACTIONS = [one for one in KINDS.values() if one.name in OF_COORDINATORS or one.name in {"kill", "start", "wait"}]


@st.composite
def any_actions(draw: st.DrawFn) -> list[str]:
    found = []
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(ACTIONS))
        values = []
        for one in kind.parameters:
            most = {"ms": 20_000, "offset": 3, "broker": 2}.get(one.name, one.most)
            values.append(str(draw(st.integers(one.least, most))))
        found.append(f"{kind.letter}{'-'.join(values)}")
    return found


@given(any_actions(), st.sampled_from(["g2", "g2h1"]))
@settings(max_examples=examples(60), deadline=None)
def test_any_actions_are_done_or_refused_and_break_nothing(actions: list[str], of: str) -> None:
    session = played("", of)
    for one in actions:
        with suppress(ActionError):  # it has no object now
            do(session, one)
        assert not session.cluster.has_ended
        assert not session.cluster.broken
