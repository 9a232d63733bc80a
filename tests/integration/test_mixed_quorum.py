"""One quorum of Tidegauge's controllers and Apache Kafka 4.3.1's: each kind leads, is killed and returns.

Needs Maven, or the jars that it brought before; if they can't be had, the test says so and is skipped.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.quorum_nodes import KAFKA, OURS, Quorum, kafka_classpath, quorum_of

from tidegauge.java import java_program
from tidegauge_client.cli.quorum import describe_quorum

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]

ROUNDS = 12
"""Leaders that are killed at most until both kinds have led; which one comes next is chance."""


@pytest.fixture(scope="module")
def classpath() -> str:
    """Kafka's jars."""
    return kafka_classpath()


def lead_by_both(quorum: Quorum) -> list[str]:
    """Kill leaders until both kinds have led; each returns before the next is killed. Return the kinds that led."""
    led = [quorum.node(quorum.wait_leader().leader_id).kind]
    for _ in range(ROUNDS):
        if {OURS, KAFKA} <= set(led) and led[-1] == OURS:
            break
        leader = quorum.node(quorum.wait_leader().leader_id)
        leader.kill()
        led.append(quorum.node(quorum.wait_leader(other_than=leader.id).leader_id).kind)
        leader.start()
        quorum.wait_equal()
    return led


@pytest.mark.parametrize("kinds", [[OURS, OURS, KAFKA], [OURS, KAFKA, KAFKA]], ids=["two-and-one", "one-and-two"])
def test_controllers_of_both_kinds_lead_follow_and_return(kinds: list[str], classpath: str, tmp_path: Path):
    """Byte-equal logs, and a Kafka controller has nothing to complain about, whoever leads (KIP-595, KIP-996)."""
    with quorum_of(tmp_path, kinds, classpath) as quorum:
        assert set(lead_by_both(quorum)) == {OURS, KAFKA}
        for node in quorum.nodes:  # a Kafka controller registers again with each start, at a leader of ours too
            if node.kind == KAFKA and node.id != quorum.wait_leader().leader_id:
                node.wait_started()
                assert node.stop() in {0, 143}
                node.start()
                node.wait_started()
                quorum.wait_equal()
        assert all(node.runs for node in quorum.nodes)
        quorum.wait_equal()
        quorum.end()
        assert {node.id: node.complaints() for node in quorum.nodes if node.kind == KAFKA} == {
            node.id: [] for node in quorum.nodes if node.kind == KAFKA
        }
        logs = [node.segments() for node in quorum.nodes]
        shortest = min(map(len, logs))  # a registration may have been on its way to the others
        assert {log[:shortest] for log in logs} == {logs[0][:shortest]}
        assert "FEATURE_LEVEL_RECORD" in quorum.nodes[0].dump()


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
