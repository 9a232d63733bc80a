"""Metrics: the format to the letter, Kafka's names, counters that agree with the event log, a small HTTP end."""

from __future__ import annotations

import asyncio
import math
import re

import pytest

from tidegauge.cluster_metadata import PartitionState
from tidegauge.errors import TidegaugeError
from tidegauge.groups import GroupState
from tidegauge.listeners import Listener
from tidegauge.partition import TopicPartition
from tidegauge_broker.coordinator.views import Counters, Gauges
from tidegauge_broker.quotas.client_quota import Reading
from tidegauge_broker.quotas.limits import Sharers
from tidegauge_broker.replica.messages import RemoteReplicaView, ReplicaView
from tidegauge_broker.server.metrics.collect import Replica, Snapshot, families
from tidegauge_broker.server.metrics.endpoint import MetricsEndpoint, parse_address
from tidegauge_broker.server.metrics.exposition import Family, exposition
from tidegauge_broker.server.metrics.meters import LOAD_WINDOW_MS, RESERVOIR, Meters, RequestMeter

AT = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def test_the_format_is_prometheus_own_with_everything_escaped() -> None:
    family = Family("a_total", "counter", "Slash \\ and\nline feed.")
    family.add(3, topic='say "hi"\\\n')
    family.add(0.25)
    assert exposition([family, Family("empty", "gauge", "Nothing.")]) == (
        "# HELP a_total Slash \\\\ and\\nline feed.\n"
        "# TYPE a_total counter\n"
        'a_total{topic="say \\"hi\\"\\\\\\n"} 3\n'
        "a_total 0.25\n"
    )


@pytest.mark.parametrize(
    ("value", "text"), [(1e15, "1000000000000000"), (float("nan"), "NaN"), (float("inf"), "+Inf"), (True, "1")]
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    family = Family("a", "gauge", "A.")
    family.add(value)
    assert exposition([family]).splitlines()[-1] == f"a {text}"


def twice_the_same() -> Family:
    family = Family("a", "gauge", "A.")
    family.add(1, topic="t")
    family.add(2, topic="t")
    return family


def with_label(name: str) -> Family:
    family = Family("a", "gauge", "A.")
    family.add(1, **{name: "x"})
    return family


@pytest.mark.parametrize(
    "wrong",
    [
        [Family("a-b", "gauge", "A.")],
        [Family("a", "gauge", "A."), Family("a", "gauge", "A.")],
        [twice_the_same()],
        [with_label("__name__")],
        [with_label("a:b")],
    ],
)
def test_what_prometheus_would_refuse_is_refused_here(wrong: list[Family]) -> None:
    with pytest.raises(ValueError, match=r"twice|illegal|no name"):
        exposition(wrong)


def leader(isr: tuple[int, ...], at: TopicPartition = AT) -> ReplicaView:
    remotes = [RemoteReplicaView(2, 7, 5, 0), RemoteReplicaView(0, -1, -1, -1)]
    return ReplicaView(at, "leader", 1, 3, 4, 2, 10, 7, isr=isr, maximal_isr=isr, remote_replicas=remotes)


def follower(at: TopicPartition = OTHER) -> ReplicaView:
    return ReplicaView(at, "follower", 2, 3, 4, 0, 5, 5)


def page(*, replicas: list[Replica], meters: Meters | None = None, is_controller: bool = False) -> dict[str, str]:
    states = [
        PartitionState(AT, "id", 1, 1, 3, (1,), 4, (1, 2, 0)),
        PartitionState(OTHER, "id", 1, 9, 3, (9,), 4, (0, 9)),
    ]
    now = Snapshot(replicas, states, {0, 1, 2}, is_controller, meters or Meters(), {"Produce": 4, "Fetch": 0})
    now.connections = {"PLAINTEXT": 3}
    lines = exposition(families(now)).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_a_replica_that_a_reassignment_adds_does_not_make_a_partition_under_replicated() -> None:
    """Partition.isUnderReplicated counts the original replicas; ReplicaManager.ReassigningPartitions."""
    name = "kafka_server_replicamanager"
    reported = page(replicas=[Replica(leader((1, 2)), is_reassigning=True, adding_count=1), Replica(follower())])
    assert reported[f"{name}_underreplicatedpartitions"] == "0"
    assert reported[f"{name}_reassigningpartitions"] == "1"
    assert page(replicas=[Replica(leader((1, 2)))])[f"{name}_reassigningpartitions"] == "0"


@pytest.mark.parametrize(
    ("isr", "min_isr", "under", "below", "at_min"),
    [
        ((1, 2, 0), 2, "0", "0", "0"),
        ((1, 2), 2, "1", "0", "1"),
        ((1,), 2, "1", "1", "0"),
        ((1, 2, 0), 5, "0", "0", "1"),  # at most the replication factor
    ],
)
def test_the_isr_of_a_leader_is_reported_by_kafkas_names(
    isr: tuple[int, ...], min_isr: int, under: str, below: str, at_min: str
) -> None:
    reported = page(replicas=[Replica(leader(isr), 640, 2, min_isr), Replica(follower())])
    assert reported["kafka_server_replicamanager_underreplicatedpartitions"] == under
    assert reported["kafka_server_replicamanager_underminisrpartitioncount"] == below
    assert reported["kafka_server_replicamanager_atminisrpartitioncount"] == at_min
    assert reported['kafka_cluster_partition_underreplicated{topic="orders",partition="0"}'] == under
    assert reported['kafka_cluster_partition_insyncreplicascount{topic="orders",partition="0"}'] == str(len(isr))
    assert reported['kafka_cluster_partition_insyncreplicascount{topic="orders",partition="1"}'] == "0"


@pytest.mark.parametrize(
    ("last_ms", "late"), [(-1, "0"), (100_000, "1"), (100_001, "0")], ids=["none open", "late", "in time"]
)
def test_a_late_transaction_has_outlived_the_largest_timeout_and_five_minutes(last_ms: int, late: str) -> None:
    """ReplicaManager.PartitionsWithLateTransactionsCount, ProducerStateManager.hasLateTransaction: of leaders alone."""
    replicas = [
        Replica(leader((1, 2)), oldest_transaction_ms=last_ms),
        Replica(follower(), oldest_transaction_ms=last_ms),
    ]
    now = Snapshot(replicas, [], {1}, False, Meters(), wall_ms=100_001 + 900_000 + 300_000)
    now.max_transaction_timeout_ms = 900_000
    lines = exposition(families(now)).splitlines()
    assert f"kafka_server_replicamanager_partitionswithlatetransactionscount {late}" in lines


def test_open_connections_are_reported_by_listener() -> None:
    """SocketServer's connection-count."""
    reported = page(replicas=[])
    assert reported['kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}'] == "3"


def test_logs_and_lags_are_reported() -> None:
    meters = Meters()
    meters.follower_fetched(OTHER, leader=2, high_watermark=9, log_end_offset=5)
    reported = page(replicas=[Replica(leader((1, 2)), 640, 2), Replica(follower())], meters=meters)
    assert reported['kafka_log_log_logendoffset{topic="orders",partition="0"}'] == "10"
    assert reported['kafka_log_log_logstartoffset{topic="orders",partition="0"}'] == "2"
    assert reported['kafka_log_log_size{topic="orders",partition="0"}'] == "640"
    assert reported['kafka_log_log_numlogsegments{topic="orders",partition="0"}'] == "2"
    lag = 'kafka_server_fetcherlagmetrics_consumerlag{clientId="ReplicaFetcherThread-0-2",topic="orders",partition="1"}'
    assert reported[lag] == "4"
    assert reported['kafka_server_replicafetchermanager_maxlag{clientId="Replica"}'] == "4"
    assert reported['tidegauge_partition_replicalag{replica="2",topic="orders",partition="0"}'] == "3"
    assert reported['kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Produce"}'] == "4"
    assert reported["kafka_server_replicamanager_leadercount"] == "1"


def test_the_lag_behind_a_former_leader_is_reported_no_more() -> None:
    meters = Meters()
    meters.follower_fetched(OTHER, leader=1, high_watermark=9, log_end_offset=5)
    reported = page(replicas=[Replica(follower())], meters=meters)
    assert not [name for name in reported if "consumerlag" in name]


def test_an_offline_replica_has_no_offsets() -> None:
    offline = ReplicaView(AT, "offline", 1, 3, 4, 0, 0, 0)
    reported = page(replicas=[Replica(offline)])
    assert reported["kafka_server_replicamanager_offlinereplicacount"] == "1"
    assert not [name for name in reported if name.startswith("kafka_log_log_")]


@pytest.mark.parametrize(("is_controller", "values"), [(True, ["1", "3", "1", "2", "1"]), (False, ["0"] * 5)])
def test_the_controller_alone_counts_the_cluster(is_controller: bool, values: list[str]) -> None:
    reported = page(replicas=[], is_controller=is_controller)
    names = "activecontrollercount activebrokercount offlinepartitionscount globalpartitioncount"
    names += " preferredreplicaimbalancecount"
    assert [reported[f"kafka_controller_kafkacontroller_{name}"] for name in names.split()] == values


def test_isr_changes_and_elections_are_counted_from_the_notes() -> None:
    """A proposal counts when the controller has taken it, as in Kafka; taken back, it is a failed update."""
    meters = Meters()
    meters.noted("isr", "IsrExpiration", {"old": [1, 2], "new": [1], "state": "pending-shrink"}, AT)
    meters.noted("isr", "AlterPartition", {"old": [1, 2], "new": [1], "state": "committed"}, AT)
    meters.noted("isr", "AlterPartition", {"old": [1], "new": [1, 2], "state": "committed"}, AT)
    meters.noted("isr", "AlterPartition", {"old": [1], "new": [1], "state": "committed"}, AT)
    meters.noted("isr", "LeaderAndIsr", {"old": [], "new": [1], "state": "committed"}, AT)
    meters.noted("election", "BrokerFailure", {"strategy": "offline"})
    meters.noted("election", "BrokerFailure", {"strategy": "unclean"})
    meters.noted("election", "BrokerFailure", {"strategy": "remove-from-isr"})
    meters.noted("session", "ZooKeeper", {"state": "lost"})
    meters.noted("log_end_offset", "Produce", {"old": 3, "new": 5}, AT)
    meters.noted("log_end_offset", "FetchResponse", {"old": 3, "new": 5}, OTHER)
    reported = page(replicas=[], meters=meters)
    manager, stats = "kafka_server_replicamanager_", "kafka_controller_controllerstats_"
    assert [reported[f"{manager}{name}_total"] for name in ("isrshrinks", "isrexpands", "failedisrupdates")] == [
        "1"
    ] * 3
    assert reported[f"{stats}leaderelectionrateandtimems_count"] == "2"
    assert reported[f"{stats}uncleanleaderelections_total"] == "1"
    assert reported["kafka_server_sessionexpirelistener_zookeeperexpires_total"] == "1"
    assert reported["kafka_server_brokertopicmetrics_messagesin_total"] == "2"
    assert reported['kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'] == "2"


def test_request_times_are_a_summary_over_the_latest_requests() -> None:
    meters = Meters()
    for milliseconds in range(1, 101):
        meters.request("Produce").took(milliseconds, failed=milliseconds > 98)
    reported = page(replicas=[], meters=meters)
    name = "kafka_network_requestmetrics_totaltimems"
    assert reported[f'{name}{{request="Produce",quantile="0.50"}}'] == "51"
    assert reported[f'{name}{{request="Produce",quantile="0.99"}}'] == "100"
    assert reported[f'{name}{{request="Produce",quantile="0.999"}}'] == "100"
    assert reported[f'{name}_count{{request="Produce"}}'] == "100"
    assert reported[f'{name}_sum{{request="Produce"}}'] == "5050"
    assert reported['kafka_network_requestmetrics_errors_total{request="Produce"}'] == "2"


def test_verifications_are_reported_by_the_names_of_kafkas_manager() -> None:
    """AddPartitionsToTxnManager's VerificationTimeMs and VerificationFailureRate (KIP-890)."""
    meters = Meters()
    name = "kafka_server_addpartitionstotxnmanager"
    assert page(replicas=[], meters=meters)[f"{name}_verificationtimems_count"] == "0"
    meters.verifications.took(4, failed=0)
    meters.verifications.took(8, failed=2)
    reported = page(replicas=[], meters=meters)
    assert reported[f'{name}_verificationtimems{{quantile="0.99"}}'] == "8"
    assert reported[f"{name}_verificationtimems_sum"] == "12"
    assert reported[f"{name}_verificationfailurerate_count"] == "2", "partitions, not requests"


def test_load_times_are_those_of_the_last_minute() -> None:
    """partition-load-time-max and -avg; Kafka's Max and Avg are NaN if there is no sample."""
    meters = Meters()
    name = "kafka_server_transaction_coordinator_metrics_partition_load_time"
    meters.transaction_loads.took(-LOAD_WINDOW_MS, 900)
    reported = page(replicas=[], meters=meters)
    assert (reported[f"{name}_max"], reported[f"{name}_avg"]) == ("NaN", "NaN")
    for milliseconds in (10, 30):
        meters.transaction_loads.took(-1, milliseconds)
    reported = page(replicas=[], meters=meters)
    assert (reported[f"{name}_max"], reported[f"{name}_avg"]) == ("30", "20")
    assert reported["kafka_server_group_coordinator_metrics_partition_load_time_max"] == "NaN"


def test_old_times_are_forgotten_and_no_request_has_no_quantiles() -> None:
    meter = RequestMeter()
    assert meter.quantiles() == {}
    meter.took(1_000_000)
    for _ in range(RESERVOIR):
        meter.took(1)
    assert set(meter.quantiles().values()) == {1}


DASHBOARDS: dict[str, set[str]] = {
    "kafka_cluster_partition": {"atminisr", "insyncreplicascount", "replicascount", "underminisr", "underreplicated"},
    "kafka_controller_controllerstats": {"uncleanleaderelections_total"},
    "kafka_controller_kafkacontroller": {
        "activebrokercount",
        "activecontrollercount",
        "globalpartitioncount",
        "globaltopiccount",
        "offlinepartitionscount",
        "preferredreplicaimbalancecount",
    },
    "kafka_log_log": {"logendoffset", "logstartoffset", "size"},
    "kafka_log_logmanager": {"offlinelogdirectorycount"},
    "kafka_network_requestmetrics": {"requests_total", "errors_total", "totaltimems"},
    "kafka_server_brokertopicmetrics": {
        "bytesin_total",
        "bytesout_total",
        "failedfetchrequests_total",
        "failedproducerequests_total",
        "messagesin_total",
        "totalfetchrequests_total",
        "totalproducerequests_total",
    },
    "kafka_server_delayedoperationpurgatory": {"purgatorysize"},
    "kafka_server_fetcherlagmetrics": {"consumerlag"},
    "kafka_server_kafkaserver": {"brokerstate"},
    "kafka_server_replicafetchermanager": {"maxlag"},
    "kafka_server_replicamanager": {
        "isrexpands_total",
        "isrshrinks_total",
        "leadercount",
        "partitioncount",
        "underminisrpartitioncount",
        "underreplicatedpartitions",
    },
    "kafka_server_sessionexpirelistener": {"zookeeperdisconnects_total", "zookeeperexpires_total"},
}
"""The replication metrics that public dashboards and alerts query, if their names come from the exporter's example
rules: strimzi-kafka.json, prometheus-kafka-rules.yaml, KafOpticon; jmx-monitoring-stacks, whose own rules keep PerSec.
"""


def test_what_public_dashboards_query_is_there() -> None:
    reported = {family.name for family in families(Snapshot([], [], {1}, False, Meters()))}
    asked = {f"{kind}_{name}" for kind, names in DASHBOARDS.items() for name in names}
    assert asked - reported == set()
    assert len(asked) > 35


def test_the_brokers_state_is_reported_by_kafkas_numbers() -> None:
    meters = Meters()
    reported = []
    for state in ("starting", "registered", "shutting-down"):
        meters.noted("broker", "Lifecycle", {"state": state, "broker_epoch": 1})
        reported.append(page(replicas=[], meters=meters)["kafka_server_kafkaserver_brokerstate"])
    assert reported == ["1", "3", "6"]


def test_every_family_explains_itself() -> None:
    now = Snapshot([Replica(leader((1,)))], [], {1}, True, Meters())
    for family in families(now):
        assert re.fullmatch(r"[A-Z0-9].*\.", family.meaning), family.name
        is_counter = family.name.endswith(("_total", "_count")) and not family.name.endswith("_connection_count")
        assert (family.kind == "counter") == is_counter, family.name


FIRST = Listener("PLAINTEXT", "127.0.0.1", 19092)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7071", ("127.0.0.1", 7071)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:7071", ("::1", 7071)),
        ("+500", ("127.0.0.1", 19592)),
    ],
)
def test_the_address_of_the_metrics(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, FIRST) == address


@pytest.mark.parametrize("text", ["7071", ":7071", "host:", "host:x", "host:70000", "+60000", "+", "-1"])
def test_a_wrong_address_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(TidegaugeError, match=r"for configuration metrics\.listener: write HOST:PORT"):
        parse_address(text, FIRST)


async def one_line() -> str:
    return "a 1\n"


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /metrics HTTP/1.1", "200 OK", "a 1\n"),
        (b"GET /metrics?x=y HTTP/1.1", "200 OK", "a 1\n"),
        (b"HEAD /metrics HTTP/1.1", "200 OK", ""),
        (b"POST /metrics HTTP/1.1", "405 Method Not Allowed", "Only GET\n"),
        (b"GET / HTTP/1.1", "404 Not Found", "The metrics are at /metrics\n"),
        (b"\xff\xfe", "404 Not Found", "The metrics are at /metrics\n"),
    ],
)
async def test_one_page_is_served_and_nothing_else(request_line: bytes, status: str, body: str) -> None:
    response = (await MetricsEndpoint(one_line).respond(request_line + b"\r\nHost: x\r\n\r\n")).decode()
    head, _, text = response.partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status}\r\n")
    assert text == body


async def test_a_page_that_can_not_be_made_is_an_error_of_the_server_only(caplog: pytest.LogCaptureFixture) -> None:
    async def defect() -> str:
        return str(1 // 0)

    response = await MetricsEndpoint(defect).respond(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 500 ")
    assert "The metrics could not be collected" in caplog.text


async def test_the_endpoint_serves_over_a_socket_and_refuses_a_port_that_is_taken() -> None:
    endpoint = MetricsEndpoint(one_line)
    await endpoint.start("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.read()).endswith(b"\r\n\r\na 1\n")
        writer.close()
        await writer.wait_closed()
        with pytest.raises(TidegaugeError, match="can't be bound for metrics"):
            await MetricsEndpoint(one_line).start("127.0.0.1", endpoint.port)
    finally:
        await endpoint.close()


def test_groups_are_counted_by_state_under_kafkas_names() -> None:
    """GroupMetadataManager's gauges and group-coordinator-metrics."""
    now = Snapshot([], [], {1}, False, Meters())
    now.groups = Gauges({GroupState.STABLE: 2, GroupState.EMPTY: 1}, offsets=12)
    now.group_counters = Counters(offset_commits=7, completed_rebalances=3)
    lines = exposition(families(now)).splitlines()
    manager, metrics = "kafka_coordinator_group_groupmetadatamanager", "kafka_server_group_coordinator_metrics"
    for line in (
        f"{manager}_numgroups 3",
        f"{manager}_numgroupsstable 2",
        f"{manager}_numgroupsempty 1",
        f"{manager}_numgroupspreparingrebalance 0",
        f"{manager}_numoffsets 12",
        f"{metrics}_offset_commit_count 7",
        f"{metrics}_group_completed_rebalance_count 3",
        f"{metrics}_offset_deletion_count 0",
    ):
        assert line in lines


def test_what_clients_used_of_their_quotas_is_there_by_the_names_of_the_usual_rules() -> None:
    """Kafka's types Produce, Request and so on; a user is percent-encoded, an empty name is no label (mBeanName)."""
    now = Snapshot([], [], {1}, False, Meters())
    alice, app = Sharers("al ice", ""), Sharers("", "app")
    now.quotas = [
        ("Produce", Reading(alice, "byte-rate", 12.5)),
        ("Fetch", Reading(app, "byte-rate", 7.0)),
        ("Fetch", Reading(app, "throttle-time", math.nan)),
        ("ControllerMutation", Reading(alice, "tokens", -2.0)),
    ]
    lines = exposition(families(now)).splitlines()
    assert [line for line in lines if line.startswith("kafka_server_quota")] == [
        'kafka_server_quota_byte_rate{resource="Produce",user="al%20ice"} 12.5',
        'kafka_server_quota_byte_rate{resource="Fetch",clientId="app"} 7',
        'kafka_server_quota_tokens{resource="ControllerMutation",user="al%20ice"} -2',
        'kafka_server_quota_throttle_time{resource="Fetch",clientId="app"} NaN',
    ]
