"""Leftovers of tests in the plugin's cluster: the next one finds it whole, however it gets it (plugin.py, rule 3);
and a cluster whose test has failed keeps its evidence (rule 4)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.pytest_sessions import begin, end

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TESTS = """
    import pytest
    from tidegauge.errors import TidegaugeError
    from tidegauge_client.sync import SyncProducer

    def require_whole(cluster):
        assert [one["state"] for one in cluster.local.status()["brokers"]] == ["up"] * 3
        assert [(one.faults, one.held) for one in cluster.faults()] == [([], {})] * 3
        topic = cluster.create_topic("whole", partitions=3)
        cluster.wait_in_sync(topic, timeout=150)

    @pytest.fixture
    def of_mine(request):
        return request.getfixturevalue("tidegauge_cluster")

    def break_it(cluster):
        cluster.kill(0)
        cluster.isolate(1, "clients", delay_ms=20)
        cluster.pause(2)

    def test_1_leaves_it_broken(tidegauge_cluster):
        break_it(tidegauge_cluster)

    def test_2_gets_it_whole_in_the_midst(request):
        cluster = request.getfixturevalue("tidegauge_cluster")
        require_whole(cluster)
        break_it(cluster)

    def test_3_does_not_use_it():
        pass

    def test_4_gets_it_whole_by_a_fixture_of_its_own(of_mine):
        require_whole(of_mine)
        break_it(of_mine)
        assert not "on purpose"

    @pytest.mark.asyncio
    async def test_5_gets_it_whole_with_asyncio(request):
        cluster = request.getfixturevalue("tidegauge_cluster").aio
        assert len(await cluster.faults()) == 3
        await cluster.wait_in_sync(await cluster.create_topic("whole"), timeout=150)

    def test_6_leaves_a_broker_whose_only_disk_fails(tidegauge_cluster):
        topic = tidegauge_cluster.create_topic("failing", assignment=[[1, 0, 2]])
        tidegauge_cluster.inject_disk(1, errno="EIO", operation="append", path=topic)
        with SyncProducer(tidegauge_cluster.bootstrap_servers, acks=1) as producer:
            assert producer.send(topic, b"a").result(150).offset == 0, "by another leader"

    def test_7_finds_it_whole(tidegauge_cluster):
        require_whole(tidegauge_cluster)
        (tidegauge_cluster.directory / "broker-1" / "data-2").mkdir()
        tidegauge_cluster.stop(1)
        tidegauge_cluster.start(1)
        topics = [tidegauge_cluster.create_topic(f"on-two-{n}", assignment=[[0, 1]] * 2) for n in range(2)]
        tidegauge_cluster.inject_disk(1, errno="EIO", operation="append", path="broker-1/data-2/")
        with SyncProducer(tidegauge_cluster.bootstrap_servers) as producer:
            for topic in topics:
                for partition in range(2):
                    producer.send(topic, b"a", partition=partition).result(150)
        assert tidegauge_cluster.clear_faults(1) == 1
        pathlib.Path("topics").write_text(" ".join(topics))

    def test_8_finds_its_replicas_online(tidegauge_cluster):
        require_whole(tidegauge_cluster)
        for topic in pathlib.Path("topics").read_text().split():
            tidegauge_cluster.wait_in_sync(topic, timeout=150)
"""


def test_each_test_finds_the_cluster_whole_whatever_the_one_before_left(zookeeper: str, tmp_path: Path) -> None:
    directory = tmp_path / "project"
    outcomes, printed = end(begin(directory, "    import pathlib" + TESTS, "--tidegauge-zookeeper", zookeeper))
    failed = "test_4_gets_it_whole_by_a_fixture_of_its_own"
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "passed"} == {failed: "failed"}, printed
    assert len(outcomes) == 8
    # The test that fails does not name the fixture, and its report shows the cluster all the same.
    report = re.search(rf"_ {failed} _.*?(?=\n_____|\n=====)", printed, re.DOTALL)
    assert report is not None, printed
    assert re.search(r"\ndirectory (/.*/cluster)\nlogs, which stay after the session: \1/logs\n", report[0]), printed
    assert re.search(r"\nthe run as a page .*: `tidegauge timeline --html run.html --dir /.*/cluster`\n", report[0]), (
        printed
    )
    assert "broker 0 127.0.0.1:" in report[0]
    [cluster] = [path.parent for path in (directory / "temp").rglob("cluster.json")]
    assert sorted(path.name for path in cluster.iterdir()) == ["cluster.json", "logs"]
    assert {"broker-0.log", "broker-0.events.jsonl", "lab.events.jsonl"} <= {
        path.name for path in (cluster / "logs").iterdir()
    }
    done = subprocess.run(
        [Path(sys.executable).parent / "tidegauge", "timeline", "--dir", cluster],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"lab +- +pause broker 2", done.stdout), done.stdout[-2000:]
