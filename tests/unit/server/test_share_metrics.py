"""Metrics of share groups by Kafka's names (ShareGroupMetrics, SharePartitionMetrics, ShareCoordinatorMetrics)."""

from __future__ import annotations

from tests.unit.share.driver import LOCK_MS, Driver, log_of

from tidegauge.partition import TopicPartition
from tidegauge.share_groups import SHARE_STATE_TOPIC, ShareGroupState
from tidegauge_broker.server.metrics.exposition import exposition
from tidegauge_broker.server.metrics.meters import LoadTimes
from tidegauge_broker.server.metrics.share_families import LedShareReading, ShareReading, share_families
from tidegauge_broker.server.share.counts import ShareCounts
from tidegauge_broker.share.acknowledging import Acknowledgement

AT = TopicPartition("orders", 0)


def page(reading: ShareReading, **times: LoadTimes) -> dict[str, str]:
    nothing = LoadTimes()
    kinds = [times.get(name, nothing) for name in ("loads", "coordinator_loads", "latencies")]
    lines = exposition(share_families(reading, *kinds, 1_000)).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_what_is_there_is_reported_by_kafkas_names() -> None:
    reading = ShareReading(
        [LedShareReading("q", AT, 7, 2, 3)],
        {1: 5, 2: 1, 0: 9},
        sessions=2,
        session_partitions=4,
        groups={ShareGroupState.STABLE: 1, ShareGroupState.EMPTY: 0},
        rebalances=6,
        writes=8,
        pruned={TopicPartition(SHARE_STATE_TOPIC, 3): 40},
    )
    loads = LoadTimes()
    loads.took(900, 12.0)
    reported = page(reading, loads=loads)
    acknowledgements = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    assert {name: value for name, value in reported.items() if name.startswith(acknowledgements)} == {
        f'{acknowledgements}{{ackType="Accept"}}': "5",
        f'{acknowledgements}{{ackType="Release"}}': "1",
        f'{acknowledgements}{{ackType="Reject"}}': "0",
        f'{acknowledgements}{{ackType="Renew"}}': "0",
    }, "gaps are not counted"
    labels = '{group="q",topic="orders",partition="0"}'
    assert reported[f"kafka_server_sharepartitionmetrics_inflightmessagecount{labels}"] == "7"
    assert reported[f"kafka_server_sharepartitionmetrics_inflightbatchcount{labels}"] == "2"
    assert reported[f"kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total{labels}"] == "3"
    assert reported["kafka_server_sharesessioncache_sharesessionscount"] == "2"
    assert reported["kafka_server_sharesessioncache_sharepartitionscount"] == "4"
    assert reported['kafka_server_group_coordinator_metrics_share_group_count{state="stable"}'] == "1"
    assert reported["kafka_server_group_coordinator_metrics_share_group_rebalance_count"] == "6"
    coordinator = "kafka_server_share_coordinator_metrics"
    assert reported[f"{coordinator}_write_total"] == "8"
    assert reported[f"{coordinator}_write_latency_max"] == "NaN"
    assert reported[f'{coordinator}_last_pruned_offset{{topic_partition="__share_group_state-3"}}'] == "40"
    assert reported["kafka_server_sharegroupmetrics_partitionloadtimems_max"] == "12"


def test_acknowledgements_are_counted_by_record() -> None:
    """SharePartitionManager.acknowledge: one type may stand for a whole batch."""
    counts = ShareCounts()
    counts.acknowledged([Acknowledgement(0, 9, (1,)), Acknowledgement(10, 12, (2, 1, 0))])
    assert dict(counts.acknowledgements) == {1: 11, 2: 1, 0: 1}


def test_records_whose_locks_have_timed_out_are_counted_once() -> None:
    driver = Driver(log_of(10, 5))
    driver.fetch("a")
    driver.acknowledge(0, 9, 1)
    driver.pass_ms(LOCK_MS - 1)
    assert driver.share.timed_out_count == 0
    driver.pass_ms(1)
    assert driver.share.timed_out_count == 5
    driver.pass_ms(LOCK_MS)
    assert driver.share.timed_out_count == 5
