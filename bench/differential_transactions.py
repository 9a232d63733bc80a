"""Transactions on Apache Kafka 3.9.1 and on Tidegauge, request by request and byte by byte: ``make differential``.

Four things are compared after the same script of requests made by hand (``transaction_script``, then
``transaction_script_failovers`` and ``transaction_script_partitions``): the responses, field by field; what
``kafka-transactions`` of 3.9.1 prints; what kafka-dump-log of 3.9.1 reads; and, when the brokers have stopped, the
bytes of __transaction_state, __consumer_offsets and the data partitions, of their indexes of aborted transactions and
of their producer snapshots, on all brokers (``transaction_files`` normalises ids and times first). What
differs has a reason in ``KNOWN``. Without Maven the run says so. Exit 0: no difference without a reason; 1: one or
more.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import kafka_side
import transaction_script
import transaction_script_failovers as failovers_script
import transaction_script_partitions as partitions_script
from jars import kafka_jars
from tests.wire_responses.batches import TIME_MS
from tests.wire_responses.probe import Facts, Probe
from transaction_files import ProducerIds, contents
from transaction_requests import OTHER_TOPIC, TOPIC, create

from tidegauge.java import java_program
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster

SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "zookeeper.session.timeout.ms": "18000",
}
"""On both sides. Sessions outlive the pauses of a busy machine: an election would raise leader epochs."""
BROKERS = (0, 1, 2)
READY_SECONDS = 90.0
COMMAND_SECONDS = 120.0
STOP_SECONDS = 90.0
"""A broker that is killed leaves no snapshots."""
TOPICS = ("__transaction_state", "__consumer_offsets", TOPIC, OTHER_TOPIC)
TOOL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256M")
TOOL, DUMP = "org.apache.kafka.tools.TransactionsCommand", "kafka.tools.DumpLogSegments"
COMMANDS: Sequence[tuple[str, ...]] = (
    ("list",),
    ("describe", "--transactional-id", partitions_script.LEFT_OPEN),
    ("describe", "--transactional-id", partitions_script.HANGING),
    ("describe", "--transactional-id", "ends"),
    ("describe", "--transactional-id", "unknown"),
    ("describe-producers", "--topic", OTHER_TOPIC, "--partition", "0"),
    ("describe-producers", "--topic", OTHER_TOPIC, "--partition", "0", "--broker-id", "1"),
    ("find-hanging", "--broker-id", "0"),
    ("find-hanging", "--topic", OTHER_TOPIC),
    ("find-hanging", "--topic", TOPIC),
)
"""Of kafka-transactions; the hanging transaction that it finds is then aborted by it."""
CHANGING = {
    "Coordinator": "BROKER",
    "CoordinatorId": "BROKER",
    "ProducerId": "ID",
    "CurrentTransactionStartTimeMs": "TIME",
    "TransactionDurationMs": "TIME",
    "Duration(min)": "TIME",
    "LastTimestamp": "TIME",
    "LastTimestampMs": "TIME",
}
"""Placeholder of a value, by its column."""


class Known(NamedTuple):
    """A difference that stays: facts whose whole names match, and why."""

    facts: str
    why: str


KNOWN: tuple[Known, ...] = (
    Known(
        "Fetch of few bytes", "records end with a whole batch, where Kafka ends at the limit and clients drop the rest"
    ),
    Known(
        "among brokers: two of one id, v[45]",
        "Kafka keeps the results of a request by transactional id, and gives the last one's for each",
    ),
)


def _note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _run(jars: Path, main: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [java_program(), *TOOL_JVM, "-cp", f"{jars}/*", main, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS)


def table(text: str) -> list[str]:
    """Return the sorted rows of a tool's table, with changing values replaced."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines:
        return []
    columns, *rows = lines
    shown = [
        [
            CHANGING.get(column, word) if word not in {"-1", "None"} else word
            for column, word in zip(columns, row, strict=False)
        ]
        for row in rows
    ]
    return [" ".join(columns), *sorted(" ".join(row) for row in shown)]


def tools(say: str, servers: str, jars: Path) -> Facts:
    """Return what kafka-transactions prints; it aborts the hanging transaction in the end."""
    facts: Facts = {}

    def run(when: str, *arguments: str) -> str:
        done = _run(jars, TOOL, "--bootstrap-server", servers, *arguments)
        errors = re.sub(r"^SLF4J: .*\n?|^\s+at .*\n?", "", done.stderr, flags=re.MULTILINE)
        name = f"kafka-transactions{when}: {' '.join(arguments)}"
        facts[name] = "\n".join([f"exit {done.returncode}", *table(done.stdout), *errors.splitlines()])
        _note(f"{say}: {name}")
        return done.stdout

    for arguments in COMMANDS:
        run("", *arguments)
    found = run(" before the abort", "find-hanging", "--topic", OTHER_TOPIC)
    columns, *rows = [line.split() for line in found.splitlines() if line.strip()]
    [start] = [dict(zip(columns, row, strict=False))["StartOffset"] for row in rows]
    where = ("--topic", OTHER_TOPIC, "--partition", "0")
    run("", "abort", *where, "--start-offset", "1")
    run("", "abort", *where, "--start-offset", start)
    run(" after the abort", "find-hanging", "--topic", OTHER_TOPIC)
    run(" after the abort", "describe-producers", *where)
    return facts


def dumps(say: str, directory: Path, jars: Path) -> Facts:
    """Return kafka-dump-log's output for a broker's files, normalised."""
    facts: Facts = {}
    decoders = {"__transaction_state": "--transaction-log-decoder", "__consumer_offsets": "--offsets-decoder"}
    for topic in TOPICS:
        suffixes = (".log", ".txnindex", ".snapshot")
        files = [path for path in sorted(directory.glob(f"{topic}-*/*")) if path.suffix in suffixes]
        names = ",".join(map(str, files))
        done = _run(jars, DUMP, "--files", names, *([decoders[topic]] if topic in decoders else ["--print-data-log"]))
        lines = done.stdout.replace(str(directory), "").splitlines()
        if any(path.suffix == ".snapshot" for path in files):
            lines = _producers_sorted(lines)
        for number, line in enumerate(lines):
            facts[f"dump of {topic} line {number}"] = _equal(line)
        facts[f"dump of {topic} ended with"] = str(done.returncode)
        _note(f"{say}: dumped {topic}")
    return facts


def _equal(line: str) -> str:
    """Return a line of kafka-dump-log without ids, times and checksums."""
    line = re.sub(r"(producerId:? ?)(\d+)", r"\1ID", line)
    line = re.sub(r"(crc|checksum|size): \d+", r"\1: N", line)
    return re.sub(rf"\b(?!{TIME_MS}\b)1[7-9]\d{{11}}\b", "TIME", re.sub(r"probe-[0-9a-f-]{36}", "MEMBER", line))


def _producers_sorted(lines: list[str]) -> list[str]:
    """Return the lines with a snapshot's producers sorted, as Kafka's order is random."""
    producers = sorted(_equal(line) for line in lines if line.startswith("producerId:"))
    return [*(line for line in lines if not line.startswith("producerId:")), *producers]


def play(say: str, servers: Sequence[str], jars: Path) -> Facts:
    """Play the script on a cluster; return its responses, and what the tools print."""
    addresses = [(host, int(port)) for host, _, port in (one.partition(":") for one in servers)]
    probe = Probe(addresses, lambda part: _note(f"{say}: {part}"))
    try:
        create(probe)
        for part in (*transaction_script.PARTS, *failovers_script.PARTS, *partitions_script.PARTS):
            part(probe)
    finally:
        probe.close()
    return probe.facts | tools(say, ",".join(servers), jars)


def files(say: str, directories: Mapping[int, Path], jars: Path) -> Facts:
    """Return the contents of stopped brokers' files, and kafka-dump-log's output."""
    facts: Facts = {}
    ids = ProducerIds()
    for broker, directory in directories.items():
        found = contents(directory, TOPICS, ids)
        facts |= {f"bytes at broker {broker}: {name}": line for name, line in found.items()}
    return facts | dumps(say, directories[0], jars)


def theirs(directory: Path, jars: Path) -> Facts:
    """Return what Apache Kafka says and leaves behind."""
    side = kafka_side.Kafka(directory, SETTINGS)
    try:
        side.start()
        facts = play("Kafka", side.bootstrap.split(","), jars)
    finally:
        side.stop()
    return facts | files("Kafka", {at: directory / "kafka" / f"data-{at}" for at in BROKERS}, jars)


def ours(directory: Path, jars: Path) -> Facts:
    """Return what Tidegauge says and leaves behind."""
    cluster = LocalCluster.create(directory / "tidegauge", len(BROKERS), profile="kafka", settings=SETTINGS)
    try:
        cluster.up(READY_SECONDS)
        facts = play("Tidegauge", cluster.kafka_bootstrap_servers, jars)
    finally:
        cluster.down(grace_seconds=STOP_SECONDS)
    return facts | files("Tidegauge", {at: layout.broker_data(cluster.directory, at) for at in BROKERS}, jars)


class Verdict(NamedTuple):
    """The differences without a reason, as lines; the number of differences for each reason, and unused reasons."""

    differences: list[str]
    known: Counter[str]
    idle: list[str]


def compare(kafka: Facts, tidegauge: Facts) -> Verdict:
    """Compare what both said and left behind."""
    found: list[str] = []
    known: Counter[str] = Counter()
    for name in dict.fromkeys([*kafka, *tidegauge]):
        one, other = kafka.get(name, "not there"), tidegauge.get(name, "not there")
        if one == other:
            continue
        reason = next((rule.why for rule in KNOWN if re.fullmatch(rule.facts, name)), None)
        if reason is None:
            found.append(f"{name}\n    Kafka:     {one}\n    Tidegauge: {other}")
        else:
            known[reason] += 1
    return Verdict(found, known, [rule.why for rule in KNOWN if rule.why not in known])


def _kept(file: Path | None) -> Facts:
    """Return Kafka's side from an earlier run; empty: there is none."""
    return dict(json.loads(file.read_text())) if file is not None and file.exists() else {}


def main() -> int:
    """Run both, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=Path, help="write what was seen on both to this file")
    parser.add_argument("--kafka-facts", type=Path, help="what Kafka said: read where the file exists, else written")
    options = parser.parse_args()
    try:
        jars = kafka_jars()
    except kafka_side.Unavailable as reason:
        print(f"Apache Kafka can't be had here ({reason}): transactions are not compared")
        return 0
    with tempfile.TemporaryDirectory(prefix="differential-transactions-") as name:
        directory = Path(name)
        kafka = _kept(options.kafka_facts) or theirs(directory, jars)
        if options.kafka_facts:
            options.kafka_facts.write_text(json.dumps(kafka, indent=1))
        tidegauge = ours(directory, jars)
    if options.facts:
        options.facts.write_text(json.dumps({"kafka": kafka, "tidegauge": tidegauge}, indent=1))
    verdict = compare(kafka, tidegauge)
    print("\n".join(verdict.differences))
    for reason, count in verdict.known.items():
        print(f"{count} differ: {reason}")
    for reason in verdict.idle:
        print(f"nothing differs any more: {reason}")
    print(f"transactions: {len(kafka)} facts compared, {len(verdict.differences)} differences without a reason")
    return 1 if verdict.differences else 0


if __name__ == "__main__":
    sys.exit(main())
