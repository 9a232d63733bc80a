"""Metrics of a controller in KRaft mode: the cluster by its own image, the quorum by its node, by Kafka's names."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tests.unit.raft.driven_node import CLUSTER, endpoint, key, voters_in_log

from tidegauge_broker.server.metrics.controller_families import ControllerCounts, controller_families
from tidegauge_broker.server.metrics.exposition import exposition
from tidegauge_broker.server.metrics.process_families import process_families
from tidegauge_controller.metadata.image import (
    EMPTY,
    MetadataImage,
    PartitionRegistration,
    Provenance,
    RegisteredBroker,
    TopicImage,
)
from tidegauge_controller.metadata.sorted_map import SortedMap
from tidegauge_controller.raft import events
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.log_view import loaded
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.values import ElectionState
from tidegauge_controller.raft.voter_history import VoterHistory

LED = PartitionRegistration((1, 2), ("a", "b"), (1, 2), 1)


def image(*partitions: PartitionRegistration, fenced: int = 0) -> MetadataImage:
    """An image with one topic and two brokers."""
    brokers = {number: RegisteredBroker(number, 1, "", (), {}, fenced=number == fenced) for number in (1, 2)}
    topic = TopicImage("t", "id", SortedMap(dict(enumerate(partitions))))
    return replace(
        EMPTY,
        metadata_version=30,
        topics=SortedMap({"id": topic}),
        brokers=SortedMap(brokers),
        provenance=Provenance(41, 3, 1_700_000_000_000),
    )


def node() -> RaftNode:
    """A voter with the id 1 that has just begun."""
    history = VoterHistory(voters_in_log(1, 2, 3))
    made = RaftNode(QuorumConfig(CLUSTER, key(1), (endpoint(1),)), loaded([]), history, ElectionState())
    made.step(events.Tick(), 0, lambda: 0.5)
    return made


def page(shown: MetadataImage, counts: ControllerCounts | None = None, *, is_active: bool = False) -> dict[str, str]:
    text = exposition(controller_families(node(), shown, counts or ControllerCounts(), is_active=is_active))
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_a_controller_counts_the_cluster_by_its_own_image_whether_it_is_active_or_not() -> None:
    """ControllerMetadataMetrics: so a sum over all controllers counts each partition once for each of them."""
    other = replace(LED, leader=2)
    offline = replace(LED, leader=-1, isr=())
    for is_active in (True, False):
        shown = page(image(LED, other, offline, fenced=2), is_active=is_active)
        found = {name.removeprefix("kafka_controller_kafkacontroller_"): value for name, value in shown.items()}
        assert found["activecontrollercount"] == str(int(is_active))
        assert (found["activebrokercount"], found["fencedbrokercount"]) == ("1", "1")
        assert (found["globaltopiccount"], found["globalpartitioncount"]) == ("1", "3")
        assert (found["offlinepartitionscount"], found["preferredreplicaimbalancecount"]) == ("1", "2")
        assert (found["lastappliedrecordoffset"], found["lastcommittedrecordoffset"]) == ("41", "-1")


def test_unclean_elections_are_counted_but_for_those_that_were_found_at_the_start() -> None:
    """Kafka counts partitions that begin to recover (KIP-966)."""
    counts = ControllerCounts()
    unclean = replace(LED, leader=2, leader_epoch=1, recovering=True)
    counts.image_changed(EMPTY, image(unclean))
    assert counts.unclean == 0
    counts.image_changed(image(LED), image(unclean))
    counts.image_changed(image(LED), image(replace(LED, leader=2, leader_epoch=1), fenced=1))
    assert counts.unclean == 1
    assert page(image(unclean), counts)["kafka_controller_controllerstats_uncleanleaderelections_total"] == "1"


def test_the_quorum_bears_the_names_of_raft_metrics() -> None:
    """KafkaRaftMetrics; the state is a label, as the exporter's rules write a text."""
    shown = page(image(LED))
    found = {name.removeprefix("kafka_server_raftmetrics_"): value for name, value in shown.items() if "raft" in name}
    assert found == {
        'current_state{current_state="unattached"}': "1",
        "current_leader": "-1",
        "current_epoch": "0",
        "current_vote": "-1",
        "high_watermark": "-1",
        "log_end_offset": "0",
        "log_end_epoch": "0",
        "number_of_voters": "3",
    }


def test_a_process_says_what_it_uses_as_far_as_the_system_shows_it(tmp_path: Path) -> None:
    """Kafka's LinuxIoMetricsCollector reads /proc/self/io; a machine without /proc has the CPU time alone."""
    (tmp_path / "fd").mkdir()
    (tmp_path / "fd" / "0").touch()
    (tmp_path / "statm").write_text("9 2 1 1 0 1 0\n")
    (tmp_path / "io").write_text("rchar: 5\nwchar: 6\nread_bytes: 4096\nwrite_bytes: 8192\n")
    found = {family.name: family.samples[0][2] for family in process_families(tmp_path)}
    assert found.pop("process_cpu_seconds_total") > 0
    assert found.pop("process_resident_memory_bytes") == 2 * os.sysconf("SC_PAGE_SIZE")
    disk = "kafka_server_kafkaserver_linux_disk"
    assert found == {"process_open_fds": 1, f"{disk}_read_bytes": 4096, f"{disk}_write_bytes": 8192}
    assert [family.name for family in process_families(tmp_path / "absent")] == ["process_cpu_seconds_total"]
