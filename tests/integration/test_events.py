"""Views of a real cluster: its timeline in causal order, explanations, metrics (docs/events.md,
docs/metrics.md).

One cluster for all tests. Followers leave the ISR after ten minutes only, so that a held one holds the HW back for as
long as a test looks.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.typed import typed
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
METRICS_PORT_OFFSET = 4
LAG_MS = 600_000


@pytest.fixture(scope="module")
def brokers(
    zookeeper: str, next_base_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    made = LocalCluster.create(
        tmp_path_factory.mktemp("events"),
        3,
        zookeeper=f"{zookeeper}/events",
        base_port=next_base_port(),
        settings={
            "replica.lag.time.max.ms": str(LAG_MS),
            "auto.leader.rebalance.enable": "false",
            "metrics.listener": f"+{METRICS_PORT_OFFSET}",
        },
    )
    made.up()
    yield made
    made.down(grace_seconds=0)


def tidegauge(brokers: LocalCluster, *arguments: str, stdin: str = "") -> str:
    done = typed(*arguments, "--dir", brokers.directory, given=stdin)
    assert done.code == 0, done.stderr
    return done.stdout


def make_topic(brokers: LocalCluster, name: str, assignment: str) -> None:
    tidegauge(brokers, "create-topic", name, "--replica-assignment", assignment)


def reported(brokers: LocalCluster, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in tidegauge(brokers, "timeline", "-o", "json", *arguments).splitlines()]


def test_a_held_follower_is_named_as_who_holds_the_high_watermark_back(brokers: LocalCluster) -> None:
    make_topic(brokers, "held", "0:1:2")
    tidegauge(brokers, "produce", "held", stdin="one\n")
    tidegauge(brokers, "hold-fetch", "held-0", "--broker", "2")
    tidegauge(brokers, "produce", "held", "--acks", "1", stdin="two\nthree\n")

    def explained() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(tidegauge(brokers, "explain", "held-0", "-o", "json"))
        return found

    def blamed(explanation: dict[str, Any]) -> list[int]:
        return [
            s["broker"] for s in explanation["sentences"] if s["about"] == "high-watermark" and s["broker"] is not None
        ]

    held = until(lambda: (now := explained())["leo"] == 3 and blamed(now) == [2] and now, timeout=150)
    assert (held["hw"], held["isr"]) == (1, [0, 1, 2])
    (why,) = (sentence for sentence in held["sentences"] if sentence["broker"] == 2 and sentence["wait_ms"])
    assert "has fetched up to 1" in why["text"]
    assert LAG_MS / 2 < why["wait_ms"] <= LAG_MS * 1.5
    assert [(s["broker"], "held" in s["text"]) for s in held["sentences"] if s["about"] == "lab"] == [(2, True)]
    tidegauge(brokers, "hold-fetch", "held-0", "--broker", "2", "--release")
    until(lambda: (now := explained())["hw"] == 3 and not blamed(now), timeout=150)


def test_metrics_of_all_brokers_show_what_happened(brokers: LocalCluster) -> None:
    make_topic(brokers, "measured", "1:0")
    tidegauge(brokers, "produce", "measured", "--count", "25")

    def metrics(broker_id: int) -> dict[str, float]:
        port = brokers.file.broker(broker_id).port + METRICS_PORT_OFFSET
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=150) as page:
            lines = page.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    leader, follower, other = metrics(1), metrics(0), metrics(2)
    at = '{topic="measured",partition="0"}'
    assert leader['kafka_server_brokertopicmetrics_messagesin_total{topic="measured"}'] == 25
    assert (leader[f"kafka_log_log_logendoffset{at}"], follower[f"kafka_log_log_logendoffset{at}"]) == (25, 25)
    assert leader[f"kafka_cluster_partition_insyncreplicascount{at}"] == 2
    assert f"kafka_log_log_logendoffset{at}" not in other
    assert leader['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] > 0
    controllers = [one["kafka_controller_kafkacontroller_activecontrollercount"] for one in (leader, follower, other)]
    assert sorted(controllers) == [0, 0, 1]


def test_the_timeline_of_a_failover_stands_in_causal_order(brokers: LocalCluster, tmp_path: Path) -> None:
    """W4 to W6 and R2: leader, followers, leader's HW, followers' HW; death, election, new leader, new epoch."""
    third = json.loads(tidegauge(brokers, "describe-cluster", "-o", "json"))["controller"]
    first, second = (third + 1) % 3, (third + 2) % 3
    leader, heir, other = (f"broker-{one}" for one in (first, second, third))
    make_topic(brokers, "story", f"{first}:{second}:{third}")
    tidegauge(brokers, "produce", "story", stdin="one\n")

    def story() -> list[tuple[str, str, Any]]:
        events = reported(brokers, "--partition", "story-0")
        return [
            (event["source"], event["kind"], event.get("new", event.get("leader_epoch", event.get("action"))))
            for event in events
        ]

    # The response came with the leader's high watermark; the followers' are a round late.
    known = [(heir, "high_watermark", 1), (other, "high_watermark", 1)]
    until(lambda: all(one in story() for one in known), timeout=150)
    tidegauge(brokers, "kill", "--leader-of", "story-0")
    tidegauge(brokers, "wait", "--leader", f"story-0={second}", "--timeout-ms", "60000")
    tidegauge(brokers, "produce", "story", stdin="two\n")
    last = (other, "high_watermark", 2)
    seen = until(lambda: last in (found := story()) and found, timeout=150)

    def stand(*wanted: tuple[str, str, Any]) -> bool:
        places = [seen.index(one) for one in wanted]
        return places == sorted(places)

    killed, elected = ("lab", "fault", "kill"), (other, "election", 1)
    for follower in (heir, other):
        assert stand(
            (leader, "log_end_offset", 1),
            (follower, "log_end_offset", 1),
            (leader, "high_watermark", 1),
            (follower, "high_watermark", 1),
            killed,
        )
    assert stand(killed, elected, (heir, "role", 1), (heir, "log_end_offset", 2), (heir, "high_watermark", 2), last)
    assert stand(elected, (other, "role", 1), (other, "log_end_offset", 2), (heir, "high_watermark", 2))

    down = json.loads(tidegauge(brokers, "describe-cluster", "-o", "json"))
    assert [(one["id"], one["state"]) for one in down["offline_brokers"]] == [(first, "down")]
    assert [one["state"] for one in down["brokers"]] == ["up", "up"]

    text = tidegauge(brokers, "timeline", "--topic", "story").splitlines()
    assert max(map(len, text)) <= 80
    picture = tmp_path / "story.svg"
    tidegauge(brokers, "timeline", "--partition", "story-0", "--svg", str(picture))
    lanes = [text.text for text in ET.parse(picture).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314 - our own
    assert lanes.index("clients") < lanes.index("broker 0") < lanes.index("broker 2") < lanes.index("controller")
    brokers.up()


def test_no_event_log_shows_a_high_watermark_above_a_log_end_offset(brokers: LocalCluster, tmp_path: Path) -> None:
    """A replica's high watermark is at most its log end offset (docs/replication.md), whichever events are merged."""
    make_topic(brokers, "rate", "0:1:2")
    tidegauge(brokers, "produce", "rate", "--count", "600", "--rate", "300")
    ends: dict[str, int] = {}
    marks: dict[str, int] = {}
    both = 0
    for event in reported(brokers, "--partition", "rate-0"):
        if event["kind"] == "log_end_offset":
            ends[event["source"]] = event["new"]
        elif event["kind"] == "high_watermark":
            marks[event["source"]] = event["new"]
            both += 1
        for source, mark in marks.items():
            assert mark <= ends[source], event
    assert both > 3
    picture = tmp_path / "rate.svg"
    drawn = json.loads(tidegauge(brokers, "timeline", "--topic", "rate", "--svg", str(picture), "-o", "json"))
    assert drawn["drawn"] <= 200
    assert drawn["left_out"] == 0


def test_a_topic_is_described_without_zookeeper_too(brokers: LocalCluster) -> None:
    """Replicas are asked themselves; only the settings, which brokers read in ZooKeeper, are left out.

    Sessions end while the test goes on; whoever is still registered then is asked.
    """
    make_topic(brokers, "cut", "0:1:2")
    for broker in brokers.file.brokers:
        tidegauge(brokers, "isolate", str(broker.id), "--from", "zookeeper")
    try:
        done = typed("describe-topic", "cut", "-o", "json", "--dir", brokers.directory)
        (part,) = json.loads(done.stdout)["topics"][0]["partitions"]
        assert any(state["leo"] == 0 for state in part["replicas_state"])
        assert "Configs are left out: no broker could read the topic's settings in ZooKeeper" in done.stderr
        said = json.loads(tidegauge(brokers, "explain", "cut-0", "-o", "json"))["sentences"]
        assert {one["broker"] for one in said if one["about"] == "lab"}
        assert any("settings are not known" in one["text"] for one in said)
    finally:
        tidegauge(brokers, "heal")
        brokers.wait_ready(120)
