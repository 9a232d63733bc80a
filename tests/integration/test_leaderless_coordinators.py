"""Facts that only a dead coordinator knows are unknown: no list looks complete, and no transaction hangs by that.

The internal topics have one replica, so that its broker's death leaves their partitions without a leader.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.typed import Typed, typed
from tests.waiting import until

from tidegauge.partition import TopicPartition
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_client.admin_groups import OffsetAndMetadata
from tidegauge_client.sync_admin import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.roles import TRANSACTION

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
AT = TopicPartition("kept", 0)
LIMIT_SECONDS = 120


def verb(cluster: LocalCluster, *words: str, given: str = "") -> Typed:
    return typed(*words, "--dir", cluster.directory, given=given)


def test_what_a_partition_without_a_leader_holds_is_missing_and_hangs_no_transaction(
    make_cluster: Callable[..., LocalCluster],
):
    """list-groups, list-transactions, find-hanging, explain: an abort on such a guess could split a transaction."""
    cluster = make_cluster(settings=SETTINGS)
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        admin.create_topic(AT.topic, assignment=[[0, 1, 2]])
        begun = verb(cluster, "produce", AT.topic, "--transactional-id", "copier", "--leave-open", given="one\n")
        assert begun.code == 0, begun.stderr
        coordinator = cluster.coordinator_of("copier", TRANSACTION)
        for number in range(10):
            admin.commit_offsets(f"readers-{number}", {AT: OffsetAndMetadata(0)})
        listed, lacks = admin.list_groups_there()
        assert (len(listed), lacks) == (10, "")
        others = sorted(one.group_id for one in listed if one.coordinator != coordinator)
        assert 0 < len(others) < 10, "the groups have several coordinators"

        cluster.kill(coordinator, expire=True)

        def is_leaderless() -> bool:
            known = admin.metadata([TRANSACTION_TOPIC, AT.topic])
            led = [part.leader_id for part in known.topics[TRANSACTION_TOPIC].partitions.values()]
            return None in led and known.leader(AT) is not None

        until(is_leaderless, what="the session of the coordinator has ended")
        assert verb(cluster, "wait", "--leader", f"{AT}!={coordinator}").code == 0

        transactions = verb(cluster, "list-transactions", "--timeout-ms", "500")
        assert transactions.code == 1
        assert "no leader; the transactional ids held there, if there are any, are missing" in transactions.stderr
        groups = verb(cluster, "list-groups", "--timeout-ms", "500")
        assert (groups.code, groups.stdout.split()) == (1, others)
        assert "no leader; the groups held there, if there are any, are missing" in groups.stderr
        hanging = verb(cluster, "find-hanging", "--topic", AT.topic, "--max-transaction-timeout", "0")
        assert (hanging.code, hanging.stdout) == (1, "")
        explained = json.loads(verb(cluster, "explain", str(AT), "-o", "json").stdout)
        [sentence] = [one for one in explained["sentences"] if one["about"] == "transactions"]
        assert "Its coordinator could not be asked" in sentence["text"]
        assert "hanging" not in sentence["text"]
        assert "abort-transaction" not in sentence["change"]

        cluster.start(coordinator)
        until(lambda: admin.list_groups_there(missing_ms=0) == (listed, ""), what="all groups are listed again")
        assert until(lambda: admin.list_transactions_there(missing_ms=0)[1] == "")
        assert [one.transactional_id for one in admin.list_transactions()] == ["copier"]


def test_lists_wait_for_the_election_that_gives_a_partition_its_next_coordinator(
    make_cluster: Callable[..., LocalCluster],
):
    """As kafka-consumer-groups.sh --list does: a broker's part that does not come is requested again."""
    cluster = make_cluster()
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        admin.create_topic(AT.topic, assignment=[[0, 1, 2]])
        begun = verb(cluster, "produce", AT.topic, "--transactional-id", "copier", "--leave-open", given="one\n")
        assert begun.code == 0, begun.stderr
        for number in range(10):
            admin.commit_offsets(f"readers-{number}", {AT: OffsetAndMetadata(0)})
        names = sorted(one.group_id for one in admin.list_groups())

        cluster.kill(cluster.coordinator_of("copier", TRANSACTION))
        transactions = verb(cluster, "list-transactions", "--timeout-ms", "100000")
        assert (transactions.code, transactions.stderr) == (0, "")
        groups = verb(cluster, "list-groups", "--timeout-ms", "100000")
        assert (groups.code, groups.stderr) == (0, "")
        assert groups.stdout.split() == names
