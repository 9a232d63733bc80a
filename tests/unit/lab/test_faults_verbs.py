"""The verbs that reach into brokers: usage is judged before anything is contacted; faults in words."""

import asyncio

import pytest
from click.testing import CliRunner

from tidegauge.errors import ErrorCode
from tidegauge.faults.messages import describe_fault, to_message
from tidegauge.faults.table import HOLD_REQUESTS, INJECT_DISK, INJECT_ERROR, ISOLATE
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2, lab_pb2, metadata_pb2
from tidegauge_lab.cli import inject
from tidegauge_lab.cli.holds import hold_fetch, step_fetch
from tidegauge_lab.cli.inject import expire_session, inject_disk, inject_error, release_requests, sync
from tidegauge_lab.cli.isolate import faults, heal, isolate
from tidegauge_lab.switches import Direction, Plane, wire

AT = TopicPartition("t", 0)


def run(verb, *arguments, directory):
    return CliRunner().invoke(verb, [*arguments, "--dir", str(directory)], env={"TIDEGAUGE_BOOTSTRAP_SERVER": ""})


@pytest.mark.parametrize(
    ("verb", "arguments", "words"),
    [
        (isolate, ["1"], "--from"),
        (isolate, ["x", "--from", "brokers"], "x"),
        (isolate, ["1", "--from", "everybody"], "none of brokers, zookeeper, clients"),
        (isolate, ["1", "--from", "0,-2"], "none of brokers"),
        (isolate, ["1", "--from", "0,1"], "can't be isolated from itself"),
        (isolate, ["1", "--from", "clients", "--direction", "out"], "makes no calls to clients"),
        (isolate, ["1", "--from", "brokers", "--direction", "up"], "up"),
        (isolate, ["1", "--from", "brokers", "--delay-ms", "5", "--drop", "0.5"], "at most one of both"),
        (isolate, ["1", "--from", "brokers", "--drop", "0"], "0"),
        (heal, ["x"], "x"),
        (hold_fetch, ["orders"], "T-P"),
        (step_fetch, ["orders-0", "--until", "append"], "append"),
        (step_fetch, ["orders-0", "--until", "request", "--rounds", "2"], "has not ended"),
        (step_fetch, ["orders-0", "--rounds", "0"], "0"),
        (inject_error, ["1", "--rpc", "Produce"], "--error or --grpc-status"),
        (
            inject_error,
            ["1", "--rpc", "Produce", "--error", "NOT_CONTROLLER", "--grpc-status", "UNKNOWN"],
            "exactly one of both",
        ),
        (inject_error, ["1", "--rpc", "Produce", "--error", "NO_SUCH_ERROR"], "NO_SUCH_ERROR"),
        (inject_disk, ["1"], "--delay-ms or --errno"),
        (sync, ["1", "orders"], "T-P"),
        (expire_session, [], "ID"),
    ],
)
def test_wrong_usage_ends_with_2_and_nothing_was_contacted(verb, arguments, words, tmp_path):
    done = run(verb, *arguments, directory=tmp_path)
    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.parametrize(
    ("verb", "arguments"), [(faults, []), (heal, []), (isolate, ["1", "--from", "brokers"]), (hold_fetch, ["t-0"])]
)
def test_without_a_cluster_it_is_one_sentence_and_1(verb, arguments, tmp_path):
    done = run(verb, *arguments, directory=tmp_path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"from": Plane.BROKERS}, "calls from and to all other brokers: partitioned"),
        ({"from": [2], "direction": Direction.IN, "delay_ms": 20}, "calls from broker 2: delayed by 20 ms"),
        ({"from": [0, 2], "direction": Direction.OUT}, "calls to brokers 0, 2: partitioned"),
        (
            {"from": Plane.CLIENTS, "direction": Direction.IN, "drop": 0.5, "seed": 3},
            "calls from clients: dropped with probability 0.5 (seed 3)",
        ),
        ({"from": Plane.ZOOKEEPER}, "the connection with ZooKeeper: partitioned"),
        ({"from": Plane.ZOOKEEPER, "direction": Direction.IN}, "what comes from ZooKeeper: partitioned"),
    ],
)
def test_a_partition_in_words(values, text):
    assert describe_fault(to_message(ISOLATE.wanted(values))) == text


def test_errors_and_disks_in_words():
    error = {
        "rpc": "Fetch",
        "error": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "nth": 3,
        "probability": 0.5,
        "seed": 1,
        "after_effect": True,
    }
    assert describe_fault(to_message(INJECT_ERROR.wanted(error))) == (
        "Fetch responds with NOT_LEADER_OR_FOLLOWER, 1 time after 2 that pass with probability 0.5 (seed 1), although "
        "it takes effect"
    )
    calls = {"rpc": "Fetch", "error": ErrorCode.NOT_LEADER_OR_FOLLOWER, "caller": "2"}
    assert describe_fault(to_message(INJECT_ERROR.wanted(calls))).startswith("Fetch from broker 2 responds with")
    disk = {"errno": "EIO", "operation": "sync", "path": "t-0", "times": 2}
    assert describe_fault(to_message(INJECT_DISK.wanted(disk))) == (
        "sync on files with 't-0' in their path fails with EIO, 2 times"
    )


@pytest.mark.parametrize(
    ("rpc", "of"),
    [
        ("EndTxn", "transactional id torn"),
        ("EndTransaction", "transactional id torn"),
        ("InitProducerId", "transactional id torn"),
        ("OffsetCommit", "group torn"),
        ("AddOffsetsToTxn", "group torn"),
    ],
)
def test_a_hold_says_whether_its_id_is_of_a_group_or_of_transactions(rpc, of):
    """A request that names both is about the group: that is what the fault is compared with."""
    held = to_message(HOLD_REQUESTS.wanted({"rpc": rpc, "group": "torn"}))
    assert describe_fault(held) == f"{rpc} of {of} held"


def test_what_a_round_changed_is_what_differs():
    before = metadata_pb2.ReplicaDescription(role="leader", log_end_offset=1, isr=[1])
    before.remote_replicas.add(broker_id=2)
    after = metadata_pb2.ReplicaDescription(role="leader", log_end_offset=1, high_watermark=1, isr=[1, 2])
    after.remote_replicas.add(broker_id=2, log_end_offset=1)
    changes = wire.differences(1, before, after)
    assert [(one.attribute, one.before, one.after) for one in changes] == [
        ("HW", "0", "1"),
        ("remote LEO of 2", "-", "1"),
        ("ISR", "1", "1,2"),
    ]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (
            lab_pb2.StepFetchResponse(error=common_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE, error_message="none"),
            "Broker 2 sent no request for t-0: LEADER_NOT_AVAILABLE: none",
        ),
        (
            lab_pb2.StepFetchResponse(kind=lab_pb2.STEP_KIND_FETCH, leader_id=1, response_withheld=True),
            "Broker 2 asked broker 1 for t-0 from offset 0; broker 1 has taken the request and withholds the response",
        ),
        (
            lab_pb2.StepFetchResponse(
                kind=lab_pb2.STEP_KIND_EPOCH_END, leader_id=1, epoch_question={"leader_epoch": 3}
            ),
            "Broker 2 asked broker 1 where epoch 3 of t-0 ends: it knows no such epoch",
        ),
        (
            lab_pb2.StepFetchResponse(
                kind=lab_pb2.STEP_KIND_EPOCH_END,
                leader_id=1,
                epoch_question={"leader_epoch": 3},
                epoch_result={"end": {"leader_epoch": 2, "end_offset": 7}},
            ),
            "Broker 2 asked broker 1 where epoch 3 of t-0 ends: epoch 2 ends at 7",
        ),
        (
            lab_pb2.StepFetchResponse(
                kind=lab_pb2.STEP_KIND_FETCH,
                leader_id=1,
                fetch={"fetch_offset": 5, "last_fetched_epoch": 1},
                fetch_result={"diverging_epoch": {"leader_epoch": 0, "end_offset": 4}},
            ),
            "Broker 2 asked broker 1 for t-0 from offset 5, last epoch 1: the logs part: its epoch 0 ends at 4",
        ),
    ],
)
def test_a_round_in_words(response, text):
    assert wire.from_step(AT, 2, response).text == text


class HoldingBrokers:
    """Switches whose holds are awaited."""

    def __init__(self):
        self.waits = []

    async def wait_held(self, broker_id, count, *, limit_seconds):
        self.waits.append((broker_id, count, limit_seconds))

    async def release_requests(self, broker_id, which):
        assert which == "all"
        return []


@pytest.mark.parametrize(("words", "seconds"), [([], 30.0), (["--timeout-ms", "1500"], 1.5)])
def test_the_limit_of_a_release_is_in_milliseconds_as_all_others(words, seconds, tmp_path, monkeypatch):
    brokers = HoldingBrokers()
    monkeypatch.setattr(inject, "with_switches", lambda _directory, _servers, do: asyncio.run(do(brokers)))
    done = run(release_requests, "1", "--after", "2", *words, directory=tmp_path)
    assert done.exit_code == 0
    assert brokers.waits == [(1, 2, seconds)]
    assert done.stderr.splitlines() == ["Broker 1 holds no requests"]
