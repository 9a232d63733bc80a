"""The timeline: which events are wanted, how they read, in which order a growing directory gives them."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge.event_log import KINDS
from tidegauge.moments import parse_moment
from tidegauge_client.cluster_file import BrokerEntry, ClusterFile
from tidegauge_lab.cli.timeline import timeline as timeline_verb
from tidegauge_lab.timeline.choice import Choice
from tidegauge_lab.timeline.lanes import CLIENTS, CONTROLLER, steps
from tidegauge_lab.timeline.reading import PATIENCE_SECONDS, Timeline
from tidegauge_lab.timeline.words import line

AT = {"topic": "orders", "partition": 0}
NOW = datetime(2026, 11, 20, 12, 30, 15, tzinfo=UTC)
NOON_MS = 1_795_176_000_000


def event(kind: str, source: str = "broker-1", time: int = 0, **fields: Any) -> dict[str, Any]:
    return {"time_ms": time // 1000, "logical_time": time, "sequence": 1, "source": source, "kind": kind, **fields}


LEADS = event("role", **AT, cause="LeaderAndIsr", role="leader", leader=1, leader_epoch=3)
KILLED = event("fault", "lab", cause="Lab", action="kill", broker=2, process="broker-2")
SESSION = event("session", cause="ZooKeeper", state="suspended")


@pytest.mark.parametrize(
    ("choice", "passes"),
    [
        (Choice(), [LEADS, KILLED, SESSION]),
        (Choice(topics=frozenset({"orders"})), [LEADS, KILLED, SESSION]),
        (Choice(topics=frozenset({"other"})), [KILLED, SESSION]),
        (Choice(partitions=frozenset({("orders", 0)})), [LEADS, KILLED, SESSION]),
        (Choice(partitions=frozenset({(None, 1)})), [KILLED, SESSION]),
        (Choice(partitions=frozenset({("other", 0), (None, 0)})), [LEADS, KILLED, SESSION]),
        (Choice(brokers=frozenset({2})), [KILLED]),
        (Choice(kinds=frozenset({"role", "session"})), [LEADS, SESSION]),
        (Choice(kinds=frozenset({"role", "fault"}), brokers=frozenset({1})), [LEADS]),
        (Choice(since_ms=1), []),
        (Choice(since_ms=0, until_ms=0), [LEADS, KILLED, SESSION]),
        (Choice(until_ms=-1), []),
    ],
)
def test_filters_narrow_and_causes_pass_those_for_partitions(choice: Choice, passes: list[Any]) -> None:
    assert [one for one in (LEADS, KILLED, SESSION) if choice.wants(one)] == passes


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("1795176000000", NOON_MS),
        ("15s", NOON_MS + 30 * 60_000),
        ("250ms", NOON_MS + 30 * 60_000 + 14_750),
        ("1.5h", NOON_MS - 60 * 60_000 + 15_000),
        ("12:00", NOON_MS),
        ("9:00:00.5", NOON_MS - 3 * 3_600_000 + 500),
        ("2026-11-20T12:00:00", NOON_MS),
        ("2026-11-20T13:00:00+01:00", NOON_MS),
    ],
)
def test_a_moment_can_be_written_in_several_ways(text: str, moment_ms: int) -> None:
    assert parse_moment(text, NOW) == moment_ms


@pytest.mark.parametrize("text", ["soon", "25:00", "", "10 s", "-5s"])
def test_what_is_no_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="is no moment; write 30s"):
        parse_moment(text, NOW)


MOVES = {"replicas": [3, 4, 1, 2], "adding": [3, 4], "removing": [1, 2]}
SHARE = {
    "kind": "share",
    "source": "broker-1",
    "time_ms": 0,
    "topic": "orders",
    "partition": 0,
    "group": "queue",
    "state": "active",
    "start_offset": 0,
}
CASES = [
    (event("reassignment", **AT, state="started", **MOVES), "reassigns to 3,4, now 3,4,1,2"),
    (event("reassignment", **AT, state="replaced", **MOVES), "reassigns to 3,4 instead, now 3,4,1,2"),
    (event("reassignment", **AT, state="cancelled", **MOVES), "cancels the reassignment, back to 3,4"),
    (event("reassignment", **AT, state="completed", **MOVES), "reassignment is complete: 3,4"),
    (event("reassignment", **AT, state="failed", **MOVES), "reassignment failed"),
    (event("fencing", "controller-3000", broker=1, state="fenced"), "controller-3000 -        fences broker 1"),
    (event("fencing", "controller-3000", broker=1, state="unfenced"), "unfences broker 1"),
    (event("elr", "controller-3000", **AT, old=[], new=[1], last_known=[]), "ELR none -> 1"),
    (event("elr", "controller-3000", **AT, old=[1], new=[], last_known=[2]), "ELR 1 -> none, last leader 2"),
    (LEADS, "broker-1 orders-0 leads, epoch 3 (LeaderAndIsr)"),
    (event("role", **AT, cause="LeaderAndIsr", role="follower", leader=2, leader_epoch=3), "follows broker 2, epoch 3"),
    (event("role", **AT, cause="LogDirFailure", role="offline", leader=2, leader_epoch=3), "offline, epoch 3"),
    (event("high_watermark", **AT, cause="Fetch", old=0, new=5), "HW 0 -> 5 (Fetch)"),
    (event("log_end_offset", **AT, cause="Produce", old=0, new=5), "LEO 0 -> 5 (Produce)"),
    (
        event("last_stable_offset", **AT, cause="Fetch", old=3, new=3, high_watermark=5),
        "LSO 3, held below HW 5 (Fetch)",
    ),
    (
        event("last_stable_offset", **AT, cause="Fetch", old=3, new=4, high_watermark=5),
        "LSO 3 -> 4, held below HW 5 (Fetch)",
    ),
    (event("last_stable_offset", **AT, cause="Fetch", old=3, new=6, high_watermark=6), "LSO 3 -> 6 (Fetch)"),
    (event("truncation", **AT, cause="FetchResponse", old=5, new=2), "truncates its log 5 -> 2 (FetchResponse)"),
    (event("truncation", **AT, cause="LeaderAndIsr", old=1, new=0, log_start_offset=0), "log 1 -> 0 (LeaderAndIsr)"),
    # The leader's log begins behind this one's end (UnifiedLog.truncateFullyAndStartAt).
    (
        event("truncation", **AT, cause="FetchResponse", old=3, new=8, log_start_offset=8),
        "starts its log again, LEO 3 -> 8 (FetchResponse)",
    ),
    (
        event("truncation", **AT, cause="FetchResponse", old=9, new=8, log_start_offset=8),
        "starts its log again, LEO 9 -> 8 (FetchResponse)",
    ),
    (event("log_start_offset", **AT, cause="Retention", old=0, new=2), "log start 0 -> 2 (Retention)"),
    (event("epoch", **AT, cause="Produce", leader_epoch=3, start_offset=9), "epoch 3 begins at offset 9"),
    (event("isr", **AT, cause="LeaderAndIsr", old=[], new=[1, 0], state="committed"), "ISR is 1,0 (LeaderAndIsr)"),
    (
        event("isr", **AT, cause="IsrExpiration", old=[1, 0], new=[1], state="pending-shrink"),
        "ISR 1,0 -> 1, pending-shrink (IsrExpiration)",
    ),
    (
        event("min_insync_replicas", cause="ConfigChange", resource="orders", old=1, new=2),
        "min.insync.replicas of orders 1 -> 2",
    ),
    (
        event("election", **AT, cause="BrokerFailure", strategy="offline", leader=1, leader_epoch=3, isr=[1, 2]),
        "elects 1, epoch 3, ISR 1,2 (BrokerFailure)",
    ),
    (
        event("election", **AT, cause="BrokerFailure", strategy="offline", leader=-1, leader_epoch=12, isr=[1]),
        "elects no leader, epoch 12, ISR 1 (BrokerFailure)",
    ),
    (
        event("election", **AT, cause="BrokerFailure", strategy="unclean", leader=1, leader_epoch=3, isr=[1]),
        "elects 1 unclean, epoch 3, ISR 1 (BrokerFailure)",
    ),
    (
        event("election", **AT, cause="BrokerFailure", strategy="remove-from-isr", leader=1, leader_epoch=3, isr=[1]),
        "shrinks the ISR to 1, epoch 3 (BrokerFailure)",
    ),
    (
        event("controller", cause="Election", state="elected", controller_epoch=2),
        "is the controller, controller epoch 2",
    ),
    (event("broker", cause="Lifecycle", state="shutting-down", broker_epoch=-1), "shutting down"),
    (event("broker", cause="Lifecycle", state="registered", broker_epoch=45), "registered, broker epoch 45"),
    (SESSION, "-        ZooKeeper session suspended"),
    (
        event(
            "coordinator",
            topic="__consumer_offsets",
            partition=3,
            cause="Load",
            state="active",
            leader_epoch=2,
            groups=4,
        ),
        "__consumer_offsets-3 active, epoch 2, 4 groups (Load)",
    ),
    (
        event(
            "coordinator",
            topic="__consumer_offsets",
            partition=3,
            cause="Election",
            state="loading",
            leader_epoch=2,
            groups=0,
        ),
        "loading, epoch 2 (Election)",
    ),
    (
        event(
            "group",
            cause="JoinGroup",
            group="g",
            old="Empty",
            new="PreparingRebalance",
            generation=0,
            members=1,
            reason="new member",
        ),
        "broker-1 g        PreparingRebalance, generation 0 (JoinGroup)",
    ),
    (
        event(
            "coordinator",
            topic="__transaction_state",
            partition=3,
            cause="Load",
            state="active",
            leader_epoch=2,
            transactions=7,
        ),
        "__transaction_state-3 active, epoch 2, 7 ids (Load)",
    ),
    (
        event(
            "transaction",
            cause="EndTxn",
            transactional_id="payments",
            old="Ongoing",
            new="PrepareCommit",
            producer_id=4000,
            producer_epoch=2,
            coordinator_epoch=1,
            partitions=["orders-0"],
        ),
        "broker-1 payments PrepareCommit, producer epoch 2 (EndTxn)",
    ),
    (
        event("refusal", **AT, cause="LeaderAndIsr", request="LeaderAndIsr", error="INCONSISTENT_TOPIC_ID"),
        "broker-1 orders-0 refuses LeaderAndIsr: INCONSISTENT_TOPIC_ID",
    ),
    (
        event("refusal", **AT, cause="AlterPartition", request="AlterPartition", error="UNKNOWN_TOPIC_ID"),
        "broker-1 orders-0 AlterPartition refused: UNKNOWN_TOPIC_ID",
    ),
    ({"kind": "restore", "source": "lab", "time_ms": 0, "snapshot": "s1"}, "lab      -        restores snapshot s1"),
    (
        {"kind": "offsets", "source": "broker-1", "time_ms": 0, "group": "g", "partitions": ["orders-0"]},
        "1 committed offset expired: orders-0",
    ),
    (
        {**SHARE, "changed": [[0, 0, "acquired", 2, "a", False]]},
        "orders-0 share queue: 0 acquired x2 by a, start 0",
    ),
    (
        {
            **SHARE,
            "changed": [
                [1, 3, "available", 1, "a", True],
                [5, 5, "none", 0, None, False],
                [7, 7, "none", 0, None, False],
            ],
        },
        "orders-0 share queue: 1-3 available x1, unwritten, 2 more",
    ),
    ({**SHARE, "state": "fenced", "changed": []}, "orders-0 share queue: is no longer served here"),
    (
        {"kind": "quorum", "source": "controller-3000", "time_ms": 0, "state": "Follower", "epoch": 4, "leader": 3001},
        "Follower in epoch 4, leader 3001",
    ),
    (KILLED, "lab      -        kill broker 2"),
]


@pytest.mark.parametrize(("what", "words"), CASES)
def test_an_event_reads_as_a_line_that_fits_80_columns(what: dict[str, Any], words: str) -> None:
    text = line(what, UTC)
    assert text.startswith("00:00:00.000 ")
    assert words in text
    assert len(text) <= 80


def test_every_kind_of_the_schema_has_words() -> None:
    assert {what["kind"] for what, _ in CASES} == KINDS


def test_a_line_of_another_version_is_reported_by_its_kind() -> None:
    assert "broker-1 -        phase_of_moon" in line(event("phase_of_moon"), UTC)
    assert line(event("role", **AT), UTC).endswith("role")


def test_messages_go_from_whom_the_cause_names() -> None:
    """A follower's news come from the leader that it followed then."""
    follows = event("role", "broker-0", **AT, cause="LeaderAndIsr", role="follower", leader=1, leader_epoch=3)
    story = [
        event("election", "broker-2", **AT, cause="TopicCreation"),
        LEADS,
        follows,
        event("log_end_offset", **AT, cause="Produce", old=0, new=1),
        event("log_end_offset", "broker-0", **AT, cause="FetchResponse", old=0, new=1),
        event("high_watermark", **AT, cause="Fetch", old=0, new=1),
        event("isr", **AT, cause="IsrExpiration", old=[1, 0], new=[1], state="pending-shrink"),
        event("isr", **AT, cause="AlterPartition", old=[1, 0], new=[1], state="committed"),
        SESSION,
        event("fault", "lab", cause="Lab", action="kill", broker=None, process="zookeeper"),
    ]
    assert [(step.lane, step.sender, step.receiver) for step in steps(story)] == [
        (CONTROLLER, None, None),
        (1, CONTROLLER, None),
        (0, CONTROLLER, None),
        (1, CLIENTS, None),
        (0, 1, None),
        (1, None, None),
        (1, None, CONTROLLER),
        (1, CONTROLLER, None),
        (1, None, None),
        (None, None, None),
    ]


def write(path: Path, *times: int) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(event("session", path.name.split(".")[0], time, state="x")) + "\n" for time in times)


def logical_times(events: Any) -> list[int]:
    return [one["logical_time"] for one in events]


def test_what_is_written_is_merged_by_cause_the_moved_part_included(tmp_path: Path) -> None:
    write(tmp_path / "broker-1.events.jsonl.1", 1, 5)
    write(tmp_path / "broker-1.events.jsonl", 7)
    write(tmp_path / "broker-0.events.jsonl", 2, 6)
    write(tmp_path / "lab.events.jsonl", 3)
    with closing(Timeline(tmp_path)) as timeline:
        assert logical_times(timeline.written()) == [1, 2, 3, 5, 6, 7]


def test_following_holds_back_what_an_earlier_event_may_still_come_before(tmp_path: Path) -> None:
    first, second = tmp_path / "broker-0.events.jsonl", tmp_path / "broker-1.events.jsonl"
    with closing(Timeline(tmp_path)) as timeline:
        write(first, 10, 30)
        assert logical_times(timeline.settled(0.0)) == []
        write(second, 20)  # its writer had kept it back for a moment
        assert logical_times(timeline.settled(PATIENCE_SECONDS)) == [10, 20, 30]
        write(second, 40)
        assert logical_times(timeline.settled(1.0)) == []
        assert logical_times(timeline.settled(1.0 + 2 * PATIENCE_SECONDS)) == [40]


def test_following_goes_on_over_half_lines_new_brokers_and_a_file_that_moves_away(tmp_path: Path) -> None:
    path = tmp_path / "broker-0.events.jsonl"
    with closing(Timeline(tmp_path)) as timeline:
        write(path, 1)
        with path.open("a") as file:
            file.write('{"time_ms":0,"logical_time":2,"sou')
        assert logical_times(timeline.written()) == [1]
        with path.open("a") as file:
            file.write('rce":"broker-0","kind":"session"}\n')
        write(path, 3)
        path.replace(tmp_path / "broker-0.events.jsonl.1")
        write(path, 4)
        write(tmp_path / "broker-1.events.jsonl", 5)
        assert logical_times(timeline.written()) == [2, 3, 4, 5]
        assert logical_times(timeline.written()) == []


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (["--topic", "nope"], "no event names the topic nope; there are events of orders"),
        (["--partition", "nope-0"], "no event names the partition nope-0; there are events of orders-0"),
        (["--partition", "orders-7"], "no event names the partition orders-7; there are events of orders-0"),
        (["--partition", "7"], "no event names the partition 7 of any topic; there are events of 0"),
        (["--broker", "9"], "the cluster has no broker 9; its brokers are 1, 4"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--svg", "picture.svg"]])
def test_what_no_event_names_is_refused(
    wanted: list[str], words: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers' own events pass the filter; without this they would be shown as if they were the topic's."""
    monkeypatch.chdir(tmp_path)
    ClusterFile("h:1", zookeeper_managed=True, profile="fast", brokers=[BrokerEntry(1, "h", 2, "d")]).save(tmp_path)
    (tmp_path / "logs").mkdir()
    killed = {"time_ms": 1, "logical_time": 9, "source": "lab", "kind": "fault", "action": "kill", "broker": 4}
    lines = [json.dumps(one) + "\n" for one in (LEADS, SESSION, killed)]
    (tmp_path / "logs" / "broker-1.events.jsonl").write_text("".join(lines))
    where = ["--dir", str(tmp_path)]
    known = ["--topic", "orders", "--partition", "orders-0", "--partition", "0", "--broker", "1", "--broker", "4"]
    refused = CliRunner().invoke(timeline_verb, [*known, *wanted, *more, *where])
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert words in refused.stderr
    assert not (tmp_path / "picture.svg").exists()
    assert CliRunner().invoke(timeline_verb, [*known, *more, *where]).exit_code == 0


# Which events are the story of a topic

GROUP = event("group", cause="JoinGroup", group="billing", old="Stable", new="PreparingRebalance", generation=3)
OF_ORDERS = event("transaction", cause="EndTxn", transactional_id="a", new="Ongoing", partitions=["orders-0", "x-y-1"])
OF_OTHERS = event("transaction", cause="EndTxn", transactional_id="b", new="Ongoing", partitions=["others-0"])
SETTING = event("min_insync_replicas", cause="Config", resource="orders", old=1, new=2)
RESTORE = event("restore", "lab", cause="Lab", snapshot="s1", taken_ms=1)


@pytest.mark.parametrize(
    ("choice", "passes"),
    [
        (Choice(), [GROUP, OF_ORDERS, OF_OTHERS, SETTING, RESTORE]),
        (Choice(topics=frozenset({"orders"})), [OF_ORDERS, SETTING, RESTORE]),
        (Choice(partitions=frozenset({("orders", 0)})), [OF_ORDERS, SETTING, RESTORE]),
        (Choice(partitions=frozenset({("orders", 1)})), [SETTING, RESTORE]),
        (Choice(partitions=frozenset({("x-y", 1)})), [OF_ORDERS, RESTORE]),
        (Choice(partitions=frozenset({(None, 0)})), [OF_ORDERS, OF_OTHERS, SETTING, RESTORE]),
        (Choice(topics=frozenset({"others"})), [OF_OTHERS, RESTORE]),
        (Choice(topics=frozenset({"orders"}), kinds=frozenset({"group"})), [GROUP]),
        (Choice(topics=frozenset({"orders"}), kinds=frozenset({"transaction"})), [OF_ORDERS, OF_OTHERS]),
    ],
)
def test_a_story_of_one_topic_is_not_buried_under_all_groups(choice: Choice, passes: list[dict[str, Any]]) -> None:
    events = [GROUP, OF_ORDERS, OF_OTHERS, SETTING, RESTORE]
    assert [one for one in events if choice.wants(one)] == passes


def test_the_metadata_logs_high_watermark_is_shown_where_it_is_asked_for() -> None:
    """It moves with each NoOpRecord of the active controller, and would bury everything else."""
    event = {"kind": "high_watermark", "topic": "__cluster_metadata", "partition": 0, "old": 1, "new": 2}
    assert not Choice().wants(event)
    assert Choice(topics=frozenset({"__cluster_metadata"})).wants(event)
    assert Choice(partitions=frozenset({("__cluster_metadata", 0)})).wants(event)
    assert Choice().wants({**event, "topic": "orders"})
