"""``tidegauge verify --transactions`` on a running cluster, by histories of real clients and of the command line.

The copiers of librdkafka (confluent-kafka), kafka-clients (Java), franz-go and aiokafka write down what they do
(docs/histories.md) while brokers and copiers are killed. The history is clean; spoilt on purpose, it names the
guarantee that is broken.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.clients.programs import KAFKA, Unavailable, go_programs, kafka_jars
from tests.integration.copiers import COPIERS_SETTINGS, LIMIT_SECONDS, PARTITIONS, Cell, Copiers, bounce_broker
from tests.integration.copies_reader import reading
from tests.integration.spoilt_histories import SPOILS, Recorded
from tests.integration.verify_shell import Shell, counts
from tests.integration.verify_shell import judged as verdict

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import file_name, read_events
from tidegauge_client.cli.consume import consume
from tidegauge_client.cli.produce import produce
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.accountant.transactions.findings import Anomaly
from tidegauge_lab.cli.cluster import status
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]
SETTINGS = COPIERS_SETTINGS
IN_A_GROUP = Cell(clean=False, brokers=True, ordered=True, grouped=True)
ASSIGNED = IN_A_GROUP._replace(grouped=False)


def judged(shell: Shell, topic: str, *histories: Path) -> tuple[int, dict[str, Any]]:
    """Return the exit code and ``verify``'s findings about transactions now."""
    code, document = verdict(shell, topic, *histories)
    return code, document["transactions"]


@pytest.mark.parametrize(
    ("cell", "clients"),
    [
        pytest.param(IN_A_GROUP, ("confluent", "java"), id="librdkafka and Java"),
        pytest.param(IN_A_GROUP, ("franz", "confluent"), id="franz-go and librdkafka"),
        pytest.param(ASSIGNED, ("aiokafka", "aiokafka"), id="aiokafka"),
    ],
)
def test_a_real_clients_history_is_clean_through_kills_and_each_broken_guarantee_is_named(
    brokers: LocalCluster, cell: Cell, clients: tuple[str, str], tmp_path: Path
) -> None:
    """Jepsen's anomalies (jepsen.tests.kafka): none in the history of real clients, each one in a spoilt history."""
    try:
        _ = kafka_jars(KAFKA) if "java" in clients else None
        _ = go_programs() if "franz" in clients else None
    except Unavailable as problem:
        pytest.skip(f"a client can't be had here: {problem}")
    brokers.up(LIMIT_SECONDS)
    path = tmp_path / "history.jsonl"
    copiers = Copiers(brokers, cell, clients, tmp_path, history=path, name=f"{cell}-{clients[0]}")
    servers = ",".join(brokers.kafka_bootstrap_servers)
    with copiers.running(), reading(copiers.target, servers, path):
        with copiers.writing(200):
            for turn in range(3):
                before = copiers.transactions()
                until(lambda: copiers.transactions() >= before + 3, LIMIT_SECONDS, "copiers are at work")  # noqa: B023
                bounce_broker(brokers, turn, copiers.target, clean=False)
            for number in range(PARTITIONS):
                copiers.bounce(number)
        copiers.finish()
    copiers.check()

    shell = Shell(brokers, tmp_path)
    code, document = judged(shell, copiers.target, path)
    assert (code, counts(document), document["not_checked"]) == (0, {}, [])
    assert min(document["transactions"][fate] for fate in ("committed", "aborted")) >= 5
    recorded = Recorded.read(path, copiers.target)
    assert SPOILS.keys() == set(Anomaly)
    for kind, (spoil, found) in SPOILS.items():
        spoilt = tmp_path / f"{kind.value}.jsonl"
        spoilt.write_text(spoil(recorded))
        code, document = judged(shell, copiers.target, spoilt)
        assert (kind, code, counts(document)) == (kind, int(kind is not Anomaly.UNKNOWN_VALUE), found)


def lines_of_stable_offsets(brokers: LocalCluster, topic: str) -> list[tuple[int, int]]:
    """Return the moves of the last stable offset in the leader's event log."""
    source = f"broker-{brokers.leader_of(topic, 0)}"
    events = read_events(brokers.directory / layout.LOGS / file_name(source))
    mine = [one for one in events if one["kind"] == "last_stable_offset" and one["topic"] == topic]
    return [(one["old"], one["new"]) for one in mine]


def is_created(shell: Shell, topic: str) -> bool:
    """Create a topic again; False as long as the one before it is not deleted everywhere."""
    try:
        shell.topic(topic, (0, 1, 2))
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def test_from_the_command_line_alone_a_history_is_written_and_judged(brokers: LocalCluster, tmp_path: Path) -> None:
    """``produce`` in transactions and ``consume``; then readers stand still, and then records are lost."""
    brokers.up(LIMIT_SECONDS)
    shell = Shell(brokers, tmp_path)
    sent, read = tmp_path / "sent", tmp_path / "read"
    topic = shell.topic("judged-by-words", (0, 1, 2))

    def send(values: str, *more: str) -> None:
        done = shell.run(produce, topic, "--transactional-id", "tx", "--history", sent, *more, given=values.encode())
        assert done.exit_code == 0, done.stderr

    send("a\nb\nc\nd\n", "--commit-every", "2")
    send("e\nf\n", "--abort")
    send("g\n")
    where = ("--from-beginning", "--isolation-level", "read_committed", "--history", read)
    done = shell.run(consume, topic, *where, "--max-messages", 5)
    assert done.stdout.split() == ["a", "b", "c", "d", "g"], done.stderr
    code, document = judged(shell, topic, sent, read)
    assert (code, counts(document)) == (0, {})
    assert document["transactions"] == {"committed": 3, "aborted": 1, "unknown": 0, "both": 0}

    # An aborted record that a reader of uncommitted ones was given is none that a reader of committed ones was given.
    dirty = tmp_path / "dirty"
    done = shell.run(consume, topic, "--from-beginning", "--max-messages", 7, "--history", dirty)
    assert len(done.stdout.split()) == 7, done.stderr
    assert judged(shell, topic, sent, dirty)[0] == 0
    dirty.write_text(dirty.read_text().replace("read_uncommitted", "read_committed"))
    assert counts(judged(shell, topic, sent, dirty)[1]) == {"aborted-read": 2}

    # Behind an open transaction a committed record is not seen (liveness).
    send("open\n", "--leave-open", "--transaction-timeout-ms", "600000")
    done = shell.run(produce, topic, "--transactional-id", "other", "--history", sent, given=b"behind\n")
    assert done.exit_code == 0, done.stderr
    code, document = judged(shell, topic, sent, read)
    assert (code, counts(document)) == (1, {"unseen": 1})
    [held] = json.loads(shell.run(status, "-o", "json").stdout)["held_readers"]
    assert (held["topic"], held["last_stable_offset"], held["high_watermark"]) == (topic, 11, 14)
    assert lines_of_stable_offsets(brokers, topic)[-1] == (11, 11)
    send("end\n")  # the next producer of the id aborts what it finds open
    assert judged(shell, topic, sent, read)[0] == 0
    until(lambda: lines_of_stable_offsets(brokers, topic)[-1] == (15, 17), LIMIT_SECONDS)

    # A topic deleted and written again has lost its committed records (durability).
    with SyncAdmin(brokers.bootstrap_servers) as admin:
        admin.delete_topic(topic)
        admin.wait_for_topic_gone(topic)
    until(lambda: is_created(shell, topic), LIMIT_SECONDS)
    shell.run(produce, topic, "--transactional-id", "tx", "--count", 20)
    code, document = judged(shell, topic, sent)
    assert (code, counts(document)) == (1, {"lost-write": 7, "inconsistent-offsets": 10, "unknown-value": 20})
