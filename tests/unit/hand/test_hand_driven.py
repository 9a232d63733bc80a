"""The cluster that is driven by hand: what a person does, what follows by itself, and what a schedule is."""

from __future__ import annotations

import contextlib
import json
from math import factorial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge_proof.hand.actions import KINDS, MOST_MS, Action, ActionError
from tidegauge_proof.hand.driven import HandDriven
from tidegauge_proof.hand.facts import books_of, logs_of, verdict_of, view_of
from tidegauge_proof.hand.messages import IN_FLIGHT
from tidegauge_proof.hand.schedule import Schedule, ScheduleError, read_schedule, write_schedule
from tidegauge_proof.hand.session import Session
from tidegauge_proof.hand.settings import RULE_NAMES, Settings

HIGH_WATERMARK, KIP_320 = RULE_NAMES.index("high-watermark"), RULE_NAMES.index("kip-320")
ALL = 2
LOSS = (
    *("p1-2-1", "h2", "h0", "p1-2-1", "n0", "n0", "n2", "n2"),
    *("k1", "e1", "k2", "e2", "p1-2-0", "s1", "s2", "u0"),
)
"""The story loss-high-watermark: the records that a follower truncates are lost when the new leader dies."""


def acts(cluster: HandDriven, *texts: str) -> list[str]:
    schedule = read_schedule(f"1~~{'.'.join(texts)}")
    return [cluster.do(action) for action in schedule.actions]


def partition(cluster: HandDriven) -> dict[str, Any]:
    return view_of(cluster)["partitions"]["orders-0"]


def values(cluster: HandDriven) -> dict[str, list[str]]:
    return {broker: [one["value"] for one in log] for broker, log in logs_of(cluster).items()}


def in_flight(cluster: HandDriven, kind: str) -> list[Any]:
    return [one for one in cluster.post.in_flight() if one.kind == kind]


# Consequences


def test_a_batch_reaches_all_replicas_and_is_committed_on_each() -> None:
    """acks=all: the leader responds when the in-sync replicas have the batch; their high watermarks follow."""
    cluster = HandDriven(Settings())
    acts(cluster, "p2-2-0")
    assert {one: (of["leo"], of["hw"]) for one, of in partition(cluster)["replicas"].items()} == dict.fromkeys(
        "012", (2, 2)
    )
    assert [(one["outcome"], one["offset"]) for one in books_of(cluster)] == [("ok", 0), ("ok", 1)]


def test_a_held_follower_gets_nothing_until_it_is_stepped() -> None:
    """Also the fetch that waits at the leader already: its response is in flight until the round is done."""
    cluster = HandDriven(Settings())
    acts(cluster, "h1", "h2", "p1-2-0")
    assert values(cluster) == {"0": ["m1"], "1": [], "2": []}
    assert [one.target for one in in_flight(cluster, "fetch-response")] == [1, 2]
    acts(cluster, "n1")
    assert values(cluster) == {"0": ["m1"], "1": ["m1"], "2": []}
    assert partition(cluster)["replicas"]["0"]["hw"] == 0, "broker 2, in sync, has not reported the record"
    acts(cluster, "n1", "n2", "n2")
    assert partition(cluster)["replicas"]["0"]["hw"] == 1
    assert books_of(cluster)[0]["outcome"] == "ok"


def test_a_dead_leaders_session_has_to_end_before_there_is_another() -> None:
    cluster = HandDriven(Settings())
    acts(cluster, "k0", "t17000")
    assert partition(cluster)["leader"] == 0
    assert "until then" in view_of(cluster)["waiting"].lower()
    acts(cluster, "t1000")
    assert (partition(cluster)["leader"], partition(cluster)["leaderEpoch"], partition(cluster)["isr"]) == (
        1,
        1,
        [1, 2],
    )


def test_a_controlled_shutdown_moves_the_leader_first() -> None:
    cluster = HandDriven(Settings())
    acts(cluster, "p1-2-0", "q0")
    assert partition(cluster)["leader"] == 1
    assert view_of(cluster)["brokers"]["0"]["sessionText"] == "no session"


def test_the_next_controller_is_the_living_broker_with_the_lowest_id() -> None:
    cluster = HandDriven(Settings())
    acts(cluster, "k2", "e2")
    assert view_of(cluster)["controller"] == 0


def test_a_power_loss_takes_what_was_not_flushed() -> None:
    cluster = HandDriven(Settings(replicas=1))
    acts(cluster, "p1-1-0", "f0", "p1-1-0", "w0", "s0")
    assert values(cluster) == {"0": ["m1"]}
    assert verdict_of(cluster)["lost"] == ["LOST: m2 was acknowledged (acks=1) at offset 1, and no replica has it"]


def test_with_a_flush_for_each_append_a_power_loss_takes_nothing() -> None:
    cluster = HandDriven(Settings(replicas=1, flushes=1))
    acts(cluster, "p2-1-0", "w0", "s0")
    assert values(cluster) == {"0": ["m1", "m2"]}


def test_without_a_member_of_the_isr_only_an_unclean_election_finds_a_leader() -> None:
    """unclean.leader.election.enable: a replica that is not in the ISR may lead, and records are lost."""
    steps = ("p1-2-0", "k1", "e1", "p1-2-0", "k0", "e0", "k2", "e2", "s1")
    clean, unclean = HandDriven(Settings(unclean=0)), HandDriven(Settings(unclean=1))
    acts(clean, *steps)
    acts(unclean, *steps)
    assert partition(clean)["leader"] is None
    assert partition(unclean)["leader"] == 1
    assert values(unclean)["1"] == ["m1"]
    acts(unclean, "s0", "s2")
    assert "LOST: m2" in verdict_of(unclean)["lost"][0]


def test_a_cut_link_keeps_calls_back_and_healed_links_let_them_go() -> None:
    cluster = HandDriven(Settings())
    acts(cluster, "x1-0", "p1-1-0")
    assert values(cluster)["1"] == []
    assert view_of(cluster)["brokers"]["1"]["faults"] == ["calls to 0 are partitioned"]
    acts(cluster, "m")
    assert values(cluster)["1"] == ["m1"]


def test_fewer_replicas_in_sync_than_required_refuse_acks_all() -> None:
    """NOT_ENOUGH_REPLICAS: min.insync.replicas (Partition.appendRecordsToLeader)."""
    cluster = HandDriven(Settings(min_insync_replicas=2))
    acts(cluster, "k1", "e1", "k2", "e2", "p1-2-0", "p1-1-0")
    assert [(one["outcome"], one["error"]) for one in books_of(cluster)] == [
        ("fail", "NOT_ENOUGH_REPLICAS"),
        ("ok", ""),
    ]


def test_the_idempotent_producers_second_attempt_writes_nothing_twice() -> None:
    cluster = HandDriven(Settings())
    acts(cluster, "h1", "h2", "i1-0", "i1-0")
    assert values(cluster)["0"] == ["m1"]
    acts(cluster, "u1", "u2")
    assert [one["outcome"] for one in books_of(cluster)] == ["ok"]


def test_a_consumer_reads_what_is_committed() -> None:
    cluster = HandDriven(Settings())
    said = acts(cluster, "p1-2-0", "h1", "h2", "p1-1-0", "c0", "c1")
    assert said[-2] == "A consumer read m1 from broker 0."
    assert "NOT_LEADER_OR_FOLLOWER" in said[-1]


# The rules of Kafka's history


def test_before_leader_epochs_an_acknowledged_record_is_lost() -> None:
    """KIP-101, first scenario: by the high watermark's rule a follower truncates a record that is committed."""
    cluster = HandDriven(Settings(rule=HIGH_WATERMARK, order=3))
    acts(cluster, *LOSS)
    assert verdict_of(cluster)["lost"] == ["LOST: m2 was acknowledged (acks=all) at offset 1, and no replica has it"]
    assert "StrongIsr" in cluster.broken or "LogMatchingHw" in cluster.broken
    assert set(map(tuple, values(cluster).values())) == {("m1", "m3")}


def test_with_leader_epochs_the_same_steps_keep_it() -> None:
    cluster = HandDriven(Settings(rule=KIP_320, order=3))
    acts(cluster, *LOSS)
    assert verdict_of(cluster) == {"broken": "", "lost": [], "ended": False}
    assert set(map(tuple, values(cluster).values())) == {("m1", "m2", "m3")}


# Messages in flight


def by_hand() -> HandDriven:
    return HandDriven(Settings(by_hand=1))


def number(cluster: HandDriven, kind: str, target: int) -> str:
    return str(next(one.number for one in cluster.post.in_flight() if (one.kind, one.target) == (kind, target)))


def test_by_hand_nothing_arrives_by_itself() -> None:
    cluster = by_hand()
    for target in (1, 2, 0):  # the followers' LeaderAndIsr and metadata first
        while in_flight(cluster, "control"):
            acts(cluster, f"d{in_flight(cluster, 'control')[0].number}")
        del target
    acts(cluster, "p1-2-0")
    assert values(cluster)["0"] == []
    acts(cluster, f"d{number(cluster, 'produce', 0)}")
    assert values(cluster) == {"0": ["m1"], "1": [], "2": []}


def test_a_lost_produce_leaves_the_client_without_a_response() -> None:
    cluster = by_hand()
    while in_flight(cluster, "control"):
        acts(cluster, f"d{in_flight(cluster, 'control')[0].number}")
    acts(cluster, "p1-1-0", f"l{number(cluster, 'produce', 0)}" if in_flight(cluster, "produce") else "t1")
    batch = number(cluster, "produce", 0) if in_flight(cluster, "produce") else ""
    if batch:
        acts(cluster, f"l{batch}")
    assert values(cluster)["0"] == []
    assert books_of(cluster)[0]["outcome"] == "info"


def test_a_lost_fetch_is_sent_again() -> None:
    cluster = HandDriven(Settings())
    acts(cluster, "z0", "p1-1-0")
    lost = in_flight(cluster, "fetch")
    acts(cluster, "r0")
    assert all(one.fate != IN_FLIGHT for one in lost)
    acts(cluster, "t500")
    assert values(cluster)["1"] == ["m1"]


def test_a_message_repeated_arrives_once_more() -> None:
    """A late second copy of a fetch response changes nothing: the follower has closed its round."""
    cluster = HandDriven(Settings())
    acts(cluster, "h1", "p1-1-0")
    response = number(cluster, "fetch-response", 1)
    acts(cluster, f"a{response}")
    assert values(cluster)["1"] == ["m1"]
    acts(cluster, "u1", "p1-1-0")
    before = values(cluster)
    if cluster.post.by_number[int(response)].fate == IN_FLIGHT:
        acts(cluster, f"d{response}")
    assert values(cluster) == before


def test_what_has_no_object_is_refused_and_changes_nothing() -> None:
    cluster = HandDriven(Settings())
    before = json.dumps([view_of(cluster), len(cluster.events), cluster.step])
    for text in ("r0", "s0", "u0", "n1", "m", "v", "d999", "x1-1"):
        with pytest.raises(ActionError):
            acts(cluster, text)
    assert json.dumps([view_of(cluster), len(cluster.events), cluster.step]) == before


# Schedules


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    replicas = draw(st.integers(1, 4))
    wanted = Settings(
        replicas=replicas,
        order=draw(st.integers(0, factorial(replicas) - 1)),
        min_insync_replicas=draw(st.integers(1, replicas)),
        rule=draw(st.integers(0, len(RULE_NAMES) - 1)),
        unclean=draw(st.integers(0, 1)),
        flushes=draw(st.integers(0, 1)),
        by_hand=draw(st.integers(0, 1)),
        apart=draw(st.integers(0, 1)),
    )
    found = []
    for _ in range(draw(st.integers(0, 30))):
        kind = draw(st.sampled_from(list(KINDS.values())))
        most = [max(wanted.brokers) if one.is_broker else min(one.most, 60) for one in kind.parameters]
        found.append(
            Action(
                kind.name,
                tuple(draw(st.integers(one.least, end)) for one, end in zip(kind.parameters, most, strict=True)),
            )
        )
    return Schedule(wanted, tuple(found))


@given(schedules())
def test_a_schedule_is_read_as_it_was_written(schedule: Schedule) -> None:
    assert read_schedule(write_schedule(schedule)) == schedule


@settings(deadline=None, max_examples=examples(60))
@given(schedules())
def test_no_actions_break_the_cluster_and_the_same_give_the_same_history(schedule: Schedule) -> None:
    """For any presses of a person: an action is done or refused by a sentence. Done actions are replayed exactly."""
    session = Session()
    session.request(json.dumps({"op": "begin", "settings": {}}))
    session.play(Schedule(schedule.settings))
    for action in schedule.actions:
        try:
            session.do(action)
        except ActionError:
            continue
    whole = session.request(json.dumps({"op": "open", "schedule": write_schedule(session.schedule)}))
    again = Session().request(json.dumps({"op": "open", "schedule": write_schedule(session.schedule)}))
    assert "error" not in json.loads(whole), json.loads(whole)["error"]
    assert whole == again


@settings(deadline=None, max_examples=examples(40))
@given(schedules())
def test_todays_rule_keeps_every_invariant_but_where_a_setting_gives_it_up(schedule: Schedule) -> None:
    """By kip-320, with flushed appends and clean elections, no action of a person loses what acks=all acknowledged."""
    safe = Settings(replicas=schedule.settings.replicas, flushes=1, by_hand=schedule.settings.by_hand)
    cluster = HandDriven(safe)
    for action in schedule.actions:
        if all(
            value <= max(safe.brokers)
            for value, one in zip(action.values, KINDS[action.kind].parameters, strict=True)
            if one.is_broker
        ):
            try:
                cluster.do(action)
            except ActionError:
                continue
    assert cluster.broken == ""
    assert [one for one in books_of(cluster) if one["lost"] and one["acks"] == "all"] == []


def test_forty_steps_fit_into_two_thousand_characters() -> None:
    longest = Action("produce", (20, 2, 4)), Action("wait", (MOST_MS,)), Action("repeat", (99_999,))
    schedule = Schedule(Settings(5, 119, 5, 0, 1, 1, 1, 1), longest * 13 + longest[:1])
    assert len(schedule.actions) == 40
    assert len(write_schedule(schedule)) < 2000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2~~k0", "of version 2; this page reads version 1"),
        ("k0", "begins with a version number"),
        ("1~", "~ is missing"),
        ("1~y7~", "can't be read from 'y7'"),
        ("1~b9~", "replicas is 9; it must be a whole number from 1 to 5"),
        ("1~b2i3~", "min.insync.replicas is 3"),
        ("1~~k7", "action 1 of this schedule: kill: broker is 7"),
        ("1~~<script>", "action 1 of this schedule can't be read"),
        ("1~~k0.r0", "action 2 of this schedule (resume) has no object: broker 0 is not paused"),
        ("1~~" + "t1." * 5000, "characters; at most"),
        ("1~~" + ".".join(["m"] * 401), "401 actions; at most 400"),
    ],
)
def test_a_schedule_that_cannot_be_played_is_refused_by_a_sentence(text: str, words: str) -> None:
    said = json.loads(Session().request(json.dumps({"op": "open", "schedule": text})))
    assert words in said["error"]


@given(st.text(max_size=200) | st.binary(max_size=100).map(lambda some: some.decode("latin-1")))
def test_whatever_stands_in_an_address_is_a_schedule_or_refused(text: str) -> None:
    with contextlib.suppress(ScheduleError):
        assert read_schedule(write_schedule(read_schedule(text))) == read_schedule(text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["open", "begin", "do", "back", "vocabulary", "__init__"])},
        optional={"action": _JSON, "settings": _JSON, "count": _JSON, "schedule": _JSON},
    )
    | _JSON
)
def test_whatever_the_worker_is_asked_it_responds_with_json(wanted: object) -> None:
    session = _SESSION
    before = write_schedule(session.schedule)
    said = json.loads(session.request(json.dumps(wanted)))
    if "error" in said:
        assert write_schedule(session.schedule) == before or wanted["op"] == "open"


_SESSION = Session()


def test_going_back_is_a_replay() -> None:
    session = Session()
    ask = lambda **wanted: json.loads(session.request(json.dumps(wanted)))  # noqa: E731 - short, and only here
    ask(op="do", action={"do": "produce", "count": 1, "acks": ALL, "broker": 0})
    then = ask(op="do", action={"do": "hold_fetch", "broker": 1})
    ask(op="do", action={"do": "kill", "broker": 0})
    back = ask(op="back", count=2)
    for key in ("view", "logs", "books", "messages", "rows", "schedule", "time"):
        assert back[key] == then[key], key
    assert "error" in ask(op="back", count=3)


def test_the_time_lines_patches_lead_to_what_is_shown() -> None:
    from tidegauge_lab.timeline.patches import patched  # noqa: PLC0415 - only here

    session = Session()
    session.play(read_schedule("1~o3r0~" + ".".join(LOSS)))
    whole = json.loads(session.request(json.dumps({"op": "open", "schedule": write_schedule(session.schedule)})))
    state = whole["base"]
    for step in whole["steps"]:
        state = patched(state, step["patch"])
    assert state == whole["view"]
