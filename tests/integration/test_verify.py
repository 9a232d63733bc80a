"""``tidegauge verify`` on real brokers: it finds records really lost, copied or changed, and nothing else."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.integration.verify_shell import Shell, counts
from tests.waiting import until

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge.znodes import decode_config, encode_config, topic_config_path
from tidegauge_client.cli.consume import consume
from tidegauge_client.cli.produce import produce
from tidegauge_client.cli.wait import wait
from tidegauge_client.history import read_history
from tidegauge_client.records import decode_batch, encode_batch
from tidegauge_client.sync import SyncAdmin, SyncConsumer
from tidegauge_lab.cli.verify import verify
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.scenario.files_on_disk import checkpointed_hw

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))


@pytest.fixture
def shell(cluster: LocalCluster, tmp_path: Path) -> Shell:
    return Shell(cluster, tmp_path)


def test_nothing_is_wrong_after_the_leader_and_then_the_producer_were_killed(shell: Shell) -> None:
    """With acks=all nothing is lost. The history holds all that was sent, though its writer died in mid-work."""
    topic = shell.topic("verify-kills", **{"min.insync.replicas": "2"})
    history = shell.directory / "h"
    command = [TIDEGAUGE, "produce", topic, "--count", "1000000", "--rate", "2000", "--history", str(history)]
    producer = subprocess.Popen(
        [*command, "--dir", str(shell.cluster.directory)], stderr=subprocess.DEVNULL, env={**os.environ}
    )
    try:
        until(lambda: history.exists() and history.read_bytes().count(b'"ok"') > 200, 150)
        shell.cluster.kill(0, expire=True)
        acknowledged = history.read_bytes().count(b'"ok"')
        until(lambda: history.read_bytes().count(b'"ok"') > acknowledged + 1000, 150)
    finally:
        producer.kill()
        producer.wait()
    shell.cluster.start(0)
    shell.wait("--in-sync", topic)

    code, document = shell.verify(topic, "h", complete=True)
    assert (code, counts(document)) == (0, {})
    account = document["acks"]["all"]
    assert account["acknowledged"] == account["kept"] > 1000
    assert document["replicas"] == 3
    assert document["records"] == account["kept"] + account["kept_unknown"]
    text = shell.run(verify, topic, "--history", history)
    assert text.stdout.splitlines()[-1] == "The books balance."


def test_what_only_the_dead_leader_had_is_lost_and_reported_by_its_level_of_acks(shell: Shell) -> None:
    """With acks=1 records may be lost; first the tail, and, once others are there, the records."""
    # Unclean, should the machine be so slow that the held followers leave the ISR first.
    topic = shell.topic("verify-lost", **{"unclean.leader.election.enable": "true"})
    shell.produce(topic, "a", "b")
    # Paused ones would not do: a response to their last fetch would wait for them in the sockets' buffers.
    shell.hold(topic, 1, 2)
    shell.produce(topic, "c", "d", acks="1")
    shell.cluster.kill(0, expire=True)
    shell.wait("--leader", f"{topic}-0=1")
    shell.hold(topic, 1, 2, release=True)

    code, document = shell.verify(topic, "h")
    assert (code, counts(document)) == (1, {"lost-tail": 2})
    assert document["findings"][0]["by_acks"] == {"1": 2}
    assert (document["replicas"], document["read_from_disk"]) == (3, [{"broker": 0, "partitions": [0]}])
    assert not any("broker 0" in line for line in document["not_checked"])

    shell.produce(topic, "e", "f", "a", history="other")
    code, document = shell.verify(topic, "h")
    assert (code, counts(document)) == (1, {"lost": 2, "phantom": 2, "duplicated": 1})
    code, document = shell.verify(topic, "h", "other", complete=True)
    assert (code, counts(document)) == (1, {"lost": 2}), "who else wrote is known now"
    text = shell.run(verify, topic, "--history", shell.directory / "h").stdout
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
    """Divergence: both are in the ISR, with different records at one offset; and then the wrong one leads."""
    topic = shell.topic("verify-diverged", assignment=(0, 1))
    shell.produce(topic, "m1")
    shell.produce(topic, "m2")
    code, document = shell.verify(topic, "h")
    assert (code, counts(document), document["replicas"]) == (0, {}, 2)

    until(lambda: checkpointed_hw(shell.cluster.directory, 1, TopicPartition(topic, 0)) == 2, 150)
    shell.cluster.stop(1)
    (log_file,) = (shell.cluster.directory / "broker-1").rglob(f"{topic}-0/*.log")
    assert shell.verify(topic)[0] == 0
    rewrite_last(log_file, b"m3")
    code, document = shell.verify(topic)
    assert (code, counts(document)) == (1, {"diverged": 1}), "the disk of a broker that is down counts too"
    assert "broker 1 'm3' of epoch 0" in document["findings"][0]["examples"][0]["message"]
    reported = shell.run(verify, topic).stdout
    assert f"Broker 1 is down or out of reach: its replicas of {topic}-0 were read from disk" in reported
    shell.cluster.start(1)
    shell.wait("--in-sync", topic)
    code, document = shell.verify(topic)
    assert (code, counts(document)) == (1, {"diverged": 1})
    (example,) = document["findings"][0]["examples"]
    assert (example["partition"], example["offset"]) == (0, 1)
    assert "broker 0 holds 'm2' of epoch 0, broker 1 'm3' of epoch 0" in example["message"]

    read = shell.run(consume, topic, "--from-beginning", "--max-messages", 2, "-o", "json")
    (shell.directory / "reads").write_bytes(read.stdout_bytes)
    shell.cluster.stop(0)
    shell.wait("--leader", f"{topic}-0=1")
    code, document = shell.verify(topic, "h", reads="reads")
    assert (code, counts(document)) == (1, {"lost": 1, "phantom": 1, "read-differently": 1, "diverged": 1})
    assert document["read_from_disk"] == [{"broker": 0, "partitions": [0]}]


@contextmanager
def flipped(log_file: Path, batch: int, *, length: bool) -> Iterator[int]:
    """Flip a bit of a batch's length, or of its last record, for a while; gives where the batch begins."""
    whole = log_file.read_bytes()
    header = list(iterate_headers(whole))[batch]
    data = bytearray(whole)
    data[header.position + 8 if length else header.position + header.size_bytes - 3] ^= 0x40
    log_file.write_bytes(data)
    try:
        yield header.position
    finally:
        log_file.write_bytes(whole)


def test_a_damaged_replica_is_named_with_its_file_and_byte_and_the_others_are_compared(shell: Shell) -> None:
    """Neither does it end the look, nor is it passed over: an in-sync replica lacks acknowledged records."""
    topic = shell.topic("verify-damaged")
    for value in ("a", "b", "c"):
        shell.produce(topic, value)
    logs = [next((shell.cluster.directory / f"broker-{one}").rglob(f"{topic}-0/*.log")) for one in range(3)]
    with flipped(logs[1], 1, length=True) as position:
        code, document = shell.verify(topic, "h")
        assert (code, counts(document), document["replicas"]) == (1, {"damaged": 1}, 3)
        (example,) = document["findings"][0]["examples"]
        assert example["offset"] == 1
        assert example["message"].startswith("broker 1: offsets from 1 on can't be read: ")
        assert f"{logs[1]} holds no whole batch at byte {position}" in example["message"]
        assert document["acks"]["all"]["kept"] == 3
    with flipped(logs[0], 1, length=False) as position:
        code, document = shell.verify(topic, "h")
        assert (code, counts(document)) == (1, {"damaged": 1})
        (example,) = document["findings"][0]["examples"]
        words = f"broker 0: the batch of offsets 1 to 1, at byte {position} of {logs[0]}, does not match its CRC"
        assert example["message"] == words
        (unread,) = [line for line in document["not_checked"] if "committed records" in line]
        assert unread.startswith(f"the committed records of {topic}-0: its leader, broker 0, can't read its log")
        assert document["acks"]["all"]["unreadable"] == 3
    assert shell.verify(topic, "h")[0] == 0


def test_the_history_distinguishes_definite_failures_from_unknown_ones(shell: Shell) -> None:
    topic = shell.topic("verify-failed", **{"max.message.bytes": "200"})
    given = b"small\n" + b"x" * 500 + b"\n"
    assert shell.run(produce, topic, "--history", shell.directory / "h", given=given).exit_code == 1
    records = read_history([shell.directory / "h"], topic).records
    assert [(record.outcome, record.error) for record in records] == [("ok", ""), ("fail", "MESSAGE_TOO_LARGE")]
    code, document = shell.verify(topic, "h", complete=True)
    assert (code, counts(document)) == (0, {})
    assert document["acks"]["all"]["failed"] == 1


def test_what_cannot_be_read_is_an_error_and_not_a_balance(shell: Shell) -> None:
    topic = shell.topic("verify-leaderless", assignment=(2,))
    shell.produce(topic, "a")
    shell.cluster.stop(2)
    done = shell.run(verify, topic, "--timeout-ms", 4000)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "LEADER_NOT_AVAILABLE" in done.stderr
    missing = shell.run(verify, "no-such-topic", "-o", "json")
    assert json.loads(missing.stderr)["error"]["name"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert shell.run(verify, topic, "--complete").exit_code == 2
    missed = shell.run(wait, "--leader", f"{topic}-0=2", "--timeout-ms", 4000, "-o", "json")
    error = json.loads(missed.stderr)["error"]
    assert (missed.exit_code, missed.stdout, error["code"], error["name"]) == (4, "", 7, "REQUEST_TIMED_OUT")
    assert error["message"].endswith(f"{topic}-0 has no leader")


def test_any_replica_can_be_looked_into_and_only_committed_records_can_be_consumed(shell: Shell) -> None:
    """Consumers read below the high watermark, ReadReplica reads all: the leader holds more than a consumer may see."""
    topic = shell.topic("verify-uncommitted", assignment=(1, 0), **{"min.insync.replicas": "2"})
    shell.produce(topic, "a")
    shell.cluster.pause(0)
    shell.produce(topic, "b", acks="1")
    with SyncConsumer(shell.cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        assert [record.value for record in until(lambda: consumer.poll(500))] == [b"a"]
    code, document = shell.verify(topic, "h")
    assert (code, counts(document)) == (0, {}), "not lost: not committed yet"
    assert document["acks"]["1"]["uncommitted"] == 1
    shell.cluster.resume(0)
    until(lambda: shell.cluster.state_of(0) is ProcessState.UP)
    shell.wait("--hw", f"{topic}-0=2")
    assert shell.verify(topic, "h")[1]["acks"]["1"]["kept"] == 1


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_whatever_fails_the_books_of_acks_all_balance(
    make_cluster: Callable[..., LocalCluster], tmp_path: Path, seed: int
) -> None:
    """Faults at random, one after the other; no check of any kind convicts acks=all."""
    cluster = make_cluster(brokers=3)
    shell = Shell(cluster, tmp_path)
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        admin.create_topic("t", partitions=3, replication_factor=3, configs={"min.insync.replicas": "2"})
        admin.wait_for_topic("t")
    rng = random.Random(seed)
    where = ("--rate", "200", "--history", str(tmp_path / "h"), "--dir", str(cluster.directory))
    producers = [
        subprocess.Popen([TIDEGAUGE, "produce", "t", "--count", "1000000", *where], stderr=subprocess.DEVNULL)
        for _ in range(3)
    ]
    try:
        for _ in range(8):
            broker = rng.randrange(3)
            begin, end = rng.choice(
                [(cluster.kill, cluster.start), (cluster.stop, cluster.start), (cluster.pause, cluster.resume)]
            )
            begin(broker)
            if rng.random() < 0.5:  # long enough for the session to end, and another broker to lead
                others = ",".join(str(other) for other in range(3) if other != broker)
                for partition in range(3):
                    shell.wait("--isr", f"t-{partition}={others}")
            end(broker)
            shell.wait("--in-sync", "t")
    finally:
        for producer in producers:
            producer.kill()
            producer.wait()
    code, document = shell.verify("t", "h")
    # Three producers of numbers send each value three times; which of them is whose is known by its timestamp only.
    assert (code, counts(document)) == (0, {})
    account = document["acks"]["all"]
    assert account["acknowledged"] == account["kept"] > 1000


@pytest.mark.zookeeper_mode("only a znode can change while no broker runs")
def test_a_setting_changed_while_no_broker_ran_convicts_nothing_of_before(
    make_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    """The value that the leader had then counts, not the present one (rule 3 of min.insync.replicas)."""
    cluster = make_cluster(brokers=3)
    shell = Shell(cluster, tmp_path)
    topic = shell.topic("verify-setting", **{"min.insync.replicas": "1"})
    for broker in (1, 2):
        cluster.kill(broker, expire=True)
        shell.wait("--isr", f"{topic}-0={'0,2' if broker == 1 else '0'}")
    # Over half a second: an acknowledgement within 100 ms of a change of the ISR convicts nothing.
    done = shell.run(produce, topic, "--count", "50", "--rate", "100", "--history", tmp_path / "h")
    assert done.exit_code == 0, done.stderr
    cluster.kill(0, expire=True)
    client = KazooClient(cluster.file.zookeeper_address)
    client.start()
    path = topic_config_path(topic)
    client.set(path, encode_config({**decode_config(client.get(path)[0]), "min.insync.replicas": "2"}))
    client.stop()
    client.close()
    cluster.start(0, 1, 2)
    shell.wait("--in-sync", topic)
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        (setting,) = [one for one in admin.describe_topic_config(topic) if one.name == "min.insync.replicas"]
    assert setting.value == "2"
    shell.produce(topic, "c")

    code, document = shell.verify(topic, "h", complete=True)
    assert (code, counts(document)) == (0, {})
    assert not [one for one in document["not_checked"] if "in sync" in one], "and all three were judged"
