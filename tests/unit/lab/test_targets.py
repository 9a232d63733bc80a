"""One language for targets: the words of paths and steps, and the options of verbs, name a broker everywhere."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_client.metadata import from_response
from tidegauge_lab.cli.common import TargetType
from tidegauge_lab.cli.faults import kill, read_targets
from tidegauge_lab.cli.holds import hold_fetch, step_fetch
from tidegauge_lab.cli.inject import expire_session, release_requests, skew_clock, sync
from tidegauge_lab.cli.isolate import heal
from tidegauge_lab.local.cluster import LocalCluster, Target
from tidegauge_lab.local.processes import LabProcess, ProcessState
from tidegauge_lab.local.roles import GROUP, TRANSACTION, Coordinated, Role, RoleKind, read_role, role_of
from tidegauge_lab.local.topology.zookeeper import ZooKeeperTopology
from tidegauge_lab.scenario.readers import broker_or_role
from tidegauge_lab.scenario.steps import STEPS
from tidegauge_lab.scenario.yaml_reader import MalformedYaml, Mapping, Node, read_yaml

AT = TopicPartition("orders", 0)
LEADER = Role(RoleKind.LEADER, AT)
WORDS = [
    ("controller", Role(RoleKind.CONTROLLER)),
    ("leader-of:orders-0", LEADER),
    ("follower-of:orders-0", Role(RoleKind.FOLLOWER, AT)),
    ("coordinator-of:group:a:b", Role(RoleKind.COORDINATOR, of=Coordinated(GROUP, "a:b"))),
    ("coordinator-of:transaction:t", Role(RoleKind.COORDINATOR, of=Coordinated(TRANSACTION, "t"))),
]


def node(text: str) -> Node:
    read = read_yaml(f"a: {text}")
    assert isinstance(read, Mapping)
    return read.entries["a"]


@pytest.mark.parametrize(("word", "role"), WORDS)
def test_a_word_names_the_role_on_the_command_line_and_in_steps(word: str, role: Role) -> None:
    assert read_role(word) == role
    assert TargetType().convert(word, None, None) == role
    assert broker_or_role(node(word)) == role


@pytest.mark.parametrize(
    ("form", "role"),
    [
        ("{leader_of: orders-0}", LEADER),
        ("{follower_of: orders-0}", Role(RoleKind.FOLLOWER, AT)),
        ("{coordinator_of: 'group:g'}", Role(RoleKind.COORDINATOR, of=Coordinated(GROUP, "g"))),
        ("{controller: true}", Role(RoleKind.CONTROLLER)),
    ],
)
def test_steps_have_the_options_too(form: str, role: Role) -> None:
    assert broker_or_role(node(form)) == role


@pytest.mark.parametrize(
    "form", ["leader-of:orders", "leader:orders-0", "{leader: orders-0}", "{coordinator_of: g}", "x"]
)
def test_a_step_that_names_no_broker_is_refused(form: str) -> None:
    with pytest.raises(MalformedYaml):
        broker_or_role(node(form))


def test_an_option_and_a_word_are_one_role() -> None:
    assert role_of("leader_of", "orders-0") == role_of("leader-of", "orders-0") == LEADER
    assert role_of("leader", "orders-0") is None
    assert read_targets([LEADER], None, None, controller=False) == LEADER
    assert read_targets([1, 2], None, None, controller=False) == [1, 2]


@pytest.mark.parametrize("named", [[LEADER, 1], [LEADER, LEADER]])
def test_brokers_are_named_in_one_way_at_a_time(named: list[int | Role]) -> None:
    with pytest.raises(click.UsageError, match="Name brokers in one way"):
        read_targets(named, None, None, controller=False)


def test_every_verb_with_a_broker_takes_words() -> None:
    for verb, name in [
        (kill, "ids"),
        (heal, "targets"),
        (skew_clock, "target_id"),
        (expire_session, "target_id"),
        (release_requests, "target_id"),
        (hold_fetch, "brokers"),
        (step_fetch, "broker"),
        (sync, "named"),
    ]:
        [argument] = [one for one in verb.params if one.name == name]
        assert argument.type.convert("leader-of:orders-0", argument, click.Context(verb)) == LEADER


VERBS_OF_BROKERS = [kill, heal, skew_clock, expire_session, release_requests, hold_fetch, step_fetch, sync]


@pytest.mark.parametrize("verb", VERBS_OF_BROKERS, ids=lambda verb: str(verb.name))
def test_every_verb_with_a_broker_takes_each_option(verb: click.Command) -> None:
    options = {option for one in verb.params for option in one.opts}
    assert {"--leader-of", "--follower-of", "--coordinator-of", "--controller"} <= options


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        (heal, ["leader-of:orders"]),
        (expire_session, []),
        (expire_session, ["1", "--controller"]),
        (sync, ["orders-0"]),
        (sync, ["1", "2"]),
        (sync, ["1", "orders-0", "orders-1"]),
        (step_fetch, ["orders-0", "--broker", "dance"]),
    ],
)
def test_a_wrong_way_to_name_a_broker_is_a_usage_error(verb: click.Command, arguments: list[str]) -> None:
    assert CliRunner().invoke(verb, arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments", [["1", "orders-0"], ["orders-0", "1"], ["--controller", "orders-0"], ["leader-of:a-1", "orders-0"]]
)
def test_a_partition_to_sync_stands_beside_each_form_of_its_broker(arguments: list[str], tmp_path: Path) -> None:
    """The arguments are read: only the cluster is missing."""
    done = CliRunner().invoke(sync, [*arguments, "--dir", str(tmp_path)])
    assert done.exit_code == 1
    assert "Traceback" not in done.output


@pytest.mark.parametrize("step", ["start", "resume", "stop", "sync", "drop_unsynced", "heal", "clear_faults"])
@pytest.mark.parametrize("form", ["follower-of:orders-0", "{follower_of: orders-0}"])
def test_every_step_with_brokers_takes_both_forms(step: str, form: str) -> None:
    assert STEPS[step].arguments()["brokers"].read(node(form)) == (Role(RoleKind.FOLLOWER, AT),)


@pytest.mark.parametrize("step", ["hold_fetch", "step_fetch", "wait_held", "release_requests", "expire_zk_session"])
def test_steps_inside_a_broker_take_both_forms(step: str) -> None:
    arguments = STEPS[step].arguments()
    read = (arguments.get("broker") or arguments["brokers"]).read
    assert read(node("controller")) in (Role(RoleKind.CONTROLLER), (Role(RoleKind.CONTROLLER),))


def test_a_session_of_a_broker_named_by_its_role_ends_with_the_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`kill("leader-of:orders-0", expire=True)` asks for the session of the broker that leads."""
    asked: list[object] = []
    fits: list[object] = []
    local = object.__new__(LocalCluster)
    (tmp_path / "broker-2").mkdir()
    local.directory, local.file = tmp_path, ClusterFile("h:1", zookeeper_managed=True, profile="fast", brokers=[])

    def resolve(_: LocalCluster, __: Role, fit: ProcessState | None = None) -> int:
        fits.append(fit)
        return 2

    monkeypatch.setattr(LocalCluster, "resolve", resolve)
    monkeypatch.setattr(
        LocalCluster, "process_of", lambda _self, _target: LabProcess("broker-2", tmp_path / "broker-2", tmp_path)
    )
    monkeypatch.setattr("tidegauge_lab.local.containment.require_own", lambda *_: None)
    monkeypatch.setattr(ZooKeeperTopology, "require_members", lambda _, targets: asked.extend(targets))
    monkeypatch.setattr("tidegauge_lab.local.process_faults.kill", lambda *_: [])
    local.kill("leader-of:orders-0", expire=True)
    assert asked == [2]
    assert fits == [ProcessState.UP]


@pytest.mark.parametrize(
    "arguments", [["leader-of:orders"], ["dance"], ["leader-of:orders-0", "--leader-of", "orders-0"]]
)
def test_a_wrong_target_is_a_usage_error_before_anything_is_contacted(arguments: list[str]) -> None:
    done = CliRunner().invoke(skew_clock, [*arguments, "--frozen"])
    assert done.exit_code == 2


def test_zookeeper_is_a_word_where_it_is_a_target() -> None:
    context = click.Context(kill)
    assert TargetType().convert("zookeeper", None, context) == "zookeeper"
    with pytest.raises(click.BadParameter):
        TargetType().convert("zookeeper", None, click.Context(skew_clock))


def test_a_local_cluster_takes_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the pytest plugin and Python do: `kill("leader-of:orders-0")`."""
    local = object.__new__(LocalCluster)
    monkeypatch.setattr(LocalCluster, "resolve", lambda _self, role, _fits=None: 2 if role == LEADER else 0)
    assert local.broker_of("leader-of:orders-0") == 2
    assert local.broker_of(1) == 1
    for wrong in ("zookeeper", "leader-of:orders", "dance"):
        with pytest.raises(TidegaugeError):
            local.broker_of(wrong)


def test_of_several_followers_the_first_in_the_wanted_state_is_meant() -> None:
    """`start follower-of:orders-0` starts one that is down, `kill` kills one that is up."""
    topic = metadata_pb2.TopicMetadata(name="orders")
    topic.partitions.add(partition=0, leader_id=0, leader_epoch=1, replicas=[0, 1, 2])
    info = from_response(metadata_pb2.MetadataResponse(controller_id=0, controller_epoch=1, topics=[topic]))
    states = {0: ProcessState.UP, 1: ProcessState.UP, 2: ProcessState.DOWN}

    class Known(LocalCluster):
        def __init__(self) -> None:
            """Know the states of three brokers, and what broker 0 says."""
            self.file: Any = SimpleNamespace(brokers=[SimpleNamespace(id=one) for one in states], quorum=None)

        def _up_ids(self) -> list[int]:
            return [0, 1]

        def _views(self, broker_ids: list[int], topics: list[str] | None = None) -> Any:
            assert topics == ["orders"]
            return {broker_ids[0]: SimpleNamespace(metadata=info)}

        def state_of(self, target: Target) -> ProcessState:
            assert isinstance(target, int)
            return states[target]

    follower = Role(RoleKind.FOLLOWER, AT)
    assert Known().resolve(follower, ProcessState.DOWN) == 2
    assert Known().resolve(follower, ProcessState.UP) == 1
    assert Known().resolve(follower, ProcessState.PAUSED) == 1, "none fits: the first"


def test_a_role_that_an_apache_kafka_broker_has_names_no_process_of_the_lab() -> None:
    topic = metadata_pb2.TopicMetadata(name="orders")
    topic.partitions.add(partition=0, leader_id=2, leader_epoch=1, replicas=[0, 2])
    response = metadata_pb2.MetadataResponse(controller_id=0, controller_epoch=1, topics=[topic])
    response.brokers_without_listener.add(broker_id=2, host="127.0.0.1", port=9094)
    info = from_response(response)

    class Mixed(LocalCluster):
        def __init__(self) -> None:
            """Know what broker 0 says."""
            self.file: Any = SimpleNamespace(brokers=[], quorum=None)

        def _up_ids(self) -> list[int]:
            return [0]

        def _views(self, broker_ids: list[int], topics: list[str] | None = None) -> Any:
            return {0: SimpleNamespace(metadata=info)}

    with pytest.raises(
        TidegaugeError, match=r"leader of orders-0 is broker 2 at 127.0.0.1:9094, an Apache Kafka broker"
    ):
        Mixed().resolve(LEADER)
