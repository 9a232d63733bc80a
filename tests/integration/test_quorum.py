"""A quorum of real controller processes: elections, restarts, hand-overs, changes of the voters (KIP-595, KIP-853)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.quorum_nodes import LIMIT_SECONDS, OURS, Quorum, directory_id, quorum_of
from tests.waiting import until

from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge_client.cli.quorum import describe_quorum, remove_controller
from tidegauge_lab.cli.quorum import add_controller

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Quorum]:
    """Three controllers."""
    with quorum_of(tmp_path, [OURS] * 3) as quorum:
        yield quorum


def logs_of(quorum: Quorum) -> set[bytes]:
    """The logs of all nodes, up to the end of the shortest, once all had everything and none can write any more."""
    quorum.wait_equal()
    least = min(len(node.segments()) for node in quorum.nodes)
    quorum.end()
    logs = [node.segments() for node in quorum.nodes]
    shortest = min(map(len, logs))
    assert shortest >= least, "nobody has lost what all had"
    return {log[:shortest] for log in logs}


def test_a_killed_leader_is_replaced_and_returns_as_a_follower(three: Quorum):
    """KIP-595: the others elect one of them in a higher epoch; the returning node does not lead its old epoch again."""
    first = three.wait_leader()
    killed = three.node(first.leader_id)
    killed.kill()
    second = three.wait_leader(other_than=killed.id)
    assert second.epoch > first.epoch
    killed.start()
    view = three.wait_equal()
    assert view.leader_id != killed.id
    assert f"Controller {killed.id} is Resigned in epoch {first.epoch}" in killed.log()
    assert len(logs_of(three)) == 1


def test_a_leader_that_is_stopped_hands_over_and_ends_in_order(three: Quorum):
    """KafkaRaftClient.shutdown: EndQuorumEpoch lets the next one stand for election at once; the exit status is 0."""
    first = three.wait_leader()
    assert three.node(first.leader_id).stop() == 0
    assert three.wait_leader(other_than=first.leader_id).epoch > first.epoch


def test_a_whole_quorum_that_was_killed_begins_with_its_logs(three: Quorum):
    """Votes, epochs and records survive; the next leader's epoch is higher than all before."""
    before = three.wait_equal()
    for node in three.nodes:
        node.kill()
    three.start()
    after = three.wait_leader()
    assert after.epoch > before.epoch
    assert after.high_watermark > before.high_watermark
    assert len(logs_of(three)) == 1


def test_a_leader_that_was_paused_finds_another_one(three: Quorum):
    """A node that wakes up with timers long due resigns, or learns of the higher epoch; it does not lead on."""
    first = three.wait_leader()
    paused = three.node(first.leader_id)
    paused.send(signal.SIGSTOP)
    living = [node for node in three.nodes if node is not paused]
    addresses = ",".join(node.address for node in living)

    def another_leads() -> bool:
        done = CliRunner().invoke(describe_quorum, ["--bootstrap-controller", addresses, "-o", "json"])
        return done.exit_code == 0 and f'"leader":{paused.id}' not in done.output

    until(another_leads, 240.0, "another controller leads")
    paused.send(signal.SIGCONT)
    assert three.wait_equal().leader_id != paused.id
    assert len(logs_of(three)) == 1


def test_a_controller_is_added_and_removed_while_the_quorum_runs(three: Quorum):
    """KIP-853 by the verbs: an observer that has caught up becomes a voter, and an observer again."""
    three.wait_leader()
    fourth = three.join()
    assert fourth.id in {one.id for one in three.wait_equal().observers}
    asked = ["--bootstrap-controller", three.servers]
    added = CliRunner().invoke(add_controller, ["-c", str(fourth.config), *asked])
    assert added.output.startswith(f"Added controller {fourth.id} with directory id "), added.output
    assert [one.id for one in three.wait_equal().voters] == [3000, 3001, 3002, 3003]
    last = three.nodes[0]
    removed = ["-i", str(last.id), "-d", uuid_text(directory_id(0)), *asked]
    done = CliRunner().invoke(remove_controller, removed)
    assert done.output == f"Removed  KRaft controller 3000 with directory id {uuid_text(directory_id(0))}\n"
    view = three.wait_leader()
    assert [one.id for one in view.voters] == [3001, 3002, 3003]
    refused = CliRunner().invoke(remove_controller, removed)
    assert refused.exit_code == 1
    assert "VOTER_NOT_FOUND" in refused.output


def test_the_directory_of_another_node_is_refused_and_left_as_it_is(three: Quorum):
    """MetaPropertiesEnsemble.verify: one sentence, exit 1, nothing changed."""
    three.wait_leader()
    node = three.nodes[0]
    node.kill()
    before = sorted((path, path.stat().st_mtime_ns) for path in node.log_directory.rglob("*"))
    node.config.write_text(node.config.read_text().replace("node.id=3000", "node.id=3009"))
    node.start()
    assert node.wait_ended() == 1
    assert "Stored node id 3000 doesn't match previous node id 3009" in node.log()
    assert "Traceback" not in node.log()
    assert sorted((path, path.stat().st_mtime_ns) for path in node.log_directory.rglob("*")) == before


def test_a_damaged_vote_is_not_replaced_by_none(three: Quorum):
    """Without its vote a node could vote twice in an epoch, so it must not start (FileQuorumStateStore)."""
    three.wait_leader()
    node = three.nodes[1]
    node.kill()
    state = node.log_directory / "__cluster_metadata-0" / "quorum-state"
    state.write_bytes(state.read_bytes()[:20])
    node.start()
    assert node.wait_ended() == 1
    assert "quorum-state can't be used" in node.log()
    assert "Traceback" not in node.log()


def test_a_vote_that_is_damaged_under_a_running_node_is_written_again_with_the_next_one(three: Quorum):
    """The file is read at the start alone; the node acts on what it knows, and writes it whole each time."""
    leader = three.node(three.wait_leader().leader_id)
    follower = next(node for node in three.nodes if node is not leader)
    (follower.log_directory / "__cluster_metadata-0" / "quorum-state").write_bytes(b"{")
    leader.kill()
    three.wait_leader(other_than=leader.id)  # with the vote of the two that are left
    follower.kill()
    follower.start()
    leader.start()
    three.wait_equal()


def test_a_batch_that_is_damaged_in_the_leaders_log_reaches_no_other_log(three: Quorum):
    """The CRC tells; the follower says so, asks again, and has the records from the next leader.

    The damaged node ends its log before that batch when it starts again, and fetches what it lacks.
    """
    leader = three.node(three.wait_equal().leader_id)
    segment = min((leader.log_directory / "__cluster_metadata-0").glob("*.log"))
    with segment.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8)
    joiner = three.join()
    until(lambda: "can't be read" in joiner.log() and "its CRC is wrong" in joiner.log(), LIMIT_SECONDS, "it says so")
    assert joiner.runs
    assert leader.runs
    assert "Traceback" not in joiner.log()
    leader.kill()
    three.wait_leader(other_than=leader.id)
    three.wait_equal()
    other = next(node for node in three.nodes if node is not leader)
    until(lambda: joiner.segments() == other.segments(), LIMIT_SECONDS, "the joiner has the next leader's log")
    leader.start()
    assert len(logs_of(three)) == 1


@pytest.mark.long
def test_a_damaged_snapshot_of_the_leader_does_not_end_the_node_that_fetches_it(tmp_path: Path):
    """The checkpoints of a running leader are overwritten; who fetches one says so, and begins at the next leader's.

    A node looks once a minute for what may be deleted, so that a newcomer must fetch a snapshot only after that.
    """
    settings = {
        "metadata.max.idle.interval.ms": "50",
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "4000",
        "internal.metadata.log.segment.bytes": "1024",
    }
    with quorum_of(tmp_path, [OURS] * 3, settings=settings) as quorum:
        leader = quorum.node(quorum.wait_leader().leader_id)
        directory = leader.log_directory / "__cluster_metadata-0"
        first = directory / "00000000000000000000.log"
        until(lambda: not first.exists(), LIMIT_SECONDS, "the log begins behind a snapshot")

        def damage() -> None:
            for path in directory.glob("*.checkpoint"):
                with contextlib.suppress(FileNotFoundError):  # the leader deletes old ones
                    path.chmod(0o644)
                    with path.open("r+b") as file:
                        file.seek(-20, os.SEEK_END)
                        file.write(bytes(20))

        damage()
        joiner = quorum.join()

        def says_so() -> bool:
            damage()
            return "that the leader sent is damaged" in joiner.log()

        until(says_so, LIMIT_SECONDS, "the node has noticed it")
        assert joiner.runs
        assert leader.runs
        assert "Traceback" not in joiner.log()
        assert joiner.segments() == b""
        leader.kill()
        quorum.wait_leader(other_than=leader.id)
        until(lambda: joiner.segments() != b"", LIMIT_SECONDS, "it has the records behind the next leader's snapshot")
