"""``describe-quorum``, ``remove-controller`` and ``wait --quorum-leader``: Kafka's lines, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.uuids import uuid_of
from tidegauge_client.cli import quorum, quorum_wait
from tidegauge_client.cli.main import root
from tidegauge_client.cli.wait import wait
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_client.quorum_admin import QuorumReplica, QuorumView
from tidegauge_client.quorum_file import ControllerEntry, QuorumEntry

IDS = [uuid_of(f"ERERERERQRGRERERERERA{last}") for last in "AQg"]
VIEW = QuorumView(
    "pQKNjKG6SIW1R46E3fVjJA",
    101,
    3,
    270,
    (
        QuorumReplica(100, IDS[0], -1, -1, -1),
        QuorumReplica(101, IDS[1], 276, 1795932222228, 1795932222228),
        QuorumReplica(102, IDS[2], 275, 1795932221993, 1795932221993),
    ),
    (QuorumReplica(1, uuid_of("TIrO4QZ6TEz6qXNi2AiD_w"), 276, 1795932221998, 1795932221998),),
    {100 + n: (f"CONTROLLER://127.0.0.1:900{n}",) for n in range(3)},
)
STATUS = """\
ClusterId:              pQKNjKG6SIW1R46E3fVjJA
LeaderId:               101
LeaderEpoch:            3
HighWatermark:          270
MaxFollowerLag:         277
MaxFollowerLagTimeMs:   -1
CurrentVoters:          \
[{"id": 100, "directoryId": "ERERERERQRGRERERERERAA", "endpoints": ["CONTROLLER://127.0.0.1:9000"]}, \
{"id": 101, "directoryId": "ERERERERQRGRERERERERAQ", "endpoints": ["CONTROLLER://127.0.0.1:9001"]}, \
{"id": 102, "directoryId": "ERERERERQRGRERERERERAg", "endpoints": ["CONTROLLER://127.0.0.1:9002"]}]
CurrentObservers:       [{"id": 1, "directoryId": "TIrO4QZ6TEz6qXNi2AiD_w"}]
"""
REPLICATION = """\
NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaughtUpTimestamp\tStatus  \t
101   \tERERERERQRGRERERERERAQ\t276         \t0  \t1795932222228     \t1795932222228        \tLeader  \t
100   \tERERERERQRGRERERERERAA\t-1          \t277\t-1                \t-1                   \tFollower\t
102   \tERERERERQRGRERERERERAg\t275         \t1  \t1795932221993     \t1795932221993        \tFollower\t
1     \tTIrO4QZ6TEz6qXNi2AiD_w\t276         \t0  \t1795932221998     \t1795932221998        \tObserver\t
"""
AT = ["--bootstrap-controller", "127.0.0.1:9000"]


class FakeAdmin:
    """Controllers that give the next of some views, or raise the next of some errors; the last one stays."""

    found: Sequence[QuorumView | TidegaugeError] = [VIEW]

    def __init__(self, asked: Sequence[str], _timeout_seconds: float = 30.0) -> None:
        self._left = list(self.found)
        assert asked == ["127.0.0.1:9000"]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def describe(self) -> QuorumView:
        one = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        if isinstance(one, TidegaugeError):
            raise one
        return one


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeAdmin]:
    """Puts the fake in the place of the controllers."""
    monkeypatch.setattr(quorum, "QuorumAdmin", FakeAdmin)
    monkeypatch.setattr(quorum_wait, "QuorumAdmin", FakeAdmin)
    monkeypatch.setattr(quorum_wait, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(FakeAdmin, "found", [VIEW])
    return FakeAdmin


def test_the_lines_are_those_of_kafka_metadata_quorum():
    """MetadataQuorumCommand of 4.3.1: a voter that has never fetched counts as at -1, and its lag in ms is -1."""
    assert CliRunner().invoke(quorum.describe_quorum, AT).output == STATUS
    assert CliRunner().invoke(quorum.describe_quorum, [*AT, "--replication"]).output == REPLICATION


def test_json_has_voters_and_observers_with_lag_and_role():
    output = CliRunner().invoke(quorum.describe_quorum, [*AT, "-o", "json"]).output
    assert '"leader":101,"epoch":3,"high_watermark":270' in output
    assert '"id":102,"directory_id":"ERERERERQRGRERERERERAg","log_end_offset":275,"lag":1,"role":"follower"' in output


@pytest.mark.parametrize("servers", ["", "localhost", ":9000", "h:x"])
def test_controllers_that_can_not_be_read_are_a_usage_error(servers: str):
    done = CliRunner().invoke(quorum.describe_quorum, ["--bootstrap-controller", servers])
    assert done.exit_code == 2
    assert "--bootstrap-controller" in done.output


def test_a_directory_id_that_is_none_is_a_usage_error():
    done = CliRunner().invoke(quorum.remove_controller, ["-i", "1", "-d", "x", *AT])
    assert done.exit_code == 2
    assert "a UUID has 22 characters of base64url" in done.output


def test_a_wait_ends_when_a_leader_has_committed_a_record(fake: type[FakeAdmin], monkeypatch: pytest.MonkeyPatch):
    """A leader without a high watermark may still lose its epoch's first record."""
    none = TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
    monkeypatch.setattr(fake, "found", [none, VIEW._replace(high_watermark=-1), VIEW])
    done = CliRunner().invoke(wait, ["--quorum-leader", *AT, "-o", "json"])
    assert done.output == '{"condition":"quorum-leader","holds":true,"leader":101,"epoch":3}\n'
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("found", "asked", "status", "sentence"),
    [
        (VIEW, ["--quorum-leader=102"], 4, "does not hold after 0 ms: controller 101 leads in epoch 3"),
        (VIEW._replace(high_watermark=-1), ["--quorum-leader"], 4, "and has committed nothing of it yet"),
        (VIEW, ["--metadata-offset=271"], 4, "the high watermark of the metadata log is 270"),
        (TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader"), ["--quorum-leader"], 124, "no leader"),
    ],
)
def test_a_wait_that_times_out_says_what_is_true_instead(
    found: QuorumView | TidegaugeError,
    asked: list[str],
    status: int,
    sentence: str,
    fake: type[FakeAdmin],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(fake, "found", [found])
    done = CliRunner().invoke(wait, [*asked, *AT, "--timeout-ms", "0"])
    assert done.exit_code == status
    assert sentence in done.output


def test_an_offset_is_exclusive():
    """As everywhere: a high watermark of 270 says that the record at offset 269 is committed."""
    assert CliRunner().invoke(wait, ["--metadata-offset=270", *AT]).exit_code == 0


@pytest.mark.parametrize("asked", [AT, ["--quorum-leader", *AT, "--hw", "t-0=1"], ["--in-sync", *AT]])
def test_a_wait_needs_one_condition(asked: list[str]):
    assert CliRunner().invoke(wait, asked).exit_code == 2


@pytest.mark.parametrize(
    "verb", [["describe-quorum"], ["wait", "--quorum-leader"], ["remove-controller", "-i1", "-dx"]]
)
def test_controllers_that_are_not_named_are_those_of_the_directory(verb: list[str], tmp_path: Path):
    """A cluster in ZooKeeper mode has none, and the refusal says so."""
    asked = [*verb, "--dir", str(tmp_path)]
    assert "there is no cluster in" in CliRunner().invoke(root, asked).output
    ClusterFile("127.0.0.1:2", zookeeper_managed=True, profile="fast", brokers=[]).save(tmp_path)
    assert "is in ZooKeeper mode" in CliRunner().invoke(root, asked).output
    entry = ControllerEntry(3000, "127.0.0.1", 9000, 19000, str(tmp_path / "controller-3000"))
    quorum_entry = QuorumEntry("pQKNjKG6SIW1R46E3fVjJA", [entry])
    ClusterFile("", zookeeper_managed=False, profile="fast", brokers=[], quorum=quorum_entry).save(tmp_path)
    done = CliRunner().invoke(root, asked)
    assert done.exit_code == (2 if verb[0] == "remove-controller" else 0), "FakeAdmin has seen the address"
