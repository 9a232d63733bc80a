"""The history of a share group with real members (docs/histories.md): what a test adds, what members have written.

Members are Java's KafkaShareConsumer (``tests/clients/java/ShareMember.java``), which write their own lines.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from confluent_kafka import Producer
from tests.clients.programs import KAFKA_4, java_program_of

from tidegauge.partition import TopicPartition
from tidegauge_client.operation_history import OperationHistory
from tidegauge_client.sync_admin import SyncAdmin
from tidegauge_lab.cli.verify import verify
from tidegauge_lab.local.cluster import LocalCluster

LIMIT_SECONDS = 180.0
AT = TopicPartition("jobs", 0)
GROUP = "workers"


class Books:
    """The history: lines that the test writes, beside the members' own."""

    def __init__(self, cluster: LocalCluster, path: Path) -> None:
        self.path = path
        self._servers = ",".join(cluster.kafka_bootstrap_servers)
        self._bootstrap = cluster.bootstrap_servers
        self._own = OperationHistory(path)
        self._producer = Producer({"bootstrap.servers": self._servers, "acks": "all", "enable.idempotence": True})
        self.acknowledged: set[str] = set()

    def begin_group(self) -> None:
        number = self._own.invoke("alter-offsets", group=GROUP, offsets={str(AT): 0})
        with SyncAdmin(self._bootstrap) as admin:
            assert admin.alter_share_offsets(GROUP, {AT: 0}) == {AT: None}
        self._own.end(number, "ok")

    def send(self, value: str) -> None:
        number = self._own.invoke("send", topic=AT.topic, partition=AT.partition, value=value)

        def done(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.add(value)
                self._own.end(number, "ok", offset=message.offset())
            else:
                self._own.end(number, "info")

        self._producer.produce(AT.topic, value, partition=AT.partition, on_delivery=done)
        self._producer.flush(LIMIT_SECONDS)

    def start_offset(self) -> int:
        """Return the group's start offset, and write it down."""
        number = self._own.invoke("read-starts", group=GROUP)
        with SyncAdmin(self._bootstrap) as admin:
            start = admin.share_offsets(GROUP)[AT].start_offset or 0
        self._own.end(number, "ok", offsets={str(AT): start})
        return start

    def lines(self) -> list[dict[str, Any]]:
        """Return the complete lines, without one that a killed member left."""
        return [json.loads(line) for line in self.path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def given(self) -> set[str]:
        """Return the values that members were given."""
        return {record[3] for line in self.lines() for record in line.get("records", ()) if len(record) == 5}

    def judged(self) -> tuple[int, dict[str, Any]]:
        done = CliRunner().invoke(verify, ["--shares", str(self.path), "-o", "json"], catch_exceptions=False)
        return done.exit_code, json.loads(done.output)["shares"]


def start_member(
    cluster: LocalCluster, mode: str, history: Path, name: str, errors: Path | None = None
) -> subprocess.Popen[str]:
    """Start a member.

    Args:
        cluster: its brokers.
        mode: share.acknowledgement.mode.
        history: the file that it appends to.
        name: of the process, in the history.
        errors: the file for its error output; None: nowhere.

    Raises:
        Unavailable: there is no Java, or no kafka-clients.
    """
    servers = ",".join(cluster.kafka_bootstrap_servers)
    command = java_program_of(KAFKA_4, "ShareMember")
    with (errors or Path("/dev/null")).open("ab") as output:
        return subprocess.Popen(
            [*command, servers, GROUP, AT.topic, mode, str(history), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=output,
            text=True,
        )


def end_member(one: subprocess.Popen[str]) -> None:
    """Close a member; one that does not end is killed."""
    try:
        one.communicate("\n", timeout=60)
    finally:
        one.kill()
        one.wait(60)
