"""Kafka's own tools of 3.9.1 on transactions: what kafka-transactions shows, what kafka-dump-log reads in our files."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
from click.testing import CliRunner
from tests.clients.programs import KAFKA, Unavailable, tool
from tests.waiting import until

from tidegauge_client.cli.hanging import describe_producers, find_hanging
from tidegauge_client.cli.transactions import describe_transaction, list_transactions
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
LIMIT_SECONDS = 60.0
COMMAND_SECONDS = 120.0
OWN_VERBS = {
    "list": list_transactions,
    "describe": describe_transaction,
    "describe-producers": describe_producers,
    "find-hanging": find_hanging,
}
TOPIC, DONE, OPEN, GROUP = "orders", "done", "open", "copiers"


def command(name: str) -> list[str]:
    try:
        return tool(KAFKA, name)
    except Unavailable as problem:
        pytest.skip(f"Kafka {KAFKA} can't be had here: {problem}")


def producer_of(servers: str, transactional_id: str) -> Any:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 2}
    )
    producer.init_transactions(LIMIT_SECONDS)
    return producer


@pytest.fixture
def used(make_cluster: Any) -> LocalCluster:
    """A cluster with two committed transactions, one with offsets, two aborted ones, and one that is open."""
    cluster: LocalCluster = make_cluster(settings=SETTINGS)
    servers = ",".join(cluster.kafka_bootstrap_servers)
    admins = pytest.importorskip("confluent_kafka.admin")
    admin = admins.AdminClient({"bootstrap.servers": servers})
    admin.create_topics([admins.NewTopic(TOPIC, 1, 3)])[TOPIC].result(LIMIT_SECONDS)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0)])
    done, still_open = producer_of(servers, DONE), producer_of(servers, OPEN)
    for number in range(4):
        done.begin_transaction()
        done.produce(TOPIC, b"%d" % number, partition=0)
        offsets = [confluent_kafka.TopicPartition(TOPIC, 0, number)]
        done.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), LIMIT_SECONDS)
        done.flush(LIMIT_SECONDS)
        end = done.abort_transaction if number % 2 else done.commit_transaction
        end(LIMIT_SECONDS)
    consumer.close()
    still_open.begin_transaction()
    still_open.produce(TOPIC, b"open", partition=0)
    still_open.flush(LIMIT_SECONDS)
    with SyncAdmin(cluster.bootstrap_servers) as asked:
        until(
            lambda: asked.describe_transaction(DONE).state == "CompleteAbort", LIMIT_SECONDS, "all markers are written"
        )
    return cluster


def test_kafka_transactions_shows_ids_producers_and_what_hangs(used: LocalCluster) -> None:
    """kafka-transactions.sh: list, describe, describe-producers; a transaction that is open does not hang.

    Our own verbs have the same columns in the same order.
    """
    start = [*command("TransactionsCommand"), "--bootstrap-server", ",".join(used.kafka_bootstrap_servers)]

    def shown(verb: str, *arguments: str) -> list[dict[str, str]]:
        words = [*start, verb, *arguments]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=COMMAND_SECONDS)
        columns, *rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
        own_words = [word for word in arguments if word != "--transactional-id"] + ["--dir", str(used.directory)]
        own = CliRunner().invoke(OWN_VERBS[verb], own_words, catch_exceptions=False)
        assert own.stdout.splitlines()[0].split() == columns
        return [dict(zip(columns, row, strict=False)) for row in rows]

    states = {row["TransactionalId"]: row["TransactionState"] for row in shown("list")}
    assert states == {DONE: "CompleteAbort", OPEN: "Ongoing"}
    [described] = shown("describe", "--transactional-id", OPEN)
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", f"{TOPIC}-0")
    producers = shown("describe-producers", "--topic", TOPIC, "--partition", "0")
    starts = {row["ProducerId"]: row["CurrentTransactionStartOffset"] for row in producers}
    assert starts.pop(described["ProducerId"]) == "8"
    assert list(starts.values()) == ["None"]
    assert shown("find-hanging", "--topic", TOPIC) == []


def test_kafkas_log_dump_reads_what_transactions_leave(used: LocalCluster) -> None:
    """kafka-dump-log.sh: both internal topics with its decoders, markers, .txnindex and producer snapshots."""
    dump = command("DumpLogSegments")
    used.down()
    directory = layout.broker_data(used.directory, 0)

    def dumped(topic: str, suffix: str, *options: str) -> str:
        files = ",".join(map(str, sorted((directory / f"{topic}-0").glob(f"*{suffix}"))))
        done = subprocess.run(
            [*dump, "--files", files, *options], capture_output=True, text=True, check=True, timeout=COMMAND_SECONDS
        )
        return done.stdout

    state = dumped("__transaction_state", ".log", "--transaction-log-decoder")
    words = re.findall(rf"transactionalId={DONE} payload: ?.*?state=(\w+)", state)
    assert words[0] == "Empty"
    assert [word for word in words if word.startswith("Complete")] == ["CompleteCommit", "CompleteAbort"] * 2
    assert re.findall(rf"transactionalId={OPEN} payload: ?.*?state=(\w+)", state)[-1] == "Ongoing"
    offsets = dumped("__consumer_offsets", ".log", "--offsets-decoder")
    assert offsets.count(f'"group":"{GROUP}"') == 4
    assert offsets.count("endTxnMarker: COMMIT") == offsets.count("endTxnMarker: ABORT") == 2
    data = dumped(TOPIC, ".log", "--print-data-log")
    assert re.findall(r"endTxnMarker: (\w+)", data) == ["COMMIT", "ABORT"] * 2
    aborted = dumped(TOPIC, ".txnindex")
    assert re.findall(r"firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", aborted) == [
        ("2", "3", "4"),
        ("6", "7", "8"),
    ]
    snapshot = dumped(TOPIC, ".snapshot")
    assert re.findall(r"currentTxnFirstOffset: (\S+)", snapshot).count("OptionalLong[8]") == 1
