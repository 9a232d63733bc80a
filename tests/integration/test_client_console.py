"""``produce`` and ``consume`` as processes, as a person at a terminal uses them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.typed import typed
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TIDEGAUGE = Path(sys.executable).with_name("tidegauge")
OF_DIRECTORY = {"logs", "timeline", "zk-tree"}
"""Verbs that read the cluster's directory, and take no address of brokers."""


def where(cluster: LocalCluster, verb: str) -> tuple[str, str]:
    """Return the option that tells a verb the cluster."""
    return ("--dir", str(cluster.directory)) if verb in OF_DIRECTORY else ("-b", ",".join(cluster.bootstrap_servers))


def start(cluster: LocalCluster, *words: str) -> subprocess.Popen[str]:
    """Start a verb in a process of its own, as a person at a terminal does."""
    command = [str(TIDEGAUGE), *words, *where(cluster, words[0])]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def run(cluster: LocalCluster, *words: str, code: int = 0) -> tuple[str, str]:
    """Run a verb in this process; return its stdout and stderr."""
    done = typed(*words, *where(cluster, words[0]))
    assert done.code == code, done.stderr
    return done.stdout, done.stderr


def create(cluster: LocalCluster, topic: str, partitions: int = 3) -> None:
    run(cluster, "create-topic", topic, "--partitions", str(partitions), "--replication-factor", "3")


def responses(history: Path) -> Counter[str]:
    """Return how many lines about records there are of each kind."""
    lines = history.read_text(encoding="utf-8").splitlines()
    return Counter(kind for line in lines if (kind := json.loads(line)["type"]) != "begin")


def test_an_offset_holds_in_each_partition_that_is_read(cluster: LocalCluster) -> None:
    """--offset and --partition are options of their own."""
    create(cluster, "console-offset")
    for partition in range(3):
        run(cluster, "produce", "console-offset", "--count", "5", "--partition", str(partition))
    read = ("consume", "console-offset", "--timeout-ms", "60000", "--format", "%p@%o\\n")
    from_three = [f"{partition}@{offset}" for partition in range(3) for offset in (3, 4)]
    assert sorted(run(cluster, *read, "--offset", "3", "--max-messages", "6")[0].split()) == from_three
    assert run(cluster, *read, "--offset", "3", "--partition", "1", "--max-messages", "2")[0].split() == ["1@3", "1@4"]
    all_of_them = run(cluster, *read, "--offset", "earliest", "--max-messages", "15")[0].split()
    assert len(set(all_of_them)) == 15


def test_verbs_take_the_addresses_of_kafka_listeners(cluster: LocalCluster) -> None:
    """A verb that is given a Kafka address finds the broker's gRPC listener in the broker's settings (KIP-103)."""
    addresses = cluster.kafka_bootstrap_servers
    for verb in (
        ["create-topic", "console-kafka", "--partitions", "1", "--replication-factor", "3"],
        ["produce", "console-kafka", "--count", "3"],
        ["health"],
    ):
        done = typed(*verb, "-b", addresses[1])
        assert done.code == 0, done.stderr
    read = ["consume", "console-kafka", "--from-beginning", "--max-messages", "3", "-b", ",".join(addresses)]
    assert typed(*read).stdout == "0\n1\n2\n"


def test_a_negative_offset_is_the_last_records_of_each_partition(cluster: LocalCluster) -> None:
    """As ``kcat -o -N``; if there are fewer, all of them."""
    create(cluster, "console-last")
    for partition, count in enumerate((5, 1, 0)):
        run(cluster, "produce", "console-last", "--count", str(count), "--partition", str(partition))
    read = ("consume", "console-last", "--timeout-ms", "3000", "--format", "%p@%o\\n")
    assert sorted(run(cluster, *read, "--offset", "-2")[0].split()) == ["0@3", "0@4", "1@0"]


def test_headers_come_back_as_they_were_produced(cluster: LocalCluster) -> None:
    create(cluster, "console-headers", 1)
    producer = start(
        cluster, "produce", "console-headers", "--headers-separator", "|", "--key-separator", ":", "--header", "by=cli"
    )
    _, err = producer.communicate("trace=7,span=é|k:v\n|:w\n", timeout=120)
    assert producer.returncode == 0, err
    read = ("consume", "console-headers", "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
    assert run(cluster, *read, "--format", "%h|%k:%v\\n")[0] == "trace=7,span=é,by=cli|k:v\nby=cli|:w\n"


@pytest.mark.parametrize(
    "words",
    [
        ("consume", "TOPIC", "--from-beginning"),
        ("describe-topic", "TOPIC", "--watch"),
        ("logs", "-f"),
        ("timeline", "-f"),
        pytest.param(("zk-tree", "--watch"), marks=pytest.mark.zookeeper_mode("there are no znodes")),
    ],
    ids=lambda words: words[0],
)
def test_a_reader_that_closes_stdout_ends_a_verb_that_has_nothing_more_to_write(
    cluster: LocalCluster, words: tuple[str, ...]
) -> None:
    """``consume orders | head -1`` returns once head has, although no further record comes."""
    topic = f"console-head-{words[0]}"
    create(cluster, topic, 1)
    run(cluster, "produce", topic, "--count", "3")
    process = start(cluster, *(topic if word == "TOPIC" else word for word in words))
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=120) == 0
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stderr.close()


def test_an_offset_out_of_range_is_reported(cluster: LocalCluster) -> None:
    create(cluster, "console-range", 1)
    run(cluster, "produce", "console-range", "--count", "5")
    _, err = run(cluster, "consume", "console-range", "--offset", "999999", "--timeout-ms", "4000")
    assert err.splitlines() == [
        "The fetch offset 999999 is out of range for partition console-range-0; reading continues at offset 5, the "
        "latest one",
        "Processed a total of 0 messages",
    ]


@pytest.mark.long
def test_a_partition_without_a_leader_is_reported_and_holds_up_no_other(cluster: LocalCluster) -> None:
    run(cluster, "create-topic", "console-dead", "--replica-assignment", "1,2")
    run(cluster, "produce", "console-dead", "--count", "5", "--partition", "1")
    cluster.kill(1, expire=True)
    try:
        until(lambda: "Leader: none" in run(cluster, "describe-topic", "console-dead")[0], 60)
        for where in (("--from-beginning",), ("--offset", "-5")):
            out, err = run(cluster, "consume", "console-dead", *where, "--timeout-ms", "3000")
            assert out.splitlines() == ["0", "1", "2", "3", "4"]
            reported, count = err.splitlines()
            assert reported.startswith(
                "Nothing can be read from console-dead-0 at the moment, and it is retried: LEADER_NOT_AVAIL"
            )
            assert count == "Processed a total of 5 messages"
    finally:
        cluster.start(1)


def test_log_directories_hold_the_replicas_that_the_files_show(cluster: LocalCluster) -> None:
    run(cluster, "create-topic", "console-dirs", "--replica-assignment", "1:2")
    run(cluster, "produce", "console-dirs", "--count", "50")
    run(cluster, "wait", "--hw", "console-dirs-0=50")
    out, _ = run(cluster, "describe-log-dirs", "--topic", "console-dirs", "-o", "json")
    for one in json.loads(out)["brokers"]:
        held = [(part["partition"], part["size"]) for log_dir in one["logDirs"] for part in log_dir["partitions"]]
        if one["broker"] == 0:
            assert held == []
            continue
        (log_dir,) = one["logDirs"]
        assert log_dir["logDir"] == str(cluster.directory / f"broker-{one['broker']}" / "data")
        segment = Path(log_dir["logDir"]) / "console-dirs-0" / f"{0:020d}.log"
        assert held == [("console-dirs-0", segment.stat().st_size)]


@pytest.mark.zookeeper_mode("a topic is deleted at once, whoever is dead")
def test_a_deletion_that_waits_for_a_dead_broker_says_so(cluster: LocalCluster) -> None:
    create(cluster, "console-gone", 1)
    cluster.kill(2, expire=True)
    try:
        until(lambda: '"offline_brokers":[{"id":2' in run(cluster, "describe-cluster", "-o", "json")[0], 60)
        out, err = run(cluster, "delete-topic", "console-gone", "-o", "json")
        assert json.loads(out)["topics"] == [{"name": "console-gone", "deleted": True, "waits_for": [2]}]
        assert "marked for deletion; that waits for broker 2" in err
        _, refused = run(cluster, "create-topic", "console-gone", code=1)
        assert "marked for deletion" in refused
        for verb in (
            ["explain", "console-gone-0"],
            ["describe-topic", "console-gone"],
            ["delete-topic", "console-gone"],
        ):
            _, unknown = run(cluster, *verb, code=1)
            assert "Topic 'console-gone' is marked for deletion, so no broker leads or shows it" in unknown
        _, unknown = run(cluster, "verify", "console-gone", code=1)
        assert "is marked for deletion" in unknown
        for condition in (["--leader", "console-gone-0"], ["--in-sync", "console-gone"]):
            _, waited = run(cluster, "wait", *condition, "--timeout-ms", "0", code=4)
            assert "after 0 ms: topic 'console-gone' is marked for deletion" in waited
        _, never = run(cluster, "explain", "console-never-0", code=1)
        assert "'console-never' does not exist" in never
    finally:
        cluster.start(2)


@pytest.mark.parametrize(("number", "code", "output"), [(signal.SIGINT, 130, "text"), (signal.SIGTERM, 143, "json")])
def test_a_signal_lets_produce_print_the_summary_and_complete_the_history(
    cluster: LocalCluster, tmp_path: Path, output: str, number: signal.Signals, code: int
) -> None:
    """Ctrl-C, and SIGTERM, which a CI or an init system sends."""
    create(cluster, f"console-{output}-{code}", 1)
    history = tmp_path / "history"
    producer = start(cluster, "produce", f"console-{output}-{code}", "--history", str(history), "-o", output)
    assert producer.stdin is not None
    for line in range(10):
        producer.stdin.write(f"{line}\n")
    until(lambda: history.exists() and responses(history)["ok"] == 10)
    producer.send_signal(number)
    assert producer.wait(150) == code
    out, err = producer.communicate()
    if output == "json":
        assert (json.loads(out)["sent"], json.loads(out)["acked"], err) == (10, 10, "")
    else:
        assert "Sent 10 records" in err
        assert "10 acknowledged, 0 failed" in err
        assert err.count("\n") == 1
    assert responses(history) == {"invoke": 10, "ok": 10}


@pytest.mark.long
def test_what_is_not_acknowledged_has_failed_or_is_unknown(cluster: LocalCluster, tmp_path: Path) -> None:
    """--delivery-timeout-ms, and Ctrl-C, while the only replica is paused: each record of a history has its outcome."""
    run(cluster, "create-topic", "console-frozen", "--replica-assignment", "1")
    expired, interrupted = tmp_path / "expired", tmp_path / "interrupted"
    cluster.pause(1)
    try:
        limit = ("--delivery-timeout-ms", "2000")
        _, err = run(cluster, "produce", "console-frozen", "--count", "3", "--history", str(expired), *limit, code=1)
        assert "0 acknowledged, 3 failed" in err
        producer = start(cluster, "produce", "console-frozen", "--history", str(interrupted))
        assert producer.stdin is not None
        producer.stdin.write("a line\n")
        until(lambda: interrupted.exists() and responses(interrupted)["invoke"] == 1)
        producer.send_signal(signal.SIGINT)
        assert producer.wait(150) == 130
        _, err = producer.communicate()
        assert "Sent 1 record " in err
        assert "0 acknowledged, 1 failed" in err
    finally:
        cluster.resume(1)
    for history, count in ((expired, 3), (interrupted, 1)):
        reported = responses(history)
        assert (reported["invoke"], reported["ok"], reported["fail"] + reported["info"]) == (count, 0, count)
