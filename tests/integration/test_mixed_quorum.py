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
from tests.integration.kafka_causes import CAUSES
from tests.integration.kafka_complaints import Acts, Cause, unexpected
from tests.integration.quorum_nodes import FIRST_ID, KAFKA, OURS, Quorum, QuorumNode, kafka_classpath, quorum_of
from tests.waiting import until

from tidegauge.java import java_program
from tidegauge_client.cli.quorum import describe_quorum

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]

ROUNDS = 12
"""Leaders that are killed at most until one of a kind leads; which one comes next is chance."""


@pytest.fixture(scope="module")
def classpath() -> str:
    """Kafka's jars."""
    return kafka_classpath()


def begun(quorum: Quorum, acts: Acts) -> None:
    """Wait until all controllers that have been started follow or lead."""
    with acts.during("start", *(node.id for node in quorum.nodes)):
        quorum.wait_equal()


def lead_by(quorum: Quorum, acts: Acts, kind: str) -> QuorumNode:
    """Kill leaders, each of which returns, until one of this kind leads; return it."""
    for _ in range(ROUNDS):
        leader = quorum.node(quorum.wait_equal().leader_id)
        if leader.kind == kind:
            return leader
        kill(quorum, acts, leader)
    raise AssertionError(f"no controller of kind {kind} leads")


def kill(quorum: Quorum, acts: Acts, leader: QuorumNode) -> None:
    """Kill the leader, and start it again when another one leads."""
    with acts.during("kill", leader.id):
        leader.kill()
        quorum.wait_leader(other_than=leader.id)
        leader.start()
        quorum.wait_equal()


def pause(quorum: Quorum, acts: Acts, leader: QuorumNode) -> None:
    """Pause the leader until another one leads."""
    with acts.during("pause", leader.id):
        leader.send(signal.SIGSTOP)
        quorum.wait_leader(other_than=leader.id, without=leader.id)
        leader.send(signal.SIGCONT)
        quorum.wait_equal()


def stop(quorum: Quorum, acts: Acts, node: QuorumNode) -> None:
    """End a controller by a shutdown, which Kafka's survives when it has started whole, and start it again."""
    with acts.during("stop", node.id):
        if node.kind == KAFKA:
            node.wait_started()
        assert node.stop() in ({0, 143} if node.kind == KAFKA else {0})
        quorum.wait_leader(other_than=node.id)
        node.start()
        quorum.wait_equal()


def end(quorum: Quorum, acts: Acts) -> None:
    """Kill all controllers."""
    with acts.during("kill", *(node.id for node in quorum.nodes)):
        quorum.end()


@pytest.mark.parametrize(
    "kinds",
    [[OURS, OURS, KAFKA], [OURS, KAFKA, KAFKA], [OURS, OURS, OURS, KAFKA, KAFKA]],
    ids=["two-and-one", "one-and-two", "three-and-two"],
)
def test_controllers_of_both_kinds_lead_follow_and_return(kinds: list[str], classpath: str, tmp_path: Path):
    """Byte-equal logs, and a Kafka controller has nothing to complain about, whoever leads (KIP-595, KIP-996).

    A leader of each kind is killed, paused and stopped; then each controller is stopped while another one leads.
    """
    acts = Acts(tmp_path / "acts.jsonl")
    with quorum_of(tmp_path, kinds, classpath) as quorum:
        begun(quorum, acts)
        for kind in (OURS, KAFKA):
            kill(quorum, acts, lead_by(quorum, acts, kind))
            pause(quorum, acts, lead_by(quorum, acts, kind))
            stop(quorum, acts, lead_by(quorum, acts, kind))
        for node in quorum.nodes:  # a Kafka controller registers again with each start, at a leader of ours too
            if node.id != quorum.wait_leader().leader_id:
                stop(quorum, acts, node)
        assert all(node.runs for node in quorum.nodes)
        quorum.wait_equal()
        end(quorum, acts)
        logs = [node.segments() for node in quorum.nodes]
        shortest = min(map(len, logs))  # a registration may have been on its way to the others
        assert {log[:shortest] for log in logs} == {logs[0][:shortest]}
        assert "FEATURE_LEVEL_RECORD" in quorum.nodes[0].dump()
        assert complaints(quorum, acts) == ""


SMALL_SEGMENTS = Cause(
    "Segments are of a size that Kafka leaves to tests.", "KafkaRaftLog", r"only supported for testing", frozenset()
)


def complaints(quorum: Quorum, acts: Acts) -> str:
    """Return the complaints of Kafka's controllers that no act explains."""
    found = [one for node in quorum.nodes for one in node.complaints_of_kafka()]
    ports = {str(node.port): str(node.id) for node in quorum.nodes}
    return "\n".join(map(str, unexpected(found, [*CAUSES, SMALL_SEGMENTS], acts.all, ports)))


def snapshots_of(node: QuorumNode) -> dict[str, bytes]:
    """The snapshots that a node has besides the one of its format."""
    found: dict[str, bytes] = {}
    for path in node.metadata_directory.glob("*.checkpoint"):
        with contextlib.suppress(FileNotFoundError):  # a node deletes old ones
            found[path.name] = path.read_bytes()
    return {name: data for name, data in found.items() if not name.startswith("0" * 20)}


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
    acts = Acts(tmp_path / "acts.jsonl")
    with quorum_of(tmp_path, [leads, leads, joins], classpath, settings=settings) as quorum:
        begun(quorum, acts)
        firsts = [node.metadata_directory / f"{0:020d}.log" for node in quorum.nodes]
        until(lambda: not any(one.exists() for one in firsts), 240.0, "the logs begin behind a snapshot")
        leader = lead_by(quorum, acts, leads)
        snapshots: dict[str, bytes] = {}

        def has_one() -> bool:
            snapshots.update(snapshots_of(leader))
            return bool(snapshots_of(joiner).keys() & snapshots.keys()) and joiner.segments() != b""

        with acts.during("start", FIRST_ID + len(quorum.nodes)):
            joiner = quorum.join(joins)
            until(has_one, 240.0, "the newcomer has a snapshot of the leader's, and records behind it")
        fetched = {name: data for name, data in snapshots_of(joiner).items() if name in snapshots}
        end(quorum, acts)
        assert fetched
        assert fetched == {name: snapshots[name] for name in fetched}
        log, whole = joiner.segments(), leader.segments()
        begin = whole.index(log[:61])  # the header of its first batch
        common = min(len(log), len(whole) - begin)
        assert log[:common] == whole[begin : begin + common]
        assert complaints(quorum, acts) == ""


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


def prints_alike(classpath: str, quorum: Quorum, option: str) -> bool:
    """Whether Kafka's tool and the verb print the same lines; times differ from one look to the next."""
    ours = CliRunner().invoke(describe_quorum, [option, "--bootstrap-controller", quorum.servers]).output
    kafkas = tool(classpath, quorum, "describe", option)

    def shown(text: str) -> list[list[str]]:
        rows = [line.split("\t") for line in text.splitlines() if not line.startswith("MaxFollowerLagTimeMs:")]
        return [[cell.strip() for cell in (*row[:4], *row[6:])] for row in rows]

    return bool(ours) and shown(ours) == shown(kafkas)


def test_kafkas_tool_describes_adds_and_removes(classpath: str, tmp_path: Path):
    """kafka-metadata-quorum 4.3.1 at controllers of ours; the verbs print what it prints."""
    with quorum_of(tmp_path, [OURS] * 3, classpath) as quorum:
        quorum.wait_equal()
        for option in ("--status", "--replication"):  # controllers register late, and the log grows between two looks
            until(lambda option=option: prints_alike(classpath, quorum, option), 120.0, f"describe {option} is alike")
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
