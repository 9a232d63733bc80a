"""One quorum of Tidegauge's controllers and Apache Kafka 4.3.1's: each kind leads, is killed and returns.

Needs Maven, or the jars that it brought before; if they can't be had, the test says so and is skipped.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.quorum_nodes import KAFKA, OURS, Quorum, QuorumNode, kafka_classpath, quorum_of
from tests.waiting import until

from tidegauge.java import java_program
from tidegauge_broker.metadata_log.snapshot_names import BOOTSTRAP_NAME
from tidegauge_client.cli.quorum import describe_quorum

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]

ROUNDS = 12
"""Leaders that are killed at most until one of a kind leads; which one comes next is chance."""


@pytest.fixture(scope="module")
def classpath() -> str:
    """Kafka's jars."""
    return kafka_classpath()


def lead_by(quorum: Quorum, kind: str) -> QuorumNode:
    """Kill leaders, each of which returns, until one of this kind leads; return it."""
    for _ in range(ROUNDS):
        leader = quorum.node(quorum.wait_equal().leader_id)
        if leader.kind == kind:
            return leader
        leader.kill()
        quorum.wait_leader(other_than=leader.id)
        leader.start()
    raise AssertionError(f"no controller of kind {kind} leads")


def stop_in_order(node: QuorumNode) -> None:
    """End a controller by a shutdown, which Kafka's survives without a fault only when it has started whole."""
    if node.kind == KAFKA:
        node.wait_started()
    assert node.stop() in ({0, 143} if node.kind == KAFKA else {0})


@pytest.mark.parametrize(
    "kinds",
    [[OURS, OURS, KAFKA], [OURS, KAFKA, KAFKA], [OURS, OURS, OURS, KAFKA, KAFKA]],
    ids=["two-and-one", "one-and-two", "three-and-two"],
)
def test_controllers_of_both_kinds_lead_follow_and_return(kinds: list[str], classpath: str, tmp_path: Path):
    """Byte-equal logs, and a Kafka controller has nothing to complain about, whoever leads (KIP-595, KIP-996).

    A leader of each kind is killed, paused and stopped; then each controller is stopped while another one leads.
    """
    with quorum_of(tmp_path, kinds, classpath) as quorum:
        for kind in (OURS, KAFKA):
            killed = lead_by(quorum, kind)
            killed.kill()
            quorum.wait_leader(other_than=killed.id)
            killed.start()
            paused = lead_by(quorum, kind)
            paused.send(signal.SIGSTOP)
            quorum.wait_leader(other_than=paused.id, without=paused.id)
            paused.send(signal.SIGCONT)
            quorum.wait_equal()
            stopped = lead_by(quorum, kind)
            stop_in_order(stopped)
            quorum.wait_leader(other_than=stopped.id)
            stopped.start()
            quorum.wait_equal()
        for node in quorum.nodes:  # a Kafka controller registers again with each start, at a leader of ours too
            if node.id != quorum.wait_leader().leader_id:
                stop_in_order(node)
                node.start()
                quorum.wait_equal()
        assert all(node.runs for node in quorum.nodes)
        quorum.wait_equal()
        quorum.end()
        assert complaints(quorum) == []
        logs = [node.segments() for node in quorum.nodes]
        shortest = min(map(len, logs))  # a registration may have been on its way to the others
        assert {log[:shortest] for log in logs} == {logs[0][:shortest]}
        assert "FEATURE_LEVEL_RECORD" in quorum.nodes[0].dump()


def complaints(quorum: Quorum) -> list[str]:
    """What Kafka's controllers complain of."""
    return [line for node in quorum.nodes if node.kind == KAFKA for line in node.complaints()]


@pytest.mark.parametrize(("leads", "joins"), [(OURS, KAFKA), (KAFKA, OURS)])
def test_a_controller_begins_at_a_snapshot_of_the_other_kind(leads: str, joins: str, classpath: str, tmp_path: Path):
    """FetchSnapshot (KIP-630): the file arrives byte for byte, and the log goes on behind it.

    The logs begin behind a snapshot before the newcomer starts: each node looks once a minute for what may be deleted.
    """
    settings = {
        "metadata.max.idle.interval.ms": "50",
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "4000",
        "internal.metadata.log.segment.bytes": "1024",
    }
    with quorum_of(tmp_path, [leads, leads, joins], classpath, settings=settings) as quorum:
        lead_by(quorum, leads)
        firsts = [node.metadata_directory / f"{0:020d}.log" for node in quorum.nodes]
        until(lambda: not any(one.exists() for one in firsts), 240.0, "the logs begin behind a snapshot")
        leader = lead_by(quorum, leads)
        snapshots: dict[str, bytes] = {}

        def note_snapshots(node: QuorumNode) -> dict[str, bytes]:
            found: dict[str, bytes] = {}
            for path in node.metadata_directory.glob("*.checkpoint"):
                with contextlib.suppress(FileNotFoundError):  # a node deletes old ones
                    found[path.name] = path.read_bytes()
            return found

        joiner = quorum.join(joins)

        def has_one() -> bool:
            snapshots.update(note_snapshots(leader))
            return bool(note_snapshots(joiner).keys() & snapshots.keys() - {BOOTSTRAP_NAME})

        until(has_one, 240.0, "the newcomer has a snapshot of the leader's")
        until(lambda: joiner.segments() != b"", 240.0, "it has records behind it")
        fetched = {name: data for name, data in note_snapshots(joiner).items() if name in snapshots}
        quorum.end()
        assert fetched
        assert fetched == {name: snapshots[name] for name in fetched}
        log, whole = joiner.segments(), leader.segments()
        begin = whole.index(log[:61])  # the header of its first batch
        common = min(len(log), len(whole) - begin)
        assert log[:common] == whole[begin : begin + common]
        assert complaints(quorum) == []


def tool(classpath: str, quorum: Quorum, *arguments: str) -> str:
    """Return the output of kafka-metadata-quorum."""
    command = [java_program(), "-XX:TieredStopAtLevel=1", "-cp", classpath]
    name = "org.apache.kafka.tools.MetadataQuorumCommand"
    done = subprocess.run(
        [*command, name, "--bootstrap-controller", quorum.servers, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_kafkas_tool_describes_adds_and_removes(classpath: str, tmp_path: Path):
    """kafka-metadata-quorum 4.3.1 at controllers of ours; the verbs print what it prints."""
    with quorum_of(tmp_path, [OURS] * 3, classpath) as quorum:
        quorum.wait_equal()
        ours = CliRunner().invoke(describe_quorum, ["--bootstrap-controller", quorum.servers]).output
        assert tool(classpath, quorum, "describe", "--status") == ours
        columns = CliRunner().invoke(describe_quorum, ["--replication", "--bootstrap-controller", quorum.servers])
        kafkas = tool(classpath, quorum, "describe", "--replication").splitlines()
        shown = [[line.split("\t")[at].strip() for at in (0, 1, 2, 3, 6)] for line in kafkas]
        assert shown == [
            [line.split("\t")[at].strip() for at in (0, 1, 2, 3, 6)] for line in columns.output.splitlines()
        ]
        fourth = quorum.join()
        quorum.wait_equal()
        added = tool(classpath, quorum, "--command-config", str(fourth.config), "add-controller")
        assert added.startswith(f"Added controller {fourth.id} with directory id "), added
        view = quorum.wait_equal()
        assert [one.id for one in view.voters] == [3000, 3001, 3002, 3003]
        properties = (fourth.log_directory / "meta.properties").read_text().splitlines()
        directory = next(line.partition("=")[2] for line in properties if line.startswith("directory.id="))
        removal = ("remove-controller", "--controller-id", str(fourth.id), "--controller-directory-id", directory)
        assert tool(classpath, quorum, *removal).startswith(f"Removed  KRaft controller {fourth.id} with directory id")
        assert [one.id for one in quorum.wait_leader().voters] == [3000, 3001, 3002]
