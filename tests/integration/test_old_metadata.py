"""A broker that the controller can't reach has old metadata; asked first, it decides nothing of what verbs say."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.typed import typed
from tests.waiting import until

from tidegauge_client.sync_admin import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
LIMIT_SECONDS = 120


def test_a_broker_with_old_metadata_is_asked_first_and_counts_last(make_cluster: Callable[..., LocalCluster]):
    """describe-cluster, explain, wait: what came since, or is dead since, is so by the controller's own metadata."""
    cluster = make_cluster(up=False)
    cluster.up(LIMIT_SECONDS, controller=0)
    [old] = [broker.address for broker in cluster.file.brokers if broker.id == 2]

    with SyncAdmin([cluster.file.broker(0).address]) as admin:
        before = admin.metadata([])
        if before.controller_id == 2:
            pytest.skip("broker 2 won the election, although broker 0 had a head start")
        assert typed("isolate", "2", "--from", "brokers", "--dir", str(cluster.directory)).code == 0
        admin.create_topic("since", assignment=[[0, 1]])
        cluster.kill(1, expire=True)
        until(lambda: 1 not in admin.metadata([]).live, what="the session of broker 1 has ended")
        assert 1 in admin.metadata_of(old).live, "broker 2 has old metadata"

        described = json.loads(typed("describe-cluster", "-b", old, "-o", "json").stdout)
        assert [one["id"] for one in described["offline_brokers"]] == [1]
        explained = typed("explain", "since-0", "-b", old, "-o", "json")
        assert explained.code == 0, explained.stderr
        out = [one["text"] for one in json.loads(explained.stdout)["sentences"] if one["about"] == "isr"]
        assert [text.partition(": ")[2] for text in out] == [
            "it is not registered in ZooKeeper, so it is dead, paused or partitioned."
        ]
        waited = typed("wait", "--leader", "since-0", "-b", old)
        assert waited.code == 0, waited.stderr
