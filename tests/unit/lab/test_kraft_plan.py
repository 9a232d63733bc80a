"""A cluster in KRaft mode: its controllers at the first ``up``, what a later one may change, and its nodes' files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import read_properties
from tidegauge_broker.server.cluster.node_of import kraft_node
from tidegauge_broker.server.quorum.node_properties import read_node_properties
from tidegauge_broker.server.quorum.verb import controller_settings
from tidegauge_client.cluster_file import ClusterFile, load_cluster_file
from tidegauge_lab.cli.cluster import up
from tidegauge_lab.local import layout
from tidegauge_lab.local.broker_settings import server_properties, ways_among_brokers
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.plan import first_plan, next_plan, ports_of
from tidegauge_lab.local.topology.kraft import KRaftTopology
from tidegauge_lab.local.topology.kraft_properties import controller_properties
from tidegauge_lab.local.wanted import Wanted, WantedQuorum

HOME = Path("/cluster")


@pytest.fixture(autouse=True)
def no_mode_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGAUGE_MODE", raising=False)


def all_free(_: int) -> bool:
    return True


def made(directory: Path = HOME, **wanted: object) -> ClusterFile:
    quorum = WantedQuorum(**wanted)
    return first_plan(directory, Wanted(mode="kraft", quorum=quorum), free=all_free).file


def test_three_controllers_with_the_ids_and_ports_of_the_design() -> None:
    """Ids as in Kafka's own test kit (TestKitNodes, BROKER_ID_OFFSET and CONTROLLER_ID_OFFSET), no ZooKeeper."""
    file = made()
    assert file.quorum is not None
    assert [(one.id, one.address, one.lab_address) for one in file.quorum.controllers] == [
        (3000, "127.0.0.1:9392", "127.0.0.1:19392"),
        (3001, "127.0.0.1:9393", "127.0.0.1:19393"),
        (3002, "127.0.0.1:9394", "127.0.0.1:19394"),
    ]
    assert (file.mode, file.zookeeper_address, file.zookeeper_managed) == ("kraft", "", False)
    assert len(set(ports_of(file))) == 6 + 6


def test_other_ports_are_said_and_a_port_that_was_asked_for_is_never_exchanged() -> None:
    plan = first_plan(HOME, Wanted(mode="kraft"), free=lambda port: port not in {9393, 19392})
    assert plan.file.quorum is not None
    assert [one.port for one in plan.file.quorum.controllers] == [9392, 9394, 9395]
    assert any("9392, 9394, 9395" in note for note in plan.notes)
    assert any("gRPC" in note and "19393" in note for note in plan.notes)
    assert [one.port for one in made(port=20_000).quorum.controllers] == [20_000, 20_001, 20_002]  # type: ignore[union-attr]
    with pytest.raises(TidegaugeError, match=r"port 20001 of controller 3001 is in use .* --controller-port"):
        first_plan(HOME, Wanted(mode="kraft", quorum=WantedQuorum(port=20_000)), free=lambda port: port != 20_001)


@pytest.mark.parametrize("count", [0, 2, 4, 7, -1])
def test_a_quorum_has_one_three_or_five_controllers(count: int) -> None:
    with pytest.raises(TidegaugeError, match=rf"a quorum has 1, 3 or 5 controllers, not {count}") as refused:
        made(controllers=count)
    assert (f"so that no more of them may fail than of {count - 1}" in refused.value.message) == (count in {2, 4})


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"features": {"no.such.feature": 1}}, "no.such.feature"),
        (
            {"features": {"eligible.leader.replicas.version": 9}},
            "No feature:eligible.leader.replicas.version with feature level 9: its levels are 0 to 1",
        ),
        ({"features": {"transaction.version": -1}}, "with feature level -1: its levels are 0 to 2"),
        ({"release_version": "1.0"}, "1.0"),
        ({"release_version": ""}, "Unknown metadata.version ''"),
        ({"features": {"kraft.version": 0}}, "kraft.version"),
        ({"features": {"streams.version": 1}}, "brokers here support streams.version at level 0 alone"),
        ({"release_version": "3.9"}, r"from 25 \(4.0-IV3\) on, not 21 \(3.9-IV0\): choose a release from 4.0 on"),
    ],
)
def test_an_unknown_feature_level_or_release_is_refused_in_kafkas_words(
    wanted: dict[str, object], sentence: str
) -> None:
    with pytest.raises(TidegaugeError, match=sentence) as refused:
        made(**wanted)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_the_variable_is_the_mode_of_a_new_directory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGAUGE_MODE", "kraft")
    file = first_plan(HOME, Wanted(), free=all_free).file
    assert file.mode == "kraft"
    monkeypatch.setenv("TIDEGAUGE_MODE", "zookeeper")
    assert next_plan(HOME, file, Wanted(), free=all_free).file.mode == "kraft", "a directory keeps its mode"
    monkeypatch.setenv("TIDEGAUGE_MODE", "raft")
    with pytest.raises(TidegaugeError, match="TIDEGAUGE_MODE is 'raft'; a cluster's mode is zookeeper or kraft"):
        first_plan(HOME, Wanted(), free=all_free)


@pytest.mark.parametrize(
    ("recorded", "wanted", "sentence"),
    [
        ("kraft", Wanted(mode="zookeeper"), "is in KRaft mode; that can't be changed"),
        ("zookeeper", Wanted(mode="kraft"), "is in ZooKeeper mode; that can't be changed"),
        ("kraft", Wanted(zookeeper="localhost:2181"), "a cluster in KRaft mode has no ZooKeeper"),
        ("zookeeper", Wanted(quorum=WantedQuorum(controllers=3)), "in ZooKeeper mode has no quorum"),
        (
            "kraft",
            Wanted(quorum=WantedQuorum(controllers=5)),
            "has 3 controllers, .*`tidegauge add-controller` adds one",
        ),
        ("kraft", Wanted(quorum=WantedQuorum(port=1234)), "has its controllers from port 9392 on"),
        ("kraft", Wanted(quorum=WantedQuorum(release_version="4.0")), "was formatted with other features"),
    ],
)
def test_a_later_up_can_t_turn_a_cluster_into_another(recorded: str, wanted: Wanted, sentence: str) -> None:
    file = first_plan(HOME, Wanted(mode=recorded), free=all_free).file
    with pytest.raises(TidegaugeError, match=sentence):
        next_plan(HOME, file, wanted, free=all_free)
    same = WantedQuorum(controllers=3, port=9392) if recorded == "kraft" else WantedQuorum()
    assert next_plan(HOME, file, Wanted(mode=recorded, quorum=same), free=all_free).file == file


AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
BROKERS_MAY = "User:admin;User:ANONYMOUS"


@pytest.mark.parametrize(
    "users", [{}, {"super.users": "User:admin"}, {"super.users": BROKERS_MAY, "3001:super.users": "User:admin"}]
)
def test_controllers_that_would_refuse_their_brokers_are_refused(users: dict[str, str]) -> None:
    """KIP-801: CLUSTER_ACTION comes from super.users until the first broker has connected."""
    with pytest.raises(TidegaugeError, match=r"would refuse the brokers .* add User:ANONYMOUS to super.users") as no:
        first_plan(HOME, Wanted(mode="kraft", settings={**AUTHORIZER, **users}), free=all_free)
    assert no.value.code is ErrorCode.INVALID_CONFIG
    file = made()
    with pytest.raises(TidegaugeError, match="would refuse the brokers"):
        next_plan(HOME, file, Wanted(settings={**AUTHORIZER, **users}), free=all_free)


@pytest.mark.parametrize("name", ["broker.rack", "num.replica.fetchers", "listener.name.plaintext.max.connections"])
def test_a_brokers_setting_is_refused_for_a_controller(name: str) -> None:
    """It would be in no file and have no effect, and nothing would say so; brokers and combined nodes take it."""
    with pytest.raises(TidegaugeError, match="is a setting of brokers, and 3000 is a controller"):
        first_plan(HOME, Wanted(mode="kraft", settings={f"3000:{name}": "7"}), free=all_free)
    taken = {f"0:{name}": "7", "3000:metadata.max.idle.interval.ms": "7"}
    first_plan(HOME, Wanted(mode="kraft", settings=taken), free=all_free)
    combined = WantedQuorum(is_combined=True)
    first_plan(HOME, Wanted(mode="kraft", settings={f"0:{name}": "7"}, quorum=combined), free=all_free)


SASL_OF_CONTROLLERS = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="p" user_node="p";'
    ),
}


def test_with_sasl_the_nodes_own_user_must_be_a_super_user() -> None:
    """Else the controllers refuse all brokers, as above; the sentence names that user."""
    settings = {**AUTHORIZER, **SASL_OF_CONTROLLERS, "super.users": "User:admin"}
    with pytest.raises(TidegaugeError, match=r"they are User:node there.* add User:node to super\.users"):
        first_plan(HOME, Wanted(mode="kraft", settings=settings), free=all_free)
    first_plan(HOME, Wanted(mode="kraft", settings=settings | {"super.users": "User:node"}), free=all_free)


def test_brokers_go_on_among_themselves_as_before_if_only_the_controllers_listener_is_secured() -> None:
    """The map of protocols says nothing of the brokers' listeners then, and the lab asks controllers with a login."""
    file = first_plan(HOME, Wanted(mode="kraft", settings=SASL_OF_CONTROLLERS), free=all_free).file
    assert ways_among_brokers(file) == {"inter.broker.listener.name": "PLAINTEXT"}
    login = file.controllers().security.login
    assert login is not None
    assert login.options["username"] == "node"
    text = controller_properties(file.quorum.controller(3000), HOME, file)
    assert read_properties(text).items() >= SASL_OF_CONTROLLERS.items()


def test_each_mode_has_its_own_authorizer() -> None:
    """Kafka 4 has no AclAuthorizer, and StandardAuthorizer needs a metadata log."""
    may = {"super.users": BROKERS_MAY}
    assert first_plan(HOME, Wanted(mode="kraft", settings={**AUTHORIZER, **may}), free=all_free).file.mode == "kraft"
    of_zookeeper = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    for mode, wrong in (("kraft", of_zookeeper), ("zookeeper", AUTHORIZER)):
        with pytest.raises(TidegaugeError, match=r"authorizer\.class\.name"):
            first_plan(HOME, Wanted(mode=mode, settings={**wrong, **may}), free=all_free)


@pytest.mark.parametrize("settings", [{"sasl.enabled.mechanisms": "PLAIN"}, {**AUTHORIZER, "super.users": BROKERS_MAY}])
def test_brokers_speak_grpc_if_the_listener_for_clients_asks_who_they_are(settings: dict[str, str]) -> None:
    """Without a word Kafka's protocol is spoken among brokers in KRaft mode, for which they would need credentials."""
    file = first_plan(HOME, Wanted(mode="kraft", settings=settings), free=all_free).file
    assert ways_among_brokers(file) == {"inter.broker.listener.name": "GRPC"}
    assert ways_among_brokers(made()) == {"inter.broker.listener.name": "PLAINTEXT"}
    said = first_plan(HOME, Wanted(mode="kraft", settings={"inter.broker.listener.name": "GRPC"}), free=all_free).file
    assert ways_among_brokers(said) == {}


def test_kraft_and_zookeeper_together_are_a_usage_error(tmp_path: Path) -> None:
    for option in ("--zookeeper=localhost:2181", "--zookeeper-port=2181"):
        result = CliRunner().invoke(up, ["--kraft", option, "--dir", str(tmp_path / "c")])
        assert result.exit_code == 2
        assert "--kraft is for a cluster without ZooKeeper" in result.output
    assert not (tmp_path / "c").exists()


def test_cluster_json_brings_the_quorum_back_and_a_strangers_is_checked(tmp_path: Path) -> None:
    file = made(tmp_path)
    file.save(tmp_path)
    assert load_cluster_file(tmp_path) == file
    path = tmp_path / "cluster.json"
    for place, value in [("cluster_id", "../x"), ("controllers", []), ("features", {"a": "1"}), ("new", 1)]:
        spoilt = json.loads(path.read_text())
        spoilt["quorum"][place] = value
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / "cluster.json").write_text(json.dumps(spoilt))
        with pytest.raises(TidegaugeError, match="is damaged"):
            load_cluster_file(tmp_path / "other")
    first_plan(tmp_path, Wanted(), free=all_free).file.save(tmp_path)
    assert "quorum" not in json.loads(path.read_text()), "a cluster in ZooKeeper mode is written as ever"


def test_a_controllers_file_is_one_that_a_controller_reads(tmp_path: Path) -> None:
    """Each node gets the settings that it knows, one node's own before the common ones; a typing error is refused."""
    settings = {
        "controller.quorum.fetch.timeout.ms": "700",
        "3001:controller.quorum.fetch.timeout.ms": "900",
        "num.partitions": "4",
    }
    file = first_plan(tmp_path, Wanted(mode="kraft", settings=settings), free=all_free).file
    assert file.quorum is not None
    parsed = {
        one.id: controller_settings(dict(read_properties(controller_properties(one, tmp_path, file))))
        for one in file.quorum.controllers
    }
    assert all(not one.unknown for one in parsed.values())
    values = {one: node.values for one, node in parsed.items()}
    assert values[3000].integer("controller.quorum.election.timeout.ms") == 100, "of the profile fast"
    assert [values[one].integer("controller.quorum.fetch.timeout.ms") for one in (3000, 3001)] == [700, 900]
    assert [one.address for one in parsed[3002].bound] == ["127.0.0.1:9394"]
    with pytest.raises(TidegaugeError, match=r"Unknown broker setting: controller\.quorum\.fetch\.timeout"):
        first_plan(tmp_path, Wanted(mode="kraft", settings={"controller.quorum.fetch.timeout": "1"}), free=all_free)
    for name in ("zookeeper.session.timeout.ms", "zookeeper.connect"):
        with pytest.raises(TidegaugeError, match=f"{name} .*whose nodes have no ZooKeeper"):
            first_plan(tmp_path, Wanted(mode="kraft", settings={name: "1"}), free=all_free)


def test_a_directory_that_lost_its_content_gets_a_new_id(tmp_path: Path) -> None:
    """KIP-853: a voter is an id and a directory id; one that forgot its votes must not count as the old one."""
    file = made(tmp_path)
    layout.write(tmp_path, file)
    assert file.quorum is not None
    KRaftTopology(tmp_path, file)._format_first([3000])
    data = layout.controller_data(tmp_path, 3001)
    first = read_node_properties(data)
    assert first.cluster_id == file.quorum.cluster_id
    assert (data / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint").exists(), "its voters"
    later = load_cluster_file(tmp_path)
    assert later.quorum is not None
    assert [one.directory_id for one in later.quorum.controllers] == ["", "", ""], "formatted once"
    assert replace(later.quorum, controllers=[]) == replace(file.quorum, controllers=[])
    for path in sorted(data.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    KRaftTopology(tmp_path, file)._format_first([3001])  # with the description of before, as a long-lived object has
    assert read_node_properties(data).directory_id != first.directory_id
    assert not (data / "__cluster_metadata-0").exists(), "it names no voters"
    [event] = [json.loads(line) for line in (tmp_path / "logs" / "lab.events.jsonl").read_text().splitlines()]
    assert (event["action"], event["process"]) == ("format", "controller-3001")


def test_a_directory_of_another_cluster_is_refused_and_stays(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        layout.write(directory, made(directory))
        KRaftTopology(directory, load_cluster_file(directory))._format_first([])
    stray = layout.controller_data(one, 3002)
    stray.rename(tmp_path / "kept")
    layout.controller_data(other, 3002).rename(stray)
    before = sorted(path.read_bytes() for path in stray.rglob("*") if path.is_file())
    with pytest.raises(TidegaugeError, match=r"Invalid cluster.id in: .*controller-3002"):
        KRaftTopology(one, load_cluster_file(one))._format_first([3002])
    assert sorted(path.read_bytes() for path in stray.rglob("*") if path.is_file()) == before


@pytest.mark.parametrize("stray", [3001, 1])
def test_nothing_starts_beside_a_directory_of_another_node_or_cluster(stray: int, tmp_path: Path) -> None:
    """All directories are looked at first: an election beside a stranger's data would change the metadata."""
    cluster = LocalCluster.create(tmp_path / "one", 3, mode="kraft")
    other = LocalCluster.create(tmp_path / "other", 3, mode="kraft")
    other._topology.start([])
    topology = KRaftTopology(other.directory, other.file)
    topology.prepare(1)
    name = f"broker-{stray}" if stray < 3000 else f"controller-{stray}"
    (cluster.directory / name).mkdir(exist_ok=True)
    (other.directory / name / "data").rename(cluster.directory / name / "data")
    with pytest.raises(TidegaugeError, match=rf"Invalid cluster.id in: .*{name}"):
        cluster.up()
    assert sorted(path.parent.name for path in cluster.directory.rglob("data")) == [name], "nothing was formatted"


def test_targets_that_a_cluster_in_kraft_mode_lacks_are_named(tmp_path: Path) -> None:
    layout.write(tmp_path, made(tmp_path))
    cluster = LocalCluster(tmp_path)
    with pytest.raises(
        TidegaugeError, match="in KRaft mode and has no ZooKeeper: its metadata are with the controller"
    ):
        cluster.kill("zookeeper")
    with pytest.raises(TidegaugeError, match=r"there is no node 7 .* brokers are 0, 1, 2, its controllers 3000, 3001"):
        cluster.kill(7)
    with pytest.raises(TidegaugeError, match="only a registered broker can be fenced"):
        cluster.expire_session(0)
    with pytest.raises(
        TidegaugeError, match=r"0 of its 3 controllers are up, and 2 are needed to elect one; .*start 3000"
    ):
        KRaftTopology(tmp_path, cluster.file).require_ready()


def test_brokers_are_the_controllers_of_a_combined_cluster(tmp_path: Path) -> None:
    """``process.roles=broker,controller``: one id, directory and gRPC port for both; further brokers have one role."""
    wanted = Wanted(brokers=4, mode="kraft", quorum=WantedQuorum(is_combined=True))
    file = first_plan(tmp_path, wanted, free=all_free).file
    assert file.quorum is not None
    assert [(one.id, one.port, one.lab_port, one.dir) for one in file.quorum.controllers] == [
        (one.id, 9392 + one.id, one.port, one.dir) for one in file.brokers[:3]
    ]
    assert len(ports_of(file)) == len(set(ports_of(file))) == 4 + 4 + 3
    assert file.lab_addresses == {one.id: one.address for one in file.brokers}
    layout.write(tmp_path, file)
    assert load_cluster_file(tmp_path) == file
    assert sorted(path.name for path in tmp_path.glob("*-*")) == [f"broker-{one}" for one in range(4)]
    topology = KRaftTopology(tmp_path, file)
    nodes = {
        one.id: kraft_node(
            dict(
                read_properties(
                    server_properties(
                        one, tmp_path, membership=topology.broker_settings(one.id), profile="fast", settings={}
                    )
                )
            ),
            "",
        )
        for one in file.brokers
    }
    assert [one.is_controller for one in nodes.values()] == [True, True, True, False]
    assert [one.address for one in nodes[1].bound] == ["127.0.0.1:9393"]
    topology.prepare(3)
    metadata = [Path(nodes[one].metadata_directory) for one in nodes]
    assert all(read_node_properties(one).cluster_id == file.quorum.cluster_id for one in metadata)
    first = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    assert [(one / first).exists() for one in metadata] == [True, True, True, False], "the first voters"


@pytest.mark.parametrize(
    ("brokers", "controllers", "ids"),
    [(None, None, 3), (1, None, 1), (2, None, 1), (5, None, 3), (None, 5, 5), (None, 1, 1), (5, 5, 5)],
)
def test_how_many_brokers_of_a_combined_cluster_are_controllers(
    brokers: int | None, controllers: int | None, ids: int
) -> None:
    quorum = WantedQuorum(controllers=controllers, is_combined=True)
    file = first_plan(HOME, Wanted(brokers=brokers, mode="kraft", quorum=quorum), free=all_free).file
    assert file.quorum is not None
    assert file.quorum.ids == list(range(ids))
    assert len(file.brokers) == (brokers or max(3, ids))


def test_a_combined_cluster_needs_a_broker_for_each_controller_and_stays_combined() -> None:
    few = Wanted(brokers=2, mode="kraft", quorum=WantedQuorum(controllers=3, is_combined=True))
    with pytest.raises(TidegaugeError, match="the first 3 brokers are the controllers, and there would be 2: give"):
        first_plan(HOME, few, free=all_free)
    combined = Wanted(quorum=WantedQuorum(is_combined=True), mode="kraft")
    file = first_plan(HOME, combined, free=all_free).file
    grown = next_plan(HOME, file, Wanted(brokers=5), free=all_free).file
    assert (len(grown.brokers), grown.quorum) == (5, file.quorum), "more brokers, the same controllers"
    assert not {one.port for one in grown.brokers[3:]} & set(ports_of(file))
    assert next_plan(HOME, file, combined, free=all_free).file == file
    with pytest.raises(TidegaugeError, match="has controllers in processes of their own"):
        next_plan(HOME, made(), combined, free=all_free)


def test_brokers_that_would_wait_for_a_majority_are_not_started(tmp_path: Path) -> None:
    """A node registers with the active controller; with too few voters, itself among them, there is none."""
    wanted = Wanted(brokers=4, mode="kraft", quorum=WantedQuorum(is_combined=True))
    file = first_plan(tmp_path, wanted, free=all_free).file
    layout.write(tmp_path, file)
    topology = KRaftTopology(tmp_path, file)
    with pytest.raises(TidegaugeError, match=r"0 of its 3 controllers are up, 1 would start, and 2 .*start 2 0"):
        topology.require_ready([2])
    with pytest.raises(TidegaugeError, match=r"0 of its 3 controllers are up, and 2 are needed .*start 0 1"):
        topology.require_ready([3])
    topology.require_ready([0, 1])
    topology.require_ready([0, 2, 3])


def test_a_setting_of_a_node_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """It would have no effect; in ZooKeeper mode as in KRaft mode, at the first `up` and at later ones."""
    rack = {"7:broker.rack": "a"}
    sentence = (
        r"--set 7:broker.rack: there is no node 7, so broker.rack would have no effect; the cluster has brokers 0, 1"
    )
    with pytest.raises(TidegaugeError, match=sentence + ", 2 and controllers 3000, 3001, 3002") as refused:
        first_plan(HOME, Wanted(mode="kraft", settings=rack), free=all_free)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(TidegaugeError, match=sentence + ", 2$"):
        first_plan(HOME, Wanted(settings=rack), free=all_free)
    combined = WantedQuorum(controllers=1, is_combined=True)
    with pytest.raises(TidegaugeError, match=sentence + "$"):
        first_plan(HOME, Wanted(mode="kraft", brokers=2, settings=rack, quorum=combined), free=all_free)
    file = made(tmp_path)
    with pytest.raises(TidegaugeError, match="there is no node 7"):
        next_plan(tmp_path, file, Wanted(settings=rack), free=all_free)
    grown = next_plan(tmp_path, file, Wanted(brokers=8, settings=rack), free=all_free).file
    assert len(next_plan(tmp_path, grown, Wanted(), free=all_free).file.brokers) == 8


def test_a_feature_that_is_named_twice_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    """FeatureCommand's sentence: which of the two levels counts must not be guessed."""
    twice = ["--feature", "kraft.version=1", "--feature", "kraft.version=0"]
    done = CliRunner().invoke(up, ["--kraft", "-d", "--dir", str(tmp_path / "c"), *twice])
    assert done.exit_code == 2
    assert "Feature kraft.version was specified more than once." in done.output
    assert not (tmp_path / "c").exists()
