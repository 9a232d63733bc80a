"""The command line without a cluster: usage before contact, Kafka's lines, exit codes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click
import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.admin import Admin, TopicConfig
from tidegauge_client.cli import consume, delete_topic, produce, wait
from tidegauge_client.cli.describe import Filter, partition_line, replica_table, topic_json, topic_lines
from tidegauge_client.cli.main import root, run, wants_json
from tidegauge_client.cli.topics import parse_assignment, parse_configs
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from tidegauge_client.topic_description import ReplicaState, TopicDescription, replica_states, settings_of

PART = PartitionInfo("t", 0, 1, 3, (1, 2, 0), (2, 1))
LEADERLESS = PartitionInfo("t", 1, None, 4, (2, 0, 1), (2,))
TOPIC = TopicInfo("t", "AbCdEfGhIjKlMnOpQrStUv", {0: PART, 1: LEADERLESS})
CONFIGS = [
    TopicConfig("min.insync.replicas", "2", False, "DYNAMIC_TOPIC_CONFIG"),
    TopicConfig("retention.ms", "604800000", True, "DEFAULT_CONFIG"),
    TopicConfig("segment.bytes", "1000", False, "STATIC_BROKER_CONFIG"),
]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing here may find a cluster to contact."""
    monkeypatch.setenv("TIDEGAUGE_DIR", str(tmp_path))
    monkeypatch.delenv("TIDEGAUGE_BOOTSTRAP_SERVER", raising=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["create-topic"],
        ["create-topic", "t", "--partitions", "0"],
        ["create-topic", "t", "--partitions", "3", "--replica-assignment", "1:0,0:1"],
        ["create-topic", "t", "--replication-factor", "1", "--replica-assignment", "1:0,0:1"],
        ["create-topic", "t", "--replication-factor", "0"],
        ["create-topic", "t", "--replica-assignment", "1:x"],
        ["create-topic", "t", "--replica-assignment", "1:1"],
        ["create-topic", "t", "--replica-assignment", "1:0,1"],
        ["create-topic", "t", "--config", "novalue"],
        ["alter-topic", "t", "--partitions", "2", "--replica-assignment", "1:0,1"],
        ["list-topics", "-b", "nohost"],
        ["list-topics", "-o", "yaml"],
        ["get-offsets", "t", "--time", "soon"],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "--key-separator", "\\q"],
        ["produce", "t", "--count", "3", "--key-separator", ":"],
        ["produce", "t", "--file", "/nonexistent/file"],
        ["produce", "t", "--delivery-timeout-ms", "0"],
        ["produce", "t", "--request-timeout-ms", "0"],
        ["consume", "t", "--format", "%q"],
        ["consume", "t", "--partition", "0", "--offset", "soon"],
        ["produce", "t", "--header", "no-value"],
        ["produce", "t", "--headers-separator", ""],
        ["produce", "t", "--count", "3", "--headers-separator", "|"],
        ["consume", "t", "--partition", "0", "--offset", "3", "--from-beginning"],
        ["consume", "t", "--group", "g", "--partition", "0"],
        ["consume", "t", "--group", "g", "--offset", "earliest"],
        ["consume", "t", "--group", "g", "--consumer-property", "group.id=h"],
        ["consume", "t", "--consumer-property", "group.instance.id=i"],
        ["wait"],
        ["wait", "--leader", "t-0", "--hw", "t-0=1"],
        ["wait", "--leader", "t"],
        ["wait", "--isr", "t-0"],
        ["wait", "--hw", "t-0=x"],
        ["health", "--broker", "-1"],
    ],
)
def test_wrong_usage_ends_with_2_before_anything_is_contacted(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "Error: " in streams.err


def test_usage_errors_are_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list-topics", "--bogus", "-o", "json"]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert json.loads(streams.err)["error"]["message"] == "No such option '--bogus'."


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["x", "-o", "json"], True),
        (["x", "--output=json"], True),
        (["-ojson"], True),
        (["x", "-o", "text"], False),
        (["json"], False),
    ],
)
def test_json_is_recognised_among_unreadable_arguments(arguments: list[str], expected: bool) -> None:
    assert wants_json(arguments) is expected


def outcome(arguments: list[str]) -> object:
    """As the entry point: verbs end with SystemExit."""
    try:
        return run(arguments)
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    "verb", [["list-topics"], ["describe-topic", "t"], ["consume", "t"], ["produce", "t", "--count", "1"]]
)
def test_no_cluster_is_one_sentence_and_1(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(verb) == 1
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "no cluster is known" in streams.err
    assert "Traceback" not in streams.err


def test_an_illegal_topic_name_is_reported_in_kafkas_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["create-topic", "a b", "-o", "json"]) == 1
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["name"] == "INVALID_TOPIC_EXCEPTION"
    assert "Topic name is invalid: 'a b' contains one or more characters" in error["message"]


def test_the_version_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tidegauge ")


def test_a_client_verb_imports_nothing_heavy() -> None:
    """A client command loads no heavy library and no other component, so that it starts fast."""
    program = (
        "import sys\n"
        "from tidegauge_client.cli.main import run\n"
        "try:\n    run(['produce', 't', '--count', '1'])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'rich', 'yaml', 'starlette', 'numpy', 'kazoo'}\n"
        "others = {'tidegauge_lab', 'tidegauge_broker', 'tidegauge_controller', 'tidegauge_spark'}\n"
        "print(sorted((heavy | others) & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_cluster_file_is_read_without_grpc() -> None:
    program = "import sys, tidegauge_client.cluster_file; print('grpc' in sys.modules, 'aiokafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]


def test_python_o_is_refused() -> None:
    program = "from tidegauge_client.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-O", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "does not run under python -O" in done.stderr


def test_describe_prints_kafkas_lines() -> None:
    """The lines of ``kafka-topics.sh --describe`` (TopicCommand), tab for tab."""
    assert list(topic_lines(TOPIC, CONFIGS)) == [
        "Topic: t\tTopicId: AbCdEfGhIjKlMnOpQrStUv\tPartitionCount: 2\tReplicationFactor: 3\t"
        "Configs: min.insync.replicas=2,segment.bytes=1000",
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2,0\tIsr: 2,1\tElr: N/A\tLastKnownElr: N/A",
        "\tTopic: t\tPartition: 1\tLeader: none\tReplicas: 2,0,1\tIsr: 2\tElr: N/A\tLastKnownElr: N/A",
    ]


def test_eligible_leaders_stand_in_kafkas_places_and_are_not_there_in_zookeeper_mode() -> None:
    """TopicCommand.PartitionDescription of 4.x: N/A where the response has none, and an empty list as nothing."""
    part = PartitionInfo("t", 0, 0, 1, (0, 1, 2), (0,))
    assert partition_line(part).endswith("Isr: 0\tElr: N/A\tLastKnownElr: N/A")
    eligible = dataclasses.replace(part, elr=(1, 2), last_known_elr=())
    assert partition_line(eligible).endswith("Isr: 0\tElr: 1,2\tLastKnownElr: ")


def test_describe_shows_a_reassignment_between_isr_and_elr() -> None:
    moving = PartitionInfo("t", 0, 1, 3, (1, 2, 0), (1,), adding_replicas=(0,), removing_replicas=(2,))
    assert "\tIsr: 1\tAdding Replicas: 0\tRemoving Replicas: 2\tElr: N/A" in partition_line(moving)
    assert "ReplicationFactor: 2" in next(topic_lines(TopicInfo("t", "", {0: moving}), []))


@pytest.mark.parametrize(
    ("wanted", "live", "shown"),
    [
        (Filter(), {0, 1, 2}, [True, True]),
        (Filter(under_replicated=True), {0, 1, 2}, [True, True]),
        (Filter(unavailable=True), {0, 1, 2}, [False, True]),
        (Filter(unavailable=True), {0, 2}, [True, True]),
        (Filter(under_min_isr=True), {0, 1, 2}, [False, True]),
        (Filter(at_min_isr=True), {0, 1, 2}, [True, False]),
    ],
)
def test_filters_are_kafkas(wanted: Filter, live: set[int], shown: list[bool]) -> None:
    assert [wanted.shows(part, dict.fromkeys(live), 2) for part in (PART, LEADERLESS)] == shown


def described() -> TopicDescription:
    leader = metadata_pb2.ReplicaDescription(
        topic="t", partition=0, role="leader", log_end_offset=9, high_watermark=7, log_start_offset=1
    )
    leader.epochs.add(leader_epoch=0, start_offset=0)
    leader.epochs.add(leader_epoch=3, start_offset=5)
    leader.remote_replicas.add(broker_id=2, log_end_offset=7)
    leader.remote_replicas.add(broker_id=0)
    follower = metadata_pb2.ReplicaDescription(
        topic="t", partition=0, role="follower", log_end_offset=7, high_watermark=6, log_start_offset=1,
        last_stable_offset=6,
    )  # fmt: skip
    return TopicDescription(TOPIC, CONFIGS, replica_states(TOPIC, {1: [leader], 2: [follower], 0: None}))


def test_json_has_the_fixed_shape() -> None:
    """Every key always, one entry for each AR member in AR order, unknown and nulls."""
    value: dict[str, Any] = topic_json(described(), [PART, LEADERLESS])
    assert value == {
        "name": "t",
        "topic_id": "AbCdEfGhIjKlMnOpQrStUv",
        "partition_count": 2,
        "replication_factor": 3,
        "configs": {"min.insync.replicas": "2", "segment.bytes": "1000"},
        "partitions": [
            {
                "partition": 0, "leader": 1, "leader_epoch": 3, "replicas": [1, 2, 0], "isr": [2, 1], "osr": [0],
                "elr": None, "last_known_elr": None,
                "hw": 7,
                "replicas_state": [
                    {"broker": 1, "role": "leader", "leo": 9, "hw": 7, "lso": None, "log_start": 1, "in_isr": True,
                     "remote_leos": {"0": None, "2": 7}, "epochs": [[0, 0], [3, 5]]},
                    {"broker": 2, "role": "follower", "leo": 7, "hw": 6, "lso": 6, "log_start": 1, "in_isr": True,
                     "remote_leos": {}, "epochs": []},
                    {"broker": 0, "role": "unknown", "leo": None, "hw": None, "lso": None, "log_start": None,
                     "in_isr": False, "remote_leos": {}, "epochs": []},
                ],
            },
            {
                "partition": 1, "leader": -1, "leader_epoch": 4, "replicas": [2, 0, 1], "isr": [2], "osr": [0, 1],
                "elr": None, "last_known_elr": None,
                "hw": None,
                "replicas_state": [
                    {"broker": broker, "role": "unknown", "leo": None, "hw": None, "lso": None, "log_start": None,
                     "in_isr": broker == 2, "remote_leos": {}, "epochs": []}
                    for broker in (2, 0, 1)
                ],
            },
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "reported"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NETWORK_EXCEPTION, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),  # its session ended meanwhile
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ],
)
async def test_unreadable_settings_are_a_problem_and_no_failure(code: ErrorCode, reported: bool) -> None:
    class Silent:
        async def describe_topic_config(self, _: str) -> list[TopicConfig]:
            raise TidegaugeError(code, "no")

    if reported:
        configs, problem = await settings_of(cast("Admin", Silent()), "t")
        assert (configs, "in ZooKeeper" in problem) == ((), True)
    else:
        with pytest.raises(TidegaugeError):
            await settings_of(cast("Admin", Silent()), "t")


def test_the_replica_table_stays_within_80_columns_and_loses_no_epoch() -> None:
    epochs = [(number, number * 100_000) for number in range(12)]
    states = [
        ReplicaState(1, "leader", 1_234_567, 1_234_567, 1_000, True, dict.fromkeys(range(2, 9), 1_234_567), epochs),
        ReplicaState(2, "follower", 1_234_567, 1_234_567, 1_000, True, {}, epochs[:1]),
    ]
    lines = [line.expandtabs() for line in replica_table(states, 1_234_567)]
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).count("@") == 13
    assert "broker 8: 1234567; HW 1234567" in " ".join(" ".join(lines).split())


def test_the_replica_table_shows_the_last_stable_offset_where_a_transaction_holds_it() -> None:
    """A reader of committed data is held there, below the HW; in all other tables it has no column."""
    states = [ReplicaState(1, "leader", 9, 7, 0, in_isr=True, lso=3), ReplicaState(2, "follower", 9, 7, 0, lso=7)]
    lines = [line.split() for line in replica_table(states, 7)]
    assert lines[0] == ["BROKER", "ROLE", "ISR", "LOG", "START", "LEO", "HW", "LSO", "LAG", "EPOCHS"]
    assert [line[5:8] for line in lines[1:3]] == [["7", "3", "0"], ["7", "7", "0"]]


def test_the_replica_table_shows_lag_and_epochs() -> None:
    lines = list(replica_table(described().replicas[0], 7))
    assert [line.split() for line in lines[1:4]] == [
        ["1", "leader", "yes", "1", "9", "7", "0", "0@0", "3@5"],
        ["2", "follower", "yes", "1", "7", "6", "2", "-"],
        ["0", "unknown", "no", "-", "-", "-", "-", "-"],
    ]
    assert lines[4].strip() == "The leader knows of broker 0: -, broker 2: 7; HW 7"


def test_min_insync_replicas_comes_from_the_settings_in_force() -> None:
    assert described().min_isr == 2


def test_an_uneven_assignment_is_reported_in_the_words_of_kafkas_tool(capsys: pytest.CaptureFixture[str]) -> None:
    """As kafka-topics.sh 3.9.1 does; `make differential` compares it."""
    assert run(["alter-topic", "t", "--partitions", "2", "--replica-assignment", "0:1:2,0:2"]) == 2
    assert "Partition 1 has different replication factor: [0, 2]" in capsys.readouterr().err


def test_assignments_and_settings_are_read_as_kafka_does() -> None:
    assert parse_assignment("1:0:2,0:2:1") == [[1, 0, 2], [0, 2, 1]]
    assert parse_configs(["a=b=c", " x = y "]) == {"a": "b=c", "x": "y"}


VIEW = ClusterInfo(topics={"t": TOPIC})
KRAFT_VIEW = ClusterInfo(
    brokers={1: BrokerInfo(1, "h", 9)},
    topics={
        "t": TopicInfo("t", partitions={0: PartitionInfo("t", 0, 1, 3, (1, 2, 0), (1,), elr=(2,), last_known_elr=())})
    },
)


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        (wait.read_elr("t-0=2"), None),
        (wait.read_elr("t-0=2,0"), "2 of t-0 are eligible leaders"),
        (wait.read_elr("t-0="), "2 of t-0 are eligible leaders"),
        (wait.read_elr("u-0=2"), "topic u does not exist"),
        (wait.fenced_condition(2, is_fenced=True), None),
        (wait.fenced_condition(1, is_fenced=True), "broker 1 is not fenced"),
        (wait.fenced_condition(1, is_fenced=False), None),
        (wait.fenced_condition(2, is_fenced=False), "broker 2 is fenced, or no member"),
    ],
)
def test_conditions_of_kraft_mode(condition: wait.Condition, problem: str | None) -> None:
    """KIP-966, KIP-631: what brokers' metadata show; no partition's broker has to confirm it."""
    assert condition.problem(KRAFT_VIEW) == problem
    assert condition.of_members


def test_without_eligible_leader_replicas_the_mode_is_named() -> None:
    assert (
        wait.read_elr("t-0=2").problem(VIEW) == "the cluster is in ZooKeeper mode, and has no eligible leader replicas"
    )


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("condition", "instead"),
    [
        (wait.leader_condition(T0, None), None),
        (wait.leader_condition(T0, 1), None),
        (wait.leader_condition(T0, 2), "the leader of t-0 is 1"),
        (wait.leader_condition(T0, other_than=1), "the leader of t-0 is still 1"),
        (wait.leader_condition(T0, other_than=2), None),
        (wait.leader_condition(T1, None), "t-1 has no leader"),
        (wait.leader_condition(TopicPartition("t", 9), None), "there is no partition t-9"),
        (wait.leader_condition(TopicPartition("u", 0), None), "topic u does not exist"),
        (wait.isr_condition(T0, [1, 2]), None),
        (wait.isr_condition(T0, [0, 1, 2]), "the ISR of t-0 is 2,1"),
        (wait.in_sync_condition("t"), "the ISR of t-0 is 2,1 of 1,2,0"),
        (wait.in_sync_condition("u"), "topic u does not exist"),
        (wait.hw_condition(T1, 3), "t-1 has no leader"),
    ],
)
def test_wait_reports_what_is_true_instead(condition: wait.Condition, instead: str | None) -> None:
    assert condition.problem(VIEW) == instead


LED = replace(PART, leader_id=1, leader_epoch=3, replicas=(1, 2), isr=(1, 2))


def own(
    role: str, epoch: int = 3, isr: Sequence[int] = (), hw: int = 0
) -> dict[TopicPartition, metadata_pb2.ReplicaDescription]:
    """Return one broker's report of its replica."""
    return {T0: metadata_pb2.ReplicaDescription(topic="t", role=role, leader_epoch=epoch, isr=isr, high_watermark=hw)}


LEADER, FOLLOWER = own("leader", isr=(1, 2), hw=7), own("follower")
DEAD = "broker 1 leads t-0 by the brokers' metadata, but does not respond"
DEPOSED = "broker 1 leads t-0 by the brokers' metadata, but does not lead it in epoch 3"


@pytest.mark.parametrize(
    ("condition", "said", "instead"),
    [
        *(
            (condition, said, instead)
            for condition in (
                wait.leader_condition(T0),
                wait.leader_condition(T0, 1),
                wait.isr_condition(T0, [1, 2]),
                wait.in_sync_condition("t"),
                wait.hw_condition(T0, 7),
            )
            for said, instead in (
                ({1: LEADER, 2: FOLLOWER}, None),
                ({1: None, 2: FOLLOWER}, DEAD),
                ({2: FOLLOWER}, DEAD),
                ({1: {}, 2: FOLLOWER}, DEPOSED),
                ({1: own("follower"), 2: FOLLOWER}, DEPOSED),
                ({1: own("leader", 2, (1, 2), 7), 2: FOLLOWER}, DEPOSED),
            )
        ),
        (wait.leader_condition(T0), {1: LEADER, 2: None}, None),
        (wait.isr_condition(T0, [1, 2]), {1: own("leader", isr=(1,))}, "the ISR of t-0 is 1, its leader says"),
        (wait.in_sync_condition("t"), {1: LEADER, 2: None}, "broker 2 is in the ISR of t-0, but does not respond"),
        (
            wait.in_sync_condition("t"),
            {1: LEADER, 2: own("follower", 2)},
            "broker 2 is in the ISR of t-0, but does not follow broker 1 in this epoch",
        ),
        (
            wait.in_sync_condition("t"),
            {1: own("leader", isr=(1,)), 2: FOLLOWER},
            "the ISR of t-0 is 1 of 1,2, its leader says",
        ),
        (wait.hw_condition(T0, 8), {1: LEADER}, "the high watermark of t-0 is 7"),
    ],
)
def test_wait_accepts_no_metadata_that_the_brokers_themselves_contradict(
    condition: wait.Condition, said: wait.Said, instead: str | None
) -> None:
    """Metadata shows a dead leader, and a dead member of the ISR, until the session with ZooKeeper ends."""
    assert wait.contradiction(condition, LED, said) == instead


def test_wait_does_not_report_what_it_saw_before_the_brokers_fell_silent_as_the_present_state() -> None:
    condition = wait.leader_condition(T0)
    said = wait.not_held(condition, 500, "t-0 has no leader", None)
    assert said == "leader t-0 does not hold after 500 ms: t-0 has no leader"
    silent = TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "no broker responds")
    assert wait.not_held(condition, 500, "t-0 has no leader", silent) == (
        "leader t-0 does not hold after 500 ms: when it was last seen, t-0 has no leader; since then no broker responds"
    )


@pytest.mark.parametrize("text", ["t-0", "t-0=1", "t-0!=2"])
def test_a_leader_is_waited_for_by_partition_by_id_or_by_another_id(text: str) -> None:
    assert wait.read_leader(text).text == f"leader {text}"


def test_in_sync_means_all_replicas_of_all_partitions() -> None:
    whole = TopicInfo("t", "", {0: PartitionInfo("t", 0, 1, 0, (1, 2), (2, 1))})
    assert wait.in_sync_condition(None).problem(ClusterInfo(topics={"t": whole})) is None
    assert wait.in_sync_condition(None).problem(VIEW) is not None


def test_an_error_as_json_keeps_code_name_and_sentence_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error is ``{"error":{"code","name","message"}}``; a reading that never began leaves only that."""

    def unknown(work: Coroutine[Any, Any, None]) -> None:
        work.close()
        raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Topic 't' does not exist as expected")

    monkeypatch.setattr(consume, "run", unknown)
    assert outcome(["consume", "t", "-b", "127.0.0.1:1", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().err)["error"] == {
        "code": 3,
        "name": "UNKNOWN_TOPIC_OR_PARTITION",
        "message": "Topic 't' does not exist as expected",
    }


def test_consume_counts_also_when_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka's ConsoleConsumer: the last line tells the number, also after Ctrl-C."""

    def interrupted(work: Coroutine[Any, Any, None]) -> None:
        work.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(consume, "run", interrupted)
    assert outcome(["consume", "t", "-b", "127.0.0.1:1"]) == 130
    assert capsys.readouterr().err == "Processed a total of 0 messages\n"


def test_consume_counts_also_when_it_is_terminated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM, which an init system or a CI sends, ends it as Ctrl-C does, with the code of that signal."""

    def terminated(work: Coroutine[Any, Any, None]) -> None:
        work.close()
        raise asyncio.CancelledError

    monkeypatch.setattr(consume, "run", terminated)
    assert outcome(["consume", "t", "-b", "127.0.0.1:1"]) == 143
    assert capsys.readouterr().err == "Processed a total of 0 messages\n"


class Silent:
    """What ``consume`` asks of a consumer between two polls."""

    def __init__(self) -> None:
        self.notices = ["The fetch offset 9 is out of range for partition t-0; reading continues at offset 5"]
        self.trouble = {T0: TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, "t-0 has no leader at the moment")}

    def take_notices(self) -> list[str]:
        taken, self.notices = self.notices, []
        return taken

    def troubles(self) -> dict[TopicPartition, TidegaugeError]:
        return self.trouble


def test_consume_says_once_what_it_cannot_read_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    consumer = Silent()
    printing = consume.Printing(lambda _: b"", None, None)

    def reported(*, has_waited: bool) -> list[str]:
        printing.tell_news(cast("consume.Consumer", consumer), has_waited=has_waited)
        return capsys.readouterr().err.splitlines()

    (notice,) = reported(has_waited=False)
    assert notice.endswith("reading continues at offset 5")
    (trouble,) = reported(has_waited=True)
    assert trouble.startswith("Nothing can be read from t-0 at the moment, and it is retried: LEADER_NOT_AVAILABLE")
    assert reported(has_waited=True) == []
    consumer.trouble = {}
    assert reported(has_waited=False) == []
    consumer.trouble = Silent().trouble
    assert len(reported(has_waited=True)) == 1, "it was read again meanwhile"


def test_a_line_begins_with_headers_then_a_key() -> None:
    """``parse.headers`` and ``parse.key`` of ConsoleProducer's LineMessageReader; headers as ``consume`` prints %h."""
    fixed = [("source", b"cli")]
    work = produce.Work("t", None, b"=>", None, None, headers=fixed, headers_separator=b"|")
    assert work.split(b"a=1,b=x=y|k=>v|w") == ([("a", b"1"), ("b", b"x=y"), *fixed], b"k", b"v|w")
    assert work.split(b"|k=>") == (fixed, b"k", b"")
    with pytest.raises(produce.MalformedLine, match="No headers separator found on line number 3"):
        work.split(b"k=>v")
    with pytest.raises(produce.MalformedLine, match="Malformed headers on line number 4: 'a' is not a header"):
        work.split(b"a|k=>v")
    with pytest.raises(produce.MalformedLine, match="No key separator found on line number 5"):
        work.split(b"a=1|v")


def test_a_deletion_says_for_which_brokers_it_waits() -> None:
    """TopicDeletionManager: replicas on dead brokers are ineligible, and the topic stays in /admin/delete_topics."""
    assert delete_topic.waits_for(TOPIC, {0, 1, 2}) == []
    assert delete_topic.waits_for(TOPIC, {1}) == [0, 2]
    assert "waits for broker 2, which is assigned a replica and is not registered" in delete_topic.waiting_sentence(
        "t", [2]
    )
    assert "waits for brokers 0, 2, which" in delete_topic.waiting_sentence("t", [0, 2])


def test_records_that_failed_are_one_error_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With ``-o json`` an error is one document on stderr; ``produce`` fails if any record did."""
    work = produce.Work("t", None, None, None, None)
    large = TidegaugeError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    for index, problem in enumerate([large, large, TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "late")]):
        work.failed(index, problem, is_definite=True)
    with pytest.raises(SystemExit) as ended:
        produce.fail_as_json(work.problems)
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().err)["error"] == {
        "code": 10,
        "name": "MESSAGE_TOO_LARGE",
        "message": "2 records failed: too large; 1 record failed: late",
    }


def leaves(command: click.Command) -> list[click.Command]:
    """The commands that do something: verbs, and those below a verb."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = [command.get_command(context, name) for name in command.list_commands(context)]
        return [leaf for child in below if child is not None for leaf in leaves(child)]
    return [command]


def test_every_verb_takes_output_and_dir() -> None:
    """Every verb has ``-o/--output text|json`` and ``--dir``."""
    verbs = leaves(root)
    assert len(verbs) > 40
    for verb in verbs:
        options = {name for parameter in verb.params for name in parameter.opts}
        assert {"-o", "--output", "--dir"} <= options, verb.name
