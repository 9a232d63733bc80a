"""Row B6, ``tidegauge verify`` on real brokers: it finds what was really lost, copied or changed, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from tidegauge.record_batch import iterate_headers
from tidegauge_client.history import read_history
from tidegauge_client.records import decode_batch, encode_batch
from tidegauge_client.sync import SyncAdmin, SyncConsumer
from tidegauge_lab.cluster import LocalCluster
from tidegauge_lab.processes import ProcessState

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))


class Shell:
    """Commands on the shared cluster, in a folder of the test's own."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder

    def run(self, *arguments: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [TIDEGAUGE, *map(str, arguments), "--dir", str(self.cluster.directory)]
        return subprocess.run(command, input=given, capture_output=True, timeout=120, check=False, cwd=self.folder)

    def produce(self, topic: str, *values: str, acks: str = "all", history: str = "h") -> None:
        given = "".join(f"{value}\n" for value in values).encode()
        done = self.run("produce", topic, "--acks", acks, "--history", history, given=given)
        assert done.returncode == 0, done.stderr.decode()

    def verify(self, topic: str, *more: object) -> tuple[int, dict[str, Any]]:
        done = self.run("verify", topic, *more, "-o", "json")
        assert done.stdout, done.stderr.decode()
        return done.returncode, json.loads(done.stdout)

    def topic(self, name: str, assignment: tuple[int, ...] = (0, 1, 2), **configs: str) -> str:
        with SyncAdmin(self.cluster.bootstrap_servers) as admin:
            admin.create_topic(name, assignment=[list(assignment)], configs=configs)
            admin.wait_for_topic(name)
        return name

    def wait(self, *condition: str) -> None:
        done = self.run("wait", *condition, "--timeout-ms", 60_000)
        assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
def shell(cluster: LocalCluster, tmp_path: Path) -> Shell:
    return Shell(cluster, tmp_path)


def counts(document: dict[str, Any]) -> dict[str, int]:
    return {kind: count for kind, count in document["counts"].items() if count}


def test_nothing_is_wrong_after_the_leader_and_then_the_producer_were_killed(shell: Shell) -> None:
    """Row R3: acks=all loses nothing. The history holds all that was sent, though its writer died in mid-work."""
    topic = shell.topic("verify-kills", **{"min.insync.replicas": "2"})
    history = shell.folder / "h"
    command = [TIDEGAUGE, "produce", topic, "--count", "1000000", "--rate", "2000", "--history", str(history)]
    producer = subprocess.Popen(
        [*command, "--dir", str(shell.cluster.directory)], stderr=subprocess.DEVNULL, env={**os.environ}
    )
    try:
        until(lambda: history.exists() and history.read_bytes().count(b'"ok"') > 200, 60)
        leader = shell.cluster.leader_of(topic, 0)
        shell.cluster.kill(leader)
        acknowledged = history.read_bytes().count(b'"ok"')
        until(lambda: history.read_bytes().count(b'"ok"') > acknowledged + 1000, 60)
    finally:
        producer.kill()
        producer.wait()
    shell.cluster.start(leader)
    shell.wait("--in-sync", topic)

    code, document = shell.verify(topic, "--history", "h", "--complete")
    assert (code, counts(document)) == (0, {})
    account = document["acks"]["all"]
    assert account["acknowledged"] == account["kept"] > 1000
    assert document["replicas"] == 3
    assert document["records"] == account["kept"] + account["kept_unknown"]
    text = shell.run("verify", topic, "--history", "h")
    assert text.stdout.decode().splitlines()[-1] == "The books balance."


def test_what_only_the_dead_leader_had_is_lost_and_told_by_its_level_of_acks(shell: Shell) -> None:
    """Row R3: acks=1 may lose; first the tail, and, once others stand there, the records."""
    topic = shell.topic("verify-lost")
    shell.produce(topic, "a", "b")
    shell.cluster.pause(1, 2)
    shell.produce(topic, "c", "d", acks="1")
    shell.cluster.kill(0)
    shell.cluster.resume(1, 2)
    shell.wait("--leader", f"{topic}-0=1")

    code, document = shell.verify(topic, "--history", "h")
    assert (code, counts(document)) == (1, {"lost-tail": 2})
    assert document["findings"][0]["by_acks"] == {"1": 2}
    assert any("broker 0" in line for line in document["not_checked"])

    shell.produce(topic, "e", "f", "a", history="other")
    code, document = shell.verify(topic, "--history", "h")
    assert (code, counts(document)) == (1, {"lost": 2, "phantom": 2, "duplicated": 1})
    code, document = shell.verify(topic, "--history", "h", "--history", "other", "--complete")
    assert (code, counts(document)) == (1, {"lost": 2}), "who else wrote is known now"
    text = shell.run("verify", topic, "--history", "h").stdout.decode()
    assert "which holds 'e'" in text
    assert "The books do not balance: 2 lost, 1 duplicated." in text


def rewrite_last(log_file: Path, value: bytes) -> None:
    """Put another value of the same length into the last batch, with a CRC that fits."""
    data = log_file.read_bytes()
    last = list(iterate_headers(data))[-1]
    (record,) = decode_batch(data, last)
    changed = encode_batch(
        [(value, record.key, record.timestamp_ms)],
        producer_id=last.producer_id,
        producer_epoch=last.producer_epoch,
        base_sequence=last.base_sequence,
        base_offset=last.base_offset,
        leader_epoch=last.leader_epoch,
    )
    assert len(changed) == last.size_bytes
    log_file.write_bytes(data[: last.position] + changed)


def test_a_replica_that_holds_another_record_has_diverged_and_readers_see_it(shell: Shell) -> None:
    """Row E6's end: both in the ISR, with different records at one offset; and then the wrong one leads."""
    topic = shell.topic("verify-diverged", assignment=(0, 1))
    shell.produce(topic, "m1")
    shell.produce(topic, "m2")
    code, document = shell.verify(topic, "--history", "h")
    assert (code, counts(document), document["replicas"]) == (0, {}, 2)

    shell.cluster.stop(1)
    (log_file,) = (shell.cluster.directory / "broker-1").rglob(f"{topic}-0/*.log")
    rewrite_last(log_file, b"m3")
    shell.cluster.start(1)
    shell.wait("--in-sync", topic)
    code, document = shell.verify(topic)
    assert (code, counts(document)) == (1, {"diverged": 1})
    (example,) = document["findings"][0]["examples"]
    assert (example["partition"], example["offset"]) == (0, 1)
    assert "broker 0 holds 'm2' of epoch 0, broker 1 'm3' of epoch 0" in example["message"]

    read = shell.run("consume", topic, "--from-beginning", "--max-messages", 2, "-o", "json")
    (shell.folder / "reads").write_bytes(read.stdout)
    shell.cluster.stop(0)
    shell.wait("--leader", f"{topic}-0=1")
    code, document = shell.verify(topic, "--history", "h", "--reads", "reads")
    assert (code, counts(document)) == (1, {"lost": 1, "phantom": 1, "read-differently": 1})


def test_the_history_tells_definite_failures_from_unknown_ones(shell: Shell) -> None:
    topic = shell.topic("verify-failed", **{"max.message.bytes": "200"})
    given = b"small\n" + b"x" * 500 + b"\n"
    assert shell.run("produce", topic, "--history", "h", given=given).returncode == 1
    records = read_history([shell.folder / "h"], topic).records
    assert [(record.outcome, record.error) for record in records] == [("ok", ""), ("fail", "MESSAGE_TOO_LARGE")]
    code, document = shell.verify(topic, "--history", "h", "--complete")
    assert (code, counts(document)) == (0, {})
    assert document["acks"]["all"]["failed"] == 1


def test_what_cannot_be_read_is_an_error_and_not_a_balance(shell: Shell) -> None:
    topic = shell.topic("verify-leaderless", assignment=(2,))
    shell.produce(topic, "a")
    shell.cluster.stop(2)
    done = shell.run("verify", topic, "--timeout-ms", 1000)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"LEADER_NOT_AVAILABLE" in done.stderr
    missing = shell.run("verify", "no-such-topic", "-o", "json")
    assert json.loads(missing.stderr)["error"]["name"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert shell.run("verify", topic, "--complete").returncode == 2


def test_any_replica_can_be_looked_into_and_only_committed_records_can_be_consumed(shell: Shell) -> None:
    """Row W1 beside ReadReplica: the leader holds more than a consumer may see."""
    topic = shell.topic("verify-uncommitted", assignment=(1, 0), **{"min.insync.replicas": "2"})
    shell.produce(topic, "a")
    shell.cluster.pause(0)
    shell.produce(topic, "b", acks="1")
    with SyncConsumer(shell.cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        assert [record.value for record in until(lambda: consumer.poll(500))] == [b"a"]
    code, document = shell.verify(topic, "--history", "h")
    assert (code, counts(document)) == (0, {}), "not lost: not committed yet"
    assert document["acks"]["1"]["uncommitted"] == 1
    shell.cluster.resume(0)
    until(lambda: shell.cluster.state_of(0) is ProcessState.UP)
    shell.wait("--hw", f"{topic}-0=2")
    assert shell.verify(topic, "--history", "h")[1]["acks"]["1"]["kept"] == 1
