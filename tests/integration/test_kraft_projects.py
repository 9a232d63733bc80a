"""A project's tests, and a lab, on a cluster in KRaft mode: asked for by an option, a setting or TIDEGAUGE_MODE."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.conftest import free_base_port
from tests.integration.pytest_sessions import begin, end
from tests.lab_pages import PORTS, LabReader

from tidegauge_lab.labs.catalogue import LABS
from tidegauge_lab.labs.model import Lab

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[2]
TESTS = """
    from tidegauge_client.sync import SyncProducer

    def test_failover(tidegauge_cluster, tidegauge_topic):
        assert tidegauge_cluster.local.file.mode == "kraft"
        with SyncProducer(tidegauge_cluster.bootstrap_servers) as producer:
            assert producer.send(tidegauge_topic, b"a").result(150).offset == 0
            dead = tidegauge_cluster.kill_leader(tidegauge_topic, expire=True)
            assert tidegauge_cluster.wait_leader(tidegauge_topic, other_than=dead, timeout=150) != dead
            assert producer.send(tidegauge_topic, b"b").result(150).offset == 1

    def test_the_next_one_finds_it_whole(tidegauge_cluster, tidegauge_topic):
        tidegauge_cluster.wait_in_sync(tidegauge_topic, timeout=150)
        tidegauge_cluster.isolate(1, "controllers")
"""


OFTEN = {"variable", "high-watermark"}


def case(name: str, value: object) -> object:
    return pytest.param(value, marks=[] if name in OFTEN else [pytest.mark.long], id=name)


@pytest.mark.parametrize("way", [case(way, way) for way in ("option", "setting", "variable")])
def test_a_project_has_a_cluster_in_kraft_mode(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"option": ["--tidegauge-mode", "kraft"], "setting": ["-o", "tidegauge_mode=kraft"], "variable": []}[way]
    monkeypatch.delenv("TIDEGAUGE_MODE", raising=False)
    if way == "variable":
        monkeypatch.setenv("TIDEGAUGE_MODE", "kraft")
    outcome, printed = end(begin(tmp_path / "project", TESTS, *options))
    assert outcome == {"test_failover": "passed", "test_the_next_one_finds_it_whole": "passed"}, printed


@pytest.mark.parametrize("lab", [case(lab.name, lab) for lab in LABS if not (lab.zookeeper_only or lab.kraft_only)])
def test_a_lab_leads_to_the_same_in_kraft_mode(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its page, on a cluster that TIDEGAUGE_MODE makes."""
    reader = LabReader(tmp_path, free_base_port(PORTS), kraft=True)
    try:
        reader.follow(ROOT / "docs" / "labs" / lab.page)
        assert reader.before is not None
        assert not reader.before["passed"], "the check passed before anything was done"
    finally:
        reader.close()
