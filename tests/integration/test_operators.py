"""Dashboard and alerts of docs/operators.md, evaluated by Prometheus on a real cluster, in both modes.

The rules: every expression of docs/dashboards/kafka.json has a sample; every alert of alerts.yml fires while its fault
lasts, and ends with it. Without Prometheus on the machine (apt-get install prometheus) the tests are skipped.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # it names no exports
from tests.clients.runs import Child
from tests.integration.conftest import MakeCluster, free_base_port, free_quorum_port
from tests.integration.failing_brokers import FailingBrokers
from tests.waiting import until

from tidegauge.partition import TopicPartition as TidegaugePartition
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.roles import Role, RoleKind
from tidegauge_lab.local.wanted import WantedQuorum
from tidegauge_lab.switches import Switches

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
DASHBOARDS = Path(__file__).parents[2] / "docs" / "dashboards"
OFFSET = 8
"""Of a broker's metrics above its gRPC port, and of a controller's above its own."""
LIMIT_SECONDS = 120.0
GROUP = "shop"


class Prometheus:
    """Prometheus with the shipped alerts, which fire at once here.

    Args:
        targets: addresses of metrics.
        exporter: address of the groups' lag, for which a page asks coordinators and leaders.
        directory: for its data.
    """

    def __init__(self, targets: list[str], exporter: str, directory: Path) -> None:
        program = shutil.which("prometheus")
        if program is None:
            pytest.skip("prometheus is not installed")
        rules = (DASHBOARDS / "alerts.yml").read_text(encoding="utf-8")
        (directory / "alerts.yml").write_text(re.sub(r"for: \w+", "for: 0s", rules).replace("[1m]", "[15s]"))
        patience = {"scrape_interval": "5s", "scrape_timeout": "5s"}
        settings = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [
                {"job_name": "kafka", "static_configs": [{"targets": targets}]},
                {"job_name": "lag", "static_configs": [{"targets": [exporter]}], **patience},
            ],
        }
        (directory / "prometheus.yml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
        self._port = free_base_port(1)
        options = {
            "config.file": directory / "prometheus.yml",
            "storage.tsdb.path": directory / "data",
            "web.listen-address": f"127.0.0.1:{self._port}",
        }
        command = [program, *(f"--{name}={value}" for name, value in options.items()), "--query.lookback-delta=15s"]
        self._child = Child(command, {}, directory / "prometheus.log")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now; none while it does not respond."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("GET", f"/api/v1/query?query={quote(expression)}")
            response = json.load(connection.getresponse())
        except OSError:
            return []
        finally:
            connection.close()
        assert response.get("status") == "success", response
        found: list[dict[str, Any]] = response["data"]["result"]
        return found

    def fires(self, alert: str) -> bool:
        return bool(self.query(f'ALERTS{{alertname="{alert}",alertstate="firing"}}'))

    def close(self) -> None:
        self._child.kill()


class Operated:
    """A cluster with metrics, Prometheus, and what reads the lag of groups.

    Args:
        cluster: whose metrics are on.
        directory: for logs.
    """

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster = cluster
        self.is_kraft = cluster.file.quorum is not None
        self.brokers = FailingBrokers(cluster, ["orders"])
        exporter_port = free_base_port(1)
        exporter = [sys.executable, str(DASHBOARDS / "lag_exporter.py"), self.brokers.servers, str(exporter_port)]
        controllers = cluster.file.quorum.controllers if cluster.file.quorum else ()
        nodes = [one.port for one in (*cluster.file.brokers, *controllers)]
        targets = [f"127.0.0.1:{port + OFFSET}" for port in nodes]
        self.prometheus = Prometheus(targets, f"127.0.0.1:{exporter_port}", directory)
        self._exporter = Child(exporter, {}, directory / "exporter.log")
        self.written = 0

    def write(self, count: int = 20) -> None:
        self.brokers.write("orders", [str(number) for number in range(self.written, self.written + count)])
        self.written += count

    def commit(self, offset: int) -> None:
        """Commit an offset for the group, as a member that has read so far."""
        consumer = Consumer({"bootstrap.servers": self.brokers.servers, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
        consumer.close()

    def hold(self, follower: int) -> None:
        """Let a follower of the topic fetch no more; its leader removes it from the ISR."""
        asyncio.run(self._hold(follower, is_held=True))
        self.write()

    def release(self, follower: int) -> None:
        asyncio.run(self._hold(follower, is_held=False))

    async def _hold(self, follower: int, *, is_held: bool) -> None:
        async with Switches.of_cluster(self.cluster.file) as switches:
            change = switches.hold_fetch if is_held else switches.release_fetch
            await change(TidegaugePartition("orders", 0), [follower])

    def single(self, broker: int) -> None:
        """Create a topic with one replica, on this broker."""
        admin = AdminClient({"bootstrap.servers": self.brokers.servers})
        admin.create_topics([NewTopic("single", 1, replica_assignment=[[broker]])])["single"].result(LIMIT_SECONDS)

    def close(self) -> None:
        self.prometheus.close()
        self._exporter.kill()
        self.brokers.close()


@pytest.fixture(params=["zookeeper", "kraft"])
def operated(request: pytest.FixtureRequest, make_cluster: MakeCluster, tmp_path: Path) -> Iterator[Operated]:
    wanted: dict[str, Any] = {"brokers": 3, "settings": {"metrics.listener": f"+{OFFSET}"}}
    if request.param == "kraft":
        quorum = WantedQuorum(controllers=3, port=free_quorum_port(OFFSET + 3))
        wanted |= {"mode": "kraft", "quorum": quorum, "zookeeper": None}
    made = Operated(make_cluster(base_port=free_base_port(OFFSET + 3), **wanted), tmp_path)
    yield made
    made.close()


def test_every_panel_has_samples_and_every_alert_fires_by_its_fault_and_ends_with_it(operated: Operated) -> None:
    """As docs/operators.md describes it, row by row."""
    operated.write()
    operated.commit(10)
    panels = json.loads((DASHBOARDS / "kafka.json").read_text(encoding="utf-8"))["panels"]
    for panel in panels:
        for target in panel["targets"]:
            expression = target["expr"].replace("[1m]", "[5s]")
            until(lambda expr=expression: operated.prometheus.query(expr), LIMIT_SECONDS, f"{panel['title']}")
    for alert, (begin, end) in faults(operated).items():
        until(lambda name=alert: not operated.prometheus.fires(name), LIMIT_SECONDS, f"{alert} is quiet")
        begin()
        until(lambda name=alert: operated.prometheus.fires(name), LIMIT_SECONDS, f"{alert} fires")
        end()
        until(lambda name=alert: not operated.prometheus.fires(name), LIMIT_SECONDS, f"{alert} ends")


Fault = tuple[Callable[[], object], Callable[[], object]]
"""What begins it, and what ends it."""


def faults(operated: Operated) -> dict[str, Fault]:
    """Return the fault that sets each alert off."""
    cluster = operated.cluster
    brokers = {one.id for one in cluster.file.brokers}
    controller = cluster.resolve(Role(RoleKind.CONTROLLER))
    victim = min(brokers - {controller})
    operated.single(victim)
    dead: Fault = (lambda: cluster.kill(victim), lambda: cluster.start(victim))
    follower = min(brokers - {cluster.leader_of("orders", 0)})
    return {
        "UnderReplicatedPartitions": dead,
        "OfflinePartitions": dead,
        "IsrShrinks": (lambda: operated.hold(follower), lambda: operated.release(follower)),
        "ActiveControllerCount": _no_controller(cluster),
        "ConsumerLag": (lambda: operated.write(200), lambda: operated.commit(operated.written)),
    }


def _no_controller(cluster: LocalCluster) -> Fault:
    """The majority of a quorum dies, or in ZooKeeper mode the controller, whose session lasts for some seconds."""
    quorum = cluster.file.quorum
    targets = [cluster.resolve(Role(RoleKind.CONTROLLER))] if quorum is None else quorum.ids[:2]
    return (lambda: cluster.kill(*targets), lambda: cluster.start(*targets))
