"""The clusters of Kafka's own tests: what their stand-in for Kafka's test kit asks for, line by line, and gets."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError

BENCH = Path(__file__).parents[3] / "bench"
BUSY = TidegaugeError(ErrorCode.INVALID_CONFIG, "broker-0 ended while it started: 127.0.0.1:1 can't be bound")
IN_USE = TidegaugeError(ErrorCode.INVALID_CONFIG, "port 1 of controller 3000 is in use by python (process 7)")


class Cluster:
    """A cluster of the lab that only notes what befalls it."""

    made: ClassVar[list[Cluster]] = []
    problems: ClassVar[list[TidegaugeError]] = []
    refused: ClassVar[list[TidegaugeError]] = []

    def __init__(self, brokers: int, settings: dict[str, str], quorum: Any) -> None:
        self.directory = Path("/kept")
        self.brokers, self.settings, self.quorum_wanted = brokers, dict(settings), quorum
        self.happened: list[str] = []
        self.kafka_bootstrap_servers = [f"h:{number}" for number in range(brokers)]
        self.file = SimpleNamespace(controllers=lambda: ["c:1"])

    @classmethod
    def create(cls, _: Path, brokers: int, __: str, settings: dict[str, str], *, quorum: Any, **ports: Any) -> Cluster:
        assert ports["mode"] == "kraft"
        if Cluster.refused:
            raise Cluster.refused.pop(0)
        cls.made.append(cls(brokers, settings, quorum))
        return cls.made[-1]

    def up(self) -> None:
        if Cluster.problems:
            raise Cluster.problems.pop(0)
        self.happened.append("up")

    def quorum(self) -> Any:
        return SimpleNamespace(cluster_id="id")

    def stop(self, broker_id: int) -> None:
        self.happened.append(f"stop {broker_id}")

    def start(self, broker_id: int) -> None:
        self.happened.append(f"start {broker_id}")

    def down(self, *, purge: bool) -> None:
        self.happened.append(f"down {purge}")


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, whose clusters are noted."""
    monkeypatch.syspath_prepend(str(BENCH))
    module = importlib.import_module("outside.test_kit")
    monkeypatch.setattr(module, "LocalCluster", Cluster)
    Cluster.made, Cluster.problems = [], []
    return module


def said(module: Any, directory: Path, capsys: pytest.CaptureFixture[str], *lines: str) -> list[str]:
    made = module.Kit(directory)
    module.serve((f"{line}\n" for line in lines), made)
    made.close()
    return capsys.readouterr().out.splitlines()


def test_a_cluster_is_what_the_test_wants(kit: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings that brokers here do not know are left out, as is a feature that they lack; levels are stable ones."""
    lines = said(
        kit,
        tmp_path,
        capsys,
        "set\tauto.create.topics.enable\tfalse",
        "set\t1:broker.rack\ta",
        "set\tunheard.of\t1",
        "feature\tmetadata.version\t31",
        "feature\tstreams.version\t1",
        "feature\tshare.version\t1",
        "start\t2\t1",
        "stop\t1",
        "restart\t1",
    )
    assert lines == ["h:0,h:1\tc:1\tid\t/kept/broker-0/data,/kept/broker-1/data", "done", "done"]
    [cluster] = Cluster.made
    assert cluster.settings == {"auto.create.topics.enable": "false", "1:broker.rack": "a"}
    assert (cluster.brokers, cluster.quorum_wanted.controllers) == (2, 1)
    assert dict(cluster.quorum_wanted.features) == {"metadata.version": 30, "share.version": 1}
    assert cluster.happened == ["up", "stop 1", "start 1", "down True"]


def test_a_port_that_is_taken_costs_a_try(kit: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Cluster.problems, Cluster.refused = [BUSY, BUSY], [IN_USE]
    assert said(kit, tmp_path, capsys, "start\t1\t1") == ["h:0\tc:1\tid\t/kept/broker-0/data"]
    assert [one.happened for one in Cluster.made] == [["down True"], ["down True"], ["up", "down True"]]
    [settings] = {str(one.settings) for one in Cluster.made}
    assert settings == "{'auto.create.topics.enable': 'true'}", "Kafka's default, and not the lab's"


def test_what_can_not_be_had_is_refused(kit: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Cluster.problems = [TidegaugeError(ErrorCode.INVALID_CONFIG, "no\nsuch level")]
    assert said(kit, tmp_path, capsys, "start\t1\t1") == ["refused\tno such level"]
    Cluster.problems = [BUSY] * kit.TRIES
    assert said(kit, tmp_path, capsys, "start\t1\t1")[0].startswith("refused\tbroker-0 ended while it started")
